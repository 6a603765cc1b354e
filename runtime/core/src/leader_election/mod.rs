//! Leader election by a Lease: who holds it, when a candidate may take it, and until when the leader may write.
//!
//! Times are of this process's own clock, which also runs while the machine is suspended: a renewal counts from the moment at
//! which this process saw it. A Lease that vanishes, or is not there, counts as renewed just then: a client may have deleted it,
//! and its holder may not have noticed.
//! A time that another machine wrote is never compared.
//!
//! # Flow
//! A participant asks [`LeaderElector::step`] for its next request and reports the answer: by [`LeaderElector::observe`],
//! [`LeaderElector::wrote`] or [`LeaderElector::failed`]. The leader writes until [`LeaderElector::write_until`], which each
//! renewal moves on, and gives the Lease up by [`LeaderElector::release`].
//!
//! # Guarantees
//! One participant at most may write at any moment (see [`LeaderElector`]). One that has lost the Lease never leads again.
//!
//! # Assumptions
//! All participants have the same [`Timing`]. The API server refuses an update of another version of the Lease, and no clock
//! runs 1.2 times as fast as another.
//!
//! # Errors
//! A request that fails may have been carried out, so the next step reads the Lease. The leader writes on until its deadline;
//! a leader without a renewal by then has lost the Lease.

#[cfg(test)]
mod tests;

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
    /// Another server leads, or may still lead although there is no Lease.
    Wait,
    /// This process led, and does no longer: it never leads again.
    Lost,
}

/// One participant of an election.
///
/// # Guarantees
/// At most one of the participants that use one Lease with one `Timing` [may write](Self::may_write) at any moment,
/// however late requests and answers are, as long as the API server compares versions and no clock runs 1.2 times as
/// fast as another. This holds also where a client deletes the Lease, unless the Lease is made and deleted again between
/// two reads of a candidate, which then both find none.
#[derive(Debug)]
pub struct LeaderElector {
    identity: String,
    timing: Timing,
    /// The Lease, and when this version of it was seen first.
    seen: Option<(Lease, Duration)>,
    /// Where the last read found no Lease: since when there has been none.
    absent: Option<Absence>,
    /// `seen` is what the API server answered last, so that it can be written over.
    is_current: bool,
    write_until: Option<Duration>,
    is_lost: bool,
}

/// There is no Lease, as reads found without a long pause between them.
#[derive(Debug)]
struct Absence {
    /// The last record of the Lease, where a read found one.
    gone: Option<Record>,
    since: Duration,
    read: Duration,
}

impl Absence {
    /// How long there has been no Lease, as far as this process knows. Reads that are closer together than the duration of a Lease
    /// count as one row, so that an API server that answers slowly does not restart the count.
    fn lasts(&self, now: Duration, timing: Timing) -> Duration {
        let is_known = now.saturating_sub(self.read) < timing.lease;
        if is_known { now.saturating_sub(self.since) } else { Duration::ZERO }
    }
}

impl LeaderElector {
    pub fn new(identity: String, timing: Timing) -> Self {
        Self {
            identity,
            timing,
            seen: None,
            absent: None,
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
            let gone = self.absent.as_ref().and_then(|absence| absence.gone.as_ref());
            // The leader makes it anew before another one may.
            if let Some(gone) = gone.filter(|_| has_led) {
                return Step::Create(ours(&gone.acquired, gone.transitions));
            }
            let valid = gone.map_or(self.timing.lease, |gone| self.valid(gone));
            if self.absent.as_ref().is_some_and(|absence| absence.lasts(now, self.timing) >= valid) {
                let transitions = gone.map_or(0, |gone| gone.transitions.saturating_add(1));
                return Step::Create(ours(time, transitions));
            }
            self.is_current = false;
            return Step::Wait;
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
        self.absent = if lease.is_some() { None } else { Some(self.absence(before.as_ref(), now)) };
        self.seen = lease.map(|lease| match before {
            Some((seen, since)) if seen.version == lease.version => (lease, since),
            Some(_) | None => (lease, now),
        });
    }

    /// The absence of the Lease, which a read found now. While this process read nothing for long, the Lease may have been there,
    /// with another holder: then the absence begins now.
    fn absence(&mut self, before: Option<&(Lease, Duration)>, now: Duration) -> Absence {
        let absence = match (before, self.absent.take()) {
            (Some((lease, _)), _) => Absence { gone: Some(lease.record.clone()), since: now, read: now },
            (None, Some(absence)) => absence,
            (None, None) => Absence { gone: None, since: now, read: now },
        };
        Absence { since: now.saturating_sub(absence.lasts(now, self.timing)), read: now, ..absence }
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
