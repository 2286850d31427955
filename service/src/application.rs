//! The composition root: what starts in which order, and stops in which.
//!
//! This module hands each layer everything that the layer needs. Stopping is the reverse of
//! starting, under one deadline. The service reports that it is not ready, waits, stops taking
//! requests, returns its blocks, and closes its connections.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use actix_web::rt;
use odometer_process::{
    faults::{self, Fault},
    host,
    metrics::Metrics,
};
use odometer_sequence::{Directory, SequenceSettings};
use odometer_store::{OpenFor, StatementBounds, StoreLimits, Stores, StoresSettings};
use tokio::sync::mpsc::Receiver;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior};

use crate::access::credentials::Credentials;
use crate::commands::failure::CommandFailure;
use crate::commands::signals;
use crate::config::{Config, bound};
use crate::edge::raise_descriptor_limit;
use crate::listeners::{BoundListeners, OPERATIONS_CONNECTIONS, RunningListeners, not_served};

/// Connections to a database outside its pool: for watching, listening and probing.
const CONNECTIONS_OUTSIDE_POOL: usize = 8;

/// The most characters of the host name in a replica's name, by which worker ids are leased. A
/// longer host name is cut.
const HOST_LENGTH: usize = 100;

/// How long the files of what callers have to show may take to be read, before the service says so. A
/// file system in the network may keep its reader waiting.
const READING: Duration = Duration::from_secs(30);

/// How often recorded durations are moved into their buckets.
const UPKEEP_PERIOD: Duration = Duration::from_secs(5);

/// How long the start waits for a schema that does not fit, because somebody may be migrating it.
const SCHEMA_WAIT: Duration = Duration::from_secs(60);

/// The shortest time for which a stopping server keeps answering.
///
/// In this time, replies tell the connections in use to close. An immediate stop would cut these
/// connections between two requests.
const LINGER: Duration = Duration::from_millis(250);

/// The running service.
pub struct Application {
    address: SocketAddr,
    ready_wait: Duration,
    deadline: Duration,
    store: Arc<Stores>,
    directory: Arc<Directory>,
    listeners: RunningListeners,
    upkeep: JoinHandle<()>,
    /// Reads what callers have to show again, if that is in files.
    refreshing: Option<JoinHandle<()>>,
}

impl Application {
    /// Starts store, sequences and listeners, in this order. The databases may still be unreachable
    /// afterwards.
    ///
    /// Needs an actix system. The service ends when that system ends.
    ///
    /// # Errors
    /// Waiting would not help: the configuration cannot be used, another process holds the SQLite
    /// file, an address cannot be listened on, or a listener cannot be served.
    pub async fn start(config: &Config) -> Result<Self, CommandFailure> {
        let metrics = Arc::new(Metrics::with_sequence_labels(
            config.metrics.sequence_labels,
        ));
        let (credentials, refreshing) = start_credentials(config, &metrics)?;
        let store = Stores::open(
            stores_settings(config),
            OpenFor::Serving,
            Arc::clone(&metrics),
        )
        .await?;
        let listeners = BoundListeners::bind(config)?;
        let address = listeners.address()?;
        let connections = room(config).map_err(not_served)?;
        let directory = Directory::start(
            Arc::clone(&store),
            SequenceSettings {
                holder: replica_name(address).into(),
                ..sequence_settings(config)
            },
            Arc::clone(&metrics),
        );
        let upkeep = run_metrics_upkeep(Arc::clone(&metrics), Arc::clone(&credentials));
        let upkeep = rt::spawn(upkeep);
        let served = (&directory, &metrics, &credentials);
        let listeners = listeners.serve(config, connections, served)?;
        Ok(Self {
            address,
            ready_wait: config.shutdown.ready_wait,
            deadline: config.shutdown.deadline,
            store,
            directory,
            listeners,
            upkeep,
            refreshing,
        })
    }

    /// Returns the address that the service listens on. If port 0 was configured, the address has
    /// the port that was picked.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until the first of `signals`, then stops in order. A second signal ends the service
    /// at once.
    ///
    /// # Errors
    /// The store turned out to be unusable, a server ended by itself, stopping took longer than
    /// `shutdown.deadline`, or a second signal cut the stop short.
    pub async fn run(self, mut signals: Receiver<&'static str>) -> Result<(), CommandFailure> {
        let mut listeners = self.listeners;
        let (ready_wait, outcome) = tokio::select! {
            Some(signal) = signals.recv() => {
                tracing::info!(signal, "Stopping: not ready from now on");
                (self.ready_wait, Ok(()))
            }
            error = self.store.fatal() => (Duration::ZERO, Err(error.into())),
            failure = listeners.failure() => (Duration::ZERO, Err(failure)),
        };
        let until = Instant::now() + self.deadline;
        let left = || until.saturating_duration_since(Instant::now());
        // Each step may take what is left of one deadline.
        let stopping = async {
            self.directory.begin_drain();
            tokio::time::sleep(ready_wait.max(LINGER)).await;
            tracing::info!("Accepting no more connections, finishing requests");
            let operations = listeners.stop_serving_callers().await;
            tracing::info!("Giving back what was not issued");
            // A fifth of the time that is left is kept for the last journal rows and for closing
            // the connections.
            let drained = self.directory.drain(left().mul_f64(0.8)).await;
            tracing::info!(
                returned = drained.returned,
                abandoned = drained.abandoned,
                "All sequences are drained"
            );
            self.store.close(left()).await;
            // It answers until the end, so that a probe sees how far the stop has come.
            if let Some(operations) = operations {
                operations.stop(false).await;
            }
            tracing::info!("Stopped");
        };
        let stopped = tokio::select! {
            stopped = tokio::time::timeout_at(until, stopping) => {
                stopped.map_err(|_| CommandFailure::other(
                    "shutdown.deadline has passed; what was not given back by then is a gap",
                ))
            }
            Some(signal) = signals.recv() => Err(CommandFailure::other(format!(
                "stopped at once by a second signal ({signal}); what was not given back is a gap"
            ))),
        };
        self.upkeep.abort();
        self.refreshing.iter().for_each(JoinHandle::abort);
        outcome.and(stopped)
    }
}

