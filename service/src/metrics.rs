//! Every metric of the program, made once and handed out as handles.
//!
//! No metric is declared anywhere else, so this file is the list of names that dashboards and
//! alerts may use. Each `Metrics` has a recorder of its own: nothing is global, and a test can hold
//! several side by side. Handles are cheap to use; looking a metric up by name is not, so whoever
//! counts often keeps the handle.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use ::metrics::{Counter, Gauge, Histogram, Key, Label, Level, Metadata, Recorder};
use metrics_exporter_prometheus::{
    Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};
use parking_lot::Mutex;

/// Names that get a label of their own where the configuration does not say otherwise.
pub const SEQUENCE_LABELS: usize = 1000;

/// The label of counters beyond the bound; no sequence can have this name.
const OTHER: &str = "_other";

const METADATA: Metadata<'static> =
    Metadata::new(module_path!(), Level::INFO, Some(module_path!()));

/// Every counter and what it counts.
const COUNTERS: [(&str, &str); 20] = [
    (
        "odometer_abandoned_numbers_total",
        "Numbers reserved that will neither be issued nor returned, by cause.",
    ),
    (
        "odometer_actor_restarts_total",
        "Actors started in place of one that died.",
    ),
    (
        "odometer_cold_calls_total",
        "Calls for numbers that memory had not.",
    ),
    (
        "odometer_database_reservations_total",
        "Blocks, or numbers for callers of strict order, that a database gave.",
    ),
    (
        "odometer_http_refused_requests_total",
        "Requests refused because too many were being answered.",
    ),
    ("odometer_http_requests_total", "Requests answered."),
    (
        "odometer_journal_checks_total",
        "Times that all of the journal was looked through for blocks that overlap.",
    ),
    (
        "odometer_journal_rows_dropped_total",
        "Journal rows given up.",
    ),
    (
        "odometer_journal_rows_pruned_total",
        "Journal rows removed because of their age.",
    ),
    (
        "odometer_journal_rows_written_total",
        "Journal rows written.",
    ),
    ("odometer_numbers_issued_total", "Numbers given to callers."),
    (
        "odometer_periods_removed_total",
        "Periods of the calendar removed because of their age.",
    ),
    (
        "odometer_redis_fallbacks_total",
        "Times that a sequence with strict order went from Redis to its database.",
    ),
    (
        "odometer_redis_steps_total",
        "Steps taken in Redis, each for all callers who waited.",
    ),
    (
        "odometer_redis_windows_total",
        "Windows opened for Redis, by what became of the one before.",
    ),
    (
        "odometer_reservation_retries_total",
        "Further attempts of reservations.",
    ),
    (
        "odometer_reservations_total",
        "Writes that tried to reserve or adopt a block, by outcome.",
    ),
    (
        "odometer_sequences_created_total",
        "Sequences created by this process.",
    ),
    (
        "odometer_waiters_refused_total",
        "Callers refused because too many were waiting.",
    ),
    (
        "odometer_worker_leases_refused_total",
        "Leases of worker ids refused because none could be had.",
    ),
];

/// Every gauge and what it shows.
const GAUGES: [(&str, &str); 31] = [
    ("odometer_actors", "Actors running."),
    (
        "odometer_block_remaining",
        "Numbers left of the block being issued.",
    ),
    ("odometer_block_size", "Numbers in the block being issued."),
    (
        "odometer_block_utilization_ratio",
        "The part of the current block that is issued.",
    ),
    (
        "odometer_build_info",
        "1, labelled with the version that runs.",
    ),
    (
        "odometer_clock_skew_seconds",
        "A database's clock minus this machine's.",
    ),
    (
        "odometer_database_connections_active",
        "Connections to a database that a statement or transaction holds.",
    ),
    (
        "odometer_database_connections_max",
        "Connections that the pool of a database may have.",
    ),
    (
        "odometer_database_connections_pending",
        "Statements and transactions that wait for a connection to a database.",
    ),
    (
        "odometer_database_durability_weak",
        "1 while a database's settings let a crash of it forget what it has committed.",
    ),
    (
        "odometer_database_up",
        "1 while a database answers, 0 otherwise.",
    ),
    (
        "odometer_http_in_flight_requests",
        "Requests being answered off the warm path.",
    ),
    (
        "odometer_journal_overlaps",
        "Pairs of blocks in the journal that have numbers in common.",
    ),
    (
        "odometer_journal_queue",
        "Journal rows waiting to be written.",
    ),
    ("odometer_live_sequences", "Names held in memory."),
    (
        "odometer_ready",
        "1 while calls should be sent to this replica, 0 otherwise.",
    ),
    (
        "odometer_redis_ceiling_seconds",
        "The least time any sequence in use can go on in Redis without its database.",
    ),
    (
        "odometer_redis_up",
        "1 while a Redis server takes steps, 0 otherwise.",
    ),
    (
        "odometer_reservations_in_flight",
        "Reservations the store is working on.",
    ),
    (
        "odometer_reserve_seconds",
        "How long what is left in memory lasts at the present rate.",
    ),
    (
        "odometer_runway_numbers",
        "Numbers that nobody has reserved, up to the end of the sequence.",
    ),
    (
        "odometer_runway_seconds",
        "How long until the sequence ends at the present rate.",
    ),
    (
        "odometer_shortest_reserve_seconds",
        "The least time any sequence in use can go on without the store.",
    ),
    (
        "odometer_shortest_runway_numbers",
        "The least numbers left to any live sequence.",
    ),
    (
        "odometer_shortest_runway_seconds",
        "The least time to any live sequence's end at its present rate.",
    ),
    (
        "odometer_store_tasks",
        "Tasks alive in the store's runtime, statements among them.",
    ),
    (
        "odometer_store_up",
        "1 while every store answers, 0 otherwise.",
    ),
    (
        "odometer_store_went_back",
        "1 from when the store was found to have gone back until a recovery is seen, 0 otherwise.",
    ),
    ("odometer_waiters", "Callers held until a refill is done."),
    (
        "odometer_worker_ids_held",
        "Worker ids that time-ordered ids are issued with here.",
    ),
    (
        "odometer_worker_lease_seconds",
        "The least time any time-ordered sequence in use can go on without the store.",
    ),
];

