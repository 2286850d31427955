//! Lists the names that dashboards and alerts may use, each with its help text, and the buckets.

/// Lists every counter and what it counts.
pub(crate) const COUNTERS: [(&str, &str); 23] = [
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
        "odometer_http_connections_cut_total",
        "Connections closed by the service, by cause.",
    ),
    (
        "odometer_http_malformed_total",
        "Connections closed because what came was not HTTP.",
    ),
    (
        "odometer_http_refused_requests_total",
        "Requests refused because too many were being answered, or too large a part of the memory was \
         taken by replies that nobody had read yet.",
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
        "odometer_tokens_refused_total",
        "Calls refused because their administrator's token was wrong.",
    ),
    (
        "odometer_waiters_refused_total",
        "Callers refused because too many were waiting, or too long for a place in memory.",
    ),
    (
        "odometer_worker_leases_refused_total",
        "Leases of worker ids refused because none could be had.",
    ),
];

/// Lists every gauge and what it shows.
pub(crate) const GAUGES: [(&str, &str); 35] = [
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
    ("odometer_http_connections", "Connections that are open."),
    (
        "odometer_http_connections_max",
        "Connections that may be open.",
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
        "Numbers that nobody has reserved, up to the end of the sequence; infinite where it starts again before, or where no count says when it ends.",
    ),
    (
        "odometer_runway_seconds",
        "How long until the sequence ends at the present rate.",
    ),
    (
        "odometer_shortest_reserve_ratio",
        "The least part of block.hold, or of what is left of its period, that any sequence in use can go on for without the store; without names whose range allows no more.",
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
        "odometer_worker_ids_taken_ratio",
        "The greatest part of its worker ids that is taken in any pool leased from here.",
    ),
    (
        "odometer_worker_lease_seconds",
        "The least time any time-ordered sequence in use can go on without the store.",
    ),
];

/// Lists every histogram and what it measures.
pub(crate) const HISTOGRAMS: [(&str, &str); 3] = [
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

/// Sets the upper bounds of a reservation's buckets, in seconds: from a local SQLite write to the
/// deadline.
pub(crate) const RESERVATION_BUCKETS_S: [f64; 14] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

/// Sets the upper bounds of a request's buckets, in seconds: a warm number takes microseconds.
pub(crate) const HTTP_BUCKETS_S: [f64; 16] = [
    0.000_01, 0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.0025, 0.005, 0.01, 0.025,
    0.1, 0.5, 1.0, 5.0, 10.0,
];
