//! Leader election by a Lease: who holds it, when a candidate may take it, and until when the leader may write.
//!
//! Times are of this process's own clock, which also runs while the machine is suspended: a renewal counts from the moment at
//! which this process saw it. A Lease that vanishes counts as renewed just then: its holder may not have noticed.
//! A time that another machine wrote is never compared.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

/// Durations of an election.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// A candidate takes the Lease when it saw no renewal for so long.
    pub lease: Duration,
    /// The leader writes for so long after it sent the last renewal that succeeded; well below `lease`, so that clocks may
    /// run at different speeds.
    pub renew_deadline: Duration,
    pub retry: Duration,
}

/// Metacontroller's.
impl Default for Timing {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry: Duration::from_secs(2),
        }
    }
}

/// The fields of a Lease that an election needs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Record {
    #[serde(rename = "holderIdentity", deserialize_with = "or_default")]
    pub holder: String,
    #[serde(rename = "leaseDurationSeconds", deserialize_with = "or_default")]
    pub seconds: i64,
    #[serde(rename = "acquireTime", deserialize_with = "or_default")]
    pub acquired: String,
    #[serde(rename = "renewTime", deserialize_with = "or_default")]
    pub renewed: String,
    #[serde(rename = "leaseTransitions", deserialize_with = "or_default")]
    pub transitions: i64,
}

/// A stored Lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    pub record: Record,
    pub version: String,
}

/// The next request of a candidate or of the leader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    Read,
    Create(Record),
    /// Succeeds only where the Lease still has this version.
    Update(Record, String),
    /// Another one leads.
    Wait,
    /// This process led, and does no longer: it never leads again.
    Lost,
}

/// One participant of an election.
///
/// # Guarantees
/// At most one of the participants that use one Lease with one `Timing` [may write](Self::may_write) at any moment,
/// however late requests and answers are, as long as the API server compares versions and no clock runs 1.2 times as
/// fast as another. Where the Lease is deleted, this needs that each has seen it before.
#[derive(Debug)]
pub struct LeaderElector {
    identity: String,
    timing: Timing,
    /// The Lease, and when this version of it was seen first.
    seen: Option<(Lease, Duration)>,
    /// A Lease that was seen has vanished: its last record, and when this was seen first.
    vanished: Option<(Record, Duration)>,
    /// `seen` is what the API server answered last, so that it can be written over.
    is_current: bool,
    write_until: Option<Duration>,
    is_lost: bool,
}

impl LeaderElector {
    pub fn new(identity: String, timing: Timing) -> Self {
        Self {
            identity,
            timing,
            seen: None,
            vanished: None,
            is_current: false,
            write_until: None,
            is_lost: false,
        }
    }

    /// The next step. `time` is written as the time of a renewal, for people.
    pub fn step(&mut self, now: Duration, time: &str) -> Step {
        let has_led = self.write_until.is_some();
        if self.is_lost || (has_led && !self.may_write(now)) {
            self.lose();
            return Step::Lost;
        }
        if !self.is_current {
            return Step::Read;
        }
        let seconds = i64::try_from(self.timing.lease.as_secs()).unwrap_or(i64::MAX);
        let ours = |acquired: &str, transitions| Record {
            holder: self.identity.clone(),
            seconds,
            acquired: acquired.to_owned(),
            renewed: time.to_owned(),
            transitions,
        };
        let Some((Lease { record, version }, since)) = &self.seen else {
            return match &self.vanished {
                None => Step::Create(ours(time, 0)),
                // The leader makes it anew before another one may.
                Some((record, _)) if has_led => Step::Create(ours(&record.acquired, record.transitions)),
                Some((record, since)) if now.saturating_sub(*since) >= self.valid(record) => {
                    Step::Create(ours(time, record.transitions.saturating_add(1)))
                }
                Some(_) => {
                    self.is_current = false;
                    Step::Wait
                }
            };
        };
        if record.holder == self.identity {
            return Step::Update(ours(&record.acquired, record.transitions), version.clone());
        }
        if has_led {
            self.lose();
            return Step::Lost;
        }
        if record.holder.is_empty() || now.saturating_sub(*since) >= self.valid(record) {
            return Step::Update(ours(time, record.transitions.saturating_add(1)), version.clone());
        }
        self.is_current = false;
        Step::Wait
    }

    /// A Lease is valid for as long as its holder says, and never for less than a holder with our durations writes.
    fn valid(&self, record: &Record) -> Duration {
        self.timing.lease.max(Duration::from_secs(u64::try_from(record.seconds).unwrap_or_default()))
    }

