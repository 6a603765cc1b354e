//! Tests of the reasons of Events and conditions.

use std::fs;
use std::path::{Path, PathBuf};

use super::ConditionReason::{self, *};

/// The test that shows that the condition comes back by itself; `None` for the reasons that it comes back with.
fn test_of_return(reason: ConditionReason) -> Option<&'static str> {
    const NEEDS: &str = "each_condition_of_what_a_controller_needs_comes_back_by_itself";
    const TRUST: &str = "certificates_and_credentials_of_a_webhook_follow_their_objects";
    const SHADOW: &str = "a_shadow_that_failed_agrees_once_it_is_right";
    match reason {
        Running | Loaded | NoModules | AllServed | RequestsAlone | NoForeignChanges | NoneLeft
        | NoneThrottled | NoRolloutWaits | NoApiWarnings | NothingHeld | LeaderElected | AllGranted
        | ShadowsAgree | NothingPaused => None,
        ParentsFailing | AllParentsFailing => Some("a_hook_that_traps_changes_nothing_and_heals"),
        LastGoodInUse => Some("which_module_runs_is_told_on_the_controller"),
        WatchBroken => Some("trouble_is_reported_while_it_lasts_before_the_first_list_and_after"),
        WaitsForConsent | ThresholdExceeded => Some("held_deletions_go_on_where_a_user_agrees"),
        CacheTooLarge => Some("controllers_of_a_kind_that_is_too_large_stop_alone_and_heal"),
        NotServed | KindNotServed => Some("a_parent_kind_that_is_defined_later_is_served_then"),
        ModuleNotLoaded | ConfigMapNotFound => Some("a_missing_config_map_is_reported_and_heals"),
        NotSelected => Some("a_controller_that_leaves_the_servers_selection_says_so"),
        RunnerNotReady => Some("a_script_in_python_is_a_hook_and_what_is_wrong_with_it_has_a_line"),
        KeyNotFound => Some("a_missing_key_is_reported_and_heals"),
        PartNotFound => Some("parts_are_waited_for_and_two_versions_are_never_mixed"),
        ModuleInvalid => Some("a_broken_module_is_reported_and_heals"),
        DigestMismatch => Some("a_module_with_another_digest_than_pinned_is_refused_and_heals"),
        MountNotFound => Some("a_missing_mount_is_reported_and_heals_and_a_lost_one_is_kept"),
        MountInvalid => Some("a_key_that_is_no_file_name_is_refused_until_it_is_gone"),
        MountMemoryExceeded => Some("mounts_above_their_memory_are_refused_and_the_last_good_one_stays"),
        TrustNotLoaded => Some(TRUST),
        NotListed | InvalidSpec | NoSyncHook | KeysConflict | ConfigMapUnreadable | IndexInvalid
        | MountUnreadable | MountsTooLarge | TrustNotFound | TrustUnreadable | TrustInvalid => Some(NEEDS),
        ReadsClock => Some("a_hook_that_no_longer_asks_for_the_time_is_pure"),
        AnswersDiffer => Some("a_hook_that_gives_two_answers_is_named_and_called_each_time"),
        ValueFlapping => Some("c31_children_are_stable_again_after_a_fight"),
        LeftByStrategy => Some("without_a_method_a_child_that_is_there_is_left_as_it_is"),
        AnswersThrottled | AnswersChange => Some("parents_that_settle_leave_the_condition"),
        RolloutWaits => Some("a_rollout_that_waits_for_the_same_child_is_counted_after_a_while"),
        WritesWarned => Some("a_parent_is_warned_about_until_its_object_is_written_without"),
        OtherServer => Some("a_second_server_with_the_same_controllers_is_told_of_until_it_is_gone"),
        RightsMissing => Some("rights_that_the_server_lacks_are_named_before_there_is_a_parent"),
        ShadowsDiffer => Some("a_shadow_that_differs_is_told_by_its_paths_and_changes_nothing"),
        ShadowFails | ShadowRefused => Some(SHADOW),
        ReadyPaused | ControllerPaused => Some("a_paused_controller_calls_no_hook_and_catches_up"),
        ParentsPaused => Some("a_paused_parent_stays_as_it_is_and_its_deletion_waits"),
    }
}

fn sources(folder: &Path, all: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path: PathBuf = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, all);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            all.push_str(&fs::read_to_string(&path).unwrap());
        }
    }
}

#[test]
fn each_condition_has_a_test_that_it_comes_back() {
    let core = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut all = String::new();
    for folder in ["src", "../src", "../../tests/suite"] {
        sources(&core.join(folder), &mut all);
    }
    for reason in ConditionReason::ALL {
        if let Some(test) = test_of_return(*reason) {
            assert!(all.contains(&format!("fn {test}(")), "{reason:?}: there is no test {test}");
        }
    }
}
