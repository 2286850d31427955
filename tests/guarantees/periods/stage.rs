//! Replicas whose clocks disagree, callers that know the time of each clock, and the numbers that
//! the callers got.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, RwLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use odometer_core::period::Calendar;

use super::count::{Count, Given};
use crate::support::{Client, Ledger, Program, TestDatabase, clock::now_ms, dice, wait};

const CALLERS_A_REPLICA: usize = 2;
const BETWEEN_CALLS: Duration = Duration::from_millis(1);
const MAX_AT_ONCE: u64 = 20;
/// How long the tests wait for a slow machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// One replica, with the offset of its clock.
pub(super) struct Replica {
    client: Client,
    /// How far the clock is ahead of the machine's clock. During a step, the old and the new
    /// offset.
    offsets_ms: RwLock<Vec<i64>>,
}

pub(super) struct Stage {
    replicas: Vec<Replica>,
    counts: Vec<(Count, Calendar)>,
    /// Whether callers also ask for blocks, which come straight from the store.
    asks_for_blocks: bool,
    over: AtomicBool,
    seen: std::sync::Mutex<Seen>,
}

/// The answers to all callers.
#[derive(Default)]
pub(super) struct Seen {
    /// The issued numbers, by `sequence/period`.
    pub(super) ledger: Ledger,
    /// Refusals, and replies that no clock explains or whose parts disagree.
    pub(super) faults: Vec<String>,
    /// How many calls were answered, by the replica's index, the sequence and the period.
    n_answered: BTreeMap<(usize, &'static str, String), u64>,
}

impl Replica {
    pub(super) fn new(program: &Program, offset_ms: i64) -> Self {
        Self {
            client: program.client(),
            offsets_ms: RwLock::new(vec![offset_ms]),
        }
    }

    /// Steps the clock by a call of `step`. Until that is done, the old and the new time count as
    /// right.
    pub(super) fn step(&self, offset_ms: i64, step: impl FnOnce()) {
        let offsets = || self.offsets_ms.write().expect("nobody panics with it");
        offsets().push(offset_ms);
        step();
        offsets().retain(|known| *known == offset_ms);
    }

    fn offsets_ms(&self) -> Vec<i64> {
        let offsets = self.offsets_ms.read().expect("nobody panics with it");
        offsets.clone()
    }
}

impl Stage {
    pub(super) fn new(
        replicas: Vec<Replica>,
        counts: &[Count],
        asks_for_blocks: bool,
    ) -> Arc<Self> {
        let with_calendar = |count: &Count| (*count, count.calendar());
        Arc::new(Self {
            replicas,
            counts: counts.iter().map(with_calendar).collect(),
            asks_for_blocks,
            over: AtomicBool::new(false),
            seen: std::sync::Mutex::default(),
        })
    }

    pub(super) fn client(&self, place: usize) -> &Client {
        &self.replicas[place].client
    }

    pub(super) fn replica(&self, place: usize) -> &Replica {
        &self.replicas[place]
    }

    /// Runs callers at all replicas while `scene` is played, and returns what the callers saw.
    pub(super) async fn play(self: &Arc<Self>, scene: impl Future<Output = ()>) -> Seen {
        let places = 0..self.replicas.len() * CALLERS_A_REPLICA;
        let callers: Vec<_> = places
            .map(|place| place % self.replicas.len())
            .map(|place| tokio::spawn(Arc::clone(self).call_until_over(place)))
            .collect();
        scene.await;
        self.over.store(true, Ordering::Relaxed);
        for caller in callers {
            caller.await.expect("a caller does not panic");
        }
        self.with_seen(std::mem::take)
    }

    async fn call_until_over(self: Arc<Self>, place: usize) {
        while !self.over.load(Ordering::Relaxed) {
            let which = dice::roll(0..self.counts.len());
            self.call(place, which).await;
            tokio::time::sleep(BETWEEN_CALLS).await;
        }
    }

    async fn call(&self, place: usize, which: usize) {
        let (count, calendar) = &self.counts[which];
        let replica = &self.replicas[place];
        let n = dice::roll(1..=MAX_AT_ONCE);
        let path = match dice::roll(0..16) {
            0 if self.asks_for_blocks => format!("/v1/sequences/{}/blocks?size={n}", count.name),
            1..4 => format!("/v1/sequences/{}/next?count={n}", count.name),
            _ => format!("/v1/sequences/{}/next", count.name),
        };
        let mut offsets_ms = replica.offsets_ms();
        let sent_ms = now_ms();
        let reply = replica.client.post(&path).await;
        let got_ms = now_ms();
        offsets_ms.extend(replica.offsets_ms());
        let given = reply
            .map_err(|error| format!("{path}: {error:?}"))
            .and_then(|reply| count.given(&reply));
        let explained = offsets_ms
            .iter()
            .flat_map(|offset_ms| [sent_ms + offset_ms, got_ms + offset_ms])
            .map(|instant_ms| calendar.at(instant_ms).period.to_string());
        let explained: BTreeSet<String> = explained.collect();
        self.with_seen(|seen| seen.note(place, count, given, &explained));
    }

