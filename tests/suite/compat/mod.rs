//! The contract with users of Metacontroller, section by section.

pub(crate) mod api_objects;
pub(crate) mod child_conflicts;
pub(crate) mod child_management;
pub(crate) mod child_values;
pub(crate) mod customize;
pub(crate) mod decorated;
pub(crate) mod decorator_attachments;
pub(crate) mod decorator_controller;
pub(crate) mod decorator_finalizers;
pub(crate) mod decorator_hooks;
pub(crate) mod decorator_object;
pub(crate) mod decorators_together;
pub(crate) mod event_rows;
pub(crate) mod hook_protocol;
mod kinds;
pub(crate) mod metrics;
pub(crate) mod migration;
pub(crate) mod mild_answers;
pub(crate) mod owner_versions;
pub(crate) mod parent_finalizers;
pub(crate) mod parent_reconcile;
pub(crate) mod parent_revisions;
pub(crate) mod policies;
pub(crate) mod rolling_update;
pub(crate) mod webhook_etag;
pub(crate) mod webhook_trust;

use customize::{customize_calls, customize_rules};

use crate::runner::{Test, tests};

/// The longest first.
pub(crate) fn all() -> Vec<Test> {
    [decorators(), decorated_objects(), parents(), customize_hooks(), rollouts(), protocol(), children()]
        .concat()
}

/// Sections 1 and 3 of the contract.
fn parents() -> Vec<Test> {
    tests![
        api_objects::{
            the_definitions_have_the_names_that_manifests_and_people_use,
            what_a_field_may_be_is_kept_and_unknown_fields_are_dropped,
            what_a_field_may_not_be_is_refused_by_the_api_server,
            a_spec_that_cannot_run_says_which_field_and_hurts_no_other,
        },
        parent_reconcile::{
            a_parent_is_reconciled_while_its_labels_match_and_then_left,
            a_parent_with_no_valid_selector_is_an_error_until_it_goes,
            claims_follow_owner_labels_and_deletion,
            a_parent_that_goes_neither_adopts_nor_releases,
            a_child_that_does_not_match_refuses_the_whole_answer,
            the_status_is_replaced_whole_written_beside_failures_and_not_without_need,
            unmanaged_children_of_webhooks_are_created_once_and_reported,
            a_built_in_kind_with_a_status_can_be_a_parent,
        },
        parent_finalizers::{
            the_finalizer_comes_first_and_goes_when_the_hook_says_finalized,
            without_a_finalize_hook_a_parent_that_goes_is_synced_and_keeps_its_children,
            foreground_deletion_asks_the_finalize_hook_and_leaves_children_to_itself,
            once_our_finalizer_is_off_the_finalize_hook_is_still_asked,
            a_parent_that_stops_matching_is_finalized_while_it_lives,
            a_finalizer_comes_off_with_its_hook_and_with_its_controller,
            a_controller_that_is_made_anew_at_once_waits_for_the_old_one_and_keeps_its_finalizers,
            a_finalizer_of_a_controller_that_is_gone_for_long_comes_off,
        },
        mild_answers::{
            annotations_that_are_no_strings_are_left_out_and_told_of,
            a_child_in_another_version_is_created_once_and_its_copy_left,
            a_child_without_its_namespace_fails_alone,
        },
    ]
}

/// Section 2.
fn protocol() -> Vec<Test> {
    tests![
        hook_protocol::{
            a_webhook_is_asked_as_its_version_says_and_finalizes,
            every_invalid_answer_says_why_and_changes_nothing,
            a_webhook_read_loosely_may_say_more_than_is_known,
            a_busy_webhook_is_asked_again_when_it_says_without_an_event,
            a_webhook_that_is_slow_or_gone_says_so_and_heals,
            a_webhook_over_https_is_asked_if_the_system_trusts_who_signed_for_it,
            a_module_and_a_webhook_serve_one_controller,
            what_a_hook_says_of_its_parent_becomes_an_event,
            an_answer_without_children_deletes_them_for_a_webhook_only,
        },
        event_rows::{
            more_than_ten_similar_events_about_a_parent_become_one,
            what_goes_well_is_no_event,
            the_life_of_a_controller_is_told_in_metacontrollers_words,
        },
        metrics::{
            dashboards_find_the_metrics_of_controllers_written_in_go,
        },
        webhook_etag::{
            an_answer_that_the_webhook_leaves_out_is_the_one_it_gave_last,
            a_webhook_without_etag_is_sent_no_tag_and_has_to_answer,
        },
        webhook_trust::{
            certificates_and_credentials_of_a_webhook_follow_their_objects,
            a_webhook_that_the_bundle_does_not_trust_is_called_once_it_does,
        },
    ]
}

/// Section 4.
fn children() -> Vec<Test> {
    tests![
        owner_versions::{
            owner_references_follow_the_version_of_the_controller,
            children_stay_when_the_older_version_of_their_owners_goes,
        },
        child_management::{
            after_the_first_write_ten_reconciles_write_nothing,
            what_changed_is_written_made_anew_or_left_as_the_strategy_says,
            another_strategy_takes_over_what_was_written_and_what_is_dropped_goes,
            a_secrets_record_holds_hashes_where_its_hook_is_a_module,
            a_bad_child_holds_no_other_and_one_that_is_going_is_left_until_it_is_gone,
        },
        child_conflicts::{
            a_taken_name_is_reported_with_its_owner_and_left,
            a_value_that_keeps_flipping_is_named_and_put_right_less_often,
            two_controllers_of_one_parent_leave_each_others_children_alone,
        },
        child_values::{
            lists_are_merged_by_what_the_api_server_publishes,
            every_text_comes_back_byte_for_byte_under_both_strategies,
            nulls_are_kept_where_the_schema_lets_them_be_under_both_strategies,
        },
        policies::{
            what_a_policy_refuses_to_make_anew_is_left_as_it_is,
        },
        migration::{
            what_metacontroller_wrote_is_taken_over_under_every_strategy_and_it_finds_its_bytes_again,
        },
    ]
}

