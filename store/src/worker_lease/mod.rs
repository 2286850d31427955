//! Worker ids that are leased, and the time that is reserved with them.
//!
//! A lease's row holds `reserved_until`: nothing is stamped at or past it, and the next holder of the
//! id starts at or above it. That alone keeps a time from being stamped twice; the lease says who may
//! have the id. Whether one has ended is judged by the database's clock, in the statement that gives
//! the id to the next one. `docs/adr/0019-worker-ids-are-leased-with-their-time.md` has the argument.

pub(crate) mod attempt;
pub(crate) mod by_store;
pub(crate) mod choice;
pub(crate) mod fullness;
pub(crate) mod grant;
pub(crate) mod lease;
pub(crate) mod listing;
pub(crate) mod look;
pub(crate) mod optimistic;
pub(crate) mod reclaim;
pub(crate) mod renewal;
pub(crate) mod row_cache;
pub(crate) mod statements;
pub(crate) mod stores;
pub(crate) mod token;
pub(crate) mod uncertainty;
pub(crate) mod unconfirmed;