    /// Takes in what a read found. Each new version is a renewal, also where a clock that was set back wrote the old time.
    pub fn observe(&mut self, lease: Option<Lease>, now: Duration) {
        self.is_current = true;
        let before = self.seen.take();
        match (&lease, &before) {
            (None, Some((gone, _))) => self.vanished = Some((gone.record.clone(), now)),
            (Some(_), _) => self.vanished = None,
            (None, None) => {}
        }
        self.seen = lease.map(|lease| match before {
            Some((seen, since)) if seen.version == lease.version => (lease, since),
            Some(_) | None => (lease, now),
        });
    }

    /// A write of ours succeeded, which was `sent` at that time: from then on others count.
    pub fn wrote(&mut self, lease: Lease, sent: Duration, now: Duration) {
        let is_ours = lease.record.holder == self.identity;
        self.observe(Some(lease), now);
        if is_ours && !self.is_lost {
            self.write_until = Some(sent.saturating_add(self.timing.renew_deadline));
        }
    }

    /// A request failed or was not answered: what is stored has to be read first.
    pub fn failed(&mut self) {
        self.is_current = false;
    }

    /// Gives the Lease up, once this process has ended its last write; `None`: there is nothing to give up.
    pub fn release(&mut self, time: &str) -> Option<Step> {
        self.write_until?;
        self.lose();
        self.release_as_read(time)
    }

    /// Gives the Lease up as it was read last: a renewal that the end of the process interrupted may have come before.
    pub fn release_as_read(&self, time: &str) -> Option<Step> {
        let (Lease { record, version }, _) = self.seen.as_ref().filter(|_| self.is_lost)?;
        let free = Record { holder: String::new(), seconds: 1, renewed: time.to_owned(), ..record.clone() };
        (record.holder == self.identity).then(|| Step::Update(free, version.clone()))
    }

    fn lose(&mut self) {
        (self.write_until, self.is_lost) = (None, true);
    }

    /// When the leader sends no further write, unless it renews the Lease before.
    pub fn write_until(&self) -> Option<Duration> {
        self.write_until
    }

    pub fn may_write(&self, now: Duration) -> bool {
        self.write_until.is_some_and(|until| now < until)
    }

    /// The holder as it was seen last.
    pub fn holder(&self) -> Option<&str> {
        self.seen.as_ref().map(|(lease, _)| lease.record.holder.as_str()).filter(|holder| !holder.is_empty())
    }
}

impl Lease {
    /// Where it is an integer, as Kubernetes has them.
    pub fn version_number(&self) -> Option<u128> {
        self.version.parse().ok()
    }

    /// `None`: these bytes are no Lease.
    pub fn parse(json: &str) -> Option<Self> {
        #[derive(Deserialize)]
        struct Stored {
            metadata: Metadata,
            #[serde(default)]
            spec: Option<Record>,
        }
        #[derive(Deserialize)]
        struct Metadata {
            #[serde(rename = "resourceVersion")]
            version: String,
        }
        let Stored { metadata, spec } = serde_json::from_str(json).ok()?;
        Some(Self { record: spec.unwrap_or_default(), version: metadata.version })
    }
}

impl Record {
    /// The Lease to write; `version` where it replaces one.
    pub fn lease(&self, namespace: &str, name: &str, version: Option<&str>) -> Value {
        let mut metadata = json!({"namespace": namespace, "name": name});
        if let (Some(version), Some(metadata)) = (version, metadata.as_object_mut()) {
            metadata.insert("resourceVersion".to_owned(), version.into());
        }
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": metadata,
            "spec": {
                "holderIdentity": self.holder,
                "leaseDurationSeconds": self.seconds,
                "acquireTime": self.acquired,
                "renewTime": self.renewed,
                "leaseTransitions": self.transitions,
            },
        })
    }
}

/// `null` is as good as nothing.
fn or_default<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: Default + Deserialize<'de>,
    D: serde::Deserializer<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn a_lease_that_is_missing_is_created() {
        let mut a = elector("a");
        assert_eq!(a.step(secs(0), TIME), Step::Read);
        a.observe(None, secs(0));
        let Step::Create(record) = a.step(secs(0), TIME) else { panic!("no Lease is created") };
        assert_eq!(record, Record { transitions: 0, ..held_by("a", "").record });
        assert!(!a.may_write(secs(0)), "not before it is stored");
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
}
