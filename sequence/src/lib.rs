//! Issues numbers (unique ids) from blocks in memory.
//!
//! This crate owns the directory of names, the issuers with their blocks, and the actors. It knows neither HTTP nor SQL. Routes call [`Directory`],
//! and actors call the store.
//!
//! Read first:
//!
//! - `directory.rs`: leads from a name to the issuer of its numbers.
//! - `resolving.rs`: asks the store what a name is, and makes the issuer that it needs.
//! - `issuer.rs`: holds the numbers of one counter, and everything that outlives an actor.
//! - `actor.rs`: decides what one counter does next; it alone reserves, fills and returns.
//! - `changes.rs`: makes memory obey a change.

mod actor;
pub mod audit;
mod changes;
mod command;
mod dedicated;
mod delivery;
pub mod description;
mod directory;
mod dispatch;
mod drained;
pub mod error;
pub mod explain;
pub mod explain_snowflake;
mod held_blocks;
mod history;
mod index;
mod inspection;
pub mod issued;
mod issuer;
mod issuer_state;
mod lifecycle;
mod mailbox;
mod names;
mod ownership;
mod parked_name;
mod period_directory;
mod publish;
mod queue;
mod rate_limit;
mod readiness;
mod resolving;
mod settings;
mod shared;
mod slow_refills;
mod snowflake_issuer;
mod snowflake_lease;
mod snowflake_queue;
mod status;
mod strict;
mod suggestions;
mod sweep;
mod terms;
pub mod warm;
mod warm_up;
pub mod workers;

pub use directory::Directory;
pub use drained::Drained;
pub use readiness::Readiness;
pub use settings::SequenceSettings;
