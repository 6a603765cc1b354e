//! Servers that host the same controllers without an election: each signs one Lease in turn, so that each notices the other.
//!
//! Times are of this process's own clock. A server that ended before this one started is never noticed, as only a signature that
//! is made while this one runs counts.

use std::time::Duration;

use crate::hash::Fingerprint;
use crate::leader_election::{Lease, Record, Step};
use crate::object::selector::Selector;
use crate::shorten;

/// A server signs the Lease so often.
pub const SIGN_INTERVAL: Duration = Duration::from_secs(5);

/// Another server counts as running for so long after it was seen to sign.
pub const GONE_AFTER: Duration = Duration::from_secs(20);

/// Bytes of another server's name that are shown: whoever may write Leases there chose it.
const MAX_NAME: usize = 100;

const LEASE: &str = "metahook-servers";

/// Whether servers sign a Lease of this name.
pub fn is_lease(name: &str) -> bool {
    name.strip_prefix(LEASE).is_some_and(|rest| {
        let digits = rest.strip_prefix('-');
        rest.is_empty()
            || digits.is_some_and(|all| all.len() == 16 && all.bytes().all(|c| c.is_ascii_hexdigit()))
    })
}

/// Name of the Lease of servers that host the controllers with these labels.
pub fn lease_name(selector: &Selector) -> String {
    if *selector == Selector::default() {
        return LEASE.to_owned();
    }
    let digest = Fingerprint::of(format!("{selector:?}").as_bytes());
    let digits = digest.as_bytes().iter().take(8).fold(0, |number: u64, byte| number << 8 | u64::from(*byte));
    format!("{LEASE}-{digits:016x}")
}

/// Notices other servers of the same controllers, by the Lease that each of them signs.
#[derive(Debug)]
pub struct Presence {
    identity: String,
    /// Version of the Lease as this server saw or wrote it last.
    version: Option<String>,
    other: Option<(String, Duration)>,
}

impl Presence {
    pub fn new(identity: String) -> Self {
        Self { identity, version: None, other: None }
    }

    /// Takes in what a read found, and signs over it.
    pub fn sign(&mut self, lease: Option<Lease>, now: Duration, time: &str) -> Step {
        let before = self.version.take();
        let signed = Record {
            holder: self.identity.clone(),
            seconds: i64::try_from(GONE_AFTER.as_secs()).unwrap_or(i64::MAX),
            acquired: time.to_owned(),
            renewed: time.to_owned(),
            transitions: 0,
        };
        let Some(Lease { record, version }) = lease else { return Step::Create(signed) };
        let is_new = before.is_some_and(|before| before != version);
        if is_new && record.holder != self.identity && !record.holder.is_empty() {
            let shown: String = record.holder.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
            self.other = Some((shorten(&shown, MAX_NAME), now));
        }
        self.version = Some(version.clone());
        Step::Update(signed, version)
    }

    /// Takes the API server's answer to the write of a signature; `None`: the write failed, as another server may have
    /// been faster.
    pub fn signed(&mut self, lease: Option<Lease>) {
        if let Some(lease) = lease {
            self.version = Some(lease.version);
        }
    }

