//! Gives a program the numbers of one sequence.

use std::{fmt, sync::Arc};

use odometer_core::block::Block;

use crate::{
    block_on::block_on, definition::Kind, error::Error, slice::Slice, source::NumberSource,
};

/// One sequence. [`Client::sequence`](crate::Client::sequence) makes it.
///
/// Clones share the numbers in memory. Share it among threads and tasks.
///
/// Values are whole numbers of 64 bits. Ids are strings, the printed form by the sequence's format.
///
/// Numbers never repeat. Numbers of several processes interleave, so a later number can be a lower
/// one.
#[derive(Clone)]
pub struct Sequence(Arc<NumberSource>);

impl Sequence {
    pub(crate) fn new(source: NumberSource) -> Self {
        Self(Arc::new(source))
    }

    /// Notes what the program says of it. No two threads may call it at once.
    ///
    /// # Errors
    /// [`Error::InvalidSetting`] if the program has said something else.
    pub(crate) fn say(&self, kind: Kind) -> Result<(), Error> {
        self.0.say(kind)
    }

    /// Returns the name of the sequence.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.name.as_str()
    }

    /// Takes the next number from memory. Never waits for one.
    ///
    /// Numbers of strict, period and time-ordered sequences are never in memory. So for them, this
    /// makes a call, which blocks the thread.
    ///
    /// # Errors
    /// [`Error::Empty`] if memory has none. A refill has then started. The errors of
    /// [`next`](Self::next) for a sequence that is not buffered.
    #[inline]
    pub fn take(&self) -> Result<i64, Error> {
        self.0.take_value()
    }

    /// Takes the next number like [`take`](Self::take), in printed form.
    ///
    /// # Errors
    /// Those of [`take`](Self::take).
    pub fn take_id(&self) -> Result<String, Error> {
        Ok(self.0.take()?.printed())
    }

    /// Returns the next number. The task waits for it, at most as long as the client's deadline.
    ///
    /// It works on any runtime. If the task is cancelled, a number may be lost, and none repeats.
    ///
    /// # Errors
    /// [`Error::DeadlinePassed`] if no number came in time, and [`Error::Refused`] if the service
    /// refuses the sequence.
    pub async fn next(&self) -> Result<i64, Error> {
        Ok(self.0.next().await?.value)
    }

    /// Returns the next number like [`next`](Self::next), in printed form.
    ///
    /// # Errors
    /// Those of [`next`](Self::next).
    pub async fn next_id(&self) -> Result<String, Error> {
        Ok(self.0.next().await?.printed())
    }

    /// Returns the next number. The thread waits for it, at most as long as the client's deadline.
    ///
    /// # Errors
    /// Those of [`next`](Self::next).
    pub fn next_blocking(&self) -> Result<i64, Error> {
        block_on(self.next())
    }

    /// Returns the next number like [`next_blocking`](Self::next_blocking), in printed form.
    ///
    /// # Errors
    /// Those of [`next`](Self::next).
    pub fn next_id_blocking(&self) -> Result<String, Error> {
        block_on(self.next_id())
    }

    /// Returns an unbroken range of `count` numbers, from memory or else by one call.
    ///
    /// # Errors
    /// Those of [`next`](Self::next), and [`Error::InvalidSetting`] if `count` is 0 or above 2^32.
    pub async fn range(&self, count: u64) -> Result<Block, Error> {
        self.0.range(count).await
    }

    /// Returns an unbroken range like [`range`](Self::range). The thread waits for it.
    ///
    /// # Errors
    /// Those of [`range`](Self::range).
    pub fn range_blocking(&self, count: u64) -> Result<Block, Error> {
        block_on(self.range(count))
    }

    /// Waits until `count` numbers are in memory, at most as long as the client's deadline.
    ///
    /// Call it when your program starts. A sequence that is not buffered is only looked up.
    ///
    /// # Errors
    /// Those of [`next`](Self::next), and [`Error::InvalidSetting`] if `count` is above 2^32.
    pub async fn warm(&self, count: u64) -> Result<(), Error> {
        self.0.warm(count).await
    }

    /// Waits like [`warm`](Self::warm). The thread waits.
    ///
    /// # Errors
    /// Those of [`next`](Self::next).
    pub fn warm_blocking(&self, count: u64) -> Result<(), Error> {
        block_on(self.warm(count))
    }

    /// Makes a slice: numbers that one thread counts for itself, which is the fastest way to take
    /// them.
    ///
    /// If your program ends or crashes, the numbers in its slices are gaps, too: at most 1/64 of a
    /// block for each slice. They come on top of those in memory.
    #[must_use]
    pub fn local(&self) -> Slice {
        Slice::new(Arc::clone(&self.0))
    }

    /// Drops all numbers in memory.
    ///
    /// After you resume a snapshot or a checkpoint, call
    /// [`Client::forget`](crate::Client::forget), which drops those of all sequences.
    pub fn forget(&self) {
        self.0.forget();
    }

    /// Returns how many numbers are in memory, without those of slices.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.0.readings().left
    }

    /// Returns how many numbers a second were taken, over the last 10 s.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.0.readings().rate
    }
}

impl fmt::Debug for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sequence").field(&self.name()).finish()
    }
}
