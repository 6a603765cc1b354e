use metahook_core::trace::TraceEnd;
use serde_json::json;

use super::*;

fn object(kind: &str, name: &str) -> TracedObject {
    TracedObject {
        group: "example.com".into(),
        resource: format!("{}s", kind.to_lowercase()).into(),
        kind: kind.into(),
        namespace: "n".into(),
        name: name.into(),
    }
}

fn parent() -> TracedObject {
    object("Hello", "a")
}

fn call(parent: &TracedObject, request: &str, answer: Result<&str, &str>) -> String {
    let call = json!({ "call": {
        "controller": "c", "parent": parent, "hook": "sync", "nowNanos": 1, "request": request, "tookUs": 1200,
        "answer": answer.ok(), "error": answer.err(),
    } });
    call.to_string()
}

fn reconcile(parent: &TracedObject, version: &str) -> String {
    let trace = ReconcileTrace {
        controller: "CompositeController c".to_owned(),
        parent: parent.clone(),
        resource_version: version.to_owned(),
        end: TraceEnd::Wrote,
        ..ReconcileTrace::default()
    };
    RecordedLine::Reconcile(Box::new(trace)).print()
}

fn answer(lines: Vec<String>, began: bool) -> RecordedAnswer {
    RecordedAnswer { version: "1".to_owned(), hosted: true, lines, lost: 0, began }
}

fn added(recording: &mut CallRecording, answer: RecordedAnswer) -> Arc<RecordedCalls> {
    recording.add(&parent(), &[answer], (Instant::now(), Timestamp::UNIX_EPOCH)).unwrap()
}

/// A recording about `a` that servers run.
fn recording() -> CallRecording {
    let mut recording = CallRecording::default();
    let calls = added(&mut recording, answer(Vec::new(), true));
    assert_eq!((calls.began, calls.gaps), (Some(Timestamp::UNIX_EPOCH), 0));
    recording
}

