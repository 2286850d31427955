//! Counts in Redis, in front of a store's only database.
//!
//! If the order of a sequence is strict, Redis holds the counter and the database holds its
//! ceiling. Everything else goes to the database.
//!
//! A *window* is a range of numbers that the counter's row sets aside for Redis. Redis gives these
//! numbers out one after the other. The row numbers the windows, and a replica steps only in a
//! window that the row calls open. So if Redis was restarted, restored, flushed or replaced, the
//! next window begins above everything that was issued. `docs/adr/0017-redis-for-strict-order.md`
//! has the argument.

use std::{
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use odometer_core::{definition::Order, name::SequenceName, period::CounterKey};
use odometer_database::tasks::Tasks;
use odometer_process::metrics::RedisMetrics;
use parking_lot::Mutex;

use super::counters::Counters;
use super::scripts::WindowState;
use super::server::{Address, RedisServer};
use super::strict_reservation::StrictReservation;
use crate::database::Database;
use crate::redis::{rendezvous, row};
use crate::reservation::{attempts::Reservation, counter_read::StrictIn, request::Reserved};
use crate::rows::counter::WindowRow as InRow;
use crate::settings::Process;
use crate::{Fallback, RedisHealth, ReserveRequest, ServingRedis, StoreError, Want};

/// The time between two updates of the metric that says how long ceilings last.
const SWEEP: Duration = Duration::from_secs(1);
/// A counter that was not used for this long is left out of the metric.
const USED_WITHIN: Duration = Duration::from_secs(60);
/// How long a call waits until this replica has read what the database has on record.
const AGREES_WITHIN: Duration = Duration::from_millis(500);

pub(crate) struct RedisStore {
    pub(crate) database: Arc<Database>,
    servers: Vec<Arc<RedisServer>>,
    pub(crate) fallback: Fallback,
    pub(crate) counters: Counters,
    /// The `cluster_id` of the database's installation, with the number of recoveries that this
    /// process had seen when it was read. `None` before the first read.
    cluster_id: Mutex<Option<(u64, Arc<str>)>>,
}

impl RedisStore {
    /// Starts to connect to the servers, which may be away.
    pub(crate) fn start(
        database: &Arc<Database>,
        addresses: Vec<Address>,
        fallback: Fallback,
        process: &Process,
    ) -> Arc<Self> {
        let start = |address: Address| {
            let store = &database.identity.label.store;
            let up = process.metrics.redis_up(store, &address.label);
            RedisServer::start(address, &process.holder, database.tasks(), up)
        };
        let store = Arc::new(Self {
            servers: addresses.into_iter().map(start).collect(),
            fallback,
            counters: Counters::default(),
            cluster_id: Mutex::default(),
            database: Arc::clone(database),
        });
        store.tasks().spawn(sweep(Arc::downgrade(&store)));
        store
    }

    pub(crate) fn tasks(&self) -> &Tasks {
        self.database.tasks()
    }

    pub(crate) fn metrics(&self) -> &RedisMetrics {
        &self.database.metrics.redis
    }

    /// Reserves numbers: in Redis if the order is strict, else in the database.
    pub(crate) async fn reserve(
        self: &Arc<Self>,
        request: ReserveRequest,
    ) -> Result<Reserved, StoreError> {
        let counted_by = request.counted_by.as_ref();
        let is_strict = counted_by.is_some_and(|by| by.order == Order::Strict);
        let count = match &request.want {
            Want::Strict { count, .. } | Want::Exactly(count) | Want::Handover(count) => *count,
            Want::Refill(_) => return self.reserve_relaxed(request).await,
        };
        if !is_strict {
            return self.reserve_relaxed(request).await;
        }
        self.database.agree(Instant::now() + AGREES_WITHIN).await?;
        let reservation = StrictReservation::new(self, request, count).await?;
        reservation.run().await
    }

    /// Reserves a block from the database, unless its sequence has strict order by now.
    async fn reserve_relaxed(&self, request: ReserveRequest) -> Result<Reserved, StoreError> {
        let reservation = Reservation::new(&self.database, request);
        Box::pin(reservation.with_strict_in(StrictIn::Redis).run()).await
    }

    /// Returns the server that counts for a sequence.
    pub(crate) fn server_of(&self, name: &SequenceName) -> Result<Arc<RedisServer>, StoreError> {
        let labels = self
            .servers
            .iter()
            .map(|server| server.address.label.as_str());
        rendezvous::server_of(labels, name.as_str())
            .and_then(|index| self.servers.get(index))
            .cloned()
            .ok_or(StoreError::Unavailable)
    }

    /// Returns the server that counts for a counter, and the window that this replica knows of.
    pub(crate) fn serving(&self, key: &CounterKey) -> Option<ServingRedis> {
        let server = self.server_of(&key.sequence).ok()?;
        let shown = self.counters.find(key).and_then(|counter| counter.shown());
        Some(ServingRedis {
            server: server.address.url(),
            is_up: server.is_up(),
            window: shown.map(|(window, ..)| window),
            ceiling: shown.and_then(|(_, ceiling, _)| ceiling),
            lasts_seconds: shown.and_then(|(.., lasts)| lasts),
        })
    }

    /// Says for each server whether it answers.
    pub(crate) fn health(&self) -> Vec<RedisHealth> {
        let servers = self.servers.iter();
        servers
            .map(|server| RedisHealth {
                server: server.address.url(),
                is_up: server.is_up(),
            })
            .collect()
    }

    /// Returns the key of a counter in Redis.
    ///
    /// The key contains the installation's `cluster_id`. It is read again if this process has seen
    /// another recovery since, that is, if `n_recoveries` is a new value.
    pub(crate) async fn key_of(
        &self,
        key: &CounterKey,
        n_recoveries: u64,
    ) -> Result<String, StoreError> {
        let known = self.cluster_id.lock().clone();
        let cluster_id: Arc<str> = match known {
            Some((of, known)) if of == n_recoveries => known,
            _ => {
                let reading = self.database.several_times(&key.sequence, row::cluster_id);
                let read: Arc<str> = reading.await?.into();
                *self.cluster_id.lock() = Some((n_recoveries, Arc::clone(&read)));
                read
            }
        };
        let (sequence, period) = (key.sequence.as_str(), key.period.as_str());
        Ok(format!("odometer:{cluster_id}:{sequence}:{period}"))
    }

    /// Counts a window that is about to be opened, by what became of the window before it.
    pub(crate) fn note_opening(&self, in_redis: Option<WindowState>, before: InRow, is_full: bool) {
        let counted = if in_redis.is_none() && before.number == 0 {
            &self.metrics().windows_first
        } else if is_full {
            &self.metrics().windows_full
        } else if before.is_open {
            &self.metrics().windows_lost
        } else {
            &self.metrics().windows_closed
        };
        counted.increment(1);
    }
}

/// Updates the metric that says how long the numbers below the ceilings last.
async fn sweep(store: Weak<RedisStore>) {
    loop {
        tokio::time::sleep(SWEEP).await;
        let Some(store) = store.upgrade() else {
            return;
        };
        let counters = store.counters.all();
        let seconds = counters
            .iter()
            .filter_map(|counter| counter.seconds_left(USED_WITHIN));
        store
            .metrics()
            .ceiling_seconds
            .set(seconds.fold(f64::INFINITY, f64::min));
    }
}
