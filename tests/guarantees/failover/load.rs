//! A mixed load on replicas: all kinds of numbers, old names and new ones.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::is_early;
use super::stage::{MOMENTS, STRICT};
use crate::guarantees::order;
use crate::support::{Client, Ledger, Program, Range, dice, wait};

/// How long all may take to be served again. Ids need a lease, which may rest.
const LONGEST: Duration = Duration::from_secs(85);
/// How long the load goes on at its end.
const AFTER: Duration = Duration::from_secs(5);
/// How long a caller waits between two calls.
const PAUSE: Duration = Duration::from_millis(20);
/// A block that lasts for all calls of a test.
const STOCK: u32 = 50_000;
/// The most numbers of a call.
const MAX_AT_ONCE: u64 = 30;
/// How long a name or a key is the youngest one.
const BETWEEN_BIRTHS_MS: u128 = 250;

/// What a caller asks for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Work {
    /// Single numbers of a name.
    Singles,
    /// Several numbers of a name at once.
    Several,
    /// Blocks of a name, from the database itself.
    Blocks,
    /// Numbers in strict order.
    Strict,
    /// Numbers of a name that is as old as this call, or older.
    Births,
    /// Numbers of a key that is as old as this call, or older.
    Keys,
    /// Numbers of the present day.
    Days,
    /// Numbers of a block that lasts longer than the test.
    Stock,
    /// Ids that begin with the time.
    Moments,
}

impl Work {
    /// What a failover loses.
    pub(super) const LOST: [Self; 7] = [
        Self::Singles,
        Self::Several,
        Self::Blocks,
        Self::Strict,
        Self::Births,
        Self::Keys,
        Self::Days,
    ];

    /// All that a replica with a lease gives soon.
    pub(super) fn all() -> impl Iterator<Item = Self> + Clone {
        let held = [Self::Stock, Self::Moments];
        Self::LOST.into_iter().chain(held)
    }

    /// All that a replica without a lease gives soon.
    pub(super) fn soon() -> impl Iterator<Item = Self> + Clone {
        Self::LOST.into_iter().chain([Self::Stock])
    }

    /// Returns the name of a sequence, and how it is asked for numbers. The load runs for `age`.
    fn call(self, age: Duration) -> (String, String) {
        let youngest = age.as_millis() / BETWEEN_BIRTHS_MS;
        // Half of the calls ask for the youngest.
        let one_of = || dice::roll(0..=2 * youngest + 1).min(youngest);
        let n = dice::roll(1..=MAX_AT_ONCE);
        match self {
            Self::Singles => ("orders".to_owned(), "next".to_owned()),
            Self::Several => ("invoices".to_owned(), format!("next?count={n}")),
            Self::Blocks => ("parts".to_owned(), format!("blocks?size={n}")),
            Self::Strict => ("tickets".to_owned(), "next".to_owned()),
            Self::Births => (format!("born-{}", one_of()), "next".to_owned()),
            Self::Keys => ("keyed".to_owned(), format!("next?period=k-{}", one_of())),
            Self::Days => ("daily".to_owned(), "next".to_owned()),
            Self::Stock => ("stock".to_owned(), "next".to_owned()),
            Self::Moments => (MOMENTS.to_owned(), "next".to_owned()),
        }
    }

    /// Defines what the calls need. `limit` is that of the keys, if it is not the default.
    pub(super) async fn define(client: &Client, limit: Option<Value>) {
        client.define(STRICT, &json!({"order": "strict"})).await;
        client.define(MOMENTS, &json!({"kind": "snowflake"})).await;
        let mut keyed = json!({"period": "keyed", "format": "{period}-{value}"});
        if let Some(limit) = limit {
            keyed["limit"] = limit;
        }
        client.define("keyed", &keyed).await;
        client.define("daily", &json!({"period": "day"})).await;
        let stock = json!({"block": {"min": STOCK, "max": STOCK}});
        client.define("stock", &stock).await;
    }

    /// Returns whether a refusal says that the database is away, or that the numbers rest.
    fn may_wait(self, code: &str) -> bool {
        let rests = self == Self::Moments && code == "clock_behind";
        rests || is_early(code)
    }
}

/// What is waited for: each kind of work at each of the replicas.
pub(super) type Wanted = Vec<(usize, Work)>;

pub(super) fn at(replica: usize, works: impl Iterator<Item = Work>) -> Wanted {
    works.map(|work| (replica, work)).collect()
}

/// A call, and what came of it.
pub(super) struct Call {
    pub(super) replica: usize,
    pub(super) work: Work,
    pub(super) sent: Instant,
    pub(super) answered: Instant,
    /// The sequence and the period, and the numbers; or the code of the refusal.
    pub(super) outcome: Result<(String, Vec<Range>), String>,
}