/// Every histogram and what it measures.
const HISTOGRAMS: [(&str, &str); 3] = [
    (
        "odometer_http_request_duration_seconds",
        "Time to answer a request; calls served from memory are sampled.",
    ),
    (
        "odometer_redis_step_duration_seconds",
        "Time from sending a step to Redis to its reply.",
    ),
    (
        "odometer_reservation_duration_seconds",
        "Time from the start of a reservation to its outcome.",
    ),
];

/// Upper bounds of a reservation's buckets, in seconds: from a local SQLite write to the deadline.
const RESERVATION_BUCKETS_S: [f64; 14] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

/// Upper bounds of a request's buckets, in seconds: a warm number takes microseconds.
const HTTP_BUCKETS_S: [f64; 16] = [
    0.000_01, 0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.0025, 0.005, 0.01, 0.025,
    0.1, 0.5, 1.0, 5.0, 10.0,
];

/// The statuses the contract knows, the commonest first.
const STATUSES: [u16; 17] = [
    200, 201, 204, 304, 400, 401, 403, 404, 405, 409, 410, 412, 413, 415, 431, 500, 503,
];

/// The text of each of `STATUSES`, and at the end the one for any other status.
const STATUS_LABELS: [&str; STATUSES.len() + 1] = [
    "200", "201", "204", "304", "400", "401", "403", "404", "405", "409", "410", "412", "413",
    "415", "431", "500", "503", "other",
];

/// Why numbers that were reserved will neither be issued nor returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AbandonedCause {
    /// The store did not say whether it had committed.
    Uncertain,
    /// The reservation finished for an actor that no longer owned the sequence.
    ActorDied,
    /// A taker held an offset into a slot that was filled anew meanwhile.
    SlotReused,
    /// The rest could not be given back before the deadline of the shutdown.
    Shutdown,
    /// Numbers were taken for a caller who had gone when they arrived.
    CallerGone,
    /// A floor was raised past numbers in memory, or their sequence was retired.
    Advanced,
    /// A window of Redis was lost before its end, as far as this replica knew it.
    Window,
}

impl AbandonedCause {
    const ALL: [Self; 7] = [
        Self::Uncertain,
        Self::ActorDied,
        Self::SlotReused,
        Self::Shutdown,
        Self::CallerGone,
        Self::Advanced,
        Self::Window,
    ];

    fn label(self) -> &'static str {
        match self {
            Self::Uncertain => "uncertain",
            Self::ActorDied => "actor_died",
            Self::SlotReused => "slot_reused",
            Self::Shutdown => "shutdown",
            Self::CallerGone => "caller_gone",
            Self::Advanced => "advanced",
            Self::Window => "window",
        }
    }
}

/// The routes that requests are counted by; everything unknown is `Other`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Route {
    /// `POST /v1/sequences/{name}/next`.
    Next,
    /// `POST /v1/sequences/{name}/blocks`.
    Blocks,
    /// `GET`, `PUT` and `DELETE /v1/sequences/{name}`.
    Sequence,
    /// `POST /v1/sequences/{name}/advance`.
    Advance,
    /// `POST /v1/sequences/{name}/restore`.
    Restore,
    /// `DELETE /v1/sequences/{name}/periods/{key}`.
    Period,
    /// `POST /v1/sequences/{name}/parse`.
    Parse,
    /// `GET /v1/sequences/{name}/explain`.
    Explain,
    /// `GET /v1/sequences`.
    Sequences,
    /// `GET /v1/replica` and what is below it.
    Replica,
    /// `POST /v1/workers`.
    Lease,
    /// `GET /v1/workers/{pool}`.
    Workers,
    /// `DELETE /v1/workers/{pool}/{worker}`.
    Worker,
    /// `POST /v1/workers/{pool}/{worker}/renew`.
    Renew,
    /// `GET /livez`.
    Livez,
    /// `GET /readyz`.
    Readyz,
    /// `GET /metrics`.
    Metrics,
    /// `GET /openapi.json`.
    OpenApi,
    /// `GET /`, and the files of the page.
    Page,
    /// Any other path.
    Other,
}