async fn run_metrics_upkeep(metrics: Arc<Metrics>, credentials: Arc<Credentials>) {
    let mut period = tokio::time::interval(UPKEEP_PERIOD);
    period.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        period.tick().await;
        metrics.upkeep();
        let now = SystemTime::now();
        if let Some(tls) = credentials.tls() {
            metrics.tls_certificate_expires.set(tls.seconds_left(now));
        }
        if credentials.access().is_some() {
            metrics.show_token_expiries(credentials.seconds_left(now));
        }
    }
}

/// Reads what callers have to show. Starts the task that reads it again: once in
/// `definition_refresh`, and at each SIGHUP. If nothing of it is in a file, there is no task, and
/// SIGHUP ends the program.
///
/// # Errors
/// The file of callers or a file of `[tls]` cannot be used, or the signal cannot be received.
fn start_credentials(
    config: &Config,
    metrics: &Metrics,
) -> Result<(Arc<Credentials>, Option<JoinHandle<()>>), CommandFailure> {
    let credentials = Credentials::new(config, metrics.access_stale.clone());
    let credentials = Arc::new(credentials.map_err(CommandFailure::configuration)?);
    if !credentials.has_files() {
        return Ok((credentials, None));
    }
    let mut hangup = signals::hangup()?;
    let every = config.definition_refresh;
    let mut period = tokio::time::interval_at(Instant::now() + every, every);
    period.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let refreshed = Arc::clone(&credentials);
    let task = rt::spawn(async move {
        loop {
            tokio::select! {
                _ = period.tick() => {}
                _ = hangup.recv() => {}
            }
            let blocking = Arc::clone(&refreshed);
            let mut reading = tokio::task::spawn_blocking(move || blocking.refresh());
            let done = match tokio::time::timeout(READING, &mut reading).await {
                Ok(done) => done,
                Err(elapsed) => {
                    refreshed.note_unfinished(&elapsed);
                    reading.await
                }
            };
            if let Err(error) = done {
                refreshed.note_unfinished(&error);
            }
        }
    });
    Ok((credentials, Some(task)))
}

/// Returns the settings of the stores from a configuration.
pub fn stores_settings(config: &Config) -> StoresSettings {
    StoresSettings {
        stores: config.stores.0.clone(),
        bounds: StoreLimits {
            statement: StatementBounds {
                pool_max: config.pool.max,
                acquire: config.pool.acquire,
                timeout: config.store.timeout,
                backoff_min: config.refill.backoff_min,
                backoff_max: config.refill.backoff_max,
                schema_wait: SCHEMA_WAIT,
            },
            attempts: config.refill.attempts,
            deadline: config.refill.deadline,
            max_sequences: bound(config.max_sequences),
            keyed_periods: bound(config.limits.keyed_periods),
            journal_queue: config.journal.queue,
            journal_retain: config.journal.retain,
            durability: config.store.durability,
            failover: config.failover_limits(),
            migrate: config.migrate,
            definition_refresh: config.definition_refresh,
        },
        installations: Arc::default(),
    }
}

/// Returns the settings of the sequences from a configuration.
pub fn sequence_settings(config: &Config) -> SequenceSettings {
    SequenceSettings {
        templates: config.templates.clone(),
        waiters: bound(config.limits.waiters),
        live_sequences: config.limits.live_sequences,
        live_periods: config.limits.live_periods,
        refill_deadline: config.refill.deadline,
        backoff_max: config.refill.backoff_max,
        park_after: config.idle.park,
        unload_after: config.idle.unload,
        holder: replica_name(config.listen).into(),
        worker: config.worker,
        clock_wait: config.clock_wait(),
        slow_refill: config.log.slow_refill,
    }
}

/// Returns the name of the replica that listens on `address`.
///
/// The name differs between machines and between ports, and it is the same after a restart.
fn replica_name(address: SocketAddr) -> String {
    format!("{}:{}", host::name(HOST_LENGTH), address.port())
}

/// Returns how many connections each listener for callers can have open, next to the connections to
/// the databases.
fn room(config: &Config) -> io::Result<usize> {
    let stores = config.stores.0.iter();
    let n_servers: usize = stores
        .map(|store| store.databases.len() + store.redis.len())
        .sum();
    let of_each = usize::try_from(config.pool.max).unwrap_or(usize::MAX);
    let of_pools = of_each
        .saturating_add(CONNECTIONS_OUTSIDE_POOL)
        .saturating_mul(n_servers);
    let of_operations = config
        .operations
        .listen
        .map_or(0, |_| OPERATIONS_CONNECTIONS);
    if faults::is(Fault::NoConnectionGuard) {
        return Ok(config.http.connections);
    }
    let n_listeners = 1 + usize::from(config.resp.listen.is_some());
    let room = raise_descriptor_limit(
        config.http.connections.saturating_mul(n_listeners),
        of_pools.saturating_add(of_operations),
    )?;
    let connections = room.connections / n_listeners;
    if let Some(limit) = room.insufficient_limit {
        tracing::warn!(
            limit,
            connections,
            "Fewer connections than http.connections can be open at once: the process may have too \
             few open files (RLIMIT_NOFILE); raise that limit, or lower http.connections"
        );
    }
    Ok(connections)
}