impl Call {
    /// Returns the sequence and the period, if numbers were given.
    pub(super) fn key(&self) -> Option<&str> {
        let (key, _ranges) = self.outcome.as_ref().ok()?;
        Some(key)
    }
}

/// A load that callers share.
pub(super) struct Load {
    begun: Instant,
    is_over: AtomicBool,
    /// How many times the callers met another server.
    n_moves: AtomicUsize,
    /// What each replica served by a call that was sent since the last move.
    served: Mutex<BTreeSet<(usize, Work)>>,
}

impl Load {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            begun: Instant::now(),
            is_over: AtomicBool::new(false),
            n_moves: AtomicUsize::new(0),
            served: Mutex::default(),
        })
    }

    /// Starts a caller for each kind of work.
    pub(super) fn call(self: &Arc<Self>, replica: usize, program: &Program) -> Callers {
        let client = program.client();
        let start = |work| {
            let caller = Arc::clone(self).call_until_over(replica, client.clone(), work);
            tokio::spawn(caller)
        };
        Work::all().map(start).collect()
    }

    async fn call_until_over(
        self: Arc<Self>,
        replica: usize,
        client: Client,
        work: Work,
    ) -> Vec<Call> {
        let mut calls = Vec::new();
        while !self.is_over.load(Ordering::Relaxed) {
            let n_moves = self.n_moves.load(Ordering::SeqCst);
            let (sequence, end) = work.call(self.begun.elapsed());
            let path = format!("/v1/sequences/{sequence}/{end}");
            let sent = Instant::now();
            let reply = client.post(&path).await;
            let answered = Instant::now();
            let reply = reply.unwrap_or_else(|error| panic!("{replica}: {path}: {error}"));
            let outcome = if reply.status == 200 {
                let period = &reply.json()["period"];
                let key = format!("{sequence}/{}", period.as_str().unwrap_or_default());
                self.note((replica, work), n_moves);
                Ok((key, reply.numbers()))
            } else {
                let code = reply.code().unwrap_or_default();
                // A fence leaves no speed limit unused. So numbers rest for `failover.clock_margin`,
                // and a call that has waited for the database may have no time left for that.
                let rests = code == "rate_limited" && self.n_moves.load(Ordering::SeqCst) > 0;
                let is_waiting = match reply.status {
                    429 => rests,
                    status => status == 503 && work.may_wait(&code),
                };
                assert!(is_waiting, "{replica}: {path}: {reply:?}");
                Err(code)
            };
            calls.push(Call {
                replica,
                work,
                sent,
                answered,
                outcome,
            });
            tokio::time::sleep(PAUSE).await;
        }
        calls
    }

    fn served(&self) -> MutexGuard<'_, BTreeSet<(usize, Work)>> {
        self.served.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what was served by a call that was sent after `n_moves` moves.
    fn note(&self, served: (usize, Work), n_moves: usize) {
        let mut all = self.served();
        if self.n_moves.load(Ordering::SeqCst) == n_moves {
            all.insert(served);
        }
    }

    /// Forgets what was served by the server before.
    pub(super) fn moves(&self) {
        let mut all = self.served();
        self.n_moves.fetch_add(1, Ordering::SeqCst);
        all.clear();
    }

    /// Waits until all these are served after the last move, or until a caller panics.
    pub(super) async fn serves(&self, wanted: &Wanted, callers: &Callers) {
        wait::until("all are served again", LONGEST, async || {
            let are_all_served = wanted.iter().all(|pair| self.served().contains(pair));
            let is_given_up = callers.iter().any(JoinHandle::is_finished);
            (are_all_served || is_given_up).then_some(())
        })
        .await;
    }

    pub(super) async fn end(&self, callers: Callers) -> Vec<Call> {
        tokio::time::sleep(AFTER).await;
        self.is_over.store(true, Ordering::Relaxed);
        let mut calls = Vec::new();
        for caller in callers {
            calls.extend(caller.await.expect("a caller does not panic"));
        }
        calls
    }
}

pub(super) type Callers = Vec<JoinHandle<Vec<Call>>>;

/// Returns what was given.
pub(super) fn ledger(calls: &[Call]) -> Ledger {
    let mut ledger = Ledger::default();
    for call in calls {
        if let Ok((key, ranges)) = &call.outcome {
            ledger.record(key, ranges);
        }
    }
    ledger
}

/// Returns how many calls of the strict sequence got a lower number than an earlier call.
pub(super) fn n_out_of_order(calls: &[Call]) -> usize {
    let strict = calls.iter().filter_map(|call| {
        let (Work::Strict, Ok((_, ranges))) = (call.work, &call.outcome) else {
            return None;
        };
        Some(order::Call {
            replica: call.replica,
            sent: call.sent,
            answered: call.answered,
            first: ranges.first()?.first,
            last: ranges.last()?.last(),
        })
    });
    order::n_violations(&strict.collect::<Vec<_>>())
}
