//! Tests of hooks, in each language, and of their bounds.

use super::authors::of_days;
use crate::runner::{Test, tests};
use crate::{
    apply, author_messages, cases, crds, first_calls, gallery_copies, gallery_node, gallery_scripts,
    hook_failures, hostile_components, hostile_hooks, hostile_loops, hostile_scripts, limits, mounts, render,
    replayed, scripts, secrecy, settling, shadows,
};

pub(super) fn of_bounds() -> Vec<Test> {
    tests![
        hostile_loops::{
            many_hooks_that_loop_at_their_ceilings_take_turns,
            more_hooks_that_loop_than_may_be_under_way_take_turns,
        },
        hostile_hooks::{
            answers_that_are_too_large_do_no_harm,
            answers_that_are_none_do_no_harm,
            hooks_that_run_wild_do_no_harm,
            hooks_that_keep_the_host_busy_do_no_harm,
            what_is_no_hook_does_no_harm,
            hooks_that_look_around_find_nothing,
            hooks_can_read_their_mounts_and_do_nothing_else_there,
        },
        hostile_components::{
            answers_of_components_that_are_too_large_do_no_harm,
            answers_of_components_that_are_none_do_no_harm,
            components_that_poll_delay_neither_lease_nor_probes_nor_the_end,
            components_that_run_wild_do_no_harm,
            many_components_that_loop_at_their_ceilings_take_turns,
            components_that_keep_the_host_busy_do_no_harm,
            components_that_look_around_find_nothing,
            components_can_read_their_mounts_and_do_nothing_else_there,
        },
        limits::{
            a_request_may_have_32_mib,
            each_limit_of_a_hook_holds_at_its_bound_and_says_so_above,
            an_object_that_is_too_large_for_etcd_is_told_by_its_largest_part,
            what_a_hook_logs_within_its_limit_is_in_the_servers_log_and_the_rest_is_counted,
            each_bound_of_the_server_holds_and_says_so_above,
            a_hook_may_see_4_mib_of_files_and_have_32_mib_open,
            a_module_is_as_large_as_the_flags_say_and_not_larger,
            a_module_that_is_not_compiled_in_time_is_refused,
            a_module_that_takes_too_much_memory_to_compile_is_refused,
            an_answer_may_have_as_many_children_as_the_flag_says,
            a_webhook_may_answer_with_as_many_bytes_as_the_flag_says,
        },
    ]
}

pub(super) fn of_hooks() -> Vec<Test> {
    tests![
        render::{
            hello_is_rendered_as_the_server_writes_it,
            immortal_is_rendered_as_the_server_writes_it,
            config_restart_is_rendered_as_the_server_writes_it,
            a_hook_with_a_mount_is_rendered_as_the_server_writes_it,
            the_built_in_kinds_are_those_of_the_api_server,
        },
        settling::{
            a_status_waits_for_new_children_to_be_seen_and_is_written_once,
            a_parent_without_changes_costs_no_hook_call,
            a_hook_that_asks_for_the_time_is_named_and_called_each_time,
            a_hook_that_gives_two_answers_is_named_and_called_each_time,
            a_hook_whose_status_never_settles_is_throttled,
            controllers_that_never_settle_on_one_object_are_throttled,
            a_restarted_server_gives_hooks_the_same_random_numbers,
            calls_made_and_skipped_are_metrics,
        },
        shadows::{
            a_shadow_that_agrees_is_said_to,
            a_shadow_that_differs_is_told_by_its_paths_and_changes_nothing,
            a_shadow_that_fails_harms_nothing,
            a_hook_does_not_wait_for_its_shadow,
            a_webhook_may_be_the_shadow_of_a_module,
        },
        mounts::{
            mounts_above_their_memory_are_refused_and_the_last_good_one_stays,
            a_secret_is_mounted_only_from_where_the_server_may,
            a_missing_mount_is_reported_and_heals_and_a_lost_one_is_kept,
            a_mounted_file_is_read_and_a_changed_one_is_read_again,
            rights_to_the_named_objects_alone_suffice,
        },
        hook_failures::{
            a_hook_that_traps_changes_nothing_and_heals,
            a_hook_that_loops_is_ended_by_its_timeout_and_heals,
            a_hook_that_loops_is_ended_by_its_instructions_and_heals,
            a_hook_that_prints_nothing_changes_nothing_and_heals,
            a_hook_that_prints_no_json_changes_nothing_and_heals,
            a_hook_that_prints_more_than_json_changes_nothing_and_heals,
            a_hook_that_prints_too_much_changes_nothing_and_heals,
            a_hook_that_exits_with_3_changes_nothing_and_heals,
            a_parent_whose_finalize_hook_fails_for_long_is_told_how_to_go,
        },
        author_messages::{
            fields_that_nobody_knows_are_named_on_the_parent,
            which_module_runs_is_told_on_the_controller,
            why_a_child_goes_is_told_on_its_parent,
        },
        crds::{
            webhook_and_wasm_side_by_side_are_refused,
            a_hook_has_version_v1_unless_it_says_otherwise,
            certificates_and_credentials_have_keys_unless_the_spec_names_them,
        },
        secrecy::{
            secrets_are_in_no_log_event_metric_or_status,
            the_servers_own_secrets_and_leases_are_shown_to_no_hook,
        },
    ]
}

