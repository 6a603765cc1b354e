//! Tests of leader election.

use super::*;

const TIME: &str = "2026-11-23T07:00:00.000000Z";

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn elector(identity: &str) -> LeaderElector {
    LeaderElector::new(identity.to_owned(), Timing::default())
}

fn held_by(holder: &str, version: &str) -> Lease {
    let record = Record {
        holder: holder.to_owned(),
        seconds: 15,
        acquired: TIME.to_owned(),
        renewed: TIME.to_owned(),
        transitions: 3,
    };
    Lease { record, version: version.to_owned() }
}

fn leader(sent: u64) -> LeaderElector {
    let mut a = elector("a");
    a.wrote(held_by("a", "1"), secs(sent), secs(sent + 1));
    a
}

/// A client may have deleted it a moment before: its holder writes on until it notices.
#[test]
fn a_lease_that_is_missing_is_created_when_its_holder_would_have_ended() {
    let mut a = elector("a");
    assert_eq!(a.step(secs(100), TIME), Step::Read);
    for second in [100, 101, 114] {
        a.observe(None, secs(second));
        assert_eq!(a.step(secs(second), TIME), Step::Wait, "{second}");
    }
    a.observe(None, secs(115));
    let Step::Create(record) = a.step(secs(115), TIME) else { panic!("no Lease is created") };
    assert_eq!(record, Record { transitions: 0, ..held_by("a", "").record });
    assert!(!a.may_write(secs(115)), "not before it is stored");
}

/// A client may have created and deleted the Lease meanwhile.
#[test]
fn the_absence_of_a_lease_counts_anew_after_a_pause() {
    let mut a = elector("a");
    for (second, is_created) in
        [(100, false), (114, false), (129, false), (130, false), (143, false), (144, true)]
    {
        a.observe(None, secs(second));
        assert_eq!(matches!(a.step(secs(second), TIME), Step::Create(_)), is_created, "{second}");
    }
}

#[test]
fn the_leader_makes_its_first_lease_anew_where_it_vanishes() {
    let mut a = elector("a");
    a.observe(None, secs(100));
    a.observe(None, secs(115));
    a.wrote(held_by("a", "1"), secs(115), secs(116));
    a.observe(None, secs(117));
    assert_eq!(a.step(secs(117), TIME), Step::Create(held_by("a", "").record));
}

#[test]
fn a_lease_that_vanishes_counts_as_renewed_just_then() {
    let mut b = elector("b");
    b.observe(Some(held_by("a", "1")), secs(100));
    for second in [114, 116, 128] {
        b.observe(None, secs(second));
        assert_eq!(b.step(secs(second), TIME), Step::Wait, "{second}");
    }
    b.observe(None, secs(129));
    let expected = Record { transitions: 4, ..held_by("b", "").record };
    assert_eq!(b.step(secs(129), TIME), Step::Create(expected));
    b.observe(Some(held_by("a", "2")), secs(129));
    b.observe(None, secs(130));
    assert_eq!(b.step(secs(144), TIME), Step::Wait, "it came back meanwhile");
}

#[test]
fn the_leader_makes_a_lease_that_vanished_anew_and_stops_at_its_deadline() {
    let mut a = leader(100);
    a.observe(None, secs(102));
    assert_eq!(a.step(secs(102), TIME), Step::Create(held_by("a", "").record));
    a.failed();
    a.observe(None, secs(110));
    assert_eq!((a.step(secs(110), TIME), a.may_write(secs(110))), (Step::Lost, false));
}

#[test]
fn a_lease_is_taken_when_no_renewal_was_seen_for_its_duration() {
    let mut b = elector("b");
    for (second, version) in [(100, "1"), (110, "2"), (124, "2")] {
        b.observe(Some(held_by("a", version)), secs(second));
        assert_eq!(b.step(secs(second), TIME), Step::Wait);
        assert_eq!(b.step(secs(second), TIME), Step::Read);
    }
    b.observe(Some(held_by("a", "2")), secs(125));
    let expected = Record { transitions: 4, ..held_by("b", "").record };
    assert_eq!(b.step(secs(125), TIME), Step::Update(expected, "2".to_owned()));
}

