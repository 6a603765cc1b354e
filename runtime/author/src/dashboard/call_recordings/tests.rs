use metahook_core::trace::TraceEnd;
use serde_json::json;

use super::*;

fn object(kind: &str, name: &str) -> TracedObject {
    TracedObject {
        group: "example.com".to_owned(),
        resource: format!("{}s", kind.to_lowercase()),
        kind: kind.to_owned(),
        namespace: "n".to_owned(),
        name: name.to_owned(),
    }
}

fn subject(name: &str) -> CallSubject {
    CallSubject { controller: object("CompositeController", "c"), parent: object("Hello", name) }
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

fn answer(lines: Vec<String>, began: bool) -> Vec<RecordedAnswer> {
    vec![RecordedAnswer { version: "1".to_owned(), hosted: true, lines, lost: 0, began }]
}

/// The recording about `a` runs.
fn with_one() -> (CallRecordings, CallSubject) {
    let (mut all, a) = (CallRecordings::default(), subject("a"));
    all.ask(&a, Instant::now()).unwrap();
    let calls = all.add(&a, answer(Vec::new(), true), Timestamp::UNIX_EPOCH).unwrap();
    assert_eq!((calls.began, calls.gaps), (Some(Timestamp::UNIX_EPOCH), 0));
    (all, a)
}

#[test]
fn a_reconcile_has_the_calls_before_its_end() {
    let (mut all, a) = with_one();
    let other = object("Goodbye", "a");
    let first =
        vec![call(&a.parent, r#"{"n":1,"m":1}"#, Ok(r#"{"children":[]}"#)), call(&other, "{}", Ok("{}"))];
    let calls = all.add(&a, answer(first, false), Timestamp::UNIX_EPOCH).unwrap();
    assert!(calls.reconciles.is_empty(), "the reconcile has not ended");
    let rest = vec![
        reconcile(&other, "7"),
        reconcile(&a.parent, "1"),
        call(&a.parent, r#"{"n":2,"m":1}"#, Err("HookTrap: unreachable")),
        reconcile(&a.parent, "2"),
    ];
    let calls = all.add(&a, answer(rest, false), Timestamp::UNIX_EPOCH).unwrap();
    let [second, first] = &Vec::from(calls.reconciles)[..] else { panic!("two reconciles") };
    assert_eq!((&*second.trace.resource_version, &*first.trace.resource_version), ("2", "1"));
    assert_eq!(first.calls[0].request.text, "{\n  \"m\": 1,\n  \"n\": 1\n}");
    assert_eq!(first.calls[0].answer.as_ref().unwrap().text, "{\n  \"children\": []\n}");
    assert_eq!((first.calls.len(), &*first.calls[0].changed), (1, ""));
    assert_eq!(second.calls[0].answer, Err("HookTrap: unreachable".to_owned()));
    let changed = &second.calls[0].changed;
    assert!(changed.contains("-   \"n\": 1") && changed.contains("+   \"n\": 2"), "{changed}");
}

#[test]
fn a_recording_is_bounded() {
    let (mut all, a) = with_one();
    let at_bound = "x".repeat(MAX_TEXT - 2) + "ä";
    let lines = (0..=MAX_RECONCILES).flat_map(|nth| {
        let texts = [at_bound.clone(), format!("x{at_bound}")];
        let calls: Vec<_> = (0..=MAX_CALLS).map(|_| call(&a.parent, &texts[0], Ok(&texts[1]))).collect();
        calls.into_iter().chain([reconcile(&a.parent, &nth.to_string())]).collect::<Vec<_>>()
    });
    let calls = all.add(&a, answer(lines.collect(), false), Timestamp::UNIX_EPOCH).unwrap();
    let last = calls.reconciles.back().unwrap();
    assert_eq!((calls.reconciles.len(), &*last.trace.resource_version), (MAX_RECONCILES, "1"));
    assert_eq!(last.calls.len(), MAX_CALLS);
    let ShownCall { request, answer, .. } = &last.calls[0];
    assert_eq!((&request.text, request.left_out), (&at_bound, 0));
    let answer = answer.as_ref().unwrap();
    assert_eq!((answer.text.len(), answer.left_out), (MAX_TEXT - 1, 2), "no half of a character");
}

#[test]
fn a_gap_is_counted_and_a_line_of_another_version_is_an_error() {
    let (mut all, a) = with_one();
    let lost = RecordedAnswer { lost: 2, ..answer(vec![call(&a.parent, "{}", Ok("{}"))], false).remove(0) };
    all.add(&a, vec![lost], Timestamp::UNIX_EPOCH).unwrap();
    let lines = vec![reconcile(&a.parent, "9")];
    let calls = all.add(&a, answer(lines, true), Timestamp::MAX).unwrap();
    assert_eq!((calls.gaps, calls.lost, calls.began), (1, 2, Some(Timestamp::UNIX_EPOCH)));
    assert!(calls.reconciles[0].calls.is_empty(), "the call is that of a reconcile before the gap");
    let refused = all.add(&a, answer(vec!["{}".to_owned()], false), Timestamp::MAX);
    assert!(matches!(refused, Err(RecorderError::Line(_))));
}

#[test]
fn a_recording_that_no_page_asks_for_ends_when_another_begins() {
    let (mut all, a) = with_one();
    let now = Instant::now();
    let number = all.ask(&a, now).unwrap().number;
    assert_eq!(all.ask(&a, now).unwrap().number, number);
    assert!(all.ask(&subject("b"), now + MAX_SILENCE).unwrap().ended.is_empty());
    let later = now + MAX_SILENCE + Duration::from_millis(1);
    let question = all.ask(&subject("c"), later).unwrap();
    assert_eq!(question.ended, [(a.clone(), number.clone())]);
    assert_ne!(question.number, number);
    assert_eq!(
        all.add(&a, answer(Vec::new(), true), Timestamp::UNIX_EPOCH).unwrap(),
        RecordedCalls::default()
    );
    assert_ne!(all.ask(&a, later).unwrap().number, number, "it begins anew");
}

#[test]
fn a_refused_recording_is_dropped_and_another_stays() {
    let (mut all, a) = with_one();
    let b = subject("b");
    let number = all.ask(&b, Instant::now()).unwrap().number;
    all.refused(&b);
    all.refused(&a);
    assert_ne!(all.ask(&b, Instant::now()).unwrap().number, number);
    let calls = all.add(&a, answer(Vec::new(), false), Timestamp::MAX).unwrap();
    assert_eq!(calls.began, Some(Timestamp::UNIX_EPOCH));
}
