//! Tests of the commands that authors and operators type.

use crate::pages::{author_pages, operation_pages};
use crate::runner::{Test, tests};
use crate::{
    apply, asked_cluster, dashboard, dev, diff, diff_states, explain, explain_rights, record, second_day,
    status_of_one,
};

/// Whole days of users, each on a control plane of its own.
pub(super) fn of_days() -> Vec<Test> {
    tests![
        second_day::{
            the_second_day_of_a_hook,
        },
        author_pages::{
            the_commands_of_the_pages_for_authors,
        },
        operation_pages::{
            the_commands_of_the_pages_on_operation,
        },
    ]
}

/// Commands that an author takes a hook to a cluster with, and looks into the server with.
pub(super) fn of_authors() -> Vec<Test> {
    tests![
        apply::{
            files_and_a_module_are_applied_until_ready_and_deleted_in_order,
        },
        dev::{
            a_session_has_its_controller_to_itself_and_leaves_nothing,
            a_session_follows_a_script_beside_its_controller,
            a_controller_that_a_session_takes_over_is_given_back_as_it_was,
        },
        asked_cluster::{
            what_its_api_server_would_not_keep_breaks_a_law,
        },
        diff::{
            what_a_module_would_change_is_shown_and_not_written,
            the_api_server_tries_each_write_of_a_new_module,
            values_of_secrets_are_not_printed,
        },
        diff_states::{
            what_waits_for_the_end_of_a_pause_is_shown,
            deletions_of_related_objects_are_shown,
            hooks_see_the_time_and_a_pin_excludes_other_versions,
            orphans_are_adopted_and_parents_finalized,
        },
        record::{
            a_live_parent_becomes_a_case_of_a_test,
            secrets_are_recorded_without_their_values,
            parents_whose_hook_is_not_called_are_left_out,
        },
        explain::{
            what_became_of_a_child_is_explained_also_when_it_is_gone,
            a_failing_and_a_paused_parent_are_explained,
            rules_that_find_nothing_and_held_deletions_are_explained,
            triggers_of_a_settled_parent_are_explained,
            new_reconciles_are_followed_also_after_a_restart,
            what_a_rollout_waits_for_is_explained,
        },
        explain_rights::{
            explain_shows_no_secret_and_refuses_users_without_rights,
            values_of_a_child_are_shown_to_users_who_may_get_it,
        },
        status_of_one::{
            a_controller_is_shown_with_the_parents_that_fail,
            a_hook_that_answers_differently_each_time_needs_attention,
        },
        dashboard::{ pages_show_controllers_parents_and_reconciles },
    ]
}