#[test]
fn a_holder_with_longer_leases_is_waited_for_and_one_with_shorter_as_long_as_for_us() {
    for (seconds, valid) in [(60, 60), (1, 15), (0, 15), (-7, 15), (i64::MAX, i64::MAX.unsigned_abs())] {
        let mut lease = held_by("a", "1");
        lease.record.seconds = seconds;
        let mut b = elector("b");
        for (now, is_taken) in [(0, false), (valid - 1, false), (valid, true)] {
            b.observe(Some(lease.clone()), secs(now));
            assert_eq!(matches!(b.step(secs(now), TIME), Step::Update(..)), is_taken, "{seconds} {now}");
        }
    }
}

#[test]
fn a_lease_without_a_holder_is_taken_at_once() {
    let mut b = elector("b");
    b.observe(Some(held_by("", "7")), secs(0));
    assert!(matches!(b.step(secs(0), TIME), Step::Update(_, version) if version == "7"));
}

#[test]
fn the_leader_writes_until_the_deadline_of_the_renewal_that_it_sent_last() {
    let mut a = leader(100);
    assert!(a.may_write(secs(109)) && !a.may_write(secs(110)));
    assert_eq!(a.step(secs(102), TIME), Step::Update(held_by("a", "").record, "1".to_owned()));
    a.failed();
    assert_eq!(a.step(secs(104), TIME), Step::Read);
    assert_eq!(a.write_until(), Some(secs(110)), "a renewal that failed changes nothing");
    a.wrote(held_by("a", "2"), secs(104), secs(109));
    assert_eq!(a.write_until(), Some(secs(114)));
}

#[test]
fn a_leader_past_its_deadline_never_leads_again() {
    let mut a = leader(100);
    assert_eq!(a.step(secs(110), TIME), Step::Lost);
    a.wrote(held_by("a", "2"), secs(109), secs(111));
    assert_eq!(a.step(secs(111), TIME), Step::Lost);
    assert!(!a.may_write(secs(111)) && a.release(TIME).is_none());
}

#[test]
fn a_leader_that_sees_another_holder_stops_at_once() {
    let mut a = leader(100);
    a.observe(Some(held_by("b", "2")), secs(101));
    assert_eq!((a.step(secs(101), TIME), a.may_write(secs(101))), (Step::Lost, false));
    assert_eq!(a.holder(), Some("b"));
}

#[test]
fn a_released_lease_has_no_holder_and_its_old_one_no_longer_writes() {
    let mut a = leader(100);
    let Some(Step::Update(record, version)) = a.release(TIME) else { panic!("nothing is released") };
    assert_eq!((record.holder.as_str(), record.seconds, version.as_str()), ("", 1, "1"));
    assert!(!a.may_write(secs(101)));
    assert_eq!(elector("b").release(TIME), None);
    a.observe(Some(held_by("a", "2")), secs(101));
    let again = a.release_as_read(TIME);
    assert!(
        matches!(&again, Some(Step::Update(record, version)) if record.holder.is_empty() && version == "2")
    );
    a.observe(Some(held_by("b", "3")), secs(102));
    assert_eq!((a.release_as_read(TIME), leader(100).release_as_read(TIME)), (None, None));
}

#[test]
fn a_lease_is_read_as_it_is_written() {
    let lease = held_by("a", "9");
    let written = lease.record.lease("n", "metacontroller", Some("9"));
    assert_eq!(Lease::parse(&written.to_string()), Some(lease));
    let foreign = r#"{"metadata":{"resourceVersion":"1"},"spec":{"holderIdentity":null,"strategy":"x"}}"#;
    let empty = Lease { record: Record::default(), version: "1".to_owned() };
    assert_eq!(Lease::parse(foreign), Some(empty));
    assert_eq!(Lease::parse("{}"), None);
}
