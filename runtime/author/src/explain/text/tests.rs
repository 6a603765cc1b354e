use metahook_core::hook::Usage;
use metahook_core::json::places::ChangedValue;
use metahook_core::reconcile::outcome::StatusLeft;
use metahook_core::trace::{LeftChild, PlannedWrite, TracedWriteEnd};

use super::writes::SLOW_WRITE;
use super::*;

pub(super) fn object(kind: &str, resource: &str, name: &str) -> TracedObject {
    TracedObject {
        group: "".into(),
        resource: resource.into(),
        kind: kind.into(),
        namespace: "demo".into(),
        name: name.into(),
    }
}

pub(super) fn pod(name: &str) -> TracedObject {
    object("Pod", "pods", name)
}

fn related() -> TracedStep {
    TracedStep::Related {
        earlier: false,
        took_us: 300,
        usage: Some(Usage { instructions: 9000, memory: 1 << 20 }),
        rules: 1,
        objects: 14,
        found: Vec::new(),
        error: None,
    }
}

fn changed(path: &str, before: Option<&str>, after: Option<&str>) -> ChangedValue {
    let [before, after] = [before, after].map(|text| text.map(str::to_owned));
    ChangedValue { path: path.to_owned(), before, after }
}

pub(super) fn trace() -> ReconcileTrace {
    let call = TracedStep::Called {
        hook: "sync".to_owned(),
        older: false,
        took_us: 700,
        usage: Some(Usage { instructions: 60_117, memory: 1 << 20 }),
        error: None,
    };
    let planned = |verb: &str, name: &str, drift: &[&str]| PlannedWrite {
        verb: verb.to_owned(),
        object: pod(name),
        drift: drift.iter().map(|&place| place.to_owned()).collect(),
        changes: if name == "web" { vec!["spec.image".to_owned()] } else { Vec::new() },
        values: drift.iter().map(|&place| changed(place, Some("5"), Some("3"))).collect(),
    };
    let plan = TracedStep::Planned {
        writes: vec![planned("delete", "old", &[]), planned("replace", "web", &["spec.replicas"])],
        left: vec![LeftChild { object: pod("going"), why: "it is being deleted".to_owned() }],
        unchanged: 2,
        left_out: 0,
    };
    let wrote = |verb: &str, name: &str, reason: Option<&str>, end| TracedStep::Wrote {
        verb: verb.to_owned(),
        object: pod(name),
        // At the bound, and below it.
        took_us: if name == "old" { SLOW_WRITE } else { SLOW_WRITE - 1 },
        reason: reason.map(str::to_owned),
        warnings: if name == "web" { vec!["unknown field \"spec.replica\"".to_owned()] } else { Vec::new() },
        end,
    };
    ReconcileTrace {
        controller: "CompositeController hello".to_owned(),
        parent: object("Hello", "hellos", "a"),
        generation: 2,
        resource_version: "7".to_owned(),
        began: "2026-11-27T10:20:31.120Z".to_owned(),
        took_us: 12_345,
        cause: "spec changed".to_owned(),
        changed_fields: vec!["spec.replicas".to_owned(), "…".to_owned()],
        steps: vec![
            related(),
            call,
            plan,
            wrote("delete", "old", Some("the answer does not list it"), TracedWriteEnd::Changed),
            wrote("replace", "web", None, TracedWriteEnd::Failed("no right".to_owned())),
        ],
        end: TraceEnd::Failed("replace Pod demo/web: no right".to_owned()),
        next_us: Some(5_000_000),
        ..ReconcileTrace::default()
    }
}

fn printed(object: &TracedObject, reconciles: Vec<ReconcileTrace>, max: usize) -> String {
    printed_with(0, object, reconciles, max)
}