impl Route {
    const ALL: [Self; 20] = [
        Self::Next,
        Self::Blocks,
        Self::Sequence,
        Self::Advance,
        Self::Restore,
        Self::Period,
        Self::Parse,
        Self::Explain,
        Self::Sequences,
        Self::Replica,
        Self::Lease,
        Self::Workers,
        Self::Worker,
        Self::Renew,
        Self::Livez,
        Self::Readyz,
        Self::Metrics,
        Self::OpenApi,
        Self::Page,
        Self::Other,
    ];

    fn label(self) -> &'static str {
        match self {
            Self::Next => "next",
            Self::Blocks => "blocks",
            Self::Sequence => "sequence",
            Self::Advance => "advance",
            Self::Restore => "restore",
            Self::Period => "period",
            Self::Parse => "parse",
            Self::Explain => "explain",
            Self::Sequences => "sequences",
            Self::Replica => "replica",
            Self::Lease => "lease",
            Self::Workers => "workers",
            Self::Worker => "worker",
            Self::Renew => "renew",
            Self::Livez => "livez",
            Self::Readyz => "readyz",
            Self::Metrics => "metrics",
            Self::OpenApi => "openapi",
            Self::Page => "page",
            Self::Other => "other",
        }
    }
}

/// What is counted of one database.
#[derive(Clone)]
pub struct DatabaseMetrics {
    /// 1 while it answers, 0 while it does not.
    pub up: Gauge,
    /// 1 while its settings let a crash of its server forget commits, as last looked at.
    pub durability_weak: Gauge,
    /// Writes that got numbers from it.
    pub reservations: Counter,
    /// 1 from when it was found to have gone back until a recovery is seen.
    pub went_back: Gauge,
    /// Pairs of blocks in its journal that have numbers in common.
    pub journal_overlaps: Gauge,
    /// Who has a connection to it, and who waits for one.
    pub connections: ConnectionMetrics,
    clock_skew_seconds: Gauge,
}

/// What is counted of the pool of one database.
#[derive(Clone)]
pub struct ConnectionMetrics {
    max: Gauge,
    active: Gauge,
    pending: Gauge,
}

impl ConnectionMetrics {
    /// The most that it may have.
    pub fn set_max(&self, n_connections: usize) {
        let n_connections = u32::try_from(n_connections);
        self.max.set(n_connections.map_or(f64::INFINITY, f64::from));
    }

    /// One is used until what this returns is dropped.
    pub fn one_is_active(&self) -> Present {
        Present::in_(&self.active)
    }

    /// One is waited for until what this returns is dropped.
    pub fn one_is_pending(&self) -> Present {
        Present::in_(&self.pending)
    }
}

/// Counts as one in a gauge for as long as it lives.
pub struct Present(Gauge);

impl Present {
    fn in_(gauge: &Gauge) -> Self {
        gauge.increment(1.0);
        Self(gauge.clone())
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        self.0.decrement(1.0);
    }
}

impl DatabaseMetrics {
    /// Its clock minus ours, in milliseconds; shown up to 24 days.
    pub fn note_skew(&self, skew_ms: i64) {
        let shown = skew_ms.clamp(i32::MIN.into(), i32::MAX.into());
        let shown = i32::try_from(shown).map_or(f64::NAN, f64::from);
        self.clock_skew_seconds.set(shown / 1000.0);
    }
}

