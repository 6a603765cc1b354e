//! Law of leader election: however late requests and answers are, and whatever clocks show, one server at most may write.

#![allow(clippy::indexing_slicing, reason = "the candidates are 0 and 1")]

use std::time::Duration;

use metahook_core::leader_election::{LeaderElector, Lease, Step, Timing};
use proptest::prelude::*;

/// All write the same time, as clocks that stand still would: nothing follows from it.
const TIME: &str = "2026-11-23T07:00:00.000000Z";

/// Event of an election. A candidate to which nothing happens is paused.
#[derive(Debug, Clone)]
enum Happens {
    /// Time goes on, in milliseconds.
    Pass(u64),
    /// A candidate decides, and sends what it decided on.
    Send(usize),
    /// The API server carries a request out; its answer is under way.
    Serve(usize),
    /// The answer arrives.
    Answer(usize),
    /// All three at once.
    Exchange(usize),
    /// The candidate gives up on its request, which may still be carried out.
    GiveUp(usize),
    /// A person edits the Lease's labels.
    Edit,
    /// A person deletes the Lease, when each candidate that runs has read it.
    Delete,
    /// A candidate ends, and a new one starts, which has read nothing.
    Restart(usize),
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        4 => (0_u64..4_000).prop_map(Happens::Pass),
        1 => (8_000_u64..20_000).prop_map(Happens::Pass),
        6 => (0_usize..2).prop_map(Happens::Send),
        6 => (0_usize..2).prop_map(Happens::Serve),
        6 => (0_usize..2).prop_map(Happens::Answer),
        8 => (0_usize..2).prop_map(Happens::Exchange),
        1 => (0_usize..2).prop_map(Happens::GiveUp),
        1 => Just(Happens::Edit),
        1 => Just(Happens::Delete),
        1 => (0_usize..2).prop_map(Happens::Restart),
    ]
}

/// The Lease, as the API server stores it.
#[derive(Default)]
struct Stored {
    lease: Option<Lease>,
    version: u64,
}

impl Stored {
    /// Compares and swaps; `Err` is a conflict.
    fn carry_out(&mut self, step: &Step) -> Result<Option<Lease>, ()> {
        let now = self.lease.as_ref().map(|lease| lease.version.as_str());
        let record = match step {
            Step::Read => return Ok(self.lease.clone()),
            Step::Create(record) if now.is_none() => record,
            Step::Update(record, version) if now == Some(version) => record,
            Step::Create(_) | Step::Update(..) | Step::Wait | Step::Lost => return Err(()),
        };
        let record = record.clone();
        self.store(|version| Lease { record, version });
        Ok(self.lease.clone())
    }

    fn store(&mut self, lease: impl FnOnce(String) -> Lease) {
        self.version += 1;
        self.lease = Some(lease(self.version.to_string()));
    }
}

/// A request, and the answer once there is one.
struct Request {
    step: Step,
    sent: Duration,
    answer: Option<Result<Option<Lease>, ()>>,
}

struct Candidate {
    elector: LeaderElector,
    /// Its clock: an offset in milliseconds, and its speed in percent.
    offset: u64,
    speed: u64,
    request: Option<Request>,
    /// Given up, and not carried out yet.
    late: Vec<Step>,
}

impl Candidate {
    fn now(&self, time: u64) -> Duration {
        Duration::from_millis(self.offset + time * self.speed / 100)
    }

    /// Sends a request, unless one is under way.
    fn send(&mut self, time: u64, wall: &str) {
        let now = self.now(time);
        if self.request.is_some() {
            return;
        }
        let step = self.elector.step(now, wall);
        if !matches!(step, Step::Wait | Step::Lost) {
            self.request = Some(Request { step, sent: now, answer: None });
        }
    }

    fn serve(&mut self, stored: &mut Stored) {
        for late in self.late.drain(..) {
            let _conflict = stored.carry_out(&late);
        }
        if let Some(request) = self.request.as_mut().filter(|request| request.answer.is_none()) {
            request.answer = Some(stored.carry_out(&request.step));
        }
    }

    fn answer(&mut self, time: u64) {
        let now = self.now(time);
        let Some(Request { step, sent, answer }) = self.request.take_if(|one| one.answer.is_some()) else {
            return;
        };
        match (step, answer) {
            (Step::Read, Some(Ok(lease))) => self.elector.observe(lease, now),
            (_, Some(Ok(Some(lease)))) => self.elector.wrote(lease, sent, now),
            _ => self.elector.failed(),
        }
    }

    fn give_up(&mut self) {
        if let Some(request) = self.request.take() {
            self.elector.failed();
            self.late.extend(request.answer.is_none().then_some(request.step));
        }
    }
}

