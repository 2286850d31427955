//! Leads from a name to the issuer of its numbers.
//!
//! This folder owns the names in memory, the calls for numbers, and the periods of each name. It
//! never knows how an actor gets numbers.
//!
//! Read first:
//!
//! - `calls.rs`: takes the calls of the routes, and waits for an actor if memory has no number.
//! - `names.rs`: holds the names in use and the parked names.
//! - `warm.rs`: takes numbers from memory without waiting.
//! - `resolving.rs`: asks the store what a name is.
//! - `period_directory.rs`: leads to the issuers of a name's periods.
//!
//! The rest: `shared.rs` holds what the directory, its actors and its sweep share. `first_use.rs`
//! says whether a name was used before, `usage.rs` how much is used up, and `call_bounds.rs` how
//! large a call may be. `period_rule.rs` decides in which periods callers may count. `warm_up.rs`
//! loads the names used most recently.
//! `suggestions.rs` and `rate_limit.rs` answer wrong names. `workers.rs` leases worker ids to other
//! programs. `settings.rs`, `readiness.rs` and `drained.rs` define what their names say.

pub(crate) mod call_bounds;
pub(crate) mod calls;
pub(crate) mod drained;
pub(crate) mod first_use;
pub(crate) mod names;
pub(crate) mod period_directory;
pub(crate) mod period_rule;
pub(crate) mod rate_limit;
pub(crate) mod readiness;
pub(crate) mod resolving;
pub(crate) mod settings;
pub(crate) mod shared;
mod suggestions;
mod usage;
pub mod warm;
pub(crate) mod warm_up;
pub mod workers;
