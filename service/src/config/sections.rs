//! Defines the sections of the configuration, each with its defaults.

use std::time::Duration;

use odometer_store::Durability;
use serde::Deserialize;

use super::value;

/// What happens to a name that was never used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unknown {
    /// The first call for a number creates the sequence from a template.
    Create,
    /// Calls get 404 until the sequence is defined.
    Reject,
}

/// Bounds on what the replica holds at once.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LimitsConfig {
    /// Callers that are held until refills are done, over all names.
    #[serde(deserialize_with = "value::number")]
    pub waiters: usize,
    /// Requests being answered off the warm path.
    #[serde(deserialize_with = "value::number")]
    pub in_flight: usize,
    /// Names and their periods in memory.
    #[serde(deserialize_with = "value::number")]
    pub live_sequences: usize,
    /// Periods of one sequence in memory.
    #[serde(deserialize_with = "value::number")]
    pub live_periods: usize,
    /// Keys of one keyed sequence, removed keys included.
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

/// How HTTP connections are served.
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
    /// Further names by which callers may call a listener on loopback.
    #[serde(deserialize_with = "value::words")]
    pub hosts: Vec<String>,
    /// Connections that the kernel holds until they are accepted.
    #[serde(deserialize_with = "value::number")]
    pub backlog: u32,
    /// Threads that serve connections. The default is one for each core.
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
    /// The most attempts of one reservation. An attempt that meets a conflict counts, too.
    #[serde(deserialize_with = "value::number")]
    pub attempts: u32,
    /// How long a caller waits for a refill, and how long a reservation tries.
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

/// Connections to each database.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PoolConfig {
    /// The most connections that are open at once. SQLite has one writer, even if this number is
    /// higher.
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

/// How fast each database must answer, and how durable its commits must be.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StoreSection {
    /// How long a statement may take before its outcome counts as unknown.
    #[serde(deserialize_with = "value::duration")]
    pub timeout: Duration,
    /// Whether a database may lose commits in a crash.
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
    /// Names with their own label. The other names count together.
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
    /// How long the program goes on serving after `/readyz` says no, so that load balancers notice.
    #[serde(deserialize_with = "value::duration")]
    pub ready_wait: Duration,
    /// How long the whole shutdown may take.
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

/// What happens to names that are not used.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IdleConfig {
    /// The idle time after which the actor is stopped. The block is kept.
    #[serde(deserialize_with = "value::duration")]
    pub park: Duration,
    /// The idle time after which the rest of the block is returned and the name is forgotten.
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
    /// Rows that may wait to be written. Further rows are given up and counted.
    #[serde(deserialize_with = "value::number")]
    pub queue: usize,
    /// How long a row is kept after the last moment at which something can happen to its block.
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

/// Settings of time-ordered sequences.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SnowflakeConfig {
    /// How long the replica waits for a clock that was set back, before it takes another worker id.
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
    /// The lowest level that is logged, or a filter as in `info,odometer=debug`.
    pub level: String,
    /// A refill that takes this long or longer is logged at level warn.
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

/// What the program sends to other services about its work.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TelemetryConfig {
    /// The URL of an OpenTelemetry collector that takes spans over HTTP. Without one, no spans are
    /// sent.
    pub otlp_endpoint: Option<String>,
}

/// The form of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// Text if standard error is a terminal, otherwise JSON.
    Auto,
    /// One line of text for each event.
    Text,
    /// One JSON object for each event.
    Json,
}