/// The handles of everything the program counts.
pub struct Metrics {
    recorder: Arc<PrometheusRecorder>,
    /// Blocks reserved from the store: `odometer_reservations_total{outcome="reserved"}`.
    pub reserved: Counter,
    /// Returned blocks taken over: `outcome="adopted"`.
    pub adopted: Counter,
    /// Writes that another replica was faster than: `outcome="conflict"`.
    pub conflict: Counter,
    /// Writes that certainly did not commit: `outcome="not_committed"`.
    pub not_committed: Counter,
    /// Writes that may have committed: `outcome="uncertain"`.
    pub uncertain: Counter,
    /// Further attempts of reservations, after a conflict or a failure.
    pub reservation_retries: Counter,
    /// Seconds from the start of a reservation to its outcome, all attempts together.
    pub reservation_duration: Histogram,
    /// Reservations the store is working on now.
    pub reservations_in_flight: Gauge,
    abandoned: [Counter; AbandonedCause::ALL.len()],
    /// Callers held until a refill is done.
    pub waiters: Gauge,
    /// Callers refused because `limits.waiters` were waiting already.
    pub waiters_refused: Counter,
    /// Leases of worker ids refused because none was free, or none in time.
    pub worker_leases_refused: Counter,
    /// Calls for numbers that memory had not.
    pub cold_calls: Counter,
    /// Actors running now.
    pub actors: Gauge,
    /// Actors started in place of one that died.
    pub actor_restarts: Counter,
    /// Names held in memory.
    pub live_sequences: Gauge,
    /// Sequences created by this process.
    pub sequences_created: Counter,
    /// Tasks alive in the store's runtime.
    pub store_tasks: Gauge,
    /// 1 while every store answers, 0 while one does not.
    pub store_up: Gauge,
    /// 1 while calls should be sent here, 0 otherwise.
    pub ready: Gauge,
    /// Of Redis, where it counts.
    pub redis: RedisMetrics,
    /// Journal rows written.
    pub journal_rows_written: Counter,
    /// Journal rows given up because the queue was full or the store refused them.
    pub journal_rows_dropped: Counter,
    /// Journal rows waiting to be written.
    pub journal_queue: Gauge,
    /// Journal rows removed because of their age.
    pub journal_rows_pruned: Counter,
    /// Periods of the calendar removed because of their age.
    pub periods_removed: Counter,
    /// Times that all of the journal was looked through for blocks that overlap.
    pub journal_checks: Counter,
    /// The least seconds any sequence in use can go on without the store; +Inf when none is in use.
    pub shortest_reserve_seconds: Gauge,
    /// The least numbers left to any live sequence; +Inf when none is live.
    pub shortest_runway: Gauge,
    /// The least seconds to any live sequence's end at its present rate; +Inf when none is in use.
    pub shortest_runway_seconds: Gauge,
    /// Worker ids that time-ordered ids are issued with here.
    pub worker_ids_held: Gauge,
    /// The least seconds any time-ordered sequence in use can go on without the store; 0 where one
    /// has no worker id, +Inf where none is in use.
    pub worker_lease_seconds: Gauge,
    /// Requests being answered off the warm path.
    pub http_in_flight: Gauge,
    /// Requests refused because `limits.in_flight` were being answered.
    pub http_refused: Counter,
    http: [RouteMetrics; Route::ALL.len()],
    sequences: Mutex<HashMap<Box<str>, SequenceMetrics>>,
    sequence_labels: usize,
    beyond_labels: Counter,
}

struct RouteMetrics {
    requests: [OnceLock<Counter>; STATUS_LABELS.len()],
    duration: Histogram,
}

/// The handles of one sequence; beyond the bound of labels only `issued` counts, under `_other`.
///
/// Handles of one name stay the same when it is unloaded and loaded again, so add differences to
/// `issued` and never set it absolutely.
#[derive(Clone, Debug)]
pub struct SequenceMetrics {
    /// Numbers given to callers.
    pub issued: Counter,
    /// Numbers in the block being issued.
    pub block_size: Gauge,
    /// Numbers left in memory, the block filled ahead included.
    pub block_remaining: Gauge,
    /// The part of the current block that is issued, 0 to 1.
    pub block_utilization: Gauge,
    /// Seconds that what is left in memory lasts at the present rate; +Inf at rate 0.
    pub reserve_seconds: Gauge,
    /// Numbers that nobody has reserved, up to the end; +Inf where the rate does not tell when that
    /// comes.
    pub runway_numbers: Gauge,
    /// Seconds to the end of the sequence at the present rate; +Inf at rate 0.
    pub runway_seconds: Gauge,
}

impl SequenceMetrics {
    fn beyond(issued: Counter) -> Self {
        Self {
            issued,
            block_size: Gauge::noop(),
            block_remaining: Gauge::noop(),
            block_utilization: Gauge::noop(),
            reserve_seconds: Gauge::noop(),
            runway_numbers: Gauge::noop(),
            runway_seconds: Gauge::noop(),
        }
    }

    /// Shows a name that is no longer in memory as holding nothing.
    pub fn clear(&self) {
        self.block_size.set(0.0);
        self.block_remaining.set(0.0);
        self.block_utilization.set(0.0);
        self.reserve_seconds.set(f64::INFINITY);
        self.runway_numbers.set(f64::INFINITY);
        self.runway_seconds.set(f64::INFINITY);
    }
}

