//! Leases worker ids, and reserves time with them.
//!
//! # The problem
//!
//! A snowflake id is a time, a worker id and a sequence number. Two processes with the same worker
//! id at the same time issue the same ids. So does one process whose clock went back while it was
//! down.
//!
//! # The naive way, and why it fails
//!
//! Worker ids from the configuration collide. A worker id that expires if its holder does not
//! renew it is given to the next process, while the stopped holder goes on after its pause. A file
//! with the last time that was used is lost together with its disk.
//!
//! # What Odometer does
//!
//! Time is reserved as numbers are. The row of a worker id holds `reserved_until`. Its holder
//! issues no id with a time at or after it, and the next holder starts at or above it. That alone
//! prevents that a time is used twice, and no clock needs to be right for it.
//!
//! The lease says who may have the worker id. Without it, a new holder could get a worker id whose
//! time is reserved far ahead, and would have to wait until that time has come. The database's
//! clock decides whether a lease has ended, in the statement that gives the worker id away. A
//! holder counts its lease by its own monotonic clock, from before the statement was sent, so the
//! lease ends for the holder first.
//!
//! Each attempt goes the same way: it looks at the row, and then writes on condition that the row
//! is as it was seen. A row that this process wrote itself is remembered (`row_cache.rs`), and then
//! needs no look. If it is not as it was remembered, the attempt looks after all.
//!
//! Every statement on an existing row names the row's version, and every statement carries the
//! guard of the heartbeat. A lease whose answer was lost is found again by its token, or is taken
//! back in the background (`reclaim.rs`). After `odometer recover` all leases are void, and no
//! worker id may be used for as long as the longest lease may reach ahead. A fence knows since when
//! leases may be forgotten. In a database that may be fenced a lease reaches ahead no further than
//! it has lasted, so there ids rest only for as long as that, and holders keep their leases.
//!
//! An operator can void tokens (`release.rs`). Such a lease cannot be renewed, and ends when it
//! expires.
//!
//! The decisions are ADR 18 and ADR 19.

pub(crate) mod attempt;
pub(crate) mod baseline;
pub(crate) mod choice;
pub(crate) mod fullness;
pub(crate) mod grant;
pub(crate) mod lease;
pub(crate) mod listing;
pub(crate) mod look;
pub(crate) mod members;
pub(crate) mod reclaim;
pub(crate) mod release;
pub(crate) mod renewal;
pub(crate) mod row_cache;
pub(crate) mod statements;
pub(crate) mod stores;
pub(crate) mod token;
pub(crate) mod unconfirmed;
