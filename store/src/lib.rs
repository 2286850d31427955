//! Blocks that are durably reserved before anybody sees a number of them, in one database or in
//! several that share their sequences.
//!
//! It owns every row and every statement about sequences. It knows neither HTTP nor actors: who
//! issues from a block, and to whom, is decided above it.
//!
//! Read first:
//!
//! - `stores.rs`: all stores, as the rest of the program has them.
//! - `reservation/attempts.rs`: one reservation, and what is done about each way it can fail.
//! - `reservation/raise.rs`: the conditional update that takes a block.
//! - `heartbeat.rs`: how a database that forgot commits is found out.
//! - `change/transaction.rs`: changes of definitions, floors and lives.

mod change;
mod claim;
mod commands;
mod creation;
mod database;
mod error;
mod fitness;
mod health;
mod heartbeat;
mod identity;
mod installation_id;
mod journal;
mod kind;
mod meta_row;
mod outcome;
mod placement;
mod queries;
mod redis;
mod removal;
mod repeat;
mod reservation;
mod rows;
mod schema;
mod settings;
mod stores;
mod striped;
mod suggestions;
mod worker_lease;

pub use change::act::Act;
pub use change::by_command::CommandStores;
pub use change::recover::Recovered;
pub use commands::{check, migrate, recover};
pub use error::StoreError;
pub use journal::trace::{Holder, NumberTrace, Traced};
pub use odometer_database::{settings::StatementBounds, start_error::StartError};
pub use outcome::{
    Altered, Changed, Condition, Following, JournalBlock, News, Page, SeenRecovery,
    SequenceSummary, Serving, ServingDatabase, ServingRedis, Snapshot, StoreKind,
};
pub use outcome::{Contact, Resolved};
pub use outcome::{DatabaseHealth, RedisHealth, StoreHealth};
pub use reservation::{
    progress::ReservationProgress,
    request::{ReserveRequest, Reserved, Unpublished, Want},
};
pub use rows::block::{BlockFate, JournalRow};
pub use rows::catalog::LIVE;
pub use rows::counter::SeenCounter;
pub use settings::{Durability, Fallback, Source, StoreLimits, StoreSettings, StoresSettings};
pub use stores::Stores;
pub use worker_lease::lease::{
    LONGEST_TTL, LeaseError, LeaseGrant, LeaseKey, LeaseRow, LeaseWanted, MAX_BITS, MAX_LISTED,
    WorkerChoice, WorkerPool,
};
