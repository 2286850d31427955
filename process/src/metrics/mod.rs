//! Makes every metric of the program once, and hands the metrics out as handles.
//!
//! No metric is declared anywhere else: `declared.rs` is the list of names that dashboards and
//! alerts may use, and `make.rs` alone registers them. Each `Metrics` has a recorder of its own. So
//! nothing is global, and a test can hold several side by side. Handles are cheap to use. Looking a
//! metric up by name is not, so code that counts often keeps the handle.

mod cause;
mod connections;
mod database;
mod declared;
mod exposition;
mod make;
mod redis;
mod route;
mod sequence;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use ::metrics::{Counter, Gauge, Histogram, Label};
use metrics_exporter_prometheus::PrometheusRecorder;
use parking_lot::Mutex;

use exposition::build_recorder;
use make::Make;
use route::{RouteMetrics, STATUS_LABELS, STATUSES};

pub use cause::AbandonedCause;
pub use connections::ConnectionsMetrics;
pub use database::{ConnectionMetrics, DatabaseMetrics, Present};
pub use exposition::Exposition;
pub use redis::RedisMetrics;
pub use route::Route;
pub use sequence::SequenceMetrics;

/// Bounds how many names get a label of their own, if the configuration does not say otherwise.
pub const SEQUENCE_LABELS: usize = 1000;

/// Labels the names beyond the bound. No sequence can have this name.
const OTHER: &str = "_other";

/// The handles of everything that the program counts.
pub struct Metrics {
    recorder: Arc<PrometheusRecorder>,
    /// Blocks reserved from the store: `odometer_reservations_total{outcome="reserved"}`.
    pub reserved: Counter,
    /// Returned blocks that were adopted: `outcome="adopted"`.
    pub adopted: Counter,
    /// Writes that came after another write of the counter: `outcome="conflict"`.
    pub conflict: Counter,
    /// Writes that certainly did not commit: `outcome="not_committed"`.
    pub not_committed: Counter,
    /// Writes that may have committed: `outcome="uncertain"`.
    pub uncertain: Counter,
    /// Further attempts of reservations, after a conflict or a failure.
    pub reservation_retries: Counter,
    /// Seconds from the start of a reservation to its outcome, all attempts together.
    pub reservation_duration: Histogram,
    /// Reservations that the store is working on now.
    pub reservations_in_flight: Gauge,
    abandoned: [Counter; AbandonedCause::ALL.len()],
    /// Callers that are held until a refill is done.
    pub waiters: Gauge,
    /// Callers refused because `limits.waiters` were waiting already, or because no slot under
    /// `limits.live_periods` became free in time.
    pub waiters_refused: Counter,
    /// Leases of worker ids refused because no id was free, or because no unused time began soon
    /// enough.
    pub worker_leases_refused: Counter,
    /// Calls that asked the actor because no number was in memory.
    pub cold_calls: Counter,
    /// Actors that run now.
    pub actors: Gauge,
    /// Actors started in place of an actor that died.
    pub actor_restarts: Counter,
    /// Names in memory.
    pub live_sequences: Gauge,
    /// Sequences created by this process.
    pub sequences_created: Counter,
    /// Tasks alive in the stores' runtimes.
    pub store_tasks: Gauge,
    /// 1 while every store answers, 0 while one does not.
    pub store_up: Gauge,
    /// 1 while calls should be sent here, 0 otherwise.
    pub ready: Gauge,
    /// The metrics of Redis.
    pub redis: RedisMetrics,
    /// Journal rows that were written.
    pub journal_rows_written: Counter,
    /// Journal rows given up because the queue was full, or because the store went back or was
    /// recovered.
    pub journal_rows_dropped: Counter,
    /// Journal rows that wait to be written.
    pub journal_queue: Gauge,
    /// Journal rows removed because of their age.
    pub journal_rows_pruned: Counter,
    /// Periods of the calendar removed because of their age.
    pub periods_removed: Counter,
    /// How often the whole journal was searched for blocks that overlap.
    pub journal_checks: Counter,
    /// The least time that any sequence in use can go on without the store, in seconds; +Inf if
    /// none is in use.
    pub shortest_reserve_seconds: Gauge,
    /// The shortest time that any sequence in use can go on without the store. It is given as a
    /// part of `block.hold`, or of what is left of the period. +Inf if no sequence is in use, or if
    /// no range allows more.
    pub shortest_reserve_ratio: Gauge,
    /// The least count of numbers that are left to any live sequence; +Inf if none is live.
    pub shortest_runway: Gauge,
    /// The least time to the end of any live sequence at its present rate, in seconds; +Inf if none
    /// is in use.
    pub shortest_runway_seconds: Gauge,
    /// Worker ids that snowflake ids are issued with here.
    pub worker_ids_held: Gauge,
    /// The least time that any snowflake sequence in use can go on without the store, in seconds.
    /// It is 0 if one has no worker id, and +Inf if none is in use.
    pub worker_lease_seconds: Gauge,
    /// The connections of callers to the listener.
    pub connections: ConnectionsMetrics,
    /// Calls refused because their administrator's token was wrong.
    pub tokens_refused: Counter,
    /// Requests that are being answered off the warm path.
    pub http_in_flight: Gauge,
    /// Requests refused because `limits.in_flight` were being answered, or because large replies
    /// had used up their memory.
    pub http_refused: Counter,
    http: [RouteMetrics; Route::ALL.len()],
    sequences: Mutex<HashMap<Box<str>, SequenceMetrics>>,
    sequence_labels: usize,
    beyond_labels: Counter,
}

