//! Leases worker ids, and reserves time with them.
//!
//! A lease's row holds `reserved_until`. The holder of the lease issues no id with a time at or
//! after it. The next holder of the worker id starts at or above it. That alone prevents that a
//! time is used twice. The lease says who may have the worker id. The database's clock decides
//! whether a lease has ended, in the statement that gives the worker id to the next holder.
//! `docs/adr/0019-worker-ids-are-leased-with-their-time.md` has the argument.

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
