//! One sequence, as all its handles share it.

use std::{sync::Arc, time::Instant};

use odometer_core::{block::Block, cursor::TakenNumber, name::SequenceName};

use crate::{
    after::After,
    buffer::Item,
    definition::{Kind, Paths},
    direct::{DirectCalls, DirectRequest},
    engine::{Engine, Shared},
    error::Error,
    hooks::DropCause,
    of_process::OfProcess,
    refill::{Refill, RefillSource},
    stock::{Readings, SliceGrant, Stock, StockSettings},
    wait::{Wait, WaitEnd},
    waiter::{Outcome, Waiter},
};

/// Gives the numbers of one sequence.
pub(crate) struct NumberSource {
    pub(crate) name: SequenceName,
    paths: Paths,
    /// What the program says of the sequence.
    said: Option<Kind>,
    shared: Arc<Shared>,
    stock: OfProcess<Stock>,
}

/// How far a caller came without waiting.
enum Begun<'a> {
    Done(Result<Item, Error>),
    Waits(Wait<'a>),
    /// Each number must be a call.
    Calls,
}

impl NumberSource {
    pub(crate) fn new(
        name: SequenceName,
        said: Option<Kind>,
        period: Option<&str>,
        shared: Arc<Shared>,
    ) -> Self {
        let settings = StockSettings {
            initial_size: shared.settings.initial_size,
            max_age: shared.settings.max_age,
            uniform: shared.settings.uniform,
        };
        Self {
            paths: Paths::new(&name, period),
            name,
            said,
            shared,
            stock: OfProcess::new(Stock::new(settings, None)),
        }
    }

    /// Takes the value of the next number, like [`take`](Self::take).
    #[inline]
    pub(crate) fn take_value(&self) -> Result<i64, Error> {
        self.stock.with(|stock| match stock.take_in_front() {
            Some(taken) if !taken.low_water => Ok(taken.value),
            taken => self.take_at_edge(stock, taken).map(|item| item.value),
        })
    }

    /// Takes the next number from memory. Only for an unbuffered sequence it makes a call.
    pub(crate) fn take(&self) -> Result<Item, Error> {
        self.stock
            .with(|stock| self.take_at_edge(stock, stock.take_in_front()))
    }

    /// Finishes a take that needs more than the front.
    #[cold]
    fn take_at_edge(&self, stock: &Arc<Stock>, taken: Option<TakenNumber>) -> Result<Item, Error> {
        let now = Instant::now();
        if let Some(item) = self.take_of_front(stock, taken, now) {
            return Ok(item);
        }
        if !stock.is_unbuffered() {
            let (item, after) = stock.take(now);
            self.finish(stock, after);
            if let Some(item) = item {
                return Ok(item);
            }
        }
        if stock.is_unbuffered() {
            return self.direct_calls().one(self.until(now));
        }
        Err(Error::Empty {
            sequence: self.name.clone(),
            last: stock.last_error(),
        })
    }

    fn take_of_front(
        &self,
        stock: &Arc<Stock>,
        taken: Option<TakenNumber>,
        now: Instant,
    ) -> Option<Item> {
        let taken = taken?;
        if taken.low_water {
            self.finish(stock, stock.end_piece(now));
        }
        Some(Item::plain(taken.value))
    }

    /// Gets the next number. The thread waits for it.
    pub(crate) fn next_blocking(&self) -> Result<Item, Error> {
        let began = Instant::now();
        let until = self.until(began);
        let found = self.stock.with(|stock| {
            let waiter = match self.take_or_wait(stock, began) {
                Ok(item) => return Ok(Some(item)),
                Err(waiter) => waiter,
            };
            if !waiter.is_settled() {
                waiter.wait_until(until);
                let gave_up = stock.withdraw(&waiter);
                self.note_waited(began);
                if gave_up {
                    return Err(self.too_late(stock));
                }
            }
            number_of(waiter.take_outcome())
        })?;
        match found {
            Some(item) => Ok(item),
            None => self.direct_calls().one(until),
        }
    }

