//! The composition root: what starts in which order, and stops in which.
//!
//! Everything the layers need is handed to them here. Stopping is the reverse of starting, under
//! one deadline: not ready, wait, no more requests, blocks given back, connections closed.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use actix_web::dev::{Server, ServerHandle};
use actix_web::rt;
use odometer_process::{
    faults::{self, Fault},
    host,
    metrics::{Exposition, Metrics},
};
use odometer_sequence::{Directory, SequenceSettings};
use odometer_store::{
    StartError, StatementBounds, StoreLimits, StoreSettings, Stores, StoresSettings,
};
use tokio::net::TcpSocket;
use tokio::sync::mpsc::Receiver;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior};

use crate::command_failure::CommandFailure;
use crate::config::{Config, Secret, StoreConfig};
use crate::http::edge::make_room;
use crate::http::{self, HttpSettings, Untold};

/// Bytes of replies that the kernel keeps of each connection.
const SEND_BUFFER: u32 = 64 * 1024;

/// Connections to a database that are no part of its pool: those that watch, listen and probe.
const CONNECTIONS_BESIDE_POOL: usize = 8;

/// Of a longer host name, what is above this is left out where worker ids are leased.
const HOST_LENGTH: usize = 100;

/// How often recorded durations are moved into their buckets.
const UPKEEP_PERIOD: Duration = Duration::from_secs(5);

/// How long a schema that does not fit is waited for: somebody may be migrating it.
const SCHEMA_WAIT: Duration = Duration::from_secs(60);

/// How long a stopping server goes on at least: in this time connections in use are told to close
/// with a reply, where a cold stop would cut them between two requests.
const LINGER: Duration = Duration::from_millis(250);

/// The running service.
pub struct Application {
    address: SocketAddr,
    ready_wait: Duration,
    deadline: Duration,
    store: Arc<Stores>,
    directory: Arc<Directory>,
    server: Server,
    untold: Untold,
    upkeep: JoinHandle<()>,
}

/// What ended the serving.
enum ServingEnd {
    Signal(&'static str),
    Fatal(StartError),
    Server(String),
}

impl Application {
    /// Starts store, sequences and HTTP, in this order; the store may still be away afterwards.
    ///
    /// Needs an actix system, whose end it does not outlive.
    ///
    /// # Errors
    /// What waiting does not mend, before anything listens.
    pub async fn start(config: &Config) -> Result<Self, CommandFailure> {
        let metrics = Arc::new(Metrics::with_sequence_labels(
            config.metrics.sequence_labels,
        ));
        let store = Stores::connect(stores_settings(config), Arc::clone(&metrics)).await?;
        let listener = bind(config.listen, config.http.backlog).map_err(|error| {
            CommandFailure::other(format!(
                "listen: {} cannot be listened on ({error}); \
                 choose another address with --listen or ODOMETER_LISTEN",
                config.listen
            ))
        })?;
        let address = listener.local_addr().map_err(not_served)?;
        let room = room(config).map_err(not_served)?;
        let directory = Directory::start(
            Arc::clone(&store),
            SequenceSettings {
                holder: replica_name(address).into(),
                ..sequence_settings(config)
            },
            Arc::clone(&metrics),
        );
        let exposition = metrics.exposition();
        let upkeep = rt::spawn(keep_up(exposition.clone()));
        let (server, untold) = http::serve(
            listener,
            Arc::clone(&directory),
            metrics,
            exposition,
            http_settings(config, room),
        )
        .map_err(not_served)?;
        announce(config, address);
        Ok(Self {
            address,
            ready_wait: config.shutdown.ready_wait,
            deadline: config.shutdown.deadline,
            store,
            directory,
            server,
            untold,
            upkeep,
        })
    }

    /// Where it listens: the port that was picked, if any was to be.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until the first of `signals`, then stops in order; a second one ends at once.
    ///
    /// # Errors
    /// The store turned out to be unusable, or stopping took longer than `shutdown.deadline`, or
    /// was cut short.
    pub async fn run(self, mut signals: Receiver<&'static str>) -> Result<(), CommandFailure> {
        let handle = self.server.handle();
        let mut server = rt::spawn(self.server);
        let end = tokio::select! {
            Some(signal) = signals.recv() => ServingEnd::Signal(signal),
            error = self.store.fatal() => ServingEnd::Fatal(error),
            ended = &mut server => ServingEnd::Server(format!("{ended:?}")),
        };
        let (ready_wait, outcome) = match end {
            ServingEnd::Signal(signal) => {
                tracing::info!(signal, "Stopping: not ready from now on");
                (self.ready_wait, Ok(()))
            }
            ServingEnd::Fatal(error) => (Duration::ZERO, Err(error.into())),
            ServingEnd::Server(how) => {
                let failure =
                    CommandFailure::other(format!("the HTTP server ended by itself: {how}"));
                (Duration::ZERO, Err(failure))
            }
        };
        let stopping = Stopping {
            ready_wait,
            until: Instant::now() + self.deadline,
            store: &self.store,
            directory: &self.directory,
            server: &handle,
            untold: &self.untold,
        };
        let stopped = tokio::select! {
            stopped = tokio::time::timeout_at(stopping.until, stopping.run()) => {
                stopped.map_err(|_| CommandFailure::other(
                    "shutdown.deadline has passed; what was not given back by then is a gap",
                ))
            }
            Some(signal) = signals.recv() => Err(CommandFailure::other(format!(
                "stopped at once by a second signal ({signal}); what was not given back is a gap"
            ))),
        };
        self.upkeep.abort();
        outcome.and(stopped)
    }
}

/// The steps of a stop, each under what is left of one deadline.
struct Stopping<'a> {
    ready_wait: Duration,
    until: Instant,
    store: &'a Stores,
    directory: &'a Directory,
    server: &'a ServerHandle,
    untold: &'a Untold,
}