impl Metrics {
    /// Returns the handles of one database. There are as many labels as the configuration has
    /// databases.
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
            worker_ids_taken_ratio: make
                .labelled_gauge("odometer_worker_ids_taken_ratio", labels()),
            clock_skew_seconds: make.labelled_gauge("odometer_clock_skew_seconds", labels()),
        }
    }

    /// Makes the handles, with labels for the first `SEQUENCE_LABELS` names.
    pub fn new() -> Self {
        Self::with_sequence_labels(SEQUENCE_LABELS)
    }

    /// Makes the handles, with labels for the first `sequence_labels` names that this process
    /// meets.
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
            shortest_reserve_ratio: make.unbounded_gauge("odometer_shortest_reserve_ratio"),
            shortest_runway: make.unbounded_gauge("odometer_shortest_runway_numbers"),
            shortest_runway_seconds: make.unbounded_gauge("odometer_shortest_runway_seconds"),
            worker_ids_held: make.gauge("odometer_worker_ids_held"),
            worker_lease_seconds: make.unbounded_gauge("odometer_worker_lease_seconds"),
            connections: make.connections(),
            tokens_refused: make.counter("odometer_tokens_refused_total"),
            http_in_flight: make.gauge("odometer_http_in_flight_requests"),
            http_refused: make.counter("odometer_http_refused_requests_total"),
            http: Route::ALL.map(|route| make.route(route)),
            sequences: Mutex::new(HashMap::new()),
            sequence_labels,
            beyond_labels: make.issued(OTHER),
            recorder,
        }
    }

    /// Returns what a scrape of these metrics reads.
    pub fn exposition(&self) -> Exposition {
        Exposition {
            handle: self.recorder.handle(),
        }
    }

    /// Returns the counter of numbers that were abandoned for one cause:
    /// `odometer_abandoned_numbers_total{cause}`.
    pub fn abandoned(&self, cause: AbandonedCause) -> &Counter {
        let [
            uncertain,
            actor_died,
            slot_reused,
            shutdown,
            caller_gone,
            advanced,
            recovered,
            journal_full,
            window,
        ] = &self.abandoned;
        match cause {
            AbandonedCause::Uncertain => uncertain,
            AbandonedCause::ActorDied => actor_died,
            AbandonedCause::SlotReused => slot_reused,
            AbandonedCause::Shutdown => shutdown,
            AbandonedCause::CallerGone => caller_gone,
            AbandonedCause::Advanced => advanced,
            AbandonedCause::Recovered => recovered,
            AbandonedCause::JournalFull => journal_full,
            AbandonedCause::Window => window,
        }
    }

    /// Returns the handles of one name. Ask once, when the name is loaded, and keep them.
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

    /// Returns the gauge that is 1 while a Redis server takes steps:
    /// `odometer_redis_up{store,server}`.
    pub fn redis_up(&self, store: &str, server: &str) -> Gauge {
        let labels = vec![
            Label::new("store", store.to_owned()),
            Label::new("server", server.to_owned()),
        ];
        Make(&self.recorder).labelled_gauge("odometer_redis_up", labels)
    }

    /// Returns the counter of requests that were answered:
    /// `odometer_http_requests_total{route,status}`.
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

    /// Returns the histogram of seconds to answer: `odometer_http_request_duration_seconds{route}`.
    /// Warm calls are sampled.
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
