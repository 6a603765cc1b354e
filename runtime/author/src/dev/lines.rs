//! Lines of `metahook dev`: one for each reconcile, put together of its calls and writes; errors and stderr in full.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use metahook_core::hash::Fingerprint;
use metahook_core::object::id::ObjectId;
use metahook_core::reconcile::trigger::{Beginning, Trigger};

use metahook_server::controller::observer::{Observed, ObservedCall, ObservedReconcile, ReconcileEnd};
use metahook_server::telemetry::escape;

/// Writes of one reconcile that are named; the others are counted.
const MAX_NAMED: usize = 8;

/// Parents whose last reconcile is remembered; beyond them all are forgotten, and told of as if they were new.
const MAX_PARENTS: usize = 10_000;

/// `sha256:` and twelve digits.
const SHORT_DIGEST: usize = 19;

#[derive(Default)]
pub struct Lines {
    /// Reconciles under way.
    pending: BTreeMap<ObjectId, Pending>,
    last: BTreeMap<ObjectId, Last>,
    problem: String,
}

/// The last reconcile of a parent.
struct Last {
    beginning: Beginning,
    /// Fingerprint of its failure as it was printed.
    failure: Option<Fingerprint>,
}

#[derive(Default)]
struct Pending {
    calls: Vec<ObservedCall>,
    wrote: Vec<String>,
    more: usize,
}

impl Lines {
    /// The lines of an event; `None`: there are none yet, or nothing happened.
    pub fn of(&mut self, event: Observed) -> Option<String> {
        match event {
            Observed::Called { parent, call } => self.pending(parent).calls.push(call),
            Observed::Wrote { parent, what } => {
                let pending = self.pending(parent);
                if pending.wrote.len() < MAX_NAMED {
                    pending.wrote.push(what);
                } else {
                    pending.more += 1;
                }
            }
            Observed::Reconciled(reconciled) => return self.reconciled(*reconciled),
            Observed::Module { hook, digest, compiled } => {
                self.problem.clear();
                let how = compiled.map_or("compiled before".to_owned(), |time| {
                    format!("compiled in {:.1} s", time.as_secs_f64())
                });
                let short = digest.get(..SHORT_DIGEST).unwrap_or(&digest);
                return Some(format!("{hook} hook: module {short}, {how}"));
            }
            Observed::Problem { message } => {
                let is_new = self.problem != message;
                self.problem.clone_from(&message);
                return is_new.then(|| format!("controller: {}", escape(&message)));
            }
        }
        None
    }

    fn pending(&mut self, parent: ObjectId) -> &mut Pending {
        if self.pending.len() >= MAX_PARENTS && !self.pending.contains_key(&parent) {
            self.pending.clear();
        }
        self.pending.entry(parent).or_default()
    }

    fn reconciled(&mut self, reconciled: ObservedReconcile) -> Option<String> {
        let ObservedReconcile { parent, beginning, retry_state, took, end } = reconciled;
        let Pending { calls, wrote, more } = self.pending.remove(&parent).unwrap_or_default();
        if self.last.len() >= MAX_PARENTS && !self.last.contains_key(&parent) {
            self.last.clear();
        }
        let before = self.last.remove(&parent);
        let trigger = Trigger::of(before.as_ref().map(|last| &last.beginning), &beginning, retry_state);
        let details = details(&calls, &end);
        let failure = (end != ReconcileEnd::Ok).then(|| Fingerprint::of(details.as_bytes()));
        let is_known = failure.is_some() && before.is_some_and(|before| before.failure == failure);
        self.last.insert(parent.clone(), Last { beginning, failure });
        if calls.is_empty() && wrote.is_empty() && end == ReconcileEnd::Ok {
            return None;
        }
        let mut changes = wrote.join(", ");
        if more > 0 {
            // Of a String, which takes all.
            _ = write!(changes, " and {more} more");
        }
        let what = match &end {
            ReconcileEnd::Ok if changes.is_empty() => "nothing changes".to_owned(),
            ReconcileEnd::Ok => changes,
            ReconcileEnd::Again(_) | ReconcileEnd::Failed(_) => {
                let word = if matches!(end, ReconcileEnd::Failed(_)) { "FAILED" } else { "tried again" };
                let word = if is_known { format!("{word} as before") } else { word.to_owned() };
                if changes.is_empty() { word } else { format!("{word} after {changes}") }
            }
        };
        let instructions = calls.iter().filter_map(|call| call.instructions).reduce(u64::saturating_add);
        let used = instructions.map(|used| format!(", {used} instructions")).unwrap_or_default();
        let mut lines =
            format!("{}  {trigger}: {} ({}{used})", escape(&parent.to_string()), escape(&what), millis(took));
        if !is_known {
            lines += &details;
        }
        Some(lines)
    }
}

/// Lines that hooks wrote to stderr, and why the reconcile failed.
fn details(calls: &[ObservedCall], end: &ReconcileEnd) -> String {
    let mut lines = String::new();
    for ObservedCall { hook, log, .. } in calls {
        let mut text = log.lines().peekable();
        if text.peek().is_some() {
            _ = write!(lines, "\n  {hook} hook:");
        }
        for line in text {
            _ = write!(lines, "\n  | {}", escape(line));
        }
        if log.lost > 0 {
            _ = write!(lines, "\n  | {} bytes beyond limits.log were cut", log.lost);
        }
    }
    if let ReconcileEnd::Again(why) | ReconcileEnd::Failed(why) = end {
        for (nth, line) in why.lines().enumerate() {
            let head = if nth == 0 { "  error: " } else { "    " };
            _ = write!(lines, "\n{head}{}", escape(line));
        }
    }
    lines
}