/// Section 5.
fn rollouts() -> Vec<Test> {
    tests![
        rolling_update::{
            a_rollout_of_many_children_is_not_held_up,
            in_place_one_child_after_the_other_is_updated_as_far_as_the_gate_is_open,
            recreated_children_go_one_after_the_other_and_come_back_as_they_were_until_then,
            a_rollout_outlives_its_server_and_changes_of_size_and_goes_back,
            what_the_api_server_merges_is_rolled_out_to_the_end,
        },
        parent_revisions::{
            each_state_of_a_parent_has_the_related_objects_that_it_asks_for,
            a_parent_that_goes_in_the_middle_is_finalized_in_all_its_states,
            a_parent_is_settled_until_a_user_changes_its_revisions,
            a_rollout_that_metacontroller_began_is_brought_to_its_end,
            parents_without_a_namespace_are_rolled_out,
        },
    ]
}

/// Section 6.
fn customize_hooks() -> Vec<Test> {
    tests![
        customize_rules::{
            each_class_of_rules_finds_what_its_version_and_scopes_say,
            wrong_rules_are_reported_on_the_parent_and_heal,
            what_v1_does_not_show_is_told_by_its_rule,
            related_objects_are_read_with_the_rights_of_the_controllers_account,
        },
        customize_calls::{
            a_change_queues_every_parent_that_sees_it,
            a_webhook_is_asked_for_rules_once_per_content_of_the_parent,
            a_kind_that_is_defined_later_is_seen_then,
            a_finalize_hook_is_shown_related_objects,
            a_parent_is_settled_until_something_that_it_sees_changes,
            a_customize_hook_that_gives_two_answers_is_named,
        },
    ]
}

/// Section 7: which objects are decorated, and what hooks are shown.
fn decorators() -> Vec<Test> {
    let apart = tests![
        decorator_controller::{
            c30_a_broken_aggregated_api_holds_up_no_other_kind,
        },
    ];
    let tests = tests![
        decorators_together::{
            of_two_decorators_the_older_has_the_key_and_both_get_an_event,
            what_an_older_decorator_gives_up_the_younger_has_at_once,
            no_decorator_waits_for_an_older_one_that_cannot_start,
            what_the_older_decorator_wants_stands_while_it_is_away,
            what_a_paused_decorator_wrote_stands_after_a_restart,
            cleaning_up_that_waits_for_an_older_decorator_is_not_lost,
        },
        decorator_controller::{
            objects_of_any_kind_and_scope_are_decorated,
            what_is_written_for_an_object_wakes_another_of_its_name,
            labels_and_annotations_are_asked_for_together_and_rules_of_one_kind_apart,
            an_object_that_stops_matching_is_left_as_it_is,
            a_decorator_that_cannot_run_says_why_and_heals,
            a_kind_that_is_not_served_holds_up_no_other_one,
            a_decorator_is_started_anew_by_its_spec_alone,
        },
        decorator_hooks::{
            a_hook_is_asked_with_the_object_and_its_attachments_as_its_version_says,
            changes_of_status_are_ignored_as_the_rules_of_an_object_say,
            objects_are_resynced_as_hooks_and_specs_say,
            related_objects_are_shown_and_followed,
            an_invalid_answer_is_reported_on_its_object_and_changes_nothing,
            a_decorated_object_is_settled_until_something_changes,
        },
    ];
    tests.into_iter().chain(apart.into_iter().map(Test::apart)).collect()
}

/// Section 7: what decorators write, and their finalizers.
fn decorated_objects() -> Vec<Test> {
    tests![
        decorator_attachments::{
            attachments_are_what_the_object_owns_and_the_decorator_made,
            an_attachment_taken_away_is_reported_and_left,
            attachments_are_changed_as_their_method_says,
            an_answer_without_attachments_deletes_them_for_a_webhook_only,
            undeclared_attachments_are_reported,
            a_composite_and_a_decorator_leave_each_others_children_alone,
            a_bad_attachment_holds_up_no_other,
            attachments_lie_with_their_objects,
            attachments_are_looked_for_in_the_objects_own_namespace,
        },
        decorator_object::{
            labels_and_annotations_are_set_overwritten_and_removed,
            a_status_is_replaced_whole_where_the_hook_says_one,
            only_what_differs_is_written_and_the_object_comes_first,
            a_status_of_a_kind_that_has_none_is_no_reason_to_go_on,
            a_conflict_on_the_object_holds_up_no_attachment,
            a_conflict_on_the_status_holds_up_no_attachment,
            an_object_that_goes_meanwhile_gets_no_attachments_and_fails_nothing,
            a_decorator_changes_neither_spec_nor_data,
            what_is_refused_of_the_object_holds_up_its_attachments,
        },
        decorator_finalizers::{
            the_last_answer_still_decides_about_attachments,
            without_a_finalize_hook_an_object_that_goes_is_synced_and_keeps_its_attachments,
            foreground_deletion_leaves_attachments_to_itself,
            an_object_that_stops_matching_is_finalized_while_it_lives,
            what_the_finalize_hook_says_of_the_status_is_written,
            a_decorators_finalizer_comes_off_with_its_hook_and_with_its_controller,
            an_object_waits_for_its_finalize_hook,
            an_object_that_is_gone_leaves_nothing_behind,
            a_server_killed_in_the_middle_neither_doubles_nor_forgets,
        },
    ]
}
