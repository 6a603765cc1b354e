//! Field cases: what users of controllers like these have reported, each with its right behaviour. `C04` in a name is the
//! case's number in the table of tests/README.md.

pub(crate) mod cases_answers;
pub(crate) mod cases_children;
pub(crate) mod cases_decorators;
pub(crate) mod cases_hooks;
pub(crate) mod cases_languages;
pub(crate) mod cases_lifecycle;
pub(crate) mod cases_merging;
pub(crate) mod cases_spellings;
pub(crate) mod cases_unsettled;
pub(crate) mod cases_upgrades;
pub(crate) mod cases_values;
mod kit;

use crate::runner::{Test, tests};

pub(crate) fn all() -> Vec<Test> {
    of_values().into_iter().chain(of_lives()).collect()
}

/// What children and parents are made of.
fn of_values() -> Vec<Test> {
    tests![
        cases_children::{
            c01_claim_templates_with_defaults_are_no_difference,
            c02_the_order_of_env_is_that_of_the_answer,
            c03_a_variable_that_stands_twice_is_repaired,
            c04_a_service_account_keeps_what_another_client_added,
            c04_a_role_binding_keeps_the_subject_of_another_client,
            c09_what_typed_go_prints_empty_is_no_difference,
            c10_defaults_deep_in_lists_are_no_difference,
            c12_empty_peers_of_a_network_policy_keep_their_sense,
        },
        cases_merging::{
            c05_the_rules_of_an_aggregated_role_stay,
            c06_a_rollout_restart_by_kubectl_stays,
            c07_an_injected_bundle_stays,
            c08_metrics_in_another_order_are_corrected_in_place,
            c11_a_field_dropped_after_a_change_of_strategy_goes,
        },
        cases_spellings::{
            c13_a_time_in_another_spelling_is_refused_or_settles,
            c15_whole_floats_settle_and_a_number_for_a_text_fails,
            c24_bytes_that_a_hook_copies_arrive_as_they_were,
        },
        cases_values::{
            c16_a_bound_claim_is_kept_and_a_size_refused_is_told,
            c17_immutable_fields_fail_alone_or_are_made_anew,
            c18_string_data_settles_and_a_dropped_key_goes,
            c19_a_label_of_a_long_name_fails_one_child_alone,
            c20_what_is_copied_from_a_parent_is_not_the_childs,
            c23_a_generated_name_is_refused_before_any_write,
        },
    ]
}

/// How children and parents come, change and go.
fn of_lives() -> Vec<Test> {
    tests![
        cases_unsettled::{
            c21_a_hook_that_writes_the_time_slows_down_itself_alone,
            c21_a_field_that_changes_each_time_is_named,
        },
        cases_lifecycle::{
            c22_injected_containers_recreate_no_pod,
            c25_no_child_comes_back_in_a_foreground_deletion,
            c26_a_namespace_that_goes_is_not_held_by_a_last_child,
            c27_a_child_that_does_not_go_is_deleted_once,
            c28_a_status_that_is_too_large_holds_up_nothing_else,
            c31_a_fight_about_one_child_holds_up_no_other,
            c31_children_are_stable_again_after_a_fight,
        },
        cases_decorators::{
            c32_a_decorated_namespace_gets_its_binding_and_goes,
            c33_an_attachment_lies_in_an_attached_namespace,
            c34_a_decorator_may_have_a_finalize_hook_alone,
            c35_noise_beside_related_objects_calls_no_hook,
            c36_a_user_keeps_the_fields_of_a_parent,
            c37_a_hook_sees_what_was_written_for_it,
        },
        cases_hooks::{
            c42_a_webhook_closes_connections_and_goes_away,
        },
        cases_upgrades::{
            c43_a_kind_of_children_comes_and_goes_and_has_another_scope,
            c44_an_object_of_a_helm_user_is_not_taken_over,
            c45_empty_lists_maps_and_names_mean_what_they_say,
        },
    ]
}

/// They call guests themselves.
pub(crate) fn without_a_server() -> Vec<Test> {
    tests![
        cases_languages::{
            c40_a_large_answer_arrives_whole_however_it_is_written,
            c41_the_words_of_a_panic_in_go_are_in_the_error,
        },
    ]
}

/// Scripts that the interpreter of Python runs.
pub(crate) fn in_python() -> Vec<Test> {
    tests![
        cases_languages::{
            c14_an_integer_is_copied_exactly_in_python_and_rust,
            c39_habits_of_python_work_and_no_state_is_left,
            c41_the_error_of_a_script_in_python_has_words_and_line,
        },
        cases_answers::{
            c38_what_python_cannot_print_as_json_is_refused,
        },
    ]
}

/// Scripts that the interpreter of JavaScript runs.
pub(crate) fn in_javascript() -> Vec<Test> {
    tests![
        cases_languages::{
            c14_an_integer_that_javascript_rounds_is_refused_and_no_other,
            c41_what_a_script_in_javascript_throws_has_words_and_line,
        },
        cases_answers::{
            c38_what_javascript_cannot_print_as_json_is_refused,
        },
        cases_unsettled::{
            c21_a_script_that_writes_the_time_is_rationed_and_the_field_named,
        },
    ]
}
