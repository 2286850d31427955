//! The composition root: what starts in which order, and stops in which.
//!
//! This module hands each layer everything that the layer needs. Stopping is the reverse of
//! starting, under one deadline. The service reports that it is not ready, waits, stops taking
//! requests, returns its blocks, and closes its connections.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use actix_web::dev::{Server, ServerHandle};
use actix_web::rt;
use futures_util::future::OptionFuture;
use odometer_process::{
    faults::{self, Fault},
    host,
    metrics::Metrics,
};
use odometer_sequence::{Directory, SequenceSettings};
use odometer_store::{OpenFor, StatementBounds, StoreLimits, Stores, StoresSettings};
use tokio::net::TcpSocket;
use tokio::sync::mpsc::Receiver;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior};

use crate::access::credentials::Credentials;
use crate::calls::UnreportedLines;
use crate::commands::failure::CommandFailure;
use crate::commands::signals;
use crate::config::{Config, bound};
use crate::edge::{WorkerTicks, raise_descriptor_limit};
use crate::http::{self, ListenerRole, ListenerSettings};

/// Bytes of replies that the kernel keeps for each connection.
const SEND_BUFFER: u32 = 64 * 1024;

/// The most connections of the operations listener: of probes, scrapes, and people at the page.
const OPERATIONS_CONNECTIONS: usize = 256;

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
    callers: RunningListener,
    /// The operations listener, if there is one.
    operations: Option<RunningListener>,
    upkeep: JoinHandle<()>,
    /// Reads what callers have to show again, if that is in files.
    refreshing: Option<JoinHandle<()>>,
}

/// A listener that is served.
struct RunningListener {
    handle: ServerHandle,
    ended: JoinHandle<io::Result<()>>,
    untold: UnreportedLines,
}

impl RunningListener {
    fn start((server, untold): (Server, UnreportedLines)) -> Self {
        Self {
            handle: server.handle(),
            ended: rt::spawn(server),
            untold,
        }
    }

    /// Waits until the server has ended without being stopped, which it does not do.
    async fn failure(&mut self) -> CommandFailure {
        let ended = (&mut self.ended).await;
        CommandFailure::other(format!("the HTTP server ended by itself: {ended:?}"))
    }

    /// Stops the server. With `is_graceful`, the calls that it has begun are answered first.
    async fn stop(self, is_graceful: bool) {
        self.handle.stop(is_graceful).await;
        self.untold.tell();
    }
}

