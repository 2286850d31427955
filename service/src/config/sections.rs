//! The sections of the configuration, each with its defaults.

use std::time::Duration;

use odometer_store::Durability;
use serde::Deserialize;

use super::value;

/// What becomes of a name never seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unknown {
    /// The first call for a number creates it from the template.
    Create,
    /// 404 until somebody defines it.
    Reject,
}

/// Bounds of what is held at once.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LimitsConfig {
    /// Callers held until refills are done, over all names.
    #[serde(deserialize_with = "value::number")]
    pub waiters: usize,
    /// Requests being answered off the warm path.
    #[serde(deserialize_with = "value::number")]
    pub in_flight: usize,
    /// Names in memory.
    #[serde(deserialize_with = "value::number")]
    pub live_sequences: usize,
    /// Periods in memory of one calendar sequence.
    #[serde(deserialize_with = "value::number")]
    pub live_periods: usize,
    /// Periods of one keyed sequence.
    #[serde(deserialize_with = "value::number")]
    pub keyed_periods: u64,
    /// Bytes of a request's body.
    #[serde(deserialize_with = "value::number")]
    pub body: usize,
}

impl Default for LimitsConfig {
    fn default() -> Self {
        Self {
            waiters: 16_384,
            in_flight: 16_384,
            live_sequences: 1_000_000,
            live_periods: 64,
            keyed_periods: 100_000,
            body: 16 * 1024,
        }
    }
}

/// How connections are served.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HttpConfig {
    /// How long the head of a request may take to arrive.
    #[serde(deserialize_with = "value::duration")]
    pub head: Duration,
    /// How long the body of a request may take to arrive.
    #[serde(deserialize_with = "value::duration")]
    pub body: Duration,
    /// How long a reply may stand still before its connection is cut.
    #[serde(deserialize_with = "value::duration")]
    pub write: Duration,
    /// Connections of callers that are open at once.
    #[serde(deserialize_with = "value::number")]
    pub connections: usize,
    /// Names, besides its own, by which a listener on loopback may be called.
    #[serde(deserialize_with = "value::words")]
    pub hosts: Vec<String>,
    /// Connections the kernel holds until they are accepted.
    #[serde(deserialize_with = "value::number")]
    pub backlog: u32,
    /// Threads that serve connections; one for each core where none is given.
    #[serde(deserialize_with = "value::some_number")]
    pub workers: Option<usize>,
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self {
            head: Duration::from_secs(5),
            body: Duration::from_secs(5),
            write: Duration::from_secs(10),
            connections: 16_384,
            hosts: Vec::new(),
            backlog: 4096,
            workers: None,
        }
    }
}

/// How a block is reserved.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RefillConfig {
    /// Attempts of one reservation, conflicts included.
    #[serde(deserialize_with = "value::number")]
    pub attempts: u32,
    /// How long a caller waits for a refill, and a reservation tries.
    #[serde(deserialize_with = "value::duration")]
    pub deadline: Duration,
    /// The shortest wait between two attempts.
    #[serde(deserialize_with = "value::duration")]
    pub backoff_min: Duration,
    /// The longest wait between two attempts.
    #[serde(deserialize_with = "value::duration")]
    pub backoff_max: Duration,
}

impl Default for RefillConfig {
    fn default() -> Self {
        Self {
            attempts: 100,
            deadline: Duration::from_secs(5),
            backoff_min: Duration::from_millis(5),
            backoff_max: Duration::from_millis(500),
        }
    }
}

/// Connections to the database.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PoolConfig {
    /// Open at once, at most. SQLite has one writer whatever is said here.
    #[serde(deserialize_with = "value::number")]
    pub max: u32,
    /// How long a statement waits for a connection.
    #[serde(deserialize_with = "value::duration")]
    pub acquire: Duration,
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self {
            max: 8,
            acquire: Duration::from_secs(2),
        }
    }
}

/// The database's time.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StoreSection {
    /// How long a statement may take before its outcome counts as unknown.
    #[serde(deserialize_with = "value::duration")]
    pub timeout: Duration,
    /// Whether a database may forget in a crash what it has committed.
    pub durability: Durability,
}

impl Default for StoreSection {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(5),
            durability: Durability::default(),
        }
    }
}

/// What is counted by name.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MetricsConfig {
    /// Names with a label of their own; the others count together.
    #[serde(deserialize_with = "value::number")]
    pub sequence_labels: usize,
}

impl Default for MetricsConfig {
    fn default() -> Self {
        Self {
            sequence_labels: odometer_process::metrics::SEQUENCE_LABELS,
        }
    }
}

/// How the program ends.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ShutdownConfig {
    /// How long to go on serving after `/readyz` says no, so that balancers notice.
    #[serde(deserialize_with = "value::duration")]
    pub ready_wait: Duration,
    /// How long all of it may take.
    #[serde(deserialize_with = "value::duration")]
    pub deadline: Duration,
}

impl Default for ShutdownConfig {
    fn default() -> Self {
        Self {
            ready_wait: Duration::ZERO,
            deadline: Duration::from_secs(25),
        }
    }
}

/// What becomes of names nobody asks for.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IdleConfig {
    /// After this long the actor is stopped; the block is kept.
    #[serde(deserialize_with = "value::duration")]
    pub park: Duration,
    /// After this long the rest of the block is returned and the name forgotten.
    #[serde(deserialize_with = "value::duration")]
    pub unload: Duration,
}

impl Default for IdleConfig {
    fn default() -> Self {
        Self {
            park: Duration::from_secs(60),
            unload: Duration::from_secs(3600),
        }
    }
}

/// The journal of blocks.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct JournalConfig {
    /// Rows that may wait to be written; more are given up and counted.
    #[serde(deserialize_with = "value::number")]
    pub queue: usize,
    /// How long a row is kept once nothing can come of its block any more.
    #[serde(deserialize_with = "value::duration")]
    pub retain: Duration,
}

impl Default for JournalConfig {
    fn default() -> Self {
        Self {
            queue: 65_536,
            retain: Duration::from_secs(30 * 86_400),
        }
    }
}

/// Time-ordered sequences.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SnowflakeConfig {
    /// How long a clock that was set back is waited for, before another worker id is taken.
    #[serde(deserialize_with = "value::duration")]
    pub wait: Duration,
}

impl Default for SnowflakeConfig {
    fn default() -> Self {
        Self {
            wait: Duration::from_secs(1),
        }
    }
}

/// What is logged on standard error.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogConfig {
    /// Text for people or JSON for machines.
    pub format: LogFormat,
    /// The least level, or a filter as in `info,odometer=debug`.
    pub level: String,
    /// A refill that takes so long is logged, at level warn.
    #[serde(deserialize_with = "value::duration")]
    pub slow_refill: Duration,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self {
            format: LogFormat::Auto,
            level: "info".to_owned(),
            slow_refill: Duration::from_secs(1),
        }
    }
}

/// What is sent elsewhere of what the program does.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TelemetryConfig {
    /// Where a collector of OpenTelemetry takes spans, over HTTP; none are sent where none is given.
    pub otlp_endpoint: Option<String>,
}

/// The form of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// Text where standard error is a terminal, JSON otherwise.
    Auto,
    /// One line of text an event.
    Text,
    /// One JSON object an event.
    Json,
}
