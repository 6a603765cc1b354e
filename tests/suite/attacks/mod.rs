//! Attacks: what hostile hooks, tenants and networks try, as experiments whose figures have bounds.
//!
//! The suite runs the short form of each, `cargo xtask attack` the long one.

pub(crate) mod compilation;
pub(crate) mod events;
pub(crate) mod measure;
pub(crate) mod memory;
pub(crate) mod pacing;
pub(crate) mod related;
pub(crate) mod shown_secrets;
pub(crate) mod watches;

pub(crate) mod children;
pub(crate) mod deletions;
pub(crate) mod forged;

pub(crate) mod finalizers;
pub(crate) mod network;
pub(crate) mod pauses;

use std::sync::OnceLock;
use std::time::Duration;

use acceptance::figures::{Figure, short};
use serde_json::{Value, json};

use crate::runner::{Test, tests};

/// The form that this process runs; unset is the short one.
static LONG: OnceLock<()> = OnceLock::new();

/// All experiments.
pub(crate) fn all() -> Vec<Test> {
    let mut all = by_hooks();
    all.extend(by_tenants_and_networks());
    if is_long() {
        // Where kinds go the garbage collector pauses, which other tests of the suite wait for.
        all.extend(tests![watches::{ kinds_and_controllers_that_go_together_leave_no_watch }]);
        // A round takes as long as a Lease; the suite has one round of its own, in `leader_election`.
        all.extend(tests![pauses::{ leaders_that_pause_past_their_lease_begin_no_write_and_double_nothing }]);
    }
    all
}

fn by_hooks() -> Vec<Test> {
    tests![
        pacing::{
            answers_that_are_always_new_are_throttled,
            many_restless_parents_share_a_rate,
            an_echo_of_another_client_frees_no_hook,
            a_hook_of_thirty_steps_is_not_held_up,
            a_hook_that_fails_backs_off_whatever_it_asks_for,
        },
        compilation::{
            modules_that_never_compile_delay_others_by_one_turn_each,
        },
        memory::{
            large_statuses_and_many_children_take_turns,
            large_answers_of_webhooks_take_turns,
            parents_that_are_large_when_read_take_turns,
            large_objects_of_others_are_listed_in_small_pages,
            packed_modules_are_unpacked_in_turns_and_kept_in_files,
        },
        related::{
            ten_thousand_equal_rules_count_once,
            ten_thousand_different_rules_are_refused_by_name,
            ten_thousand_selectors_of_namespaces_are_refused_by_name,
            half_a_million_names_are_refused,
            rules_that_only_exclude_keep_nobody_waiting_beside_large_updates,
            rules_of_too_many_parents_are_refused_until_others_go,
        },
        watches::{
            more_watches_than_allowed_are_refused_by_name,
        },
        shown_secrets::{
            secrets_are_shown_where_they_are_meant_to_be,
            secrets_are_parents_and_children_where_they_are_meant_to_be,
        },
    ]
}

fn by_tenants_and_networks() -> Vec<Test> {
    tests![
        forged::{
            forged_revisions_are_pruned_and_asked_about_in_small_numbers,
            a_revision_that_breaks_the_hook_blocks_neither_sync_nor_finalize,
        },
        children::{
            stuffed_children_are_left_out_and_go_in_rounds,
            a_stuffed_parent_is_finalized_and_goes,
            large_children_are_left_out_and_the_parent_goes,
            a_tenant_harms_no_other_namespace_of_a_cluster_scoped_parent,
            a_selector_that_matches_nearly_everything_is_refused,
        },
        deletions::{
            a_wrong_module_deletes_none_of_ten_children_over_restarts,
            a_wrong_module_deletes_at_most_a_fifth_of_many_children,
            a_server_that_is_killed_at_each_deletion_deletes_at_most_a_fifth,
            a_version_that_answers_well_at_first_deletes_at_most_a_fifth,
            held_deletions_go_on_where_a_user_agrees,
            held_reconciles_go_on_when_the_answers_ask_for_less,
            deletions_that_no_change_of_the_hook_brings_about_do_not_wait,
        },
        network::{
            bad_weather_loses_doubles_and_leaves_nothing,
            lists_and_watches_that_are_swallowed_come_again,
            an_endless_answer_is_refused_at_its_bound,
            a_retry_after_of_years_is_not_believed,
            silent_connections_hold_up_no_probe,
            the_answers_of_another_host_are_not_shown,
        },
        events::{
            an_error_appears_beside_the_events_of_many_parents,
        },
        finalizers::{
            a_deep_parent_gets_its_finalizers_and_goes,
            a_finalize_hook_alone_lets_parents_go,
            a_parent_whose_hook_is_gone_is_told_how_to_go,
            a_controller_without_hooks_keeps_no_finalizers,
            controllers_that_go_while_no_server_runs_leave_no_finalizer,
        },
    ]
}

/// From now on experiments take their long form.
pub(crate) fn take_long_form() {
    LONG.get_or_init(|| ());
}

pub(crate) fn is_long() -> bool {
    LONG.get().is_some()
}

/// A size of an experiment: of its short form, which takes ten seconds at most, or of its long one.
pub(crate) fn form<T>(short: T, long: T) -> T {
    if is_long() { long } else { short }
}

/// How an experiment ended.
pub(crate) struct Report {
    pub(crate) title: &'static str,
    pub(crate) took: Duration,
    pub(crate) figures: Vec<Figure>,
    pub(crate) failure: Option<String>,
    /// Why it did not run.
    pub(crate) skipped: Option<String>,
}

impl Report {
    fn json(&self) -> Value {
        json!({
            "experiment": self.title,
            "holds": self.failure.is_none() && self.skipped.is_none(),
            "seconds": self.took.as_secs_f64(),
            "figures": self.figures.iter().map(Figure::json).collect::<Vec<_>>(),
            "failure": self.failure,
            "skipped": self.skipped,
        })
    }

    /// A line for each figure.
    fn rows(&self) -> Vec<[String; 5]> {
        let how = |holds: bool| if holds { "holds" } else { "FAILS" }.to_owned();
        let row = |figure: &Figure| {
            let measured = format!("{} {}", short(figure.measured), figure.unit);
            let bound = figure.bound.to_string();
            [self.title.to_owned(), figure.what.clone(), measured, bound, how(figure.holds())]
        };
        let mut rows: Vec<_> = self.figures.iter().map(row).collect();
        if rows.is_empty() || (self.failure.is_some() && self.figures.iter().all(Figure::holds)) {
            let ended = [self.title, "its end", "", "as it should"].map(str::to_owned);
            let [title, what, measured, bound] = ended;
            let skipped = self.skipped.as_ref().map(|why| format!("skipped: {why}"));
            let how = skipped.unwrap_or_else(|| how(self.failure.is_none()));
            rows.push([title, what, measured, bound, how]);
        }
        rows
    }
}

/// A JSON list, or a table in Markdown, as `SECURITY.md` has it.
pub(crate) fn table(reports: &[Report], as_json: bool) -> String {
    if as_json {
        return reports.iter().map(Report::json).collect::<Value>().to_string();
    }
    let head = ["experiment", "figure", "measured", "bound", ""].map(str::to_owned);
    let rows: Vec<_> = reports.iter().flat_map(Report::rows).collect();
    let lines = [head, ["---"; 5].map(str::to_owned)].into_iter().chain(rows);
    lines.map(|cells| format!("| {} |", cells.join(" | "))).collect::<Vec<_>>().join("\n")
}