/// Scripts that the interpreter of JavaScript runs.
fn in_javascript() -> Vec<Test> {
    tests![
        gallery_scripts::{
            cases_and_properties_of_each_guest_in_javascript_hold,
            daemon_job_runs_once_on_each_node_that_matches,
        },
        gallery_copies::{
            global_config_is_in_each_namespace_with_the_label,
        },
        scripts::{
            a_script_in_javascript_is_a_hook_and_what_is_wrong_with_it_has_a_line,
            a_script_has_a_pin_settings_and_limits_as_a_module_has,
        },
        apply::{
            a_script_is_applied_with_its_controller_up_to_its_bound, a_parent_of_the_files_that_fails_is_an_error_of_apply,
        },
        replayed::{ reconciles_are_recorded_and_replayed, a_recording_becomes_cases_of_a_test },
    ]
}

/// Skipped where their interpreters cannot be built.
pub(super) fn of_scripts() -> Vec<Test> {
    let python = tests![
        scripts::{
            a_script_in_python_is_a_hook_and_what_is_wrong_with_it_has_a_line,
        },
        first_calls::{
            a_hook_in_python_is_called_soon_after_the_server_starts,
        },
        gallery_scripts::{
            cases_and_properties_of_each_guest_in_python_hold,
            indexed_job_makes_failed_pods_anew_until_all_succeeded,
        },
        gallery_copies::{
            config_propagation_follows_its_source_and_its_namespaces,
            secret_propagation_copies_from_the_namespaces_of_the_flag,
            secret_propagation_with_an_account_needs_rights_everywhere,
        },
    ];
    let python = [python, cases::in_python(), of_days()].concat();
    let javascript = [in_javascript(), cases::in_javascript()].concat();
    let python = python.into_iter().map(|test| test.with_runners(&["python"]));
    let javascript = javascript.into_iter().map(|test| test.with_runners(&["javascript"]));
    python.chain(javascript).chain(of_hostile_scripts()).collect()
}

pub(super) fn of_hostile_scripts() -> Vec<Test> {
    let python = tests![
        hostile_scripts::{
            scripts_in_python_do_no_harm,
            many_scripts_in_python_that_loop_at_their_ceilings_take_turns,
        },
    ];
    let javascript = tests![
        hostile_scripts::{
            scripts_in_javascript_do_no_harm,
            many_scripts_in_javascript_that_loop_at_their_ceilings_take_turns,
            a_script_whose_loading_times_out_is_loaded_later,
        },
    ];
    let python = python.into_iter().map(|test| test.with_runners(&["python"]));
    python.chain(javascript.into_iter().map(|test| test.with_runners(&["javascript"]))).collect()
}

/// Skipped where their interpreters cannot be built, too.
pub(super) fn of_scripts_on_a_node() -> Vec<Test> {
    let python = tests![
        gallery_node::{
            indexed_job_runs_its_numbers_to_their_end_on_the_node,
        },
    ];
    let javascript = tests![
        gallery_node::{
            daemon_job_runs_to_its_end_on_each_node,
        },
    ];
    let python = python.into_iter().map(|test| test.with_runners(&["python"]));
    let javascript = javascript.into_iter().map(|test| test.with_runners(&["javascript"]));
    python.chain(javascript).map(Test::with_least_rights).collect()
}