fn elector(nth: usize, starts: u64) -> LeaderElector {
    LeaderElector::new(format!("server-{nth}-{starts}"), Timing::default())
}

/// How often each candidate was seen leading.
fn run(clocks: [(u64, u64); 2], all: &[Happens]) -> Result<[usize; 2], TestCaseError> {
    let (mut nth, mut starts) = (0, 0);
    let mut candidates = clocks.map(|(offset, speed)| {
        nth += 1;
        Candidate { elector: elector(nth, starts), offset, speed, request: None, late: Vec::new() }
    });
    let (mut stored, mut time, mut leads) = (Stored::default(), 0, [0, 0]);
    for one in all {
        match one {
            Happens::Pass(millis) => time += millis,
            Happens::Send(who) => candidates[*who].send(time, TIME),
            Happens::Serve(who) => candidates[*who].serve(&mut stored),
            Happens::Answer(who) => candidates[*who].answer(time),
            Happens::Exchange(who) => {
                candidates[*who].send(time, TIME);
                candidates[*who].serve(&mut stored);
                candidates[*who].answer(time);
            }
            Happens::GiveUp(who) => candidates[*who].give_up(),
            Happens::Delete => {
                if candidates.iter().all(|candidate| candidate.elector.holder().is_some()) {
                    stored.lease = None;
                }
            }
            Happens::Restart(who) => {
                candidates[*who].give_up();
                starts += 1;
                candidates[*who].elector = elector(*who, starts);
            }
            Happens::Edit => {
                if let Some(lease) = stored.lease.clone() {
                    stored.store(|version| Lease { version, ..lease });
                }
            }
        }
        let may_write = [0, 1].map(|who| candidates[who].elector.may_write(candidates[who].now(time)));
        prop_assert!(may_write != [true, true], "both may write after {one:?} at {time}");
        for (leads, may_write) in leads.iter_mut().zip(may_write) {
            *leads += usize::from(may_write);
        }
    }
    Ok(leads)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn two_servers_never_both_may_write(
        clocks in prop::array::uniform2((0_u64..100_000_000, 95_u64..=110)),
        all in prop::collection::vec(happens(), 0..300),
    ) {
        run(clocks, &all)?;
    }
}

fn twice(who: usize) -> Vec<Happens> {
    vec![Happens::Exchange(who), Happens::Exchange(who)]
}

/// A candidate finds no Lease for as long as one lasts, and makes it.
fn takes_lead(who: usize) -> Vec<Happens> {
    let pass = || vec![Happens::Pass(8_000)];
    [twice(who), pass(), twice(who), pass(), twice(who)].concat()
}

/// The leader makes the Lease anew before the other may, or stops.
#[test]
fn a_lease_that_is_deleted_is_its_holders() {
    let seen = [takes_lead(0), twice(1), vec![Happens::Delete]].concat();
    let after =
        [vec![Happens::Pass(1_000)], twice(1), twice(0), vec![Happens::Pass(9_000)], twice(1)].concat();
    let leads = run([(5, 100), (7, 100)], &[seen.clone(), after].concat()).unwrap();
    assert!(leads[0] > 0 && leads[1] == 0, "{leads:?}");
    let paused = [takes_lead(1), twice(1), twice(0)].concat();
    let leads = run([(5, 100), (7, 100)], &[seen, paused].concat()).unwrap();
    assert!(leads[1] > 0, "{leads:?}");
}

/// Also where the other one starts only then.
#[test]
fn a_server_that_starts_after_a_deletion_waits_for_the_holder() {
    let starts = vec![Happens::Delete, Happens::Restart(1)];
    let both =
        [vec![Happens::Pass(1_000)], twice(1), vec![Happens::Pass(1_000)], twice(0), twice(1)].concat();
    let led = run([(5, 100), (7, 100)], &[takes_lead(0), twice(1), starts, both].concat()).unwrap();
    assert!(led[0] > 0 && led[1] == 0, "{led:?}");
}

/// The law is about something: both lead in turn when the first is paused.
#[test]
fn a_paused_leader_is_followed_by_the_other() {
    let all = [
        takes_lead(0),
        vec![Happens::Send(0), Happens::Exchange(1), Happens::Pass(16_000)],
        // It sees that another one leads, and reads once more.
        vec![Happens::Exchange(1)],
        twice(1),
        // The first goes on with what it had sent before its pause.
        vec![Happens::Serve(0), Happens::Answer(0)],
        twice(0),
    ];
    let leads = run([(5, 100), (7, 100)], &all.concat()).unwrap();
    assert!(leads[0] > 0 && leads[1] > 0, "{leads:?}");
}
