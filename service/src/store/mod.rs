//! The store: blocks that are durably reserved before anybody sees a number of them.
//!
//! The only user of SeaORM and of `entity`. It knows rows and statements; who
//! issues from a block, and to whom, is the `sequence` layer's.

mod answer;
mod backoff;
mod catalogue;
mod change;
mod claim;
mod code;
mod commands;
mod connection;
mod database;
mod database_clock;
mod error;
mod file_lock;
mod health;
mod homes;
mod journal;
mod kind;
mod meta_row;
mod near;
mod reading;
mod redis;
mod removal;
mod repeat;
mod reservation;
mod sequence_row;
mod settings;
mod stores;
mod striped;
mod worker_lease;

use uuid::Uuid;

use crate::host;

pub use answer::{
    Altered, Changed, Condition, Following, JournalBlock, Listed, News, Page, SeenRecovery,
    Serving, ServingDatabase, ServingRedis, Snapshot, StoreKind,
};
pub use catalogue::LIVE;
pub use change::Act;
pub use change::by_command::CommandStores;
pub use change::recover::Recovered;
pub use commands::{check, migrate, recover};
pub use database::Seen;
pub use error::{StartError, StoreError};
pub use health::{DatabaseHealth, RedisHealth, StoreHealth};
pub use journal::trace::{Holder, Trace, Traced};
pub use journal::{Fate, Row};
pub use reservation::{Course, Known, ReserveRequest, Reserved, Unpublished, Want};
pub use settings::{Bounds, DEFAULT, Durability, Fallback, Source, StoreSettings, StoresSettings};
pub use stores::Stores;
pub use worker_lease::{
    Choice, LONGEST_TTL, LeaseError, LeaseKey, LeaseRow, LeaseWanted, MOST_BITS, MOST_LISTED, Pool,
    WorkerLease,
};

/// What is known of the store now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Contact {
    /// It has not answered since the start.
    None,
    WrongSchema,
    /// It answered once and does not now.
    Lost,
    Up,
}

/// Who this process is to the journal: host, process and start.
fn holder_name() -> String {
    let start = Uuid::new_v4().simple().to_string();
    let start = start.get(..8).unwrap_or_default();
    format!("{}-{start}", host::process())
}
