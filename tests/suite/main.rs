//! The acceptance suite: our server against a real control plane, started once for all tests.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "people watch what is printed"
)]
#![allow(
    clippy::indexing_slicing,
    reason = "only JSON is indexed: what is not there is null"
)]

mod composite;
mod crds;
mod harness;
mod hook_failures;
mod lifecycle;
mod modules;
mod runner;
mod tutorial;
mod wasm;

use std::env;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use acceptance::cluster::Binaries;
use acceptance::control_plane::ControlPlane;
use acceptance::fixture;
use acceptance::wait::elapsed;
use anyhow::{Result, anyhow};
use runner::{Test, Wanted, What, tests};

/// The longest first.
fn all() -> Vec<Test> {
    tests![
        tutorial::{
            the_files_of_the_tutorial_work_as_they_are,
        },
        lifecycle::{
            a_server_killed_in_the_middle_comes_back_without_a_lost_or_doubled_pod,
            sigterm_ends_the_server_with_exit_code_0,
            events_tell_that_a_controller_starts_and_stops,
            a_controller_without_the_servers_label_is_left_alone,
            a_controller_without_a_sync_hook_says_so,
            a_limit_above_what_the_server_allows_is_refused_naming_both,
        },
        composite::{
            a_parent_gets_a_pod_with_the_greeting_its_owner_and_its_label,
            the_status_is_what_the_hook_says_and_the_generation_it_saw,
            a_changed_parent_has_its_pod_deleted_and_made_anew,
            a_deleted_parent_has_its_pod_collected,
            a_child_that_somebody_deletes_is_made_again,
            a_child_that_the_hook_no_longer_wants_is_deleted,
            in_place_a_child_keeps_what_others_added_and_loses_what_the_hook_dropped,
            without_a_method_a_child_that_is_there_is_left_as_it_is,
            a_matching_orphan_is_adopted_and_a_child_that_stops_matching_is_released,
            a_parent_kind_that_is_defined_later_is_served_then,
            a_parent_kind_that_loses_its_status_stops_the_controller_until_it_is_back,
            a_finalizer_left_by_metacontroller_comes_off,
            a_status_that_the_api_server_drops_is_no_reason_to_go_on,
            parents_are_looked_at_again_as_often_as_the_spec_says,
            an_undeclared_child_kind_refuses_the_response_before_any_write,
            two_controllers_leave_each_others_children_alone,
        },
        modules::{
            a_missing_config_map_is_said_and_heals,
            a_missing_key_is_said_and_heals,
            a_broken_module_is_said_and_heals,
            a_module_with_another_digest_than_pinned_is_refused_and_heals,
            the_status_names_digest_and_size_of_the_module,
            after_a_bad_module_the_last_good_one_goes_on_serving,
            after_its_config_map_is_gone_a_module_goes_on_serving,
            a_changed_module_syncs_parents_that_nobody_touched,
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
        },
        crds::{
            webhook_and_wasm_side_by_side_are_refused,
            a_hook_has_version_v1_unless_it_says_otherwise,
        },
        harness::{
            a_control_plane_dies_with_an_owner_killed_with_9,
        },
    ]
}

fn main() -> ExitCode {
    match tokio::runtime::Runtime::new()
        .map_err(Into::into)
        .and_then(|runtime| runtime.block_on(suite()))
    {
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
    let all = all();
    if wanted.what == What::List {
        wanted
            .pick(&all)
            .iter()
            .for_each(|test| println!("{}: test", test.title));
        return Ok(true);
    }
    let start = Instant::now();
    let mut plane = Arc::new(ControlPlane::start_with(&Binaries::find_or_build()?, fixture::prepare).await?);
    eprintln!("control plane ready after {}", elapsed(start));
    if wanted.what == What::Hold {
        println!("{}", plane.scratch().display());
        return std::future::pending().await;
    }
    let passed = tokio::select! {
        passed = run(&plane, &wanted, &all) => passed,
        interrupt = tokio::signal::ctrl_c() => Err(interrupt.map_or_else(Into::into, |()| anyhow!("interrupted"))),
    };
    if (wanted.keep_logs || !matches!(passed, Ok(true)))
        && let Some(plane) = Arc::get_mut(&mut plane)
    {
        plane.keep_logs();
    }
    passed
}

async fn run(plane: &Arc<ControlPlane>, wanted: &Wanted, all: &[Test]) -> Result<bool> {
    Ok(runner::run(plane, &plane.client().await?, wanted, all).await)
}
