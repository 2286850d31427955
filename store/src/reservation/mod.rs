//! Reserves numbers in one database: blocks, exact ranges, and numbers in strict order.
//!
//! # The problem
//!
//! Many replicas reserve blocks from one row. No two of them may get the same number, a refill
//! should cost one round trip, and an answer of the database may be lost on its way.
//!
//! # The naive way, and why it fails
//!
//! A transaction could lock the row, read it, write it and commit. That takes four round trips and
//! keeps the row locked during all of them, so one slow replica stops all others. And if the reply
//! to the commit is lost, the replica does not know whether the block is its own. If it assumes
//! success, it may issue numbers that were never reserved. If it assumes that nothing happened,
//! numbers are lost and nobody counts them.
//!
//! # What Odometer does
//!
//! One conditional update raises `next_value` if the row still has the `next_value` and the
//! `version` that the replica saw last (`raise.rs`). It changes exactly one row, or it did not
//! happen. Then another write came first, which is a conflict, or the guard of the heartbeat
//! failed (`heartbeat.rs`). After a conflict the replica reads the row and tries again. As long as
//! nobody else writes, the values of the last reservation are right, and no read is needed (ADR
//! 14).
//!
//! A failure is either *certainly not committed* or *may have committed*. After the second kind
//! the block is an uncertain write (`uncertain_outcome.rs`). The reservation tries again, and what
//! it finds decides:
//!
//! - The counter is unchanged. The outcome is still open. A later write that succeeds on the same
//!   condition proves that the uncertain write can never take effect any more, and no number is
//!   lost.
//! - The counter has moved. Unless it shows that another write came first, this process may have
//!   reserved the block. Its numbers count as abandoned, and nobody issues them.
//!
//! The same update pays for its numbers within the speed limit of the sequence (`pace.rs`,
//! `rows/payment.rs`). If the limit does not allow them, the update changes no row. The next attempt
//! asks for what the limit has left, or waits until there is more.
//!
//! Strict order adds to the counter instead, because all replicas write all the time and
//! conditions would mostly fail (`strict.rs`, ADR 10). The outcome of an add that has no answer
//! cannot be found out, so its numbers count as abandoned at once. In relaxed order a reservation
//! adds after three conflicts, so that no replica waits because others write faster (ADR 37).

pub(crate) mod adoption;
pub(crate) mod attempts;
pub(crate) mod counter_read;
pub(crate) mod entry;
pub(crate) mod one_row;
pub(crate) mod pace;
pub(crate) mod period;
pub(crate) mod progress;
pub(crate) mod raise;
pub(crate) mod request;
pub(crate) mod strict;
pub(crate) mod stripe_constraints;
pub(crate) mod uncertain_outcome;
pub(crate) mod uncertain_writes;
