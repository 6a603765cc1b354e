//! The lists of tests. A folder of tests has its list in its `mod.rs`; the files of the suite itself have theirs here.

mod authors;
mod controllers;
mod hooks;

use authors::of_authors;
use controllers::{of_composites, of_conditions, of_controllers};
use hooks::{of_bounds, of_hooks, of_hostile_scripts, of_scripts, of_scripts_on_a_node};

use crate::accounts::account_reads;
use crate::all_rights::least_but_where_needed;
use crate::pages::{symptoms, typed_pages};
use crate::runner::{Test, tests};
use crate::{
    accounts, attacks, caches, cases, chart, compat, components, config_restart, gallery, harness, immortal,
    in_cluster, leader_election, node, purity, restored, scaffold, schemas, services, taken_rights,
    tutorial_scripts,
};

/// The longest first.
pub(crate) fn all() -> Vec<Test> {
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
        with_all_runners(),
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

/// They call guests themselves.
fn without_a_server() -> Vec<Test> {
    tests![
        typed_pages::{
            each_page_with_commands_is_typed_by_a_test,
        },
        symptoms::{
            each_line_of_the_page_on_troubleshooting_is_shown_by_a_test,
        },
        schemas::{
            the_schemas_of_built_in_kinds_are_those_of_the_api_server,
        },
        scaffold::{
            a_new_hook_is_built_checked_and_tested_as_its_readme_has_it,
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

/// They run scripts in both languages.
fn with_all_runners() -> Vec<Test> {
    let tests = tests![
        tutorial_scripts::{
            the_pages_in_python_and_javascript_work_as_they_are,
            the_hook_of_the_readme_in_python_answers_as_that_in_rust,
        },
        scaffold::{
            a_new_hook_in_each_language_is_built_checked_and_tested_as_its_readme_has_it,
        },
    ];
    tests.into_iter().map(|test| test.with_runners(&["python", "javascript"])).collect()
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

/// The tests that `SECURITY.md` has in its table.
pub(crate) fn experiments() -> Vec<Test> {
    let of_controllers = tests![
        caches::{
            controllers_of_a_kind_that_is_too_large_stop_alone_and_heal,
        },
        leader_election::{
            where_the_lease_is_deleted_one_server_writes_at_a_time,
        },
        account_reads::{
            a_hook_is_shown_only_what_its_controllers_account_may_read,
            related_objects_are_those_that_its_controllers_account_may_read,
        },
        taken_rights::{
            what_an_account_may_no_longer_read_is_shown_no_longer,
        },
        restored::{
            a_restored_snapshot_is_listed_anew_and_its_parents_are_managed,
        },
    ];
    [of_bounds(), of_hostile_scripts(), of_controllers, attacks::all()].concat()
}
