//! The acceptance suite: our server against a real control plane, started once for all tests.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "people watch what is printed")]
#![allow(clippy::indexing_slicing, reason = "only JSON is indexed: what is not there is null")]

mod accounts;
mod all_rights;
mod apply;
mod asked_cluster;
mod attacks;
mod caches;
mod cases;
mod chart;
mod compat;
mod components;
mod composite;
mod conditions;
mod config_restart;
mod control_planes;
mod crds;
mod dashboard;
mod dev;
mod diff;
mod diff_states;
mod explain;
mod first_calls;
mod gallery;
mod gallery_copies;
mod gallery_node;
mod gallery_scripts;
mod harness;
mod hook_failures;
mod hostile_components;
mod hostile_hooks;
mod hostile_scripts;
mod immortal;
mod in_cluster;
mod keeping;
mod kept;
mod leader_election;
mod lifecycle;
mod limits;
mod modules;
mod mounts;
mod node;
mod other_servers;
mod outages;
mod packed;
mod pages;
mod pause;
mod purity;
mod record;
mod redefined;
mod related_deletion;
mod render;
mod replayed;
mod restored;
mod runner;
mod said;
mod scaffold;
mod schemas;
mod scripts;
mod second_day;
mod secrecy;
mod services;
mod settling;
mod shadows;
mod spans;
mod status_of_one;
mod table;
mod taken_rights;
mod tutorial;
mod tutorial_scripts;
mod wasm;

use std::env;
use std::process::ExitCode;
use std::sync::Arc;

use all_rights::least_but_where_needed;
use anyhow::{Result, anyhow};
use control_planes::{ControlPlanes, Plane};
use pages::{author_pages, operation_pages, typed_pages};
use runner::{Test, Wanted, What, tests};

/// The longest first.
fn all() -> Vec<Test> {
    let of_servers = [
        of_bounds(),
        cases::all(),
        compat::all(),
        of_controllers(),
        of_composites(),
        accounts::all(),
        of_conditions(),
        of_hooks(),
        of_authors(),
        of_scripts(),
        of_the_harness(),
    ];
    let of_servers = least_but_where_needed(of_servers.concat());
    [on_a_node(), chart::all(), attacks::all(), of_servers, cases::without_a_server(), without_a_server()]
        .concat()
}

/// Skipped where there can be no node.
fn on_a_node() -> Vec<Test> {
    let tests = tests![
        in_cluster::{
            the_server_runs_as_a_pod_and_comes_back_after_kill_9,
        },
        node::{
            the_tutorials_pods_run_to_completion_and_their_logs_can_be_read,
            a_node_that_is_stopped_leaves_nothing_behind,
            a_node_dies_with_an_owner_killed_with_9,
        },
        config_restart::{
            the_files_of_the_guest_work_as_they_are_and_new_pods_read_what_is_new,
        },
        immortal::{
            a_container_that_ends_on_its_node_is_started_again_and_again,
        },
        gallery::{
            catset_runs_on_volumes_of_the_node,
        },
    ];
    let with_interpreters = tests![
        services::{
            hooks_of_metacontrollers_users_run_unchanged_behind_services,
        },
    ];
    let with_interpreters =
        with_interpreters.into_iter().map(|test| test.with_programs(&services::INTERPRETERS));
    with_interpreters.chain(of_scripts_on_a_node()).chain(tests).map(Test::on_a_node).collect()
}

