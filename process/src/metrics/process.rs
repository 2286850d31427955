//! Declares the metrics of the whole process.

use ::metrics::{Counter, Gauge, Histogram};

use super::{declare::declare, listener::ListenerMetrics, redis::RedisMetrics, resp::RespMetrics};

declare! {
    /// The metrics that a process has once.
    pub struct ProcessMetrics {
        /// 1, labelled with the version that runs.
        build_info: Gauge = "odometer_build_info" [version = env!("CARGO_PKG_VERSION")],
        /// Writes that tried to reserve or adopt a block, by outcome.
        ///
        /// Blocks that were reserved.
        reserved: Counter = "odometer_reservations_total" [outcome = "reserved"],
        /// Returned blocks that were adopted.
        adopted: Counter = "odometer_reservations_total" [outcome = "adopted"],
        /// Writes that came after another write of the counter.
        conflict: Counter = "odometer_reservations_total" [outcome = "conflict"],
        /// Reservations that the speed limit of their sequence held back.
        limited: Counter = "odometer_reservations_total" [outcome = "limited"],
        /// Writes that certainly did not commit.
        not_committed: Counter = "odometer_reservations_total" [outcome = "not_committed"],
        /// Writes that may have committed.
        uncertain: Counter = "odometer_reservations_total" [outcome = "uncertain"],
        /// Further attempts of reservations.
        ///
        /// They follow a conflict or a failure.
        reservation_retries: Counter = "odometer_reservation_retries_total",
        /// Time from the start of a reservation to its outcome.
        ///
        /// In seconds, all attempts together.
        reservation_duration: Histogram = "odometer_reservation_duration_seconds",
        /// Reservations that the store is working on.
        reservations_in_flight: Gauge = "odometer_reservations_in_flight",
        /// Callers that wait until a refill is done.
        waiters: Gauge = "odometer_waiters",
        /// Callers refused because too many were waiting, or because they waited too long for a
        /// place in memory.
        ///
        /// `limits.waiters` were waiting already, or no slot under `limits.live_periods` became
        /// free in time.
        waiters_refused: Counter = "odometer_waiters_refused_total",
        /// Leases of worker ids refused because no id was free, or none could be used soon enough.
        ///
        /// No id was free, or no unused time began soon enough.
        worker_leases_refused: Counter = "odometer_worker_leases_refused_total",
        /// Calls that waited because no number was in memory.
        ///
        /// They asked the actor.
        cold_calls: Counter = "odometer_cold_calls_total",
        /// Actors running.
        actors: Gauge = "odometer_actors",
        /// Actors started in place of one that died.
        actor_restarts: Counter = "odometer_actor_restarts_total",
        /// Names held in memory.
        live_sequences: Gauge = "odometer_live_sequences",
        /// Sequences created by this process.
        sequences_created: Counter = "odometer_sequences_created_total",
        /// Tasks alive in the store's runtime, statements included.
        store_tasks: Gauge = "odometer_store_tasks",
        /// 1 while every store answers, 0 otherwise.
        store_up: Gauge = "odometer_store_up",
        /// 1 while calls should be sent to this replica, 0 otherwise.
        ready: Gauge = "odometer_ready",
        /// Journal rows written.
        journal_rows_written: Counter = "odometer_journal_rows_written_total",
        /// Journal rows given up.
        ///
        /// The queue was full, or the store went back or was recovered.
        journal_rows_dropped: Counter = "odometer_journal_rows_dropped_total",
        /// Journal rows waiting to be written.
        journal_queue: Gauge = "odometer_journal_queue",
        /// Journal rows removed because of their age.
        journal_rows_pruned: Counter = "odometer_journal_rows_pruned_total",
        /// Periods of the calendar removed because of their age.
        periods_removed: Counter = "odometer_periods_removed_total",
        /// Times that the whole journal was searched for blocks that overlap.
        journal_checks: Counter = "odometer_journal_checks_total",
        /// The shortest time that any sequence in use can go on without the store.
        ///
        /// In seconds; +Inf if none is in use.
        shortest_reserve_seconds: Gauge = "odometer_shortest_reserve_seconds",
        /// How long a sequence in use can go on without the store, as a part of block.hold. Shows
        /// the smallest such part. If less than block.hold is left of a period, the time that is
        /// left counts instead. Names whose range allows no more are left out.
        ///
        /// +Inf if no sequence is in use, or if no range allows more.
        shortest_reserve_ratio: Gauge = "odometer_shortest_reserve_ratio",
        /// The fewest numbers left to any live sequence.
        ///
        /// +Inf if none is live.
        shortest_runway: Gauge = "odometer_shortest_runway_numbers",
        /// The shortest time until any live sequence ends at its present rate.
        ///
        /// In seconds; +Inf if none is in use.
        shortest_runway_seconds: Gauge = "odometer_shortest_runway_seconds",
        /// Worker ids with which this replica issues time-ordered ids.
        worker_ids_held: Gauge = "odometer_worker_ids_held",
        /// The shortest time that any time-ordered sequence in use can go on without the store.
        ///
        /// In seconds. It is 0 if one has no worker id, and +Inf if none is in use.
        worker_lease_seconds: Gauge = "odometer_worker_lease_seconds",
        /// Calls refused because their token was wrong, or because the certificate of their
        /// connection was no caller's.
        tokens_refused: Counter = "odometer_tokens_refused_total",
        /// 1 while a file of tokens, keys or certificates cannot be read again, so that its former
        /// content counts; 0 otherwise.
        access_stale: Gauge = "odometer_access_stale",
        /// Seconds until the certificate of the listener expires.
        ///
        /// Below 0 once it has expired, and +Inf without TLS.
        tls_certificate_expires: Gauge = "odometer_tls_certificate_expires_seconds",
        /// Requests being answered that are not on the warm path.
        http_in_flight: Gauge = "odometer_http_in_flight_requests",
        /// Requests refused because too many were being answered, or because large replies that are
        /// not read yet had used up their memory.
        ///
        /// `limits.in_flight` were being answered, or large replies had used up their memory.
        http_refused: Counter = "odometer_http_refused_requests_total",
    } with {
        /// The connections of callers to the listener.
        listener: ListenerMetrics,
        /// The metrics of Redis.
        redis: RedisMetrics,
        /// The metrics of the listener for clients of Redis.
        resp: RespMetrics,
    }
}

impl ProcessMetrics {
    /// Shows that the program runs, that no sequence is in use, and that there is no certificate:
    /// what is least then is infinite.
    pub(crate) fn with_nothing_in_use(self) -> Self {
        self.build_info.set(1.0);
        for least in [
            &self.shortest_reserve_seconds,
            &self.shortest_reserve_ratio,
            &self.shortest_runway,
            &self.shortest_runway_seconds,
            &self.worker_lease_seconds,
            &self.tls_certificate_expires,
            &self.redis.ceiling_seconds,
        ] {
            least.set(f64::INFINITY);
        }
        self
    }
}