impl Metrics {
    /// The handles of one database: as many labels as the configuration has databases.
    pub fn database(&self, store: &str, database: u16) -> DatabaseMetrics {
        let make = Make(&self.recorder);
        let labels = || {
            vec![
                Label::new("store", store.to_owned()),
                Label::new("database", database.to_string()),
            ]
        };
        DatabaseMetrics {
            up: make.labelled_gauge("odometer_database_up", labels()),
            durability_weak: make.labelled_gauge("odometer_database_durability_weak", labels()),
            reservations: make.labelled_counter("odometer_database_reservations_total", labels()),
            went_back: make.labelled_gauge("odometer_store_went_back", labels()),
            journal_overlaps: make.labelled_gauge("odometer_journal_overlaps", labels()),
            connections: ConnectionMetrics {
                max: make.labelled_gauge("odometer_database_connections_max", labels()),
                active: make.labelled_gauge("odometer_database_connections_active", labels()),
                pending: make.labelled_gauge("odometer_database_connections_pending", labels()),
            },
            clock_skew_seconds: make.labelled_gauge("odometer_clock_skew_seconds", labels()),
        }
    }

    /// Makes the handles, with labels for the first `SEQUENCE_LABELS` names.
    pub fn new() -> Self {
        Self::with_sequence_labels(SEQUENCE_LABELS)
    }

    /// Makes the handles, with labels for the first `sequence_labels` names this process meets.
    pub fn with_sequence_labels(sequence_labels: usize) -> Self {
        let recorder = Arc::new(build_recorder());
        let make = Make(&recorder);
        make.describe();
        make.build_info();
        Self {
            reserved: make.reservations("reserved"),
            adopted: make.reservations("adopted"),
            conflict: make.reservations("conflict"),
            not_committed: make.reservations("not_committed"),
            uncertain: make.reservations("uncertain"),
            reservation_retries: make.counter("odometer_reservation_retries_total"),
            reservation_duration: make.histogram("odometer_reservation_duration_seconds"),
            reservations_in_flight: make.gauge("odometer_reservations_in_flight"),
            abandoned: AbandonedCause::ALL.map(|cause| make.abandoned(cause)),
            waiters: make.gauge("odometer_waiters"),
            waiters_refused: make.counter("odometer_waiters_refused_total"),
            worker_leases_refused: make.counter("odometer_worker_leases_refused_total"),
            cold_calls: make.counter("odometer_cold_calls_total"),
            actors: make.gauge("odometer_actors"),
            actor_restarts: make.counter("odometer_actor_restarts_total"),
            live_sequences: make.gauge("odometer_live_sequences"),
            sequences_created: make.counter("odometer_sequences_created_total"),
            store_tasks: make.gauge("odometer_store_tasks"),
            store_up: make.gauge("odometer_store_up"),
            ready: make.gauge("odometer_ready"),
            redis: make.redis(),
            journal_rows_written: make.counter("odometer_journal_rows_written_total"),
            journal_rows_dropped: make.counter("odometer_journal_rows_dropped_total"),
            journal_queue: make.gauge("odometer_journal_queue"),
            journal_rows_pruned: make.counter("odometer_journal_rows_pruned_total"),
            periods_removed: make.counter("odometer_periods_removed_total"),
            journal_checks: make.counter("odometer_journal_checks_total"),
            shortest_reserve_seconds: make.unbounded_gauge("odometer_shortest_reserve_seconds"),
            shortest_runway: make.unbounded_gauge("odometer_shortest_runway_numbers"),
            shortest_runway_seconds: make.unbounded_gauge("odometer_shortest_runway_seconds"),
            worker_ids_held: make.gauge("odometer_worker_ids_held"),
            worker_lease_seconds: make.unbounded_gauge("odometer_worker_lease_seconds"),
            http_in_flight: make.gauge("odometer_http_in_flight_requests"),
            http_refused: make.counter("odometer_http_refused_requests_total"),
            http: Route::ALL.map(|route| make.route(route)),
            sequences: Mutex::new(HashMap::new()),
            sequence_labels,
            beyond_labels: make.issued(OTHER),
            recorder,
        }
    }

    /// What a scrape of these metrics reads.
    pub fn exposition(&self) -> Exposition {
        Exposition {
            handle: self.recorder.handle(),
        }
    }

    /// Numbers abandoned for one cause: `odometer_abandoned_numbers_total{cause}`.
    pub fn abandoned(&self, cause: AbandonedCause) -> &Counter {
        let [
            uncertain,
            actor_died,
            slot_reused,
            shutdown,
            caller_gone,
            advanced,
            window,
        ] = &self.abandoned;
        match cause {
            AbandonedCause::Uncertain => uncertain,
            AbandonedCause::ActorDied => actor_died,
            AbandonedCause::SlotReused => slot_reused,
            AbandonedCause::Shutdown => shutdown,
            AbandonedCause::CallerGone => caller_gone,
            AbandonedCause::Advanced => advanced,
            AbandonedCause::Window => window,
        }
    }

