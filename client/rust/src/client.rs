//! The client of one installation of Odometer.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use arc_swap::ArcSwap;
use odometer_core::{name::SequenceName, snowflake::Layout};

use crate::{
    block_on::block_on,
    builder::ClientBuilder,
    definition::Kind,
    engine::Shared,
    error::Error,
    hooks::SafeHooks,
    of_process::{OfProcess, Renew},
    sequence::Sequence,
    settings::Settings,
    source::NumberSource,
    stamper::{Stamper, StamperCore},
};

/// Takes numbers from one installation of Odometer. Make one for a process, and share it.
///
/// Clones share everything.
#[derive(Clone)]
pub struct Client(Arc<ClientCore>);

struct ClientCore {
    shared: Arc<Shared>,
    catalog: OfProcess<Catalog>,
}

/// How a sequence is used. The default suits most sequences.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SequenceOptions {
    /// What the sequence is. It counts only if the program has no right `look` on the sequence.
    pub kind: Option<Kind>,
    /// The period or key whose numbers are taken, for sequences with periods. Each number is then a
    /// call.
    pub period: Option<String>,
}

/// The sequences and stampers of a client.
#[derive(Default)]
struct Catalog {
    /// Replaced as a whole, so that a forked child can always read what was there.
    entries: ArcSwap<CatalogEntries>,
    changing: Mutex<()>,
}

#[derive(Clone, Default)]
struct CatalogEntries {
    sequences: BTreeMap<SequenceName, Sequence>,
    stampers: Vec<Weak<StamperCore>>,
}

impl Client {
    /// Returns a builder. It needs endpoints.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// Makes a client from the environment: see [`ClientBuilder::from_environment`].
    ///
    /// # Errors
    /// [`Error::InvalidSetting`] if a setting cannot be used.
    pub fn from_environment() -> Result<Self, Error> {
        ClientBuilder::from_environment().build()
    }

    pub(crate) fn new(settings: Settings, hooks: SafeHooks) -> Self {
        Self(Arc::new(ClientCore {
            shared: Arc::new(Shared::new(settings, hooks)),
            catalog: OfProcess::new(Catalog::default()),
        }))
    }

    /// Returns a sequence. The same name gives the same one, with the same numbers in memory.
    ///
    /// # Errors
    /// [`Error::InvalidSetting`] if no sequence can have this name.
    pub fn sequence(&self, name: &str) -> Result<Sequence, Error> {
        self.sequence_with(name, SequenceOptions::default())
    }

    /// Returns a sequence that is used in this way. The same name gives the same one.
    ///
    /// With a period, each number is a call. Then nothing is shared, and the kind does not matter.
    ///
    /// # Errors
    /// [`Error::InvalidSetting`] if no sequence can have this name, or if another kind was said of
    /// it before.
    pub fn sequence_with(&self, name: &str, options: SequenceOptions) -> Result<Sequence, Error> {
        let name = SequenceName::parse(name)?;
        let shared = Arc::clone(&self.0.shared);
        let SequenceOptions { kind, period } = options;
        if period.is_some() {
            let source = NumberSource::new(name, period.as_deref(), shared);
            return Ok(Sequence::new(source));
        }
        let sequence = self.0.catalog.with(|catalog| {
            let known = catalog.entries.load().sequences.get(&name).cloned();
            known.unwrap_or_else(|| {
                catalog.change(|entries| {
                    let entry = entries.sequences.entry(name.clone());
                    let new = || Sequence::new(NumberSource::new(name, None, shared));
                    entry.or_insert_with(new).clone()
                })
            })
        });
        if let Some(kind) = kind {
            sequence.say(kind)?;
        }
        Ok(sequence)
    }

    /// Leases a worker id of a pool, and makes snowflake ids with it.
    ///
    /// Programs whose ids may meet use the same pool and the same layout. `holder` says who asks: 1
    /// to 128 printable ASCII characters. If it is the same after a restart, the program gets its
    /// former worker id back, if that is free.
    ///
    /// The task waits for the lease, at most as long as the client's deadline.
    ///
    /// # Errors
    /// [`Error::InvalidSetting`] for a name or a layout that cannot be used, [`Error::Refused`] if
    /// the service refuses the lease, and [`Error::NoLease`] if none came in time.
    pub async fn stamper(
        &self,
        pool: &str,
        layout: Layout,
        holder: impl Into<String>,
    ) -> Result<Stamper, Error> {
        let stamper = self.new_stamper(pool, layout, holder.into())?;
        stamper.started().await
    }

    /// Leases like [`stamper`](Self::stamper). The thread waits for the lease.
    ///
    /// # Errors
    /// Those of [`stamper`](Self::stamper).
    pub fn stamper_blocking(
        &self,
        pool: &str,
        layout: Layout,
        holder: impl Into<String>,
    ) -> Result<Stamper, Error> {
        block_on(self.stamper(pool, layout, holder))
    }

    /// Drops all numbers in memory, the connections, and the leases of stampers.
    ///
    /// Call it after the machine was resumed from a snapshot, or the process from a checkpoint:
    /// otherwise two copies give the same numbers. A fork needs no call.
    pub fn forget(&self) {
        let shared = &self.0.shared;
        // First, so that no call of those who wait uses a connection of the time before.
        shared.engine.with(|engine| engine.service.close_idle());
        shared.forget_calls();
        let entries = self.0.catalog.with(|catalog| catalog.entries.load_full());
        for sequence in entries.sequences.values() {
            sequence.forget();
        }
        for stamper in entries.stampers.iter().filter_map(Weak::upgrade) {
            stamper.forget();
        }
    }

    fn new_stamper(&self, pool: &str, layout: Layout, holder: String) -> Result<Stamper, Error> {
        let stamper = Stamper::new(&self.0.shared, pool, layout, holder)?;
        let core = Arc::downgrade(stamper.core());
        self.0.catalog.with(|catalog| {
            catalog.change(|entries| {
                entries.stampers.retain(|other| other.strong_count() > 0);
                entries.stampers.push(core);
            });
        });
        Ok(stamper)
    }
}

impl Catalog {
    /// Changes a copy of the entries, which then replaces them.
    fn change<T>(&self, change: impl FnOnce(&mut CatalogEntries) -> T) -> T {
        let alone = self.changing.lock();
        let _alone = alone.unwrap_or_else(PoisonError::into_inner);
        let mut entries = CatalogEntries::clone(&self.entries.load());
        let changed = change(&mut entries);
        self.entries.store(Arc::new(entries));
        changed
    }
}

impl Renew for Catalog {
    /// Has what the parent had.
    fn renewed(&self) -> Self {
        Self {
            entries: ArcSwap::new(self.entries.load_full()),
            changing: Mutex::default(),
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let endpoints = &self.0.shared.settings.endpoints;
        f.debug_tuple("Client").field(endpoints).finish()
    }
}