impl Stopping<'_> {
    async fn run(&self) {
        self.directory.begin_drain();
        tokio::time::sleep(self.ready_wait.max(LINGER)).await;
        tracing::info!("Accepting no more connections, finishing requests");
        self.server.stop(true).await;
        self.untold.tell();
        tracing::info!("Giving back what was not issued");
        // A fifth of what is left is for the last rows and the connections.
        let left = self.until.saturating_duration_since(Instant::now());
        let drained = self.directory.drain(left.mul_f64(0.8)).await;
        tracing::info!(
            returned = drained.returned,
            abandoned = drained.abandoned,
            "All sequences are drained"
        );
        let left = self.until.saturating_duration_since(Instant::now());
        self.store.close(left).await;
        tracing::info!("Stopped");
    }
}

/// A listener with a backlog of its own; needs a tokio runtime.
fn bind(address: SocketAddr, backlog: u32) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // A port whose old connections linger can be listened on again at once.
    socket.set_reuseaddr(true)?;
    // Connections have it from the listener, and none may keep more in the kernel for a caller who
    // does not read.
    socket.set_send_buffer_size(SEND_BUFFER)?;
    socket.bind(address)?;
    socket.listen(backlog)?.into_std()
}

fn not_served(error: io::Error) -> CommandFailure {
    CommandFailure::other(format!("HTTP cannot be served: {error}"))
}

fn announce(config: &Config, address: SocketAddr) {
    if !address.ip().is_loopback() && config.admin_token.is_none() {
        tracing::info!(
            "Sequences cannot be changed over HTTP: the listener is not loopback and \
             ODOMETER_ADMIN_TOKEN is not set"
        );
    }
    if let Some(warning) = config.short_token() {
        tracing::warn!("{warning}");
    }
    // With this target it is logged at any level: whoever chose port 0 has to learn the address.
    tracing::info!(
        target: odometer_process::log::ALWAYS,
        version = env!("CARGO_PKG_VERSION"),
        "Listening on http://{address}"
    );
}

async fn keep_up(exposition: Exposition) {
    let mut period = tokio::time::interval(UPKEEP_PERIOD);
    period.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        period.tick().await;
        exposition.upkeep();
    }
}

/// What the stores are run by, of a configuration.
pub fn stores_settings(config: &Config) -> StoresSettings {
    let store = |store: &StoreConfig| StoreSettings {
        name: store.name.clone(),
        key: store.key.clone(),
        origin: store.origin.clone(),
        databases: exposed(&store.databases),
        redis: exposed(&store.redis),
        fallback: store.fallback,
        durability: store.durability,
    };
    StoresSettings {
        stores: config.stores.0.iter().map(store).collect(),
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
            migrate: config.migrate,
            definition_refresh: config.definition_refresh,
        },
        installations: Arc::default(),
    }
}

/// How much is let in of what may be `limit` at most.
fn bound<T: From<u16>>(limit: T) -> T {
    match faults::is(Fault::NoBounds) {
        true => T::from(u16::MAX),
        false => limit,
    }
}

fn exposed(urls: &[Secret]) -> Vec<String> {
    urls.iter().map(|url| url.expose().to_owned()).collect()
}

/// What the sequences are run by, of a configuration.
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

/// What a replica is called that listens there: another one than those of other machines and other
/// addresses, and the same after a restart.
fn replica_name(address: SocketAddr) -> String {
    format!("{}:{}", host::name(HOST_LENGTH), address.port())
}

/// How many connections of callers there is room for, beside those to the databases.
fn room(config: &Config) -> io::Result<usize> {
    let stores = config.stores.0.iter();
    let n_servers: usize = stores
        .map(|store| store.databases.len() + store.redis.len())
        .sum();
    let of_each = usize::try_from(config.pool.max).unwrap_or(usize::MAX);
    let of_pools = of_each
        .saturating_add(CONNECTIONS_BESIDE_POOL)
        .saturating_mul(n_servers);
    if faults::is(Fault::NoConnectionGuard) {
        return Ok(config.http.connections);
    }
    let room = make_room(config.http.connections, of_pools)?;
    if let Some(limit) = room.too_few {
        tracing::warn!(
            limit,
            connections = room.connections,
            "Fewer connections than http.connections can be open at once: the process may have too \
             few open files (RLIMIT_NOFILE); raise that limit, or lower http.connections"
        );
    }
    Ok(room.connections)
}

fn http_settings(config: &Config, connections: usize) -> HttpSettings {
    let stopping = config.shutdown.deadline - config.shutdown.ready_wait;
    HttpSettings {
        head_timeout: config.http.head,
        body_timeout: config.http.body,
        request_timeout: config.http.head
            + config.http.body
            + config.refill.deadline
            + config.store.timeout,
        write_timeout: config.http.write,
        connections,
        body_limit: config.limits.body,
        in_flight: bound(config.limits.in_flight),
        workers: config.http.workers,
        // The other half is for giving blocks back.
        shutdown_timeout: stopping / 2,
        hosts: config.http.hosts.clone(),
        loopback: config.listen.ip().is_loopback(),
        admin_token: config.admin_token.clone(),
        definition_refresh: config.definition_refresh,
    }
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