    /// Gets the next number. The task waits for it.
    pub(crate) async fn next(&self) -> Result<Item, Error> {
        loop {
            let began = Instant::now();
            let end = match self.begin_next(began) {
                Begun::Done(outcome) => return outcome,
                Begun::Calls => {
                    let until = self.until(began);
                    self.start_call(DirectRequest::One, until)?.await?
                }
                Begun::Waits(wait) => {
                    let end = wait.await?;
                    self.note_waited(began);
                    end
                }
            };
            match end {
                WaitEnd::GaveUp => return Err(self.stock.with(|stock| self.too_late(stock))),
                WaitEnd::Forked => {}
                WaitEnd::Settled(outcome) => {
                    if let Some(item) = number_of(Some(outcome))? {
                        return Ok(item);
                    }
                    // It is known now that each number is a call.
                }
            }
        }
    }

    fn begin_next(&self, now: Instant) -> Begun<'_> {
        self.stock.with(|stock| {
            let waiter = match self.take_or_wait(stock, now) {
                Ok(item) => return Begun::Done(Ok(item)),
                Err(waiter) => waiter,
            };
            if !waiter.is_settled() {
                let stock = Some(Arc::clone(stock));
                return Begun::Waits(self.wait(waiter, self.until(now), stock));
            }
            match number_of(waiter.take_outcome()).transpose() {
                Some(outcome) => Begun::Done(outcome),
                None => Begun::Calls,
            }
        })
    }

    /// Takes a number, or lets the caller stand in line. For an unbuffered sequence, the waiter is
    /// settled at once.
    fn take_or_wait(&self, stock: &Arc<Stock>, now: Instant) -> Result<Item, Arc<Waiter>> {
        let in_front = stock.take_in_front();
        if let Some(item) = self.take_of_front(stock, in_front, now) {
            return Ok(item);
        }
        let waiter = Waiter::new();
        let (item, after) = stock.take_or_wait(&waiter, now);
        self.finish(stock, after);
        item.ok_or(waiter)
    }

    /// Gets an unbroken range, from memory or else by one call of this thread.
    pub(crate) fn range_blocking(&self, count: u64) -> Result<Block, Error> {
        let until = self.until(Instant::now());
        match self.range_in_memory(count)? {
            Some(range) => Ok(range),
            None => self.direct_calls().range(count, until),
        }
    }

    /// Gets an unbroken range. The task waits for it.
    pub(crate) async fn range(&self, count: u64) -> Result<Block, Error> {
        loop {
            let until = self.until(Instant::now());
            if let Some(range) = self.range_in_memory(count)? {
                return Ok(range);
            }
            let wait = self.start_call(DirectRequest::Range(count), until)?;
            let end = wait.await?;
            match end {
                WaitEnd::Settled(Outcome::Range(range)) => return Ok(range),
                WaitEnd::Settled(Outcome::Failed(error)) => return Err(error),
                WaitEnd::GaveUp => return Err(self.stock.with(|stock| self.too_late(stock))),
                WaitEnd::Settled(Outcome::Ready | Outcome::Number(_)) | WaitEnd::Forked => {}
            }
        }
    }

    fn range_in_memory(&self, count: u64) -> Result<Option<Block>, Error> {
        if count == 0 {
            return Err(Error::setting("a range has one number or more"));
        }
        Ok(self.stock.with(|stock| {
            if stock.is_unbuffered() {
                return None;
            }
            let (range, after) = stock.take_range(count, Instant::now());
            self.finish(stock, after);
            range
        }))
    }

    /// Lets the thread wait until so many numbers are in memory.
    pub(crate) fn warm_blocking(&self, count: u64) -> Result<(), Error> {
        let began = Instant::now();
        self.stock.with(|stock| {
            let waiter = Waiter::new();
            self.finish(stock, stock.warm(&waiter, count, began));
            waiter.wait_until(self.until(began));
            if stock.withdraw(&waiter) {
                return Err(self.too_late(stock));
            }
            number_of(waiter.take_outcome()).map(drop)
        })
    }

    /// Lets the task wait until so many numbers are in memory.
    pub(crate) async fn warm(&self, count: u64) -> Result<(), Error> {
        loop {
            let began = Instant::now();
            let wait = self.stock.with(|stock| {
                let waiter = Waiter::new();
                self.finish(stock, stock.warm(&waiter, count, began));
                self.wait(waiter, self.until(began), Some(Arc::clone(stock)))
            });
            let end = wait.await?;
            match end {
                WaitEnd::Settled(outcome) => return number_of(Some(outcome)).map(drop),
                WaitEnd::GaveUp => return Err(self.stock.with(|stock| self.too_late(stock))),
                WaitEnd::Forked => {}
            }
        }
    }

    /// Takes numbers for one thread. Of an unbuffered sequence it is one number, by a call.
    pub(crate) fn take_slice(&self) -> Result<SliceGrant, Error> {
        let now = Instant::now();
        self.stock.with(|stock| {
            if !stock.is_unbuffered() {
                let (slice, after) = stock.take_slice(now);
                self.finish(stock, after);
                if let Some(slice) = slice {
                    return Ok(slice);
                }
            }
            let item = self.take_at_edge(stock, None)?;
            let numbers = Block::new(item.value, 1, 1);
            Ok(SliceGrant {
                numbers: numbers.map_err(|error| Error::setting(error.to_string()))?,
                n_forgets: stock.n_forgets(),
            })
        })
    }

    /// Takes back what is left of a slice.
    pub(crate) fn give_back(&self, rest: SliceGrant) {
        self.stock
            .with(|stock| self.finish(stock, stock.give_back(rest)));
    }

    /// Returns how many times the sequence was told to forget.
    pub(crate) fn n_forgets(&self) -> u64 {
        self.stock.with(|stock| stock.n_forgets())
    }

    /// Tells the hooks about numbers of a slice that are gaps.
    pub(crate) fn note_forgotten(&self, count: u64) {
        let hooks = &self.shared.hooks;
        hooks.dropped(self.name.as_str(), count, DropCause::Forget);
    }

    /// Drops all numbers in memory.
    pub(crate) fn forget(&self) {
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
        let (calls, waiting) = (self.direct_calls(), Arc::downgrade(&waiter));
        let job = Box::new(move || {
            let outcome = calls.outcome(request, until);
            if let Some(waiter) = waiting.upgrade() {
                waiter.settle(outcome);
                waiter.wake();
                return;
            }
            let count = match outcome {
                Outcome::Number(_) => 1,
                Outcome::Range(range) => range.count(),
                Outcome::Ready | Outcome::Failed(_) => 0,
            };
            let name = calls.name.as_str();
            calls.hooks.dropped(name, count, DropCause::Late);
        });
        self.shared.engine.with(|engine| engine.threads.run(job))?;
        Ok(self.wait(waiter, until, None))
    }

    fn wait(&self, waiter: Arc<Waiter>, until: Instant, stock: Option<Arc<Stock>>) -> Wait<'_> {
        Wait::new(waiter, until, stock, &self.shared, self.name.as_str())
    }

    fn direct_calls(&self) -> DirectCalls {
        DirectCalls {
            name: self.name.clone(),
            paths: self.paths.clone(),
            hooks: self.shared.hooks.clone(),
            settings: Arc::clone(&self.shared.settings),
            engine: self.shared.engine.with(Arc::clone),
        }
    }

    /// Does what must not be done under the stock's lock.
    fn finish(&self, stock: &Arc<Stock>, mut after: After) {
        if let Some(flight) = after.flight.take() {
            let start = |engine: &Arc<Engine>| {
                let source = RefillSource {
                    name: self.name.clone(),
                    paths: self.paths.clone(),
                    said: self.said,
                    hooks: self.shared.hooks.clone(),
                    timeout: self.shared.settings.refill_timeout,
                };
                Refill::new(source, stock, engine).start(flight);
            };
            self.shared.engine.with(start);
        }
        after.tell(self.name.as_str(), &self.shared.hooks);
    }

    fn note_waited(&self, began: Instant) {
        let hooks = &self.shared.hooks;
        hooks.waited(self.name.as_str(), began.elapsed());
    }

    fn too_late(&self, stock: &Stock) -> Error {
        Error::DeadlinePassed {
            sequence: self.name.clone(),
            last: stock.last_error(),
        }
    }

    fn until(&self, now: Instant) -> Instant {
        now.checked_add(self.shared.settings.deadline)
            .unwrap_or(now)
    }
}

/// Returns the number of a wait that has ended; `None` if each number is a call.
fn number_of(outcome: Option<Outcome>) -> Result<Option<Item>, Error> {
    match outcome {
        Some(Outcome::Number(item)) => Ok(Some(item)),
        Some(Outcome::Failed(error)) => Err(error),
        Some(Outcome::Ready | Outcome::Range(_)) | None => Ok(None),
    }
}
