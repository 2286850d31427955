//! The fields of replies that the commands show. Fields that are not known are left out.

use serde::Deserialize;
use serde_json::{Map, Value};

/// A refusal.
#[derive(Debug, Deserialize)]
pub(crate) struct ProblemReply {
    pub(crate) detail: String,
    pub(crate) code: String,
}

/// Numbers that were taken: one `id`, or several `ids`.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum TakenReply {
    Batch { ids: Vec<String> },
    One { id: String },
}

/// A page of definitions.
#[derive(Debug, Deserialize)]
pub(crate) struct ListedPage {
    pub(crate) sequences: Vec<ListedSequence>,
    pub(crate) next: Option<String>,
}

/// One sequence of a page.
#[derive(Debug, Deserialize)]
pub(crate) struct ListedSequence {
    pub(crate) sequence: String,
    pub(crate) state: String,
    pub(crate) definition: Map<String, Value>,
}

/// A sequence, as the databases and this replica know it.
#[derive(Debug, Deserialize)]
pub(crate) struct ShownSequence {
    pub(crate) definition: Map<String, Value>,
    pub(crate) state: ShownState,
}

/// The state of a sequence.
#[derive(Debug, Deserialize)]
pub(crate) struct ShownState {
    pub(crate) retired: Option<bool>,
    pub(crate) period: Option<String>,
    pub(crate) high_water_mark: Option<String>,
    pub(crate) rate: Option<f64>,
    pub(crate) runway: Option<RunwayLeft>,
    pub(crate) store: Option<ShownStore>,
}

/// The store that serves a sequence.
#[derive(Debug, Deserialize)]
pub(crate) struct ShownStore {
    pub(crate) name: String,
    pub(crate) databases: Vec<StorePlace>,
    pub(crate) redis: Option<StorePlace>,
}

/// What a definition has become, or would become.
#[derive(Debug, Deserialize)]
pub(crate) struct DefinedSequence {
    pub(crate) definition: Map<String, Value>,
    pub(crate) warnings: Vec<String>,
    pub(crate) samples: Option<Vec<String>>,
    pub(crate) runway: Option<RunwayLeft>,
}

/// How long the numbers last that are not reserved yet.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct RunwayLeft {
    pub(crate) limit: String,
    pub(crate) numbers_left: u64,
    pub(crate) days_left: Option<f64>,
}

/// The process that answers.
#[derive(Debug, Deserialize)]
pub(crate) struct RunningReplica {
    pub(crate) holder: String,
    pub(crate) version: String,
    pub(crate) started: String,
    pub(crate) ready: bool,
    pub(crate) why: Option<String>,
    pub(crate) live_sequences: u64,
    pub(crate) token_needed: bool,
    pub(crate) stores: Vec<WatchedStore>,
}

/// A store, as a replica sees it.
#[derive(Debug, Deserialize)]
pub(crate) struct WatchedStore {
    pub(crate) name: String,
    pub(crate) databases: Vec<StorePlace>,
    pub(crate) redis: Vec<StorePlace>,
}

/// A database or a Redis server.
#[derive(Debug, Deserialize)]
pub(crate) struct StorePlace {
    #[serde(alias = "server")]
    pub(crate) database: String,
    pub(crate) up: bool,
    #[serde(default)]
    pub(crate) went_back: bool,
}

/// A page of the names in a replica's memory.
#[derive(Debug, Deserialize)]
pub(crate) struct MemoryPage {
    pub(crate) sequences: Vec<SequenceInMemory>,
    pub(crate) next: Option<String>,
}

/// What memory knows of one name.
#[derive(Debug, Deserialize)]
pub(crate) struct WatchedName {
    pub(crate) live: Option<SequenceInMemory>,
}

/// A sequence, as a replica's memory knows it.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct SequenceInMemory {
    pub(crate) sequence: String,
    pub(crate) kind: String,
    pub(crate) order: String,
    pub(crate) counts_by: String,
    pub(crate) store: String,
    pub(crate) retired: bool,
    pub(crate) period_ends: Option<String>,
    pub(crate) periods: Option<u64>,
    pub(crate) remaining: u64,
    pub(crate) block: Option<BlockInMemory>,
    pub(crate) next_block: Option<BlockInMemory>,
    pub(crate) lease: Option<LeaseInMemory>,
    pub(crate) rate: f64,
    pub(crate) reserve_seconds: Option<f64>,
    pub(crate) hold_seconds: u64,
    #[serde(default)]
    pub(crate) warming_up: bool,
    pub(crate) why: Option<String>,
    pub(crate) runway: Option<RunwayLeft>,
}

/// A block in memory.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct BlockInMemory {
    pub(crate) first: String,
    pub(crate) last: String,
    pub(crate) remaining: u64,
    pub(crate) size: u64,
}

/// The worker id that a replica holds for a sequence.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct LeaseInMemory {
    pub(crate) worker: u32,
    pub(crate) until: Option<String>,
    pub(crate) seconds_left: f64,
    pub(crate) renewed_at: Option<String>,
    pub(crate) clock_skew_ms: i64,
}
