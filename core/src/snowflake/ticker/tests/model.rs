//! Tests random operations on a ticker and on a simple model, which must agree.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::super::super::layout::{High, Layout};
use super::super::{Moment, Refused, Ticker};

#[derive(Clone, Copy, Debug)]
enum Operation {
    Take,
    Batch { count: u64 },
    Open { worker: u32, ticks: u64 },
    Extend { worker: u32, ticks: u64 },
    Close,
    Clock { by: i64 },
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        8 => Just(Operation::Take),
        4 => (0_u64..20).prop_map(|count| Operation::Batch { count }),
        2 => (0_u32..4, 0_u64..12).prop_map(|(worker, ticks)| Operation::Open { worker, ticks }),
        2 => (0_u32..4, 0_u64..12).prop_map(|(worker, ticks)| Operation::Extend { worker, ticks }),
        1 => Just(Operation::Close),
        4 => (-6_i64..10).prop_map(|by| Operation::Clock { by }),
    ]
}

/// The state that the store and the ticker should have.
#[derive(Default)]
struct Model {
    high: High,
    sequence: u32,
    /// The worker id that the ticker is open for.
    worker: Option<u32>,
    position: u64,
    /// The end of the reserved time of each worker id. Ids are issued only below it, and the next
    /// holder begins at it.
    reserved_until: BTreeMap<u32, u64>,
    issued: BTreeSet<(u32, u64)>,
    now: u64,
}

impl Model {
    fn until(&self, worker: u32) -> u64 {
        self.reserved_until.get(&worker).copied().unwrap_or(0)
    }

    fn moment(&self) -> Moment {
        Moment {
            tick: self.now,
            ahead: 2,
            batch_ahead: 4,
        }
    }

    /// Returns the positions that a batch should have.
    fn taken(&self, count: u64) -> Result<Vec<u64>, Refused> {
        let worker = self.worker.ok_or(Refused::Closed)?;
        let a_tick = 1 << self.sequence;
        let mut first = self.position;
        if self.high == High::Time {
            let counter = first % a_tick;
            first = first.max(self.now * a_tick + counter);
            let most = 5 * a_tick - counter;
            if count > most {
                return Err(Refused::TooMany { most });
            }
            // The clock must go on by the least number of ticks that is enough.
            let fits =
                |now: u64| first / a_tick <= now + 2 && (first + count - 1) / a_tick <= now + 4;
            if let Some(ticks) = (0..)
                .find(|ticks| fits(self.now + ticks))
                .filter(|n| *n > 0)
            {
                return Err(Refused::Ahead { ticks });
            }
        }
        if first + count > self.until(worker) * a_tick {
            return Err(Refused::Limit);
        }
        Ok((first..first + count).collect())
    }

    fn take(&mut self, count: u64) -> Result<Vec<(u32, u64)>, Refused> {
        let positions = self.taken(count)?;
        let worker = self.worker.unwrap();
        for position in &positions {
            assert!(self.issued.insert((worker, *position)), "{position} twice");
            self.position = position + 1;
        }
        Ok(positions.into_iter().map(|at| (worker, at)).collect())
    }

    /// Follows a claim of a counted id past the limit. It skips one position, which no caller gets.
    fn burn(&mut self, ticker: &Ticker) {
        if self.high == High::Time || self.worker.is_none() {
            return;
        }
        let position = ticker.shape.position(ticker.word.load());
        let n_burnt = position - self.position;
        let limit = ticker.limit_tick() << self.sequence;
        assert!(n_burnt == 0 || (n_burnt == 1 && position > limit));
        self.position = position;
    }

    fn close(&mut self) -> Option<(u32, u64)> {
        let worker = self.worker.take()?;
        let position = self.position.min(self.until(worker) << self.sequence);
        let tick = position.div_ceil(1 << self.sequence);
        let later = self
            .issued
            .range((worker, tick << self.sequence)..(worker + 1, 0));
        assert_eq!(later.count(), 0);
        // The rest is given back, and the next holder begins there.
        self.reserved_until.insert(worker, tick);
        Some((worker, tick))
    }
}

fn read(layout: &Layout, id: i64) -> (u32, u64) {
    let parts = layout.read(id).unwrap();
    (
        parts.worker,
        (parts.tick << layout.sequence) | parts.counter,
    )
}

fn step(ticker: &Ticker, model: &mut Model, operation: Operation) {
    let layout = *ticker.layout();
    match operation {
        Operation::Take => {
            let moment = model.moment();
            let got = ticker.take(|| moment).map(|id| vec![read(&layout, id)]);
            assert_eq!(got, model.take(1));
            model.burn(ticker);
        }
        Operation::Batch { count } => {
            let moment = model.moment();
            let got = ticker.take_batch(count, false, || moment);
            let got = got.map(|batch| batch.ids().map(|id| read(&layout, id)).collect());
            assert_eq!(got, model.take(count.max(1)));
        }
        Operation::Open { worker, ticks } => {
            let from = model.until(worker);
            let until = from.max(model.now) + ticks;
            let opened = ticker.open(worker, from, until, model.now).is_ok();
            assert_eq!(opened, model.worker.is_none() && ticks > 0);
            if opened {
                model.worker = Some(worker);
                let counter = model.position % (1 << layout.sequence);
                model.position = (from.max(model.now) << layout.sequence) | counter;
                model.reserved_until.insert(worker, until);
            }
        }
        Operation::Extend { worker, ticks } => {
            let until = model.until(worker) + ticks;
            let extended = ticker.extend(worker, until);
            assert_eq!(extended, model.worker == Some(worker));
            if extended {
                model.reserved_until.insert(worker, until);
                assert_eq!(ticker.limit_tick(), until);
            }
        }
        Operation::Close => {
            let closed = ticker.close();
            let closed = closed.map(|closed| (closed.worker, closed.first_unused_tick));
            assert_eq!(closed, model.close());
        }
        Operation::Clock { by } => model.now = model.now.saturating_add_signed(by),
    }
    assert_eq!(ticker.worker(), model.worker);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..crate::tests::properties() })]

    #[test]
    fn a_ticker_issues_what_a_plain_account_of_it_would(
        operations in prop::collection::vec(operation(), 1..120),
        counts in any::<bool>(),
        sequence in 1_u32..4,
    ) {
        let layout = Layout {
            high: if counts { High::Worker } else { High::Time },
            time: 40,
            worker: 2,
            sequence,
            ..Layout::default()
        };
        let ticker = Ticker::new(&layout);
        let mut model = Model { high: layout.high, sequence, now: 50, ..Model::default() };
        for operation in operations {
            step(&ticker, &mut model, operation);
        }
    }
}