    /// The handles of one name. Ask once when a name is loaded, and keep them.
    pub fn sequence(&self, name: &str) -> SequenceMetrics {
        let mut sequences = self.sequences.lock();
        if let Some(known) = sequences.get(name) {
            return known.clone();
        }
        if sequences.len() >= self.sequence_labels {
            return SequenceMetrics::beyond(self.beyond_labels.clone());
        }
        let made = Make(&self.recorder).sequence(name);
        sequences.insert(name.into(), made.clone());
        made
    }

    /// Whether a server takes steps: `odometer_redis_up{store,server}`.
    pub fn redis_up(&self, store: &str, server: &str) -> Gauge {
        let labels = vec![
            Label::new("store", store.to_owned()),
            Label::new("server", server.to_owned()),
        ];
        Make(&self.recorder).labelled_gauge("odometer_redis_up", labels)
    }

    /// Requests answered: `odometer_http_requests_total{route,status}`.
    pub fn http(&self, route: Route, status: u16) -> &Counter {
        let [requests @ .., other] = &self.route(route).requests;
        let (cell, label) = STATUSES
            .iter()
            .zip(requests)
            .zip(STATUS_LABELS)
            .find(|((known, _), _)| **known == status)
            .map_or((other, "other"), |((_, cell), label)| (cell, label));
        cell.get_or_init(|| Make(&self.recorder).requests(route, label))
    }

    /// Seconds to answer: `odometer_http_request_duration_seconds{route}`, warm calls sampled.
    pub fn http_duration(&self, route: Route) -> &Histogram {
        &self.route(route).duration
    }

    fn route(&self, route: Route) -> &RouteMetrics {
        let [
            next,
            blocks,
            sequence,
            advance,
            restore,
            period,
            parse,
            explain,
            sequences,
            replica,
            lease,
            workers,
            worker,
            renew,
            livez,
            readyz,
            metrics,
            open_api,
            page,
            other,
        ] = &self.http;
        match route {
            Route::Next => next,
            Route::Blocks => blocks,
            Route::Sequence => sequence,
            Route::Advance => advance,
            Route::Restore => restore,
            Route::Period => period,
            Route::Parse => parse,
            Route::Explain => explain,
            Route::Sequences => sequences,
            Route::Replica => replica,
            Route::Lease => lease,
            Route::Workers => workers,
            Route::Worker => worker,
            Route::Renew => renew,
            Route::Livez => livez,
            Route::Readyz => readyz,
            Route::Metrics => metrics,
            Route::OpenApi => open_api,
            Route::Page => page,
            Route::Other => other,
        }
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Metrics")
            .field("sequence_labels", &self.sequence_labels)
            .finish_non_exhaustive()
    }
}

/// The Prometheus text of a `Metrics`.
#[derive(Clone, Debug)]
pub struct Exposition {
    handle: PrometheusHandle,
}

impl Exposition {
    /// The text of a scrape, Prometheus text format 0.0.4.
    pub fn render(&self) -> String {
        self.handle.render()
    }

    /// Moves recorded durations into their buckets. Run every few seconds: between two runs each
    /// recorded duration takes memory.
    pub fn upkeep(&self) {
        self.handle.run_upkeep();
    }
}

fn build_recorder() -> PrometheusRecorder {
    // Buckets have to be named: a histogram without them is exported as a summary. They are refused
    // only when there are none.
    let http = Matcher::Prefix("odometer_http_".into());
    PrometheusBuilder::new()
        .set_buckets(&RESERVATION_BUCKETS_S)
        .and_then(|builder| builder.set_buckets_for_metric(http, &HTTP_BUCKETS_S))
        .unwrap_or_default()
        .build_recorder()
}

/// What is counted of Redis, of all servers together.
pub struct RedisMetrics {
    /// Steps that gave numbers.
    pub steps: Counter,
    /// Seconds from sending a step to its reply.
    pub step_duration: Histogram,
    /// Windows opened: `odometer_redis_windows_total{cause}`; there was none before.
    pub windows_first: Counter,
    /// The one before is not in Redis any more, or was never seen there.
    pub windows_lost: Counter,
    /// The ceiling of the one before could not be raised.
    pub windows_full: Counter,
    /// The one before was closed: by a change, or because a replica could not reach Redis.
    pub windows_closed: Counter,
    /// Times that a sequence went from Redis to its database.
    pub fallbacks: Counter,
    /// The shortest time that what is below a ceiling lasts.
    pub ceiling_seconds: Gauge,
}

/// Registers metrics.
struct Make<'a>(&'a PrometheusRecorder);