/// Skipped where their interpreters cannot be built, too.
fn of_scripts_on_a_node() -> Vec<Test> {
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

/// The tests that `SECURITY.md` has in its table.
fn experiments() -> Vec<Test> {
    [of_bounds(), attacks::all()].concat()
}

fn of_bounds() -> Vec<Test> {
    tests![
        hostile_hooks::{
            answers_that_are_too_large_do_no_harm,
            answers_that_are_none_do_no_harm,
            hooks_that_run_wild_do_no_harm,
            many_hooks_that_loop_at_their_ceilings_take_turns,
            hooks_that_keep_the_host_busy_do_no_harm,
            what_is_no_hook_does_no_harm,
            hooks_that_look_around_find_nothing,
            hooks_can_read_their_mounts_and_do_nothing_else_there,
        },
        hostile_components::{
            answers_of_components_that_are_too_large_do_no_harm,
            answers_of_components_that_are_none_do_no_harm,
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

fn of_controllers() -> Vec<Test> {
    tests![
        tutorial::{
            the_files_of_the_tutorial_work_as_they_are,
        },
        tutorial_scripts::{
            the_pages_in_python_and_javascript_work_as_they_are,
            the_hook_of_the_readme_in_python_answers_as_that_in_rust,
        },
        immortal::{
            the_files_of_the_guest_work_as_they_are_and_pods_go_with_their_container,
            whatever_becomes_of_its_pod_there_is_another_one_which_is_counted,
            a_pod_that_takes_its_time_to_go_is_waited_for,
            a_server_killed_between_deletion_and_creation_makes_and_counts_its_pod,
            two_containers_of_one_name_in_two_namespaces_have_a_pod_each,
        },
        gallery::{
            bluegreen_switches_when_the_new_side_is_ready,
            catset_makes_and_deletes_its_pods_one_at_a_time,
            service_per_pod_follows_its_stateful_set,
        },
        config_restart::{
            killed_before_any_write_it_deletes_each_pod_once,
            killed_after_any_write_it_deletes_each_pod_once,
            a_change_deletes_the_pods_that_match_once_and_a_first_sight_none,
            a_malformed_selector_is_reported_and_heals,
            ten_changes_in_a_row_end_with_pods_that_are_newer_than_the_last,
            with_an_account_it_restarts_pods_where_that_one_may_and_nowhere_else,
        },
        leader_election::{
            a_standby_writes_nothing_and_takes_over_from_a_leader_that_is_killed,
            sigterm_ends_the_leaders_writes_and_hands_the_lease_over,
            a_leader_that_pauses_past_its_lease_writes_nothing_more,
            where_the_lease_is_deleted_one_server_writes_at_a_time,
        },
        other_servers::{
            a_second_server_with_the_same_controllers_is_told_of_until_it_is_gone,
        },
        redefined::{
            a_field_that_a_definition_gets_is_seen_by_the_hook,
        },
        spans::{
            a_collector_gets_a_span_for_each_reconcile_and_step,
            a_collector_that_is_gone_holds_nothing_up,
            without_a_collector_nobody_is_shown_a_trace,
        },
        restored::{
            a_restored_snapshot_is_listed_anew_and_its_parents_are_managed,
        },
        lifecycle::{
            a_server_killed_in_the_middle_comes_back_without_a_lost_or_doubled_pod,
            sigterm_ends_the_server_with_exit_code_0,
            events_tell_that_a_controller_starts_and_stops,
            a_controller_without_the_servers_label_is_left_alone,
            a_controller_without_a_sync_hook_says_so,
            a_limit_above_what_the_server_allows_is_refused_naming_both,
            a_controller_of_a_kind_that_is_not_served_is_in_the_log,
            a_controller_that_leaves_the_servers_selection_says_so,
            the_server_is_ready_before_controllers_can_be_listed,
        },
    ]
}

fn of_composites() -> Vec<Test> {
    tests![
        composite::{
            a_parent_gets_a_pod_with_the_greeting_its_owner_and_its_label,
            the_status_is_what_the_hook_says_and_the_generation_it_saw,
            a_changed_parent_has_its_pod_deleted_and_made_anew,
            a_deleted_parent_has_its_pod_collected,
            a_child_that_a_user_deletes_is_made_again,
            a_child_that_the_hook_no_longer_wants_is_deleted,
            in_place_a_child_keeps_what_others_added_and_loses_what_the_hook_dropped,
            without_a_method_a_child_that_is_there_is_left_as_it_is,
            a_matching_orphan_is_adopted_and_a_child_that_stops_matching_is_released,
            large_objects_are_shown_whole_to_the_hooks_that_see_them,
            a_parent_kind_that_is_defined_later_is_served_then,
            a_parent_kind_that_loses_its_status_stops_the_controller_until_it_is_back,
            a_finalizer_left_by_metacontroller_comes_off,
            a_status_that_the_api_server_drops_ends_in_a_settled_parent,
            parents_are_resynced_as_often_as_the_spec_says,
            an_undeclared_child_kind_refuses_the_response_before_any_write,
            two_controllers_leave_each_others_children_alone,
        },
        modules::{
            a_missing_config_map_is_reported_and_heals,
            a_missing_key_is_reported_and_heals,
            a_broken_module_is_reported_and_heals,
            a_module_with_another_digest_than_pinned_is_refused_and_heals,
            a_module_from_elsewhere_or_without_a_pin_is_refused_where_the_server_wants_it_so,
            the_status_names_digest_and_size_of_the_module,
            after_a_bad_module_the_last_good_one_goes_on_serving,
            after_its_config_map_is_gone_a_module_goes_on_serving,
            a_changed_module_syncs_parents_that_did_not_change,
        },
        related_deletion::{
            what_is_granted_goes_with_an_event_and_nothing_else_does,
            a_parent_that_goes_takes_along_what_its_finalize_hook_names,
            without_a_grant_a_modules_answer_is_refused_before_anything_is_written,
            an_object_that_takes_a_name_meanwhile_stays,
            a_webhook_whose_controller_grants_nothing_deletes_nothing,
            decorators_delete_by_the_same_rules,
            a_grant_that_cannot_be_is_named_by_its_field,
        },
    ]
}

fn of_conditions() -> Vec<Test> {
    tests![
        caches::{
            controllers_of_a_kind_that_is_too_large_stop_alone_and_heal,
        },
        conditions::{
            each_condition_of_what_a_controller_needs_comes_back_by_itself,
            a_shadow_that_failed_agrees_once_it_is_right,
            a_hook_that_no_longer_asks_for_the_time_is_pure,
        },
        keeping::{
            without_the_right_a_hook_runs_and_ready_says_that_it_is_not_kept,
            the_last_good_version_goes_from_one_leader_to_the_next,
            a_component_is_kept,
            what_rollback_prints_puts_a_version_back_when_it_is_applied,
        },
        kept::{
            a_refused_module_is_the_last_good_one_after_a_restart,
            a_kept_version_is_not_called_against_a_pin,
            a_kept_version_is_listed_and_put_back,
            kept_versions_pass_on_to_a_controller_that_is_made_again,
            a_return_may_delete_what_only_the_version_before_wants,
        },
        packed::{
            a_module_of_several_parts_is_applied_served_and_replaced,
            a_module_of_several_parts_is_kept_whole,
            parts_are_waited_for_and_two_versions_are_never_mixed,
            kubectl_applies_what_pack_prints,
            a_module_with_index_and_bytes_under_its_key_is_refused,
            a_module_in_gzip_is_served,
            a_module_in_zstd_is_served,
        },
        outages::{
            a_controller_that_is_not_ready_is_a_metric_until_it_is_gone,
        },
        pause::{
            a_paused_parent_stays_as_it_is_and_its_deletion_waits,
            a_paused_controller_calls_no_hook_and_catches_up,
            a_module_that_changes_in_a_pause_is_braked_when_it_ends,
            a_paused_parent_is_left_alone_by_the_next_leader,
            a_paused_controller_is_left_alone_by_the_next_leader,
            a_paused_rollout_moves_no_child,
            a_paused_object_is_not_decorated,
            a_paused_decorated_object_waits_with_its_deletion,
            a_pause_that_cannot_be_says_why,
        },
        taken_rights::{
            what_an_account_may_no_longer_read_is_shown_no_longer,
        },
    ]
}

fn of_hooks() -> Vec<Test> {
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
        said::{
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
        hostile_scripts::{
            scripts_in_javascript_do_no_harm,
            many_scripts_in_javascript_that_loop_at_their_ceilings_take_turns,
        },
        apply::{
            a_script_is_applied_with_its_controller_up_to_its_bound, a_parent_of_the_files_that_fails_is_an_error_of_apply,
        },
        replayed::{ reconciles_are_recorded_and_replayed, a_recording_becomes_cases_of_a_test },
    ]
}

/// Skipped where their interpreters cannot be built.
fn of_scripts() -> Vec<Test> {
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
        hostile_scripts::{
            scripts_in_python_do_no_harm,
            many_scripts_in_python_that_loop_at_their_ceilings_take_turns,
        },
    ];
    let python = [python, cases::in_python(), of_days()].concat();
    let javascript = [in_javascript(), cases::in_javascript()].concat();
    let python = python.into_iter().map(|test| test.with_runners(&["python"]));
    python.chain(javascript.into_iter().map(|test| test.with_runners(&["javascript"]))).collect()
}

/// Whole days of users, each on a control plane of its own.
fn of_days() -> Vec<Test> {
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
fn of_authors() -> Vec<Test> {
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
            explain_shows_no_secret_and_refuses_users_without_rights,
            rules_that_find_nothing_and_held_deletions_are_explained,
            triggers_of_a_settled_parent_are_explained,
            new_reconciles_are_followed_also_after_a_restart,
            what_a_rollout_waits_for_is_explained,
        },
        status_of_one::{
            a_controller_is_shown_with_the_parents_that_fail,
            a_hook_that_answers_differently_each_time_needs_attention,
        },
        dashboard::{ pages_show_controllers_parents_and_reconciles },
    ]
}

fn of_the_harness() -> Vec<Test> {
    tests![
        harness::{
            the_table_of_security_md_has_each_experiment_and_no_other,
            a_skipped_experiment_does_not_hold,
            a_control_plane_dies_with_an_owner_killed_with_9,
            a_server_is_held_up_at_its_writes_and_killed_there,
        },
    ]
}

/// They call guests themselves.
fn without_a_server() -> Vec<Test> {
    tests![
        typed_pages::{
            each_page_with_commands_is_typed_by_a_test,
        },
        schemas::{
            the_schemas_of_built_in_kinds_are_those_of_the_api_server,
        },
        scaffold::{
            a_new_hook_is_built_checked_and_tested_as_its_readme_has_it,
            a_new_hook_in_each_language_is_built_checked_and_tested_as_its_readme_has_it,
            a_new_component_is_built_checked_and_tested_as_its_readme_has_it,
            each_template_makes_a_hook_that_passes_its_own_cases,
        },
        gallery::{
            the_cases_of_each_guest_pass,
        },
        components::{
            a_component_with_a_hash_map_is_pure,
            a_component_that_asks_for_the_time_is_not_pure,
            a_component_reads_its_mounts_and_changes_nothing,
            a_component_has_no_network_and_is_told_so,
            a_component_waits_no_time_and_has_the_limits_of_a_module,
        },
        purity::{
            a_rust_hook_with_a_hash_map_is_pure,
            a_rust_hook_that_asks_for_the_time_is_not_pure,
            a_rust_hook_reads_its_mounts_and_changes_nothing,
            a_go_hook_sleeps_at_once_reads_its_mount_and_is_pure_until_it_logs_the_time,
        },
    ]
}

fn main() -> ExitCode {
    match tokio::runtime::Runtime::new().map_err(Into::into).and_then(|runtime| runtime.block_on(suite())) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(101), // as Rust's own test runner
        Err(why) => {
            eprintln!("error: {why:#}");
            ExitCode::from(101)
        }
    }
}

async fn suite() -> Result<bool> {
    let wanted = Wanted::parse(env::args().skip(1))?;
    let all = if wanted.what == What::Attack {
        if !wanted.attack.short {
            attacks::take_long_form();
        }
        experiments()
    } else {
        all()
    };
    if wanted.what == What::List {
        wanted.pick(&all).iter().for_each(|test| println!("{}: test", test.title));
        return Ok(true);
    }
    if wanted.what == What::HoldNode {
        let held = control_planes::start_with_node().await?;
        return hold(held.map_err(|missing| anyhow!("{missing}"))?).await;
    }
    node::look_before_all()?;
    let planes = Arc::new(ControlPlanes::start().await?);
    if wanted.what == What::Hold {
        return hold(planes.plain()).await;
    }
    let passed = tokio::select! {
        passed = runner::run(&planes, &wanted, &all) => Ok(passed),
        interrupt = tokio::signal::ctrl_c() => Err(interrupt.map_or_else(Into::into, |()| anyhow!("interrupted"))),
    };
    if (wanted.keep_logs || !matches!(passed, Ok(true)))
        && let Some(planes) = Arc::into_inner(planes)
    {
        planes.keep_logs();
    }
    passed
}

async fn hold(held: Plane) -> Result<bool> {
    println!("{}", held.plane.scratch().display());
    std::future::pending().await
}
