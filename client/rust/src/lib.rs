//! Takes numbers that never repeat from Odometer, and counts them in your program's memory.
//!
//! ```no_run
//! use odometer_client::{Client, Error, Layout};
//!
//! # async fn example() -> Result<(), Error> {
//! let client = Client::builder().endpoints(["http://a:8080", "http://b:8080"]).build()?;
//! let orders = client.sequence("orders")?;
//! orders.warm(1_000).await?;
//! let number = orders.next().await?; // or next_blocking()
//! let number = orders.take()?; // from memory, without waiting
//! let fifty = orders.range(50).await?; // without a gap
//!
//! let mut local = orders.local(); // of this thread alone
//! let number = local.take()?;
//!
//! let ids = client.stamper("billing", Layout::default(), "billing-7").await?;
//! let id = ids.take()?; // a snowflake id, made here
//! # Ok(())
//! # }
//! ```
//!
//! The library owns the numbers in memory, their refills, and the worker ids of stampers. It never
//! knows the code of the service, which it reaches by HTTP alone, nor any async runtime: calls run
//! in threads of its own.
//!
//! Read first:
//!
//! - `client.rs`: makes sequences and stampers, and lets them forget.
//! - `source.rs`: gives the numbers of one sequence, from memory or by a call.
//! - `stock.rs`: decides who gets which number, with one refill at a time.
//! - `of_process.rs`: lets a forked child begin with nothing.
//! - `keeper.rs`: keeps the lease of a worker id, and stops in time.

mod after;
mod backoff;
mod block_on;
mod boot_clock;
mod buffer;
mod builder;
mod client;
mod definition;
mod direct;
mod endpoints;
mod engine;
mod error;
mod flight;
mod fork;
mod hooks;
mod keeper;
mod lease;
mod log;
mod numbers;
mod numbers_call;
mod of_process;
mod panics;
mod random;
mod refill;
mod reply;
mod resolver;
#[cfg(not(feature = "sabotage"))]
mod sabotage;
#[cfg(feature = "sabotage")]
#[doc(hidden)]
pub mod sabotage;
mod sequence;
mod sequence_calls;
mod service;
mod settings;
mod size;
mod slice;
mod source;
mod stamper;
mod stock;
mod threads;
mod timer;
mod token;
mod transport;
mod wait;
mod waiter;

/// The examples of the front page for users, as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests may fail loudly"
)]
mod tests;

pub use builder::ClientBuilder;
pub use client::{Client, SequenceOptions};
pub use definition::Kind;
pub use error::{Error, Refusal};
pub use hooks::{DropCause, Hooks, MetricsHooks, RefillReport};
pub use odometer_core::{
    block::Block,
    name::SequenceName,
    snowflake::{High, Layout, LayoutUnit, Parts},
};
pub use sequence::Sequence;
pub use slice::Slice;
pub use stamper::Stamper;
