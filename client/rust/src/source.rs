//! One sequence, as all its handles share it.

use std::{sync::Arc, time::Instant};

use arc_swap::ArcSwapOption;
use odometer_core::{
    block::{Block, MAX_COUNT},
    name::SequenceName,
};
use tracing::Span;

use crate::{
    after::After,
    block_on::block_on,
    buffer::Item,
    definition::{Definition, Kind, Paths},
    direct::{DirectCalls, DirectRequest},
    engine::Shared,
    error::Error,
    fork,
    of_process::OfProcess,
    refill::Refill,
    sequence_calls::SequenceCalls,
    stock::{Readings, SliceGrant, Stock, StockSettings},
    wait::{Wait, WaitEnd},
    waiter::{Outcome, Waiter},
};

/// Gives the numbers of one sequence.
pub(crate) struct NumberSource {
    pub(crate) name: SequenceName,
    paths: Paths,
    /// What the program says of the sequence. It is set once.
    said: ArcSwapOption<Kind>,
    shared: Arc<Shared>,
    stock: OfProcess<Stock>,
}

/// How far a caller came without waiting.
enum Begun<'a> {
    Done(Item),
    Waits(Wait<'a>),
    /// Each number must be a call.
    Calls,
}

impl NumberSource {
    /// Makes a source. The numbers of a period that is named are never in memory.
    pub(crate) fn new(name: SequenceName, period: Option<&str>, shared: Arc<Shared>) -> Self {
        let settings = StockSettings {
            initial_size: shared.settings.initial_size,
            max_age: shared.settings.max_age,
            uniform: shared.settings.uniform,
        };
        let known = period.map(|_| Definition::UNBUFFERED);
        Self {
            paths: Paths::new(&name, period),
            name,
            said: ArcSwapOption::empty(),
            shared,
            stock: OfProcess::new(Stock::new(settings, known)),
        }
    }