    /// Waits until every replica has answered `n_calls` more calls of each sequence, in the period
    /// of its clock.
    pub(super) async fn everywhere(&self, n_calls: u64) {
        let mut start = None;
        wait::until("every replica counts in its period", PATIENCE, async || {
            let now = self.n_answered_now();
            let start = start.get_or_insert_with(|| now.clone());
            let is_met = |key: &(usize, &'static str, String), n: &u64| {
                *n >= n_calls + start.get(key).copied().unwrap_or(0)
            };
            now.iter().all(|(key, n)| is_met(key, n)).then_some(())
        })
        .await;
    }

    /// Returns how many calls were answered in the present period, by replica and sequence.
    fn n_answered_now(&self) -> BTreeMap<(usize, &'static str, String), u64> {
        let mut answered = BTreeMap::new();
        for (place, replica) in self.replicas.iter().enumerate() {
            for (count, calendar) in &self.counts {
                for offset_ms in replica.offsets_ms() {
                    let period = calendar.at(now_ms() + offset_ms).period.to_string();
                    let key = (place, count.name, period);
                    let n = self.with_seen(|seen| seen.n_answered.get(&key).copied());
                    answered.insert(key, n.unwrap_or(0));
                }
            }
        }
        answered
    }

    fn with_seen<T>(&self, what: impl FnOnce(&mut Seen) -> T) -> T {
        what(&mut self.seen.lock().expect("nobody panics with it"))
    }
}

impl Seen {
    fn note(
        &mut self,
        place: usize,
        count: &Count,
        given: Result<Given, String>,
        explained: &BTreeSet<String>,
    ) {
        let Given { period, ranges } = match given {
            Ok(given) => given,
            Err(fault) => return self.faults.push(fault),
        };
        if !explained.contains(&period) {
            self.faults.push(format!(
                "{}: replica {place} gave {ranges:?} of {period}, its clock was in {explained:?}",
                count.name
            ));
        }
        self.ledger
            .record(&format!("{}/{period}", count.name), &ranges);
        *self
            .n_answered
            .entry((place, count.name, period))
            .or_default() += 1;
    }

    /// Returns the periods in which one replica issued numbers of one sequence, in order.
    pub(super) fn periods_at(&self, place: usize, name: &str) -> Vec<&str> {
        let of_it = self
            .n_answered
            .keys()
            .filter(|key| key.0 == place && key.1 == name);
        of_it.map(|key| key.2.as_str()).collect()
    }

    /// Returns how many numbers of one period were issued.
    pub(super) fn n_given(&self, name: &str, period: &str) -> u64 {
        let given = self.ledger.given(&format!("{name}/{period}"));
        given.iter().map(|range| range.count).sum()
    }

    /// Fails if a number was issued twice in its period, or if an id was printed wrongly. Fails if
    /// a number has a period of no clock, or if a period's first block does not begin at the start.
    pub(super) async fn check(&self, database: &TestDatabase, counts: &[Count]) {
        assert_eq!(self.faults, Vec::<String>::new());
        assert_eq!(self.ledger.n_duplicates(), 0, "numbers given twice");
        for count in counts {
            let elsewhere = begun_elsewhere(database, count.name).await;
            assert_eq!(
                elsewhere,
                [],
                "periods of {} that begin elsewhere",
                count.name
            );
        }
    }

    /// Returns the periods of which a number was issued, but not the first number.
    pub(super) fn without_the_first(&self) -> Vec<&str> {
        let has_first = |counter: &&str| {
            let mut given = self.ledger.given(counter).iter();
            given.any(|range| range.first == 1)
        };
        let counters = self.ledger.sequences();
        counters.filter(|counter| !has_first(counter)).collect()
    }
}

/// Returns the periods of a sequence whose first block does not begin at 1, and where it begins.
/// All replicas must have stopped, because the journal is written later than numbers are issued.
async fn begun_elsewhere(database: &TestDatabase, sequence: &str) -> Vec<(String, i64)> {
    let query = format!(
        "SELECT period, MIN(first) FROM block WHERE sequence = '{sequence}' GROUP BY period"
    );
    let rows = database.query(&query).await;
    assert!(!rows.is_empty(), "vacuous: there is no journal");
    let read = rows.iter().map(|row| {
        let period: String = row.try_get_by_index(0).expect("a text");
        let first: i64 = row.try_get_by_index(1).expect("a number");
        (period, first)
    });
    read.filter(|(_, first)| *first != 1).collect()
}
