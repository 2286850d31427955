//! The order of numbers in real time. Callers note when each call was sent and answered, and the
//! checks compare all calls of a run.

use std::{
    sync::{
        Arc, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use crate::support::{Answer, Client, Ledger, Program, Range, dice, wait};

/// The sequence that all callers use.
pub(super) const SEQUENCE: &str = "strict";
/// The most numbers that one call asks for, as `count` and as `size`.
const MAX_AT_ONCE: u64 = 20;
/// How long an expected event may take.
const LIMIT: Duration = Duration::from_secs(60);
/// How long a caller waits after a refusal until the next call.
const AFTER_A_REFUSAL: Duration = Duration::from_millis(2);

/// One call that got numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub(super) replica: usize,
    pub(super) sent: Instant,
    pub(super) answered: Instant,
    pub(super) first: i64,
    pub(super) last: i64,
}

/// One call that got no number.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    pub(super) sent: Instant,
    pub(super) answered: Instant,
    /// `None` if no reply came.
    pub(super) status: Option<u16>,
    pub(super) said: String,
}

/// The observations of all callers of a run.
pub(super) struct Outcome {
    pub(super) ledger: Ledger,
    pub(super) n_calls: usize,
    /// Calls that got a number below one that a caller had before they were sent.
    pub(super) n_violations: usize,
    /// How many times the next higher number came from another replica.
    pub(super) n_changes_of_replica: usize,
    pub(super) refusals: Vec<String>,
}

impl Outcome {
    pub(super) fn of(mut calls: Vec<Call>, refusals: Vec<Refusal>) -> Self {
        let n_violations = n_violations(&calls);
        calls.sort_unstable_by_key(|call| call.first);
        let mut ledger = Ledger::default();
        for call in &calls {
            ledger.record(SEQUENCE, &[Range::between(call.first, call.last)]);
        }
        let neighbours = calls.windows(2);
        Self {
            ledger,
            n_calls: calls.len(),
            n_violations,
            n_changes_of_replica: neighbours
                .filter(|two| two[0].replica != two[1].replica)
                .count(),
            refusals: refusals.into_iter().map(|refusal| refusal.said).collect(),
        }
    }

    pub(super) fn assert_sound(&self) {
        let refusals: Vec<&String> = self.refusals.iter().take(10).collect();
        assert_eq!(refusals, Vec::<&String>::new(), "{self}");
        assert_eq!(self.ledger.n_duplicates(), 0, "numbers given twice: {self}");
        assert_eq!(self.n_violations, 0, "not in the order of time: {self}");
        assert!(
            self.n_changes_of_replica >= self.n_calls / 200,
            "vacuous: the replicas took no turns: {self}"
        );
    }

    /// Returns how many numbers below the highest issued one were not issued.
    pub(super) fn n_missing(&self) -> u32 {
        let highest = self.ledger.highest(SEQUENCE).expect("numbers were given");
        let gaps = self.ledger.gaps(SEQUENCE, Range::between(1, highest));
        let n_missing: u64 = gaps.iter().map(|gap| gap.count).sum();
        u32::try_from(n_missing).expect("so many numbers are not lost")
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} calls, {} numbers, {} twice, {} calls out of order, {} refused, {} changes of \
             replica",
            self.n_calls,
            self.ledger.n_numbers(),
            self.ledger.n_duplicates(),
            self.n_violations,
            self.refusals.len(),
            self.n_changes_of_replica
        )
    }
}

/// Returns how many calls got a number below one that was answered before they were sent.
pub(super) fn n_violations(calls: &[Call]) -> usize {
    let mut by_sent: Vec<&Call> = calls.iter().collect();
    by_sent.sort_unstable_by_key(|call| call.sent);
    let mut by_answered: Vec<&Call> = calls.iter().collect();
    by_answered.sort_unstable_by_key(|call| call.answered);
    let mut answered = by_answered.into_iter().peekable();
    let mut highest = i64::MIN;
    let mut n_violations = 0;
    for call in by_sent {
        while let Some(earlier) = answered.next_if(|earlier| earlier.answered < call.sent) {
            highest = highest.max(earlier.last);
        }
        n_violations += usize::from(call.first <= highest);
    }
    n_violations
}

#[test]
fn the_check_finds_a_number_below_one_that_was_there_before() {
    let start = Instant::now();
    let call = |sent: u64, answered: u64, first: i64, last: i64| Call {
        replica: 0,
        sent: start + Duration::from_millis(sent),
        answered: start + Duration::from_millis(answered),
        first,
        last,
    };
    // The calls overlap in time, so either of them may have the lower number.
    let mut calls = vec![call(0, 10, 5, 9), call(5, 20, 1, 4), call(11, 12, 10, 10)];
    assert_eq!(n_violations(&calls), 0);
    calls.push(call(13, 14, 8, 8));
    assert_eq!(n_violations(&calls), 1);
    calls.push(call(21, 22, 11, 12));
    assert_eq!(n_violations(&calls), 1);
}

/// One start of a replica, from the callers' view.
pub(super) struct Incarnation {
    client: Client,
    /// Set before the replica is killed. From then on a call may get no reply.
    pub(super) killed: AtomicBool,
    n_answered: AtomicU64,
}

impl Incarnation {
    pub(super) fn of(program: &Program) -> Arc<Self> {
        Arc::new(Self {
            client: program.client(),
            killed: AtomicBool::new(false),
            n_answered: AtomicU64::new(0),
        })
    }
}