#[test]
fn a_reconcile_has_the_calls_before_its_end() {
    let (mut recording, parent, other) = (recording(), parent(), object("Goodbye", "a"));
    let first =
        vec![call(&parent, r#"{"n":1,"m":1}"#, Ok(r#"{"children":[]}"#)), call(&other, "{}", Ok("{}"))];
    let calls = added(&mut recording, answer(first, false));
    assert!(calls.reconciles.is_empty(), "the reconcile has not ended");
    let rest = vec![
        reconcile(&other, "7"),
        reconcile(&parent, "1"),
        call(&parent, r#"{"n":2,"m":1}"#, Err("HookTrap: unreachable")),
        reconcile(&parent, "2"),
    ];
    let calls = added(&mut recording, answer(rest, false));
    let [second, first] = [&calls.reconciles[0], &calls.reconciles[1]];
    assert_eq!(calls.reconciles.len(), 2);
    assert_eq!((&*second.trace.resource_version, &*first.trace.resource_version), ("2", "1"));
    assert_eq!(first.calls[0].request.text, "{\n  \"m\": 1,\n  \"n\": 1\n}");
    assert_eq!(first.calls[0].answer.as_ref().unwrap().text, "{\n  \"children\": []\n}");
    assert_eq!((first.calls.len(), &*first.calls[0].changed.text), (1, ""));
    assert_eq!(second.calls[0].answer, Err("HookTrap: unreachable".to_owned()));
    let changed = &second.calls[0].changed.text;
    assert!(changed.contains("-   \"n\": 1") && changed.contains("+   \"n\": 2"), "{changed}");
}

#[test]
fn a_recording_is_bounded() {
    let (mut recording, parent) = (recording(), parent());
    let at_bound = "x".repeat(MAX_TEXT - 2) + "ä";
    let lines = (0..=MAX_RECONCILES).flat_map(|nth| {
        let texts = [at_bound.clone(), format!("x{at_bound}")];
        let calls: Vec<_> = (0..=MAX_CALLS).map(|_| call(&parent, &texts[0], Ok(&texts[1]))).collect();
        calls.into_iter().chain([reconcile(&parent, &nth.to_string())]).collect::<Vec<_>>()
    });
    let calls = added(&mut recording, answer(lines.collect(), false));
    let last = calls.reconciles.back().unwrap();
    assert_eq!((calls.reconciles.len(), &*last.trace.resource_version), (MAX_RECONCILES, "1"));
    assert_eq!((last.calls.len(), last.left_out), (MAX_CALLS, 1));
    let ShownCall { request, answer: shown, .. } = &last.calls[0];
    assert_eq!((&request.text, request.left_out), (&at_bound, 0));
    let shown = shown.as_ref().unwrap();
    assert_eq!((shown.text.len(), shown.left_out), (MAX_TEXT - 1, 2), "no half of a character");
    let calls = added(&mut recording, answer(vec![reconcile(&parent, "later")], false));
    let (first, last) = (calls.reconciles.front().unwrap(), calls.reconciles.back().unwrap());
    assert_eq!(calls.reconciles.len(), MAX_RECONCILES);
    assert_eq!((&*first.trace.resource_version, &*last.trace.resource_version), ("later", "2"));
}

#[test]
fn whole_requests_are_compared() {
    let mut recording = recording();
    let parent = parent();
    for (bytes, is_compared) in [(MAX_TEXT, true), (MAX_COMPARED - 40, true), (MAX_COMPARED, false)] {
        let request = |n: u8| json!({ "a": "x".repeat(bytes), "n": n }).to_string();
        for n in [1, 2] {
            let lines = vec![call(&parent, &request(n), Ok("{}")), reconcile(&parent, "1")];
            added(&mut recording, answer(lines, false));
        }
        let calls = added(&mut recording, answer(Vec::new(), false));
        let changed = &calls.reconciles[0].calls[0].changed;
        assert_eq!(changed.text.contains("+   \"n\": 2") || changed.left_out > 0, is_compared, "{bytes}");
    }
}

#[test]
fn calls_of_one_reconcile_are_compared_with_those_in_the_same_place() {
    let (mut recording, parent) = (recording(), parent());
    let reconciled = |of: [&str; 2]| {
        let [latest, older] = of.map(|n| call(&parent, &json!({ "n": n }).to_string(), Ok("{}")));
        vec![latest, older, reconcile(&parent, "1")]
    };
    added(&mut recording, answer(reconciled(["new", "old"]), false));
    let calls = added(&mut recording, answer(reconciled(["new", "older"]), false));
    let [latest, older] = &calls.reconciles[0].calls[..] else { panic!("two calls") };
    assert_eq!(latest.changed.text, "");
    assert!(older.changed.text.contains("-   \"n\": \"old\""), "{:?}", older.changed);
}

#[test]
fn a_gap_is_counted_and_a_line_of_another_version_is_an_error() {
    let (mut recording, parent) = (recording(), parent());
    let lost = RecordedAnswer { lost: 2, ..answer(vec![call(&parent, "{}", Ok("{}"))], false) };
    added(&mut recording, lost);
    let calls = added(&mut recording, answer(vec![reconcile(&parent, "9")], true));
    assert_eq!((calls.gaps, calls.lost, calls.began), (1, 2, Some(Timestamp::UNIX_EPOCH)));
    assert!(calls.reconciles[0].calls.is_empty(), "the call is that of a reconcile before the gap");
    let refused =
        recording.add(&parent, &[answer(vec!["{}".to_owned()], false)], (Instant::now(), Timestamp::MAX));
    assert!(matches!(refused, Err(RecorderError::Line(_))));
}

#[test]
fn tabs_that_ask_at_once_share_an_answer() {
    let mut recording = CallRecording::default();
    let now = Instant::now();
    assert_eq!(recording.shared(now), None);
    let calls = recording.add(&parent(), &[answer(Vec::new(), false)], (now, Timestamp::MAX)).unwrap();
    assert_eq!(calls.began, Some(Timestamp::MAX), "a server began it before");
    assert_eq!(recording.shared(now), Some(calls));
    assert_eq!(recording.shared(now + SHARED_FOR), None);
}

#[test]
fn a_recording_that_no_page_asks_for_ends_when_another_begins() {
    let subject = |name: &str| CallSubject {
        controller: object("CompositeController", "c"),
        parent: object("Hello", name),
    };
    let (mut all, a, now) = (CallRecordings::default(), subject("a"), Instant::now());
    let number = all.ask(&a, now).unwrap().number;
    assert_eq!(all.ask(&a, now).unwrap().number, number);
    assert!(all.ask(&subject("b"), now + MAX_SILENCE).unwrap().ended.is_empty());
    let later = now + MAX_SILENCE + Duration::from_millis(1);
    let question = all.ask(&subject("c"), later).unwrap();
    assert_eq!(question.ended, [(a.clone(), number.clone())]);
    assert_ne!(question.number, number);
    assert_ne!(all.ask(&a, later).unwrap().number, number, "it begins anew");
}
