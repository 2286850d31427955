//! Changes sequences, and ends the life of names in memory.
//!
//! This folder owns changes that administrators make, the news of changes elsewhere, and the
//! sweep. It never gives a number to a caller.
//!
//! Read first:
//!
//! - `acts.rs`: makes a change in the store and then in memory.
//! - `changes.rs`: makes memory obey a change, from here or from another replica.
//! - `sweep.rs`: samples rates, parks and unloads.
//! - `audit.rs`: logs who changed what.
//! - `../actor/mailbox.rs`: obeys a change on behalf of one counter.

pub(crate) mod acts;
pub mod audit;
pub(crate) mod changes;
pub(crate) mod sweep;
