//! Counts sequences with strict order in Redis, in front of the store's database.
//!
//! # The problem
//!
//! Strict order costs one write of the database for each group of callers. Redis counts much
//! faster.
//!
//! # The naive way, and why it fails
//!
//! `INCR` alone would give numbers twice. Redis forgets: it is killed before its last second of
//! writes reached the disk, it is restored from an older dump, it evicts or loses a key, or it
//! fails over to a replica that lags behind. After each of these its counter stands lower.
//!
//! # What Odometer does
//!
//! The database sets a range of numbers aside for Redis, the window, before Redis may issue from
//! it (`row.rs`). Redis counts within the window (`step.lua`). The window's ceiling is the
//! counter's high-water mark, so a lost Redis can never have issued above it. The ceiling is
//! raised in the database first and in Redis afterwards, ahead of need (`ahead.rs`).
//!
//! Windows are numbered, and each new one gets a higher number. A window is installed in Redis
//! once (`install.lua`), with the identity of the running Redis process and its data. A step names
//! the window. If Redis has lost the window, has another one, or is another process than the one
//! that the window was installed in, the step takes nothing. The next window then begins at the
//! ceiling of the lost one or above, and the rest of the lost one is a gap.
//!
//! With the fallback `database`, the counter's row in the database counts while Redis is away. All
//! replicas share one lease for each window. A replica steps in Redis only while the lease lasts,
//! and the row counts only after the lease has ended (`lease.rs`). A step that Redis runs late
//! serves only callers who waited before the row began to count.
//!
//! The decision is ADR 17.

pub(crate) mod agreement;
mod agreement_watch;
pub(crate) mod ahead;
pub(crate) mod counters;
pub(crate) mod lease;
pub(crate) mod new_window;
pub(crate) mod rendezvous;
pub(crate) mod row;
pub(crate) mod scripts;
pub(crate) mod server;
pub(crate) mod store;
pub(crate) mod strict_reservation;
pub(crate) mod window;
