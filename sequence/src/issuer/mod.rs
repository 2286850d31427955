//! Holds the numbers of one counter, and everything that outlives its actor.
//!
//! This folder owns the blocks in memory, what is known of their counter, and who may change them.
//! It never asks the store, and starts no actor.
//!
//! Read first:
//!
//! - `memory.rs`: is the issuer: its kind, its state, and the way to its actor.
//! - `state.rs`: notes what the store and changes say of the counter.
//! - `held_blocks.rs`: adds, serves, clips and returns blocks, on behalf of the owner.
//! - `ownership.rs`: decides which actor is the owner.
//! - `parked_name.rs`: keeps a name that is not used.
//!
//! The rest: `snowflake_issuer.rs` issues ids by time. `status.rs` describes an issuer, and
//! `issued.rs` what a reply shows. `speed.rs` says what the speed limit means for callers. `terms.rs`
//! counts owners.

pub(crate) mod held_blocks;
pub mod issued;
pub(crate) mod memory;
pub(crate) mod ownership;
pub(crate) mod parked_name;
pub(crate) mod snowflake_issuer;
pub(crate) mod speed;
pub(crate) mod state;
pub(crate) mod status;
pub(crate) mod terms;
