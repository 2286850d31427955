//! Who issues: the directory of names, what a caller touches, and the actor behind it.
//!
//! It owns every block in memory. It knows neither HTTP nor SQL: routes call [`Directory`], and
//! actors call the store.
//!
//! Read first:
//!
//! - `directory.rs`: from a name to who issues its numbers.
//! - `issuer.rs`: what outlives an actor, with the numbers in memory.
//! - `actor.rs`: what one name does next; it alone reserves, fills and gives back.
//! - `ownership.rs`: which actor an issuer belongs to.
//! - `changes.rs`: how a change reaches the numbers in memory.

mod actor;
pub mod audit;
mod changes;
mod command;
mod dedicated;
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
mod lifecycle;
mod mailbox;
mod ownership;
mod period_directory;
mod publish;
mod queue;
mod rate_limit;
mod readiness;
mod settings;
mod shared;
mod slow_refills;
mod snowflake_issuer;
mod snowflake_lease;
mod snowflake_queue;
mod strict;
mod suggestions;
mod sweep;
mod terms;
mod warm_up;
pub mod workers;

pub use directory::Directory;
pub use drained::Drained;
pub use readiness::Readiness;
pub use settings::SequenceSettings;