/// The state that the callers share with the task that makes trouble.
pub(super) struct Stage {
    replicas: Vec<RwLock<Arc<Incarnation>>>,
    /// The replica that gets all calls, if the test has chosen one.
    only: RwLock<Option<usize>>,
    pub(super) n_answered: AtomicU64,
    over: AtomicBool,
    /// How long each caller waits between two calls.
    pace: Duration,
}

impl Stage {
    pub(super) fn of(programs: &[Program]) -> Arc<Self> {
        Self::at_pace(programs, Duration::ZERO)
    }

    pub(super) fn at_pace(programs: &[Program], pace: Duration) -> Arc<Self> {
        let incarnations = programs.iter().map(Incarnation::of);
        Arc::new(Self {
            replicas: incarnations.map(RwLock::new).collect(),
            only: RwLock::new(None),
            n_answered: AtomicU64::new(0),
            over: AtomicBool::new(false),
            pace,
        })
    }

    pub(super) fn current(&self, replica: usize) -> Arc<Incarnation> {
        let current = self.replicas[replica].read();
        Arc::clone(&current.expect("nobody panics with it"))
    }

    /// Leads all further calls to one replica. With `None`, the callers choose again.
    pub(super) fn call_only(&self, replica: Option<usize>) {
        *self.only.write().expect("nobody panics with it") = replica;
    }

    fn any_replica(&self) -> usize {
        let only = *self.only.read().expect("nobody panics with it");
        only.unwrap_or_else(|| dice::roll(0..self.replicas.len()))
    }

    /// Waits until every replica has answered 50 more calls.
    pub(super) async fn goes_on(&self) {
        for replica in 0..self.replicas.len() {
            self.goes_on_at(replica).await;
        }
    }

    /// Waits until this replica has answered 50 more calls.
    pub(super) async fn goes_on_at(&self, replica: usize) {
        let current = self.current(replica);
        let wanted = current.n_answered.load(Ordering::Relaxed) + 50;
        wait::until("calls are answered", LIMIT, async || {
            (current.n_answered.load(Ordering::Relaxed) >= wanted).then_some(())
        })
        .await;
    }

    pub(super) fn replace(&self, replica: usize, by: Arc<Incarnation>) {
        let mut current = self.replicas[replica].write().expect("nobody panics");
        *current = by;
    }

    pub(super) fn start_callers(self: &Arc<Self>, n_callers: usize) -> Callers {
        let start = |_| tokio::spawn(call_until_over(Arc::clone(self)));
        Callers((0..n_callers).map(start).collect())
    }
}

/// Callers that call until the stage is over.
pub(super) struct Callers(Vec<tokio::task::JoinHandle<(Vec<Call>, Vec<Refusal>)>>);

impl Callers {
    pub(super) async fn stop(self, stage: &Stage) -> (Vec<Call>, Vec<Refusal>) {
        stage.over.store(true, Ordering::Relaxed);
        let mut calls = Vec::new();
        let mut refusals = Vec::new();
        for caller in self.0 {
            let (answered, refused) = caller.await.expect("a caller does not panic");
            calls.extend(answered);
            refusals.extend(refused);
        }
        (calls, refusals)
    }
}

/// Calls random replicas, as a service behind a load balancer does.
async fn call_until_over(stage: Arc<Stage>) -> (Vec<Call>, Vec<Refusal>) {
    let mut calls = Vec::new();
    let mut refusals = Vec::new();
    while !stage.over.load(Ordering::Relaxed) {
        let replica = stage.any_replica();
        let called = stage.current(replica);
        if called.killed.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(1)).await;
            continue;
        }
        let path = any_call();
        let sent = Instant::now();
        let answer = called.client.ask(&path).await;
        let answered = Instant::now();
        let mut refuse = |status: Option<u16>, said: String| {
            refusals.push(Refusal {
                sent,
                answered,
                status,
                said: format!("{replica}: {path}: {said}"),
            });
        };
        match answer {
            Answer::Given(ranges) => {
                calls.extend(ranges.iter().map(|range| Call {
                    replica,
                    sent,
                    answered,
                    first: range.first,
                    last: range.last(),
                }));
                called.n_answered.fetch_add(1, Ordering::Relaxed);
                stage.n_answered.fetch_add(1, Ordering::Relaxed);
                if !stage.pace.is_zero() {
                    tokio::time::sleep(stage.pace).await;
                }
                continue;
            }
            Answer::Refused(reply) => refuse(Some(reply.status), format!("{reply:?}")),
            Answer::NoReply(error) if !called.killed.load(Ordering::SeqCst) => {
                refuse(None, format!("{error:?}"));
            }
            Answer::NoReply(_) => {}
        }
        tokio::time::sleep(AFTER_A_REFUSAL).await;
    }
    (calls, refusals)
}

/// Returns a random path of all the ways to ask for numbers. Most calls ask for one number.
fn any_call() -> String {
    let n = dice::roll(1..=MAX_AT_ONCE);
    match dice::roll(0..50) {
        0 => format!("/v1/sequences/{SEQUENCE}/blocks?size={n}"),
        1..=4 => format!("/v1/sequences/{SEQUENCE}/next?count={n}"),
        5 => format!("/v1/sequences/{SEQUENCE}/next?count={n}&contiguous=true"),
        _ => format!("/v1/sequences/{SEQUENCE}/next"),
    }
}
