//! Defines the sections of the configuration: each key with its default and its bounds.

use std::net::SocketAddr;
use std::time::Duration;

use odometer_process::secret::Secret;
use odometer_store::Durability;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use super::value::{never, read_by, section, serialized};
use crate::resp::key_rules::KeyRule;

const MS: Duration = Duration::from_millis(1);
pub(crate) const SECOND: Duration = Duration::from_secs(1);
const MINUTES: Duration = Duration::from_secs(600);
const HOUR: Duration = Duration::from_secs(3600);
pub(crate) const DAY: Duration = Duration::from_secs(86_400);
const YEAR: Duration = Duration::from_secs(366 * 86_400);
const CENTURY: Duration = Duration::from_secs(36_600 * 86_400);

/// What happens to a name that was never used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unknown {
    /// The first call for a number creates the sequence from a template.
    Create,
    /// Calls get 404 until the sequence is defined.
    Reject,
}

/// What the listener for clients of Redis does with commands that let a key expire.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OnExpiry {
    /// It refuses them.
    Refuse,
    /// It answers that it is done, and does nothing.
    Ignore,
}

read_by! {
    Deserialize::deserialize, never, serialized => Durability, LogFormat, OnExpiry, Unknown;
}

section! {
    /// Bounds on what the replica holds at once.
    LimitsConfig "limits." {
        /// Callers that are held until refills are done, over all names.
        waiters: usize = 16_384, 1..=10_000_000;
        /// Requests being answered off the warm path.
        in_flight: usize = 16_384, 1..=10_000_000;
        /// Names and their periods in memory.
        live_sequences: usize = 1_000_000, 1..=100_000_000;
        /// Periods of one sequence in memory.
        live_periods: usize = 64, 1..=100_000;
        /// Keys of one keyed sequence, without the removed ones.
        keyed_periods: u64 = 100_000, 1..=1_000_000_000;
        /// Bytes of a request's body.
        body: usize = 16 * 1024, 1024..=16 * 1024 * 1024;
    }
}

section! {
    /// How HTTP connections are served.
    HttpConfig "http." {
        /// How long the head of a request may take to arrive.
        head: Duration = Duration::from_secs(5), MS..=MINUTES;
        /// How long the body of a request may take to arrive.
        body: Duration = Duration::from_secs(5), MS..=MINUTES;
        /// How long a reply may stand still before its connection is cut.
        write: Duration = Duration::from_secs(10), SECOND..=MINUTES;
        /// Connections of callers that are open at once.
        connections: usize = 16_384, 16..=1_000_000;
        /// Further names by which callers may call a listener on loopback.
        hosts: Vec<String> = Vec::new();
        /// Connections that the kernel holds until they are accepted.
        backlog: u32 = 4096, 1..=65_535;
        /// Threads that serve connections. The default is one for each core.
        workers: Option<usize> = None, 1..=512;
    }
}

section! {
    /// The operations listener: probes, metrics, the page, and calls that change nothing.
    OperationsConfig "operations." {
        /// The address of this listener. Without one, `listen` serves everything.
        listen: Option<SocketAddr> = None;
    }
}

section! {
    /// The listener for clients of Redis.
    RespConfig "resp." {
        /// The address of this listener. Without one, there is none.
        listen: Option<SocketAddr> = None;
        /// The password that callers must show, if there are no roles.
        password: Option<Secret> = None;
        /// What happens to commands that let a key expire.
        expire: OnExpiry = OnExpiry::Refuse;
        // These are read field by field elsewhere, so that a wrong field can be named.
        key: IgnoredAny = IgnoredAny;
    }
    computed {
        /// The rules that lead from keys to sequences, in their order.
        rules: Vec<KeyRule> = Vec::new();
    }
}

