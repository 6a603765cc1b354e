//! Numbers of a running controller: tiles, and sums since it was started.

use std::collections::BTreeMap;

use maud::{Markup, html};
use metahook_core::api::units::print_bytes;
use metahook_core::controller_metrics::OK;
use metahook_core::overview::{CallNumbers, ControllerOverview};

use super::{number, rate};
use crate::dashboard::charts::sparkline;
use crate::dashboard::samples::Rates;
use crate::status::memory_line;

pub(super) fn numbers(running: &ControllerOverview, rates: &Rates) -> Markup {
    let ControllerOverview { reconciles, writes, calls, .. } = running;
    html! {
        dl .tiles { (tiles(running, rates)) }
        @if rates.history.len() > 1 {
            p .quiet { "Reconciles over time " (sparkline("Reconciles over time", &rates.history)) }
        }
        dl {
            dt { "Reconciles" } dd { (sums(reconciles)) }
            dt { "Writes" } dd { (sums(writes)) }
            dt { "Calls" } dd { (calls_text(calls)) }
            dt { "Memory" } dd { (memory_line(&running.memory)) }
        }
    }
}

fn tiles(running: &ControllerOverview, rates: &Rates) -> Markup {
    let ControllerOverview { parents, queue, calls, .. } = running;
    let failed: u64 = calls.results.iter().filter(|(result, _)| *result != OK).map(|(_, sum)| sum).sum();
    let of_other_states = parents.settled + parents.failing + parents.paused;
    let unsettled = parents.all.saturating_sub(of_other_states);
    let tile = |what: &str, value: String, is_bad: bool| {
        html! { div { dt { (what) } dd .failure[is_bad] { (value) } } }
    };
    html! {
        (tile("Parents", parents.all.to_string(), false))
        (tile("Settled", parents.settled.to_string(), false))
        (tile("Unsettled", unsettled.to_string(), false))
        (tile("Failing", parents.failing.to_string(), parents.failing > 0))
        (tile("Paused", parents.paused.to_string(), false))
        (tile("Throttled", parents.throttled.to_string(), parents.throttled > 0))
        (tile("Waiting for a worker", queue.waiting.to_string(), false))
        (tile("Reconciled now", queue.running.to_string(), false))
        @if queue.running > 0 {
            (tile("The longest of these", format!("{:.1} s", queue.longest_seconds), false))
        }
        (tile("Reconciled later", queue.later.to_string(), false))
        (tile("Reconciles", rate(rates.reconciles), false))
        (tile("Calls", rate(rates.calls), false))
        (tile("Calls that failed", number(failed), failed > 0))
    }
}

/// Such as `38 ok, half within 50 µs, 99 of 100 within 2.5 s, at most 3Mi of memory`.
fn calls_text(calls: &CallNumbers) -> String {
    let mut words = vec![sums(&calls.results)];
    let shares = [("half", calls.p50_seconds), ("99 of 100", calls.p99_seconds)];
    let within = |(share, bound): (&str, Option<f64>)| Some(format!("{share} within {}", time(bound?)));
    words.extend(shares.into_iter().filter_map(within));
    if calls.most_memory > 0 {
        words.push(format!("at most {} of memory", print_bytes(calls.most_memory)));
    }
    words.join(", ")
}

fn sums(sums: &BTreeMap<String, u64>) -> String {
    let words: Vec<_> = sums.iter().map(|(what, sum)| format!("{} {what}", number(*sum))).collect();
    if words.is_empty() { "none".to_owned() } else { words.join(", ") }
}

/// Such as `2.5 ms`.
pub(super) fn time(seconds: f64) -> String {
    match seconds {
        0.0..0.001 => format!("{} µs", (seconds * 1e6).round()),
        0.001..1.0 => format!("{} ms", seconds * 1e3),
        _ => format!("{seconds} s"),
    }
}

#[cfg(test)]
mod tests {
    use metahook_core::controller_metrics::BUCKETS;
    use metahook_core::overview::{MemoryNumbers, ParentNumbers, QueueNumbers};

    use super::*;

    #[test]
    fn times_of_buckets_are_short() {
        let times: Vec<_> = BUCKETS.iter().map(|bound| time(*bound)).collect();
        assert_eq!(times[..6], ["25 µs", "50 µs", "100 µs", "250 µs", "500 µs", "1 ms"]);
        assert_eq!(times[9..], ["25 ms", "100 ms", "250 ms", "1 s", "2.5 s", "10 s", "60 s"]);
    }

    #[test]
    fn numbers_of_the_server_are_shown() {
        let running = ControllerOverview {
            parents: ParentNumbers { all: 10, settled: 4, failing: 2, paused: 1, throttled: 0 },
            queue: QueueNumbers { running: 1, longest_seconds: 2.14, ..QueueNumbers::default() },
            calls: CallNumbers {
                results: [("ok".to_owned(), 38)].into(),
                p50_seconds: Some(50e-6),
                p99_seconds: Some(2.5),
                most_memory: 3 << 20,
                ..CallNumbers::default()
            },
            memory: MemoryNumbers {
                traces: 2048,
                all_traces: 4096,
                max_traces: 4 << 20,
                ..MemoryNumbers::default()
            },
            ..ControllerOverview::default()
        };
        let shown = numbers(&running, &Rates::default()).into_string();
        for part in [
            "<dt>Unsettled</dt><dd class=\"\">3</dd>",
            "<dt>The longest of these</dt><dd class=\"\">2.1 s</dd>",
            "38 ok, half within 50 µs, 99 of 100 within 2.5 s, at most 3Mi of memory",
            "traces 2Ki, of all controllers 4Ki of 4Mi; cached objects of all controllers 0",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
    }
}
