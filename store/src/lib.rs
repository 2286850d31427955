//! Reserves blocks durably, in one database or in several that share their sequences.
//!
//! This crate owns every row and every statement about sequences. It knows neither HTTP nor actors.
//! The crate `sequence` decides who issues the numbers of a block, and to whom.
//!
//! The futures that it returns are boxed. Otherwise each crate that awaits one would compile it once
//! more, with all that it awaits.
//!
//! Read first:
//!
//! - `stores.rs`: offers all stores to the rest of the program.
//! - `reservation/attempts.rs`: makes one reservation, and handles each way in which it can fail.
//! - `reservation/raise.rs`: has the conditional update that reserves a block.
//! - `heartbeat.rs` and `lineage.rs`: notice a database that lost commits, or that is a copy.
//! - `change/decision.rs`: decides what a change makes of a sequence.

mod bounded_map;
mod change;
mod claim;
mod commands;
mod creation;
mod database;
mod error;
mod fences;
mod fitness;
mod guard;
mod heartbeat;
mod housekeeping;
mod identity;
mod installation_id;
mod journal;
mod lineage;
mod meta_row;
mod outcome;
mod placement;
mod queries;
mod recovery;
mod redis;
mod removal;
mod repeat;
mod reservation;
mod resolution;
mod rows;
mod schema;
mod set_aside;
mod settings;
mod stamp_check;
mod store;
mod stores;
mod striped;
mod suggestions;
mod trust;
mod vouching;
mod worker_lease;

pub use change::disarming::Arming;
pub use change::fencing::FenceRequest;
pub use change::recover::{Loss, Recovered};
pub use change::request::{Act, ChangeRequest};
pub use change::self_fencing::unfit_for_fences;
pub use commands::{DatabaseStep, check, migrate, recover};
pub use error::StoreError;
pub use journal::trace::{Holder, NumberTrace, Traced};
pub use odometer_database::{
    connection::Contact, settings::StatementBounds, start_error::StartError,
};
pub use outcome::Resolved;
pub use outcome::{
    Altered, Changed, Condition, Following, JournalBlock, News, Page, SeenRecovery,
    SequenceSummary, Serving, ServingRedis, Snapshot, StoreKind,
};
pub use outcome::{DatabaseHealth, RedisHealth, StoreHealth};
pub use recovery::{KeptNumbers, LastRecovery};
pub use reservation::{
    counter_read::ReadCounter,
    pace::worth_a_write,
    progress::ReservationProgress,
    request::{ReserveRequest, Reserved, Unpublished, Want},
};
pub use rows::block::{BlockFate, JournalRow};
pub use rows::catalog::LIVE;
pub use rows::counter::SeenCounter;
pub use rows::payment::limit_of;
pub use settings::{
    Durability, FailoverLimits, Fallback, OpenFor, Source, StoreLimits, StoreSettings,
    StoresSettings, address,
};
pub use stores::Stores;
pub use worker_lease::lease::{
    LONGEST_TTL, LeaseError, LeaseGrant, LeaseKey, LeaseRow, LeaseWanted, MAX_BITS, MAX_LISTED,
    WorkerChoice, WorkerPool,
};
pub use worker_lease::release::ReleasedWorkers;
