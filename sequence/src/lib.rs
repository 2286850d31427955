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
mod apart;
pub mod audit;
mod changes;
pub mod description;
mod directory;
mod drained;
pub mod error;
pub mod explain;
pub mod face;
mod history;
mod holding;
mod index;
mod issuer;
mod leasing;
mod lifecycle;
mod live;
mod loading;
mod mailbox;
mod messages;
mod near;
mod ownership;
mod periods;
mod publish;
mod queue;
mod readiness;
mod settings;
mod shared;
mod slow;
mod stamping;
pub mod stamps;
mod strict;
mod sweep;
mod timed;
pub mod workers;

pub use directory::Directory;
pub use drained::Drained;
pub use readiness::Readiness;
pub use settings::SequenceSettings;
