//! Issues numbers (unique ids) from blocks in memory.
//!
//! This crate owns the directory of names, the issuers with their blocks, and the actors. It knows
//! neither HTTP nor SQL. Routes call [`Directory`], and actors call the store.
//!
//! Read first:
//!
//! - `directory/calls.rs`: leads from a name to the issuer of its numbers.
//! - `directory/resolving.rs`: asks the store what a name is, and makes the issuer that it needs.
//! - `issuer/memory.rs`: holds the numbers of one counter, and everything that outlives an actor.
//! - `actor/sequence_actor.rs`: decides what one counter does next; it alone reserves, fills and
//!   returns.
//! - `lifecycle/changes.rs`: makes memory obey a change.
//!
//! The rest: `error.rs` has the reasons for which a call fails, and `inspection/` shows what memory
//! knows.

mod actor;
mod directory;
pub mod error;
mod inspection;
mod issuer;
mod lifecycle;

pub use actor::queue::Wants;
pub use directory::{
    call_bounds::CallBounds, calls::Directory, drained::Drained, first_use::FirstUse,
    readiness::Readiness, settings::SequenceSettings, warm, workers,
};
pub use inspection::{description, explain, explain_snowflake};
pub use issuer::issued;
pub use lifecycle::audit;