section! {
    /// How a block is reserved.
    RefillConfig "refill." {
        /// The most attempts of one reservation. An attempt that meets a conflict counts, too.
        attempts: u32 = 100, 1..=100_000;
        /// How long a caller waits for a refill, and how long a reservation tries.
        deadline: Duration = Duration::from_secs(5), MS..=MINUTES;
        /// The shortest wait between two attempts.
        backoff_min: Duration = Duration::from_millis(5), MS..=MINUTES;
        /// The longest wait between two attempts.
        backoff_max: Duration = Duration::from_millis(500), MS..=MINUTES;
    }
}

section! {
    /// Connections to each database.
    PoolConfig "pool." {
        /// The most connections that are open at once. SQLite has one writer, even if this number
        /// is higher.
        max: u32 = 8, 1..=10_000;
        /// How long a statement waits for a connection.
        acquire: Duration = Duration::from_secs(2), MS..=MINUTES;
    }
}

section! {
    /// How fast each database must answer, and how durable its commits must be.
    StoreSection "store." {
        /// How long a statement may take before its outcome counts as unknown.
        timeout: Duration = Duration::from_secs(5), MS..=MINUTES;
        /// Whether a database may lose commits in a crash.
        durability: Durability = Durability::default();
    }
}

section! {
    /// What a server has that takes the place of another one.
    FailoverConfig "failover." {
        /// Whether it has all commits of the server that it replaces.
        lossless: bool = false;
        /// How old the oldest commit may be that it lacks.
        within: Duration = Duration::from_secs(15 * 60), Duration::ZERO..=DAY;
        /// How far the clocks of two servers may be apart.
        clock_margin: Duration = Duration::from_secs(2), Duration::ZERO..=Duration::from_secs(25);
    }
}

section! {
    /// What is counted by name.
    MetricsConfig "metrics." {
        /// Names with their own label. The other names count together.
        sequence_labels: usize = odometer_process::metrics::SEQUENCE_LABELS, 0..=100_000;
    }
}

section! {
    /// How the program ends.
    ShutdownConfig "shutdown." {
        /// How long the program goes on serving after `/readyz` says no, so that load balancers
        /// notice.
        ready_wait: Duration = Duration::ZERO, Duration::ZERO..=MINUTES;
        /// How long the whole shutdown may take.
        deadline: Duration = Duration::from_secs(25), SECOND..=DAY;
    }
}

section! {
    /// What happens to names that are not used.
    IdleConfig "idle." {
        /// The idle time after which the actor is stopped. The block is kept.
        park: Duration = Duration::from_secs(60), SECOND..=YEAR;
        /// The idle time after which the rest of the block is returned and the name is forgotten.
        unload: Duration = Duration::from_secs(3600), SECOND..=YEAR;
    }
}

section! {
    /// The journal of blocks.
    JournalConfig "journal." {
        /// Rows that may wait to be written. Further rows are given up and counted.
        queue: usize = 65_536, 1..=10_000_000;
        /// How long a row is kept after the last moment at which something can happen to its block.
        retain: Duration = Duration::from_secs(30 * 86_400), HOUR..=CENTURY;
    }
}

section! {
    /// Settings of time-ordered sequences.
    SnowflakeConfig "snowflake." {
        /// How long the replica waits for a clock that was set back, before it takes another worker
        /// id.
        wait: Duration = Duration::from_secs(1), Duration::ZERO..=MINUTES;
    }
}

section! {
    /// What is logged on standard error.
    LogConfig "log." {
        /// Text for people or JSON for machines.
        format: LogFormat = LogFormat::Auto;
        /// The lowest level that is logged, or a filter as in `info,odometer=debug`.
        level: String = "info".to_owned();
        /// A refill that takes this long or longer is logged at level warn.
        slow_refill: Duration = Duration::from_secs(1), MS..=MINUTES;
    }
}

section! {
    /// What the program sends to other services about its work.
    TelemetryConfig "telemetry." {
        /// The URL of an OpenTelemetry collector that takes spans over HTTP. Without one, no spans
        /// are sent.
        otlp_endpoint: Option<String> = None;
    }
}

/// The form of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// Text if standard error is a terminal, otherwise JSON.
    Auto,
    /// One line of text for each event.
    Text,
    /// One JSON object for each event.
    Json,
}
