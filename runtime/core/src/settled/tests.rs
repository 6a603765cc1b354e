use super::*;
use crate::object::testing::a;

fn print(text: &str) -> Fingerprint {
    Fingerprint::of(text.as_bytes())
}

fn state(answer: &str) -> SettledState {
    SettledState { seen: print("seen"), answer: print(answer), revision: revision(0) }
}

fn revision(number: u64) -> CacheRevision {
    CacheRevision::of(&a("e/v1", "P", "n/p").object(), print("hook"), None, [number])
}

fn settled(check_every: u64) -> (SettledParents, Key) {
    let (mut all, key) = (SettledParents::new(check_every), Key::new("n", "p"));
    assert_eq!(all.hook_need(&key, print("seen")), HookNeed::Call);
    all.called(print("hook"), true);
    all.settle(&key, state("answer"));
    (all, key)
}

#[test]
fn an_unchanged_settled_parent_costs_no_hook_call() {
    let (mut all, key) = settled(0);
    for _ in 0..3 {
        assert_eq!(all.hook_need(&key, print("seen")), HookNeed::Nothing);
    }
    assert_eq!(all.settled(), 1);
}

#[test]
fn a_parent_of_a_webhook_is_settled_and_costs_a_call() {
    let (mut all, key) = (SettledParents::new(0), Key::new("n", "p"));
    all.settle_without_state(&key);
    assert_eq!(all.settled(), 1);
    assert_eq!(all.hook_need(&key, print("seen")), HookNeed::Call);
    assert!(!all.is_settled(&key, revision(0)));
    assert_eq!(all.settled(), 1, "until its reconcile has ended");
    all.fail(&key, "HookConnect");
    assert_eq!((all.settled(), all.failing().len()), (0, 1));
    all.settle_without_state(&key);
    assert_eq!((all.settled(), all.failing().len()), (1, 0));
    all.settle(&key, state("answer"));
    assert_eq!(all.settled(), 1, "counted once");
    all.forget(&key);
    assert_eq!(all.settled(), 0);
}

#[test]
fn one_that_looks_different_is_and_stays_so_until_it_settles_again() {
    let (mut all, key) = settled(0);
    assert_eq!(all.hook_need(&key, print("changed")), HookNeed::Call);
    assert_eq!(all.hook_need(&key, print("seen")), HookNeed::Call, "also when it looks as before again");
    assert_eq!(all.settled(), 0);
}

#[test]
fn a_failing_parent_is_called_about_whatever_it_looks_like() {
    let (mut all, key) = settled(0);
    all.fail(&key, "HookTrap");
    assert_eq!(all.hook_need(&key, print("seen")), HookNeed::Call);
    assert_eq!(*all.failing(), BTreeMap::from([(key.clone(), "HookTrap")]));
    assert_eq!(all.settled(), 0, "no parent is both");
    all.unsettle(&key);
    assert!(all.failing().is_empty());
}

#[test]
fn a_paused_parent_is_counted_as_nothing_else() {
    let (mut all, key) = settled(0);
    all.fail(&key, "HookTrap");
    all.pause(&key);
    assert!(all.is_paused(&key));
    assert_eq!((all.settled(), all.failing().len(), all.paused()), (0, 0, 1));
    assert_eq!(all.hook_need(&key, print("seen")), HookNeed::Call);
    all.settle_without_state(&key);
    assert_eq!((all.settled(), all.paused()), (1, 0));
}

#[test]
fn each_parent_is_in_one_state() {
    let (mut all, key) = settled(0);
    assert_eq!(all.state(&key), (ParentState::Settled, ""));
    all.unsettle(&key);
    assert_eq!(all.state(&key), (ParentState::Unsettled, ""));
    all.settle_without_state(&key);
    assert_eq!(all.state(&key), (ParentState::Settled, ""));
    all.fail(&key, "HookTrap");
    assert_eq!(all.state(&key), (ParentState::Failing, "HookTrap"));
    all.pause(&key);
    assert_eq!(all.state(&key), (ParentState::Paused, ""));
}