    /// Notes what the program says of the sequence.
    ///
    /// # Errors
    /// [`Error::InvalidSetting`] if the program has said something else.
    pub(crate) fn say(&self, kind: Kind) -> Result<(), Error> {
        let nothing: Option<Arc<Kind>> = None;
        let said = self.said.compare_and_swap(&nothing, Some(Arc::new(kind)));
        match said.as_deref().copied() {
            Some(said) if said != kind => {
                let name = &self.name;
                let detail = format!("{name} was said to be {said:?}, so it is not {kind:?}");
                Err(Error::setting(detail))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn said(&self) -> Option<Kind> {
        self.said.load().as_deref().copied()
    }

    /// Takes the value of the next number, like [`take`](Self::take).
    #[inline]
    pub(crate) fn take_value(&self) -> Result<i64, Error> {
        let taken = self.stock.with(|stock| stock.take_in_front());
        match taken {
            Some(taken) if !taken.low_water => Ok(taken.value),
            Some(taken) => {
                self.end_piece();
                Ok(taken.value)
            }
            None => Ok(self.take_behind_front()?.value),
        }
    }

    /// Takes the next number from memory. Only for an unbuffered sequence it makes a call.
    pub(crate) fn take(&self) -> Result<Item, Error> {
        match self.take_of_front() {
            Some(item) => Ok(item),
            None => self.take_behind_front(),
        }
    }

    fn take_of_front(&self) -> Option<Item> {
        let taken = self.stock.with(|stock| stock.take_in_front())?;
        if taken.low_water {
            self.end_piece();
        }
        Some(Item::plain(taken.value))
    }

    /// Moves more numbers to the front, and starts a refill if it is time.
    #[cold]
    fn end_piece(&self) {
        self.stock
            .with(|stock| self.finish(stock, stock.end_piece(Instant::now())));
    }

    /// Takes a number that the front does not have.
    #[cold]
    fn take_behind_front(&self) -> Result<Item, Error> {
        let taken = self.stock.with(|stock| {
            if stock.is_unbuffered() {
                return Ok(None);
            }
            let (item, after) = stock.take(Instant::now());
            self.finish(stock, after);
            if item.is_some() || stock.is_unbuffered() {
                return Ok(item);
            }
            Err(Error::Empty {
                sequence: self.name.clone(),
                last: stock.last_error(),
            })
        });
        match taken? {
            Some(item) => Ok(item),
            None => block_on(self.next()),
        }
    }

    /// Gets the next number. The task waits for it.
    pub(crate) async fn next(&self) -> Result<Item, Error> {
        let (began, until) = (Instant::now(), self.shared.settings.until());
        loop {
            let outcome = match self.begin_next(until) {
                Begun::Done(item) => return Ok(item),
                Begun::Waits(wait) => {
                    let outcome = self.outcome_of(wait).await;
                    let hooks = &self.shared.hooks;
                    hooks.waited(self.name.as_str(), began.elapsed());
                    outcome?
                }
                Begun::Calls => {
                    let wait = self.start_call(DirectRequest::One, until)?;
                    self.outcome_of(wait).await?
                }
            };
            if let Some(Outcome::Number(item)) = outcome {
                return Ok(item);
            }
            // The process was forked, or it is known now that each number is a call.
        }
    }

    /// Takes a number, or lets the caller stand in line.
    fn begin_next(&self, until: Instant) -> Begun<'_> {
        if let Some(item) = self.take_of_front() {
            return Begun::Done(item);
        }
        self.stock.with(|stock| {
            let waiter = Waiter::new();
            let (outcome, after) = stock.take_or_wait(&waiter, Instant::now());
            self.finish(stock, after);
            match outcome {
                Some(Outcome::Number(item)) => Begun::Done(item),
                Some(_) => Begun::Calls,
                None => Begun::Waits(self.wait(waiter, until, Some(Arc::clone(stock)))),
            }
        })
    }

    /// Gets an unbroken range, from memory or else by one call. The task waits for it.
    pub(crate) async fn range(&self, count: u64) -> Result<Block, Error> {
        if !(1..=MAX_COUNT).contains(&count) {
            let detail = format!("a range has 1 to {MAX_COUNT} numbers, not {count}");
            return Err(Error::setting(detail));
        }
        let until = self.shared.settings.until();
        loop {
            if let Some(range) = self.range_in_memory(count) {
                return Ok(range);
            }
            let wait = self.start_call(DirectRequest::Range(count), until)?;
            if let Some(Outcome::Range(range)) = self.outcome_of(wait).await? {
                return Ok(range);
            }
        }
    }

    fn range_in_memory(&self, count: u64) -> Option<Block> {
        self.stock.with(|stock| {
            if stock.is_unbuffered() {
                return None;
            }
            let (range, after) = stock.take_range(count, Instant::now());
            self.finish(stock, after);
            range
        })
    }

    /// Lets the task wait until so many numbers are in memory.
    pub(crate) async fn warm(&self, count: u64) -> Result<(), Error> {
        if count > MAX_COUNT {
            let detail = format!("memory has {MAX_COUNT} numbers at most, not {count}");
            return Err(Error::setting(detail));
        }
        let until = self.shared.settings.until();
        loop {
            let wait = self.stock.with(|stock| {
                let waiter = Waiter::new();
                self.finish(stock, stock.warm(&waiter, count, Instant::now()));
                self.wait(waiter, until, Some(Arc::clone(stock)))
            });
            if self.outcome_of(wait).await?.is_some() {
                return Ok(());
            }
        }
    }

    /// Takes numbers for one thread. Of an unbuffered sequence it is one number, by a call.
    pub(crate) fn take_slice(&self) -> Result<SliceGrant, Error> {
        let in_memory = self.stock.with(|stock| {
            if stock.is_unbuffered() {
                return None;
            }
            let (slice, after) = stock.take_slice(Instant::now());
            self.finish(stock, after);
            slice
        });
        if let Some(slice) = in_memory {
            return Ok(slice);
        }
        let n_changes = fork::n_changes();
        let item = self.take_behind_front()?;
        let numbers = Block::new(item.value, 1, 1);
        Ok(SliceGrant {
            numbers: numbers.map_err(|error| Error::setting(error.to_string()))?,
            n_changes,
        })
    }

    /// Takes back what is left of a slice.
    pub(crate) fn give_back(&self, rest: SliceGrant) {
        self.stock
            .with(|stock| self.finish(stock, stock.give_back(rest, Instant::now())));
    }

    /// Drops all numbers in memory.
    pub(crate) fn forget(&self) {
        self.shared.forget_calls();
        self.stock
            .with(|stock| self.finish(stock, stock.forget(Instant::now())));
    }

    pub(crate) fn readings(&self) -> Readings {
        self.stock.with(|stock| {
            let (readings, after) = stock.readings(Instant::now());
            self.finish(stock, after);
            readings
        })
    }

    /// Lets a thread of the client make a call, for a task that waits.
    fn start_call(&self, request: DirectRequest, until: Instant) -> Result<Wait<'_>, Error> {
        let waiter = Waiter::new();
        let calls = DirectCalls {
            calls: self.stock.with(|stock| self.calls(stock)),
            request,
            until,
            waiter: Arc::clone(&waiter),
        };
        let caller = Span::current();
        let job = Box::new(move || caller.in_scope(|| calls.serve()));
        self.shared.engine.with(|engine| engine.threads.run(job))?;
        Ok(self.wait(waiter, until, None))
    }

    fn calls(&self, stock: &Arc<Stock>) -> SequenceCalls {
        SequenceCalls {
            name: self.name.clone(),
            paths: self.paths.clone(),
            shared: Arc::clone(&self.shared),
            engine: self.shared.engine.with(Arc::clone),
            stock: Arc::clone(stock),
        }
    }

    fn wait(&self, waiter: Arc<Waiter>, until: Instant, stock: Option<Arc<Stock>>) -> Wait<'_> {
        Wait::new(waiter, until, stock, &self.shared, self.name.as_str())
    }

    /// Lets the task wait. `None` if the process was forked meanwhile.
    async fn outcome_of(&self, wait: Wait<'_>) -> Result<Option<Outcome>, Error> {
        match wait.await? {
            WaitEnd::Settled(Outcome::Failed(error)) => Err(error),
            WaitEnd::Settled(outcome) => Ok(Some(outcome)),
            WaitEnd::GaveUp => Err(Error::DeadlinePassed {
                sequence: self.name.clone(),
                last: self.stock.with(|stock| stock.last_error()),
            }),
            WaitEnd::Forked => Ok(None),
        }
    }

    /// Does what must not be done under the stock's lock.
    fn finish(&self, stock: &Arc<Stock>, mut after: After) {
        if let Some(flight) = after.flight.take() {
            Refill::new(self.calls(stock), self.said(), flight).start();
        }
        after.tell(self.name.as_str(), &self.shared.hooks);
    }
}
