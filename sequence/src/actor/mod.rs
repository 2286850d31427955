//! Gets numbers for one counter, and gives them to the callers that wait.
//!
//! This folder owns the actors: their commands, the callers that wait, and the work under way. It
//! never knows names that are not in memory, nor the periods of a name.
//!
//! Read first:
//!
//! - `sequence_actor.rs`: decides what the counter does next.
//! - `mailbox.rs`: handles each command.
//! - `delivery.rs`: gives callers what a refill brought, or its refusal.
//! - `group.rs`: serves callers who share one write, as in strict order.
//! - `snowflake_lease.rs`: keeps the lease of a worker id.
//!
//! The rest: `command.rs` defines the commands, and `dispatch.rs` sends them. `queue.rs` holds the
//! callers that wait, and `snowflake_queue.rs` serves those of ids by time. `slow_refills.rs` logs
//! slow refills.

pub(crate) mod command;
mod delivery;
mod dispatch;
mod group;
mod mailbox;
pub(crate) mod queue;
pub(crate) mod sequence_actor;
pub(crate) mod slow_refills;
pub(crate) mod snowflake_lease;
mod snowflake_queue;