impl Make<'_> {
    fn describe(&self) {
        for (name, description) in COUNTERS {
            self.0
                .describe_counter(name.into(), None, description.into());
        }
        for (name, description) in GAUGES {
            self.0.describe_gauge(name.into(), None, description.into());
        }
        for (name, description) in HISTOGRAMS {
            self.0
                .describe_histogram(name.into(), None, description.into());
        }
    }

    fn counter(&self, name: &'static str) -> Counter {
        self.labelled_counter(name, vec![])
    }

    fn labelled_counter(&self, name: &'static str, labels: Vec<Label>) -> Counter {
        let key = Key::from_parts(name, labels);
        self.0.register_counter(&key, &METADATA)
    }

    fn gauge(&self, name: &'static str) -> Gauge {
        self.labelled_gauge(name, vec![])
    }

    /// A gauge of a least value: nothing to take the least of is no alarm.
    fn unbounded_gauge(&self, name: &'static str) -> Gauge {
        let gauge = self.gauge(name);
        gauge.set(f64::INFINITY);
        gauge
    }

    fn labelled_gauge(&self, name: &'static str, labels: Vec<Label>) -> Gauge {
        let key = Key::from_parts(name, labels);
        self.0.register_gauge(&key, &METADATA)
    }

    fn histogram(&self, name: &'static str) -> Histogram {
        self.labelled_histogram(name, vec![])
    }

    fn labelled_histogram(&self, name: &'static str, labels: Vec<Label>) -> Histogram {
        let key = Key::from_parts(name, labels);
        self.0.register_histogram(&key, &METADATA)
    }

    fn build_info(&self) {
        self.labelled_gauge(
            "odometer_build_info",
            vec![Label::from_static_parts(
                "version",
                env!("CARGO_PKG_VERSION"),
            )],
        )
        .set(1.0);
    }

    fn reservations(&self, outcome: &'static str) -> Counter {
        self.labelled_counter(
            "odometer_reservations_total",
            vec![Label::from_static_parts("outcome", outcome)],
        )
    }

    fn abandoned(&self, cause: AbandonedCause) -> Counter {
        self.labelled_counter(
            "odometer_abandoned_numbers_total",
            vec![Label::from_static_parts("cause", cause.label())],
        )
    }

    fn redis(&self) -> RedisMetrics {
        let windows = |cause| {
            let labels = vec![Label::from_static_parts("cause", cause)];
            self.labelled_counter("odometer_redis_windows_total", labels)
        };
        RedisMetrics {
            steps: self.counter("odometer_redis_steps_total"),
            step_duration: self.histogram("odometer_redis_step_duration_seconds"),
            windows_first: windows("first"),
            windows_lost: windows("lost"),
            windows_full: windows("full"),
            windows_closed: windows("closed"),
            fallbacks: self.counter("odometer_redis_fallbacks_total"),
            ceiling_seconds: self.unbounded_gauge("odometer_redis_ceiling_seconds"),
        }
    }

    fn issued(&self, name: &str) -> Counter {
        self.labelled_counter(
            "odometer_numbers_issued_total",
            vec![Label::new("sequence", name.to_owned())],
        )
    }

    fn sequence(&self, name: &str) -> SequenceMetrics {
        let gauge = |metric| {
            let labels = vec![Label::new("sequence", name.to_owned())];
            self.labelled_gauge(metric, labels)
        };
        let made = SequenceMetrics {
            issued: self.issued(name),
            block_size: gauge("odometer_block_size"),
            block_remaining: gauge("odometer_block_remaining"),
            block_utilization: gauge("odometer_block_utilization_ratio"),
            reserve_seconds: gauge("odometer_reserve_seconds"),
            runway_numbers: gauge("odometer_runway_numbers"),
            runway_seconds: gauge("odometer_runway_seconds"),
        };
        made.clear();
        made
    }

    fn route(&self, route: Route) -> RouteMetrics {
        let made = RouteMetrics {
            requests: [const { OnceLock::new() }; STATUS_LABELS.len()],
            duration: self.labelled_histogram(
                "odometer_http_request_duration_seconds",
                vec![Label::from_static_parts("route", route.label())],
            ),
        };
        // The commonest status is there from the start, so that a first scrape shows each route.
        let [ok, ..] = &made.requests;
        ok.get_or_init(|| self.requests(route, "200"));
        made
    }

    fn requests(&self, route: Route, status: &'static str) -> Counter {
        self.labelled_counter(
            "odometer_http_requests_total",
            vec![
                Label::from_static_parts("route", route.label()),
                Label::from_static_parts("status", status),
            ],
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str, series: &str) -> Option<f64> {
        text.lines()
            .find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
    }

    #[test]
    fn durations_are_exported_as_histograms() {
        let metrics = Metrics::new();
        metrics.reservation_duration.record(0.003);
        metrics.http_duration(Route::Next).record(0.000_02);
        let exposition = metrics.exposition();
        exposition.upkeep();
        let text = exposition.render();
        for name in [
            "odometer_reservation_duration_seconds",
            "odometer_http_request_duration_seconds",
        ] {
            assert!(text.contains(&format!("# TYPE {name} histogram")), "{text}");
        }
        assert!(!text.contains(" summary"), "{text}");
        assert_eq!(
            value(
                &text,
                "odometer_reservation_duration_seconds_bucket{le=\"0.005\"}"
            ),
            Some(1.0)
        );
        assert_eq!(
            value(
                &text,
                "odometer_http_request_duration_seconds_bucket{route=\"next\",le=\"0.000025\"}"
            ),
            Some(1.0)
        );
    }

    #[test]
    fn every_metric_of_the_design_is_in_a_first_scrape_with_one_sequence() {
        let metrics = Metrics::new();
        metrics.sequence("orders").issued.increment(3);
        let text = metrics.exposition().render();
        let mut wanted = vec![
            "odometer_numbers_issued_total{sequence=\"orders\"}".to_owned(),
            "odometer_block_size{sequence=\"orders\"}".to_owned(),
            "odometer_block_remaining{sequence=\"orders\"}".to_owned(),
            "odometer_block_utilization_ratio{sequence=\"orders\"}".to_owned(),
            "odometer_reserve_seconds{sequence=\"orders\"}".to_owned(),
            "odometer_runway_numbers{sequence=\"orders\"}".to_owned(),
            "odometer_runway_seconds{sequence=\"orders\"}".to_owned(),
            "odometer_reservation_retries_total".to_owned(),
            "odometer_reservation_duration_seconds_count".to_owned(),
            "odometer_waiters".to_owned(),
            "odometer_actors".to_owned(),
            "odometer_http_requests_total{route=\"next\",status=\"200\"}".to_owned(),
            "odometer_http_request_duration_seconds_count{route=\"next\"}".to_owned(),
            concat!(
                "odometer_build_info{version=\"",
                env!("CARGO_PKG_VERSION"),
                "\"}"
            )
            .to_owned(),
        ];
        wanted.extend(AbandonedCause::ALL.map(|cause| {
            let cause = cause.label();
            format!("odometer_abandoned_numbers_total{{cause=\"{cause}\"}}")
        }));
        for outcome in [
            "reserved",
            "adopted",
            "conflict",
            "not_committed",
            "uncertain",
        ] {
            wanted.push(format!(
                "odometer_reservations_total{{outcome=\"{outcome}\"}}"
            ));
        }
        for series in wanted {
            assert!(
                value(&text, &series).is_some(),
                "{series} is not in\n{text}"
            );
        }
        assert_eq!(
            value(&text, "odometer_numbers_issued_total{sequence=\"orders\"}"),
            Some(3.0)
        );
    }

    #[test]
    fn a_least_value_of_nothing_is_infinite() {
        let text = Metrics::new().exposition().render();
        for series in [
            "odometer_shortest_reserve_seconds",
            "odometer_shortest_runway_numbers",
            "odometer_shortest_runway_seconds",
        ] {
            assert_eq!(value(&text, series), Some(f64::INFINITY), "{series}");
        }
    }

    #[test]
    fn handles_count_where_their_labels_say() {
        let metrics = Metrics::new();
        for (index, cause) in (1..).zip(AbandonedCause::ALL) {
            metrics.abandoned(cause).increment(index);
        }
        for (index, route) in (1..).zip(Route::ALL) {
            metrics.http(route, 503).increment(index);
            metrics.http(route, 299).increment(10 * index);
        }
        let text = metrics.exposition().render();
        for (index, cause) in (1..).zip(AbandonedCause::ALL) {
            let label = cause.label();
            let series = format!("odometer_abandoned_numbers_total{{cause=\"{label}\"}}");
            assert_eq!(value(&text, &series), Some(f64::from(index)), "{series}");
        }
        for (index, route) in (1..).zip(Route::ALL) {
            let label = route.label();
            for (status, count) in [("200", 0), ("503", index), ("other", 10 * index)] {
                let series = format!(
                    "odometer_http_requests_total{{route=\"{label}\",status=\"{status}\"}}"
                );
                assert_eq!(value(&text, &series), Some(f64::from(count)), "{series}");
            }
        }
    }

    #[test]
    fn names_beyond_the_bound_count_together() {
        let metrics = Metrics::with_sequence_labels(2);
        for name in ["a", "b", "c", "d", "a"] {
            let sequence = metrics.sequence(name);
            sequence.issued.increment(1);
            sequence.block_size.set(5.0);
        }
        let text = metrics.exposition().render();
        for (name, issued) in [("a", 2.0), ("b", 1.0), ("_other", 2.0)] {
            let series = format!("odometer_numbers_issued_total{{sequence=\"{name}\"}}");
            assert_eq!(value(&text, &series), Some(issued), "{series}");
        }
        assert_eq!(text.matches("odometer_block_size{").count(), 2);
    }

    #[test]
    fn two_sets_of_metrics_do_not_meet() {
        let (one, other) = (Metrics::new(), Metrics::new());
        one.reserved.increment(1);
        let series = "odometer_reservations_total{outcome=\"reserved\"}";
        assert_eq!(value(&one.exposition().render(), series), Some(1.0));
        assert_eq!(value(&other.exposition().render(), series), Some(0.0));
    }
}