#[test]
fn a_status_that_was_put_off_is_due_once_and_not_for_a_parent_that_went() {
    let (mut all, key) = settled(0);
    all.put_off_status(&key);
    all.unsettle(&key);
    assert_eq!((all.take_status_due(&key), all.take_status_due(&key)), (true, false));
    all.put_off_status(&key);
    all.forget(&key);
    assert!(!all.take_status_due(&key));
}

#[test]
fn one_in_so_many_is_checked_whichever_parent_it_is() {
    let parents: Vec<_> = (0..10).map(|number| Key::new("n", &format!("p{number}"))).collect();
    let mut all = SettledParents::new(10);
    for parent in &parents {
        all.settle(parent, state("answer"));
    }
    let mut checked = BTreeMap::new();
    for parent in parents.iter().cycle().take(10_000) {
        if let HookNeed::Check(_) = all.hook_need(parent, print("seen")) {
            *checked.entry(parent).or_insert(0) += 1;
        }
    }
    assert_eq!(checked.len(), parents.len());
    assert!(checked.values().all(|times| (50..200).contains(times)), "of 1,000 each: {checked:?}");
}

#[test]
fn a_sampled_parent_is_reconciled_and_checked() {
    let (mut all, key) = settled(1);
    assert!(!all.is_settled(&key, revision(0)));
    all.check_every = 0;
    assert!(!all.is_settled(&key, revision(0)), "until it is asked about");
    assert_eq!(all.hook_need(&key, print("seen")), HookNeed::Check(print("answer")));
    assert_eq!(all.hook_need(&key, print("seen")), HookNeed::Nothing, "once");
    assert!(all.is_settled(&key, revision(0)));
}

#[test]
fn another_number_is_looked_into() {
    let (mut all, key) = settled(0);
    assert!(all.is_settled(&key, revision(0)) && !all.is_settled(&key, revision(1)));
    all.renew(&key, print("changed"), revision(1));
    assert!(!all.is_settled(&key, revision(1)), "it looks different");
    all.renew(&key, print("seen"), revision(1));
    assert!(all.is_settled(&key, revision(1)), "it looks as before");
}

#[test]
fn a_hook_with_two_answers_is_called_each_time_until_it_changes() {
    let (mut all, key) = settled(1);
    assert!(all.differed(print("hook")), "news");
    assert!(!all.differed(print("hook")), "no news");
    all.called(print("hook"), true);
    all.settle(&key, state("other"));
    assert_eq!(
        (all.hook_need(&key, print("seen")), all.purity_of(print("hook"))),
        (HookNeed::Call, Some(Purity::Differs))
    );
    all.called(print("next hook"), true);
    all.settle(&key, state("other"));
    assert_eq!((all.settled(), all.purity_of(print("next hook"))), (1, Some(Purity::Pure)));
}

#[test]
fn a_status_that_was_dropped_is_not_written_again_for_a_while() {
    let (mut all, key) = (SettledParents::new(0), Key::new("n", "p"));
    let at = Duration::from_secs;
    all.record_no_op_write(&key, print("status"), at(0));
    assert!(all.is_no_op_write(&key, || print("status"), at(599)));
    assert!(!all.is_no_op_write(&key, || print("status"), at(600)), "the schema may have changed");
    assert!(!all.is_no_op_write(&key, || print("other"), at(1)));
    all.forget(&key);
    assert!(!all.is_no_op_write(&key, || print("status"), at(1)));
}

#[test]
fn one_clock_reading_is_reported_until_the_hook_changes() {
    let mut all = SettledParents::new(0);
    assert_eq!(all.purity_of(print("hook")), None);
    all.called(print("hook"), false);
    all.called(print("hook"), true);
    assert_eq!(all.purity_of(print("hook")), Some(Purity::ReadsClock));
    assert_eq!(all.purity_of(print("next hook")), None);
    all.called(print("next hook"), true);
    assert_eq!(all.purity_of(print("next hook")), Some(Purity::Pure));
}