fn millis(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1000.0)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use metahook_core::api::hook::HookName;
    use metahook_core::object::Version;
    use metahook_core::object::id::{Gvk, Key, Resource, Uid};
    use metahook_core::reconcile::outcome::RetryState;

    use super::*;
    use metahook_server::hook::wasm::run::Log;

    fn parent() -> ObjectId {
        numbered(0)
    }

    fn numbered(number: usize) -> ObjectId {
        let gvk = Gvk::new("example.com/v1", "Demo");
        let resource = Resource { gvk, plural: "demos".into(), namespaced: true, has_status: true };
        ObjectId { resource: Arc::new(resource), key: Key::new("n", &format!("p{number}")) }
    }

    fn ended(parent: ObjectId, version: &str, end: ReconcileEnd) -> Observed {
        Observed::Reconciled(Box::new(ObservedReconcile {
            parent,
            beginning: Beginning {
                uid: Uid::new("u"),
                generation: 1,
                version: Version::new(version),
                deleting: false,
                hooks: None,
            },
            retry_state: RetryState::default(),
            took: Duration::from_micros(1500),
            end,
        }))
    }

    fn called(text: &str, lost: usize) -> Observed {
        let log = Log { text: text.to_owned(), lost, lost_lines: 0 };
        let call = ObservedCall { hook: HookName::Sync, instructions: Some(70), log };
        Observed::Called { parent: parent(), call }
    }

    #[test]
    fn a_reconcile_is_one_line_with_what_it_called_and_wrote() {
        let mut lines = Lines::default();
        assert_eq!(lines.of(called("", 0)), None);
        for number in 0..=MAX_NAMED {
            let what = format!("create Pod n/{number}");
            assert_eq!(lines.of(Observed::Wrote { parent: parent(), what }), None);
        }
        let named: Vec<_> = (0..MAX_NAMED).map(|number| format!("create Pod n/{number}")).collect();
        let expected =
            format!("Demo n/p0  first reconcile: {} and 1 more (1.5 ms, 70 instructions)", named.join(", "));
        assert_eq!(lines.of(ended(parent(), "1", ReconcileEnd::Ok)), Some(expected));
        assert_eq!(lines.of(ended(parent(), "1", ReconcileEnd::Ok)), None, "nothing happened");
        lines.of(called("", 0));
        assert_eq!(
            lines.of(ended(parent(), "2", ReconcileEnd::Ok)).as_deref(),
            Some(
                "Demo n/p0  labels, annotations or status changed: nothing changes (1.5 ms, 70 instructions)"
            )
        );
    }

    #[test]
    fn errors_and_stderr_are_told_in_full_and_command_no_terminal() {
        let mut lines = Lines::default();
        lines.of(called("one\n\n\u{1b}[2Jtwo\n", 5));
        let error = ReconcileEnd::Failed("sync hook: it trapped\nat main".to_owned());
        assert_eq!(
            lines.of(ended(parent(), "1", error)).as_deref(),
            Some(
                "Demo n/p0  first reconcile: FAILED (1.5 ms, 70 instructions)\n  sync hook:\n  | one\n  | \\u{1b}[2Jtwo\n  | 5 bytes beyond limits.log were cut\n  error: sync hook: it trapped\n    at main"
            )
        );
        lines.of(called("one\n\n\u{1b}[2Jtwo\n", 5));
        let same = ended(parent(), "1", ReconcileEnd::Failed("sync hook: it trapped\nat main".to_owned()));
        let same = lines.of(same).unwrap();
        assert!(same.ends_with(": FAILED as before (1.5 ms, 70 instructions)"), "{same}");
        let again = ended(parent(), "1", ReconcileEnd::Again("it has changed".to_owned()));
        let again = lines.of(again).unwrap();
        assert!(again.contains("tried again (1.5 ms)\n  error: it has changed"), "{again}");
    }

    #[test]
    fn a_problem_of_the_controller_is_told_once_until_it_has_a_module() {
        let mut lines = Lines::default();
        let problem = || Observed::Problem { message: "a\nb".to_owned() };
        assert_eq!(lines.of(problem()).as_deref(), Some("controller: a\\nb"));
        assert_eq!(lines.of(problem()), None);
        let compiled = Some(Duration::from_millis(250));
        let module =
            Observed::Module { hook: HookName::Sync, digest: format!("sha256:{}", "1".repeat(64)), compiled };
        assert_eq!(
            lines.of(module).as_deref(),
            Some("sync hook: module sha256:111111111111, compiled in 0.2 s")
        );
        assert!(lines.of(problem()).is_some());
    }

    #[test]
    fn no_more_parents_are_remembered_than_the_bound() {
        let mut lines = Lines::default();
        for number in 0..=MAX_PARENTS {
            lines.of(ended(numbered(number), "1", ReconcileEnd::Ok));
            lines.of(Observed::Wrote { parent: numbered(number), what: String::new() });
            assert!(lines.last.len() <= MAX_PARENTS && lines.pending.len() <= MAX_PARENTS);
        }
        assert_eq!((lines.last.len(), lines.pending.len()), (1, 1));
    }
}