fn printed_with(
    hidden_parents: usize,
    object: &TracedObject,
    reconciles: Vec<ReconcileTrace>,
    max: usize,
) -> String {
    let mut out = Vec::new();
    let explained = Explained { version: "1".to_owned(), reconciles, hidden_parents };
    print(&mut out, object, &explained, max).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn a_reconcile_is_told_from_its_cause_to_what_comes_next() {
    let expected = "\
CompositeController hello: fails now, since 2026-11-27 10:20:31.120Z or earlier
2026-11-27 10:20:31.120Z  CompositeController hello: spec changed (spec.replicas, …), FAILED in 12.3 ms
  related     customize hook, 0.3 ms, 9000 instructions, 1024 KiB: 1 rule, 14 objects
  call        sync hook, 0.7 ms, 60117 instructions, 1024 KiB
  unchanged   2 children
  left        Pod demo/going: it is being deleted
  drift       Pod demo/web: another client changed spec.replicas from 3 to 5
  delete      Pod demo/old in 100.0 ms: the answer does not list it
  replace     Pod demo/web (spec.image), FAILED: no right; the API server warns: unknown field \"spec.replica\", and leaves it out
  failed      replace Pod demo/web: no right
  next        after 5.0 s, unless something changes before
";
    assert_eq!(printed(&object("Hello", "hellos", "a"), vec![trace()], 5), expected);
    let of_child = printed(&pod("old"), vec![trace(), trace()], 1);
    assert!(
        of_child.starts_with("CompositeController hello: Hello demo/a fails now, at least 2 times since ")
    );
    assert!(of_child.contains(
        "\n2026-11-27 10:20:31.120Z  CompositeController hello: Hello demo/a, spec changed (spec.replicas, …),"
    ));
    assert!(of_child.ends_with("1 more: --count shows them\n"), "{of_child}");
}

#[test]
fn changes_are_shown_with_their_values_where_the_server_says_them() {
    let text = |values: &[ChangedValue]| {
        let mut trace = trace();
        for step in &mut trace.steps {
            if let TracedStep::Planned { writes, .. } = step {
                for write in writes {
                    write.values = values.to_vec();
                }
            }
        }
        printed(&object("Hello", "hellos", "a"), vec![trace], 5)
    };
    let new = text(&[changed("spec.image", None, Some("\"b\""))]);
    assert!(new.contains("replace     Pod demo/web (spec.image: nothing -> \"b\"), FAILED"), "{new}");
    // An older server does not say them.
    let old = text(&[]);
    assert!(old.contains("another client changed spec.replicas\n"), "{old}");
    assert!(old.contains("Pod demo/web (spec.image), FAILED"), "{old}");
}

#[test]
fn fields_that_another_decorator_has_are_shown() {
    let mut younger = trace();
    let conflict = "the DecoratorControllers old and new want the label a to be different".to_owned();
    younger.steps = vec![TracedStep::LeftFields { conflicts: vec![conflict], more: 1, waits: true }];
    (younger.end, younger.changed_fields) = (TraceEnd::Unchanged, Vec::new());
    let said = printed(&object("Hello", "hellos", "a"), vec![younger], 5);
    let expected = "
  left        the DecoratorControllers old and new want the label a to be different
  …           1 more conflict
  left        Hello demo/a: fields of it wait until older DecoratorControllers have reconciled it
";
    assert!(said.contains(expected), "{said}");
}

#[test]
fn a_status_that_is_left_and_the_next_resync_are_shown() {
    let mut calm = trace();
    calm.steps = [StatusLeft::Unchanged, StatusLeft::PutOff].map(|why| TracedStep::StatusLeft { why }).into();
    (calm.end, calm.changed_fields) = (TraceEnd::Unchanged, Vec::new());
    calm.next_resync_us = Some(12_000_000);
    let expected = "\
2026-11-27 10:20:31.120Z  CompositeController hello: spec changed, nothing to write in 12.3 ms
  status      Hello demo/a: unchanged
  status      Hello demo/a: put off: the next reconcile shows the hook the children that were just written
  next        after 5.0 s, and the controller's resync after 12.0 s, unless something changes before
";
    let parent = object("Hello", "hellos", "a");
    assert_eq!(printed(&parent, vec![calm.clone()], 5), expected);
    calm.next_us = None;
    let said = printed(&parent, vec![calm], 5);
    assert!(
        said.ends_with(
            "  next        the controller's resync after 12.0 s, unless something changes before\n"
        ),
        "{said}"
    );
}

#[test]
fn triggers_that_changed_nothing_stand_beside_the_latest_reconcile() {
    let settled = |triggers| SettledTriggers {
        triggers,
        first: "2026-11-27T10:20:40.000Z".to_owned(),
        last: "2026-11-27T10:31:02.512Z".to_owned(),
        related_cause: None,
        last_cause: "Pod demo/x changed".to_owned(),
    };
    let mut calm = trace();
    calm.end = TraceEnd::Unchanged;
    calm.settled = Some(settled(212));
    let mended =
        "CompositeController hello: failed at least once until 2026-11-27 10:20:31.120Z; no failure since\n";
    let line = "CompositeController hello: settled; since this reconcile 212 triggers changed nothing, the last one (Pod demo/x changed) at 2026-11-27 10:31:02.512Z\n";
    let parent = object("Hello", "hellos", "a");
    let said = printed(&parent, vec![calm.clone(), trace()], 5);
    assert!(said.starts_with(&format!("{mended}{line}")), "{said}");
    assert!(said.contains("FAILED (mended since) in 12.3 ms\n"), "{said}");
    let mut followed = Vec::new();
    print_following(&mut followed, &parent, &[trace(), calm.clone()]).unwrap();
    assert!(String::from_utf8(followed).unwrap().ends_with(line));
    calm.settled = Some(settled(1));
    let said = printed(&pod("old"), vec![calm], 5);
    let line = "CompositeController hello: Hello demo/a settled; since this reconcile 1 trigger (Pod demo/x changed) changed nothing, at 2026-11-27 10:31:02.512Z\n";
    assert!(said.starts_with(line), "{said}");
}

#[test]
fn what_is_not_shown_and_what_was_not_done_is_said() {
    let mut cut = trace();
    cut.steps.truncate(4);
    let said = printed_with(2, &pod("web"), vec![cut.clone()], 5);
    assert!(said.starts_with("The reconciles of 2 parents are not shown"), "{said}");
    assert!(
        said.contains("  not done    replace Pod demo/web (spec.image)\n")
            && !said.contains("not done    delete"),
        "{said}"
    );
    cut.left_out = 1;
    let said = printed(&pod("web"), vec![cut], 5);
    assert!(said.contains("1 more step\n") && !said.contains("not done"), "{said}");
}

#[test]
fn a_deleted_related_object_is_named_where_the_server_names_it() {
    let deleted = |object, deleted| TracedStep::DeletedRelated { object, deleted };
    let steps = vec![deleted(Some(pod("b")), false), deleted(None, true)];
    let said = printed(&pod("web"), vec![ReconcileTrace { steps, ..trace() }], 5);
    let rows = "  delete      related Pod demo/b, gone before\n  delete      a related object\n";
    assert!(said.contains(rows), "{said}");
}

#[test]
fn only_an_unknown_field_is_left_out() {
    let warnings = ["unknown field \"spec.x\"", "spec.y is deprecated"].map(str::to_owned).into();
    let (verb, object, end) = ("replace".to_owned(), pod("web"), TracedWriteEnd::Changed);
    let steps = vec![TracedStep::Wrote { verb, object, took_us: 5, reason: None, warnings, end }];
    let said = printed(&pod("web"), vec![ReconcileTrace { steps, ..trace() }], 5);
    let warns = "warns: unknown field \"spec.x\", and leaves it out; spec.y is deprecated\n";
    assert!(said.contains(warns), "{said}");
}

#[test]
fn a_message_does_nothing_to_the_terminal() {
    let mut odd = trace();
    odd.end = TraceEnd::Failed("\u{1b}[2Jone\ntwo".to_owned());
    odd.changed_fields = vec!["data.\u{1b}[2J".to_owned()];
    let said = printed(&pod("web"), vec![odd], 5);
    assert!(said.contains("spec changed (data.\\u{1b}[2J), "), "{said}");
    assert!(said.contains("failed      \\u{1b}[2Jone\n              two\n"), "{said}");
}

#[test]
fn equal_reconciles_are_counted_and_a_wait_is_told_with_its_end() {
    let mut waits = trace();
    waits.end = TraceEnd::Wrote;
    waits.repeated = Some(Repeated { times: 212, since: "2026-11-27T09:00:00.000Z".to_owned() });
    waits.throttled = Some("It never settles".to_owned());
    let said = printed(&object("Hello", "hellos", "a"), vec![waits], 5);
    assert!(
        said.contains(" written in 12.3 ms; the same 212 times since 2026-11-27 09:00:00.000Z\n"),
        "{said}"
    );
    let row = "  throttled   It never settles. The next one waits until 2026-11-27 10:20:36Z\n";
    assert!(said.contains(row), "{said}");
}

#[test]
fn held_deletions_are_named_with_the_ways_out() {
    let mut holds = trace();
    holds.steps =
        vec![TracedStep::Held { children: 12, objects: vec![pod("a")], version: "4f0c".to_owned() }];
    let said = printed(&object("Hello", "hellos", "a"), vec![holds.clone()], 5);
    for row in [
        "  held        after a change of the hooks or of the spec the answer deletes 12 children: ",
        "  held        delete Pod demo/a\n  held        11 more\n",
        "  way out     where the change was wrong: metahook rollback hello, or put the earlier spec back\n",
        "  way out     where it was meant: kubectl annotate --overwrite compositecontroller hello metahook.dev/allow-deletions=4f0c\n",
    ] {
        assert!(said.contains(row), "{row}: {said}");
    }
    assert!(holds.is_about(&pod("a")));
}

#[test]
fn the_ways_out_stand_at_the_present_hold_alone() {
    let holds = |version: &str| {
        let (children, objects, version) = (1, vec![pod("a")], version.to_owned());
        ReconcileTrace { steps: vec![TracedStep::Held { children, objects, version }], ..trace() }
    };
    let parent = object("Hello", "hellos", "a");
    let said = printed(&parent, vec![holds("new"), holds("old")], 5);
    assert!(said.contains("allow-deletions=new\n") && !said.contains("allow-deletions=old"), "{said}");
    assert_eq!((said.matches("  way out ").count(), said.matches("  held  ").count()), (2, 4), "{said}");
    let said = printed(&parent, vec![trace(), holds("old")], 5);
    assert!(!said.contains("way out"), "it plans anew: {said}");
    // One that did not come so far says nothing about the hold; nor does one of another parent.
    let put_off = ReconcileTrace { steps: Vec::new(), end: TraceEnd::Again("busy".to_owned()), ..trace() };
    let other = ReconcileTrace { parent: object("Hello", "hellos", "b"), ..trace() };
    let said = printed(&parent, vec![other, put_off, holds("old")], 5);
    assert!(said.contains("allow-deletions=old\n"), "{said}");
    let mut followed = Vec::new();
    print_following(&mut followed, &parent, &[holds("old"), holds("new")]).unwrap();
    let followed = String::from_utf8(followed).unwrap();
    assert!(followed.contains("=new\n") && !followed.contains("=old\n"), "{followed}");
}