    /// Another server that hosts the same controllers.
    pub fn other(&self, now: Duration) -> Option<&str> {
        self.other
            .as_ref()
            .filter(|(_, seen)| now.saturating_sub(*seen) < GONE_AFTER)
            .map(|(name, _)| &**name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The Lease as the API server has it.
    #[derive(Default)]
    struct Stored {
        lease: Option<Lease>,
        versions: u64,
    }

    impl Stored {
        fn turn(&mut self, server: &mut Presence, now: u64) {
            let read = self.lease.clone();
            self.write(server, read, now);
        }

        /// A write over another version than the stored one fails.
        fn write(&mut self, server: &mut Presence, read: Option<Lease>, now: u64) {
            let record = match server.sign(read, Duration::from_secs(now), "t") {
                Step::Create(record) if self.lease.is_none() => record,
                Step::Update(record, over) if self.lease.as_ref().is_some_and(|it| it.version == over) => {
                    record
                }
                _ => return server.signed(None),
            };
            self.versions += 1;
            self.lease = Some(Lease { record, version: self.versions.to_string() });
            server.signed(self.lease.clone());
        }
    }

    fn server(name: &str) -> Presence {
        Presence::new(name.to_owned())
    }

    fn others(servers: &[&Presence], now: u64) -> Vec<Option<String>> {
        servers.iter().map(|server| server.other(Duration::from_secs(now)).map(str::to_owned)).collect()
    }

    #[test]
    fn two_servers_notice_each_other_until_one_is_gone() {
        let (mut a, mut b, mut stored) = (server("a"), server("b"), Stored::default());
        stored.turn(&mut a, 0);
        stored.turn(&mut b, 2);
        assert_eq!(others(&[&a, &b], 2), [None, None]);
        stored.turn(&mut a, 5);
        stored.turn(&mut b, 7);
        assert_eq!(others(&[&a, &b], 7), [Some("b".to_owned()), Some("a".to_owned())]);
        for now in [12, 17, 22] {
            stored.turn(&mut b, now);
        }
        assert_eq!(others(&[&b], 26), [Some("a".to_owned())]);
        assert_eq!(others(&[&b], 27), [None]);
    }

    #[test]
    fn servers_that_sign_at_the_same_moment_notice_each_other() {
        let (mut a, mut b, mut stored) = (server("a"), server("b"), Stored::default());
        for now in [0, 5, 10] {
            let read = stored.lease.clone();
            stored.write(&mut a, read.clone(), now);
            stored.write(&mut b, read, now);
        }
        assert_eq!(others(&[&b], 10), [Some("a".to_owned())], "whose writes come first");
        stored.turn(&mut b, 12);
        stored.turn(&mut a, 15);
        assert_eq!(others(&[&a], 15), [Some("b".to_owned())]);
    }

    #[test]
    fn a_server_that_is_started_again_does_not_notice_the_one_before_it() {
        let (mut before, mut stored) = (server("a"), Stored::default());
        stored.turn(&mut before, 0);
        let mut after = server("b");
        for now in [1, 6, 11] {
            stored.turn(&mut after, now);
            assert_eq!(others(&[&after], now), [None]);
        }
    }

    #[test]
    fn a_lease_that_was_deleted_is_made_again() {
        let (mut a, mut stored) = (server("a"), Stored::default());
        stored.turn(&mut a, 0);
        stored.lease = None;
        stored.turn(&mut a, 5);
        stored.turn(&mut a, 10);
        assert_eq!((stored.lease.is_some(), others(&[&a], 10)), (true, vec![None]));
    }

    #[test]
    fn names_of_others_are_cut_and_command_no_terminal() {
        let mut a = server("a");
        let lease = |holder: &str, version: &str| {
            let record = Record { holder: holder.to_owned(), ..Record::default() };
            Some(Lease { record, version: version.to_owned() })
        };
        a.sign(lease("", "1"), Duration::ZERO, "t");
        a.sign(lease("", "2"), Duration::ZERO, "t");
        assert_eq!(a.other(Duration::ZERO), None, "nobody");
        a.sign(lease(&format!("\u{1b}[2J{}", "x".repeat(1000)), "3"), Duration::ZERO, "t");
        let other = a.other(Duration::ZERO).unwrap();
        assert!(other.starts_with("?[2Jx") && other.len() <= MAX_NAME, "{other:?}");
    }

    #[test]
    fn each_selector_has_a_lease() {
        let name = |selector: &str| lease_name(&Selector::parse(selector).unwrap());
        assert_eq!(name(""), "metahook-servers");
        assert_eq!(name("a=b"), name("a=b"));
        assert!(name("a=b") != name("a=c") && name("a=b").len() == 33);
    }
}