impl Application {
    /// Starts store, sequences and HTTP, in this order. The databases may still be unreachable
    /// afterwards.
    ///
    /// Needs an actix system. The service ends when that system ends.
    ///
    /// # Errors
    /// Waiting would not help: the configuration cannot be used, another process holds the SQLite
    /// file, the address cannot be listened on, or HTTP cannot be served.
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
        let backlog = config.http.backlog;
        let listener = bind_or_say("listen", config.listen, backlog)?;
        let operations = config.operations.listen;
        let operations = operations
            .map(|address| bind_or_say("operations.listen", address, backlog))
            .transpose()?;
        let address = listener.local_addr().map_err(not_served)?;
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
        let worker_ticks = WorkerTicks::new();
        let serve = |listener, role, connections| {
            let settings = ListenerSettings {
                listener,
                role,
                connections,
                worker_ticks: Arc::clone(&worker_ticks),
                credentials: Arc::clone(&credentials),
            };
            let (directory, metrics) = (Arc::clone(&directory), Arc::clone(&metrics));
            let served = http::serve(settings, directory, metrics, config);
            let served = served.map(RunningListener::start);
            served.map_err(not_served)
        };
        let role = match operations {
            Some(_) => ListenerRole::Callers,
            None => ListenerRole::Everything,
        };
        if let Some(operations) = &operations {
            announce_operations(config, operations.local_addr().map_err(not_served)?);
        }
        let operations = operations
            .map(|listener| serve(listener, ListenerRole::Operations, OPERATIONS_CONNECTIONS))
            .transpose()?;
        let callers = serve(listener, role, connections)?;
        announce(config, role, address);
        Ok(Self {
            address,
            ready_wait: config.shutdown.ready_wait,
            deadline: config.shutdown.deadline,
            store,
            directory,
            callers,
            operations,
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
    /// The store turned out to be unusable, the HTTP server ended by itself, stopping took longer
    /// than `shutdown.deadline`, or a second signal cut the stop short.
    pub async fn run(self, mut signals: Receiver<&'static str>) -> Result<(), CommandFailure> {
        let mut callers = self.callers;
        let mut operations = self.operations;
        let operations_failure = operations.as_mut().map(RunningListener::failure);
        let (ready_wait, outcome) = tokio::select! {
            Some(signal) = signals.recv() => {
                tracing::info!(signal, "Stopping: not ready from now on");
                (self.ready_wait, Ok(()))
            }
            error = self.store.fatal() => (Duration::ZERO, Err(error.into())),
            failure = callers.failure() => (Duration::ZERO, Err(failure)),
            Some(failure) = OptionFuture::from(operations_failure) => {
                (Duration::ZERO, Err(failure))
            }
        };
        let until = Instant::now() + self.deadline;
        let left = || until.saturating_duration_since(Instant::now());
        // Each step may take what is left of one deadline.
        let stopping = async {
            self.directory.begin_drain();
            tokio::time::sleep(ready_wait.max(LINGER)).await;
            tracing::info!("Accepting no more connections, finishing requests");
            callers.stop(true).await;
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

/// Opens a listener with its own backlog. Needs a tokio runtime.
fn bind(address: SocketAddr, backlog: u32) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // With this option, a port can be listened on again at once, even if old connections linger on
    // it.
    socket.set_reuseaddr(true)?;
    // Connections inherit this size from the listener. It limits what the kernel keeps for a caller
    // who does not read.
    socket.set_send_buffer_size(SEND_BUFFER)?;
    socket.bind(address)?;
    socket.listen(backlog)?.into_std()
}

/// Opens the listener that a key of the configuration names.
///
/// # Errors
/// The address cannot be listened on. The sentence says how to choose another one.
fn bind_or_say(
    key: &str,
    address: SocketAddr,
    backlog: u32,
) -> Result<TcpListener, CommandFailure> {
    bind(address, backlog).map_err(|error| {
        let variable = key.to_uppercase().replace('.', "__");
        CommandFailure::other(format!(
            "{key}: {address} cannot be listened on ({error}); choose another address with \
             ODOMETER_{variable}{}",
            if key == "listen" { " or --listen" } else { "" }
        ))
    })
}

fn not_served(error: io::Error) -> CommandFailure {
    CommandFailure::other(format!("HTTP cannot be served: {error}"))
}

/// Returns the scheme of the URLs of a listener.
fn scheme(role: ListenerRole, config: &Config) -> &'static str {
    match http::is_secured(role, config) {
        true => "https",
        false => "http",
    }
}

fn announce_operations(config: &Config, address: SocketAddr) {
    let scheme = scheme(ListenerRole::Operations, config);
    tracing::info!(
        target: odometer_process::log::ALWAYS,
        "Showing probes, metrics and the page on {scheme}://{address}"
    );
}

fn announce(config: &Config, role: ListenerRole, address: SocketAddr) {
    let has_no_definer = config.admin_token.is_none() && config.access.is_none();
    if !address.ip().is_loopback() && has_no_definer {
        tracing::info!(
            "Sequences cannot be changed over HTTP: the listener is not loopback and \
             ODOMETER_ADMIN_TOKEN is not set"
        );
    }
    for warning in config.security_warnings() {
        tracing::warn!("{warning}");
    }
    let scheme = scheme(role, config);
    // Lines with this target are logged at any level. An operator who chose port 0 has to learn the
    // address.
    tracing::info!(
        target: odometer_process::log::ALWAYS,
        version = env!("CARGO_PKG_VERSION"),
        "Listening on {scheme}://{address}"
    );
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

/// Returns how many connections of callers can be open, next to the connections to the databases.
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
    let room = raise_descriptor_limit(
        config.http.connections,
        of_pools.saturating_add(of_operations),
    )?;
    if let Some(limit) = room.insufficient_limit {
        tracing::warn!(
            limit,
            connections = room.connections,
            "Fewer connections than http.connections can be open at once: the process may have too \
             few open files (RLIMIT_NOFILE); raise that limit, or lower http.connections"
        );
    }
    Ok(room.connections)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_port_in_use_is_refused_and_port_0_picks_one() {
        let Ok(first) = bind(SocketAddr::from(([127, 0, 0, 1], 0)), 16) else {
            unreachable!("loopback has free ports")
        };
        let address = first.local_addr();
        assert!(address.as_ref().is_ok_and(|address| address.port() != 0));
        if let Ok(address) = address {
            assert!(bind(address, 16).is_err());
        }
    }
}
