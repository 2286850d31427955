//! What the sequences of a client share: its threads, its connections, and the deadlines.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use crate::{
    hooks::SafeHooks,
    of_process::{OfProcess, Renew},
    service::Service,
    settings::Settings,
    threads::Threads,
    timer::Timer,
};

/// What all parts of a client share.
pub(crate) struct Shared {
    pub(crate) settings: Arc<Settings>,
    pub(crate) hooks: SafeHooks,
    pub(crate) engine: OfProcess<Engine>,
    n_forgets: AtomicU64,
}

/// What a client has in one process.
pub(crate) struct Engine {
    settings: Arc<Settings>,
    pub(crate) service: Service,
    pub(crate) threads: Arc<Threads>,
    pub(crate) timer: Arc<Timer>,
}

impl Shared {
    pub(crate) fn new(settings: Settings, hooks: SafeHooks) -> Self {
        let settings = Arc::new(settings);
        Self {
            engine: OfProcess::new(Engine::new(Arc::clone(&settings))),
            settings,
            hooks,
            n_forgets: AtomicU64::new(0),
        }
    }

    /// Returns how many times the program was told to forget.
    pub(crate) fn n_forgets(&self) -> u64 {
        self.n_forgets.load(Ordering::Acquire)
    }

    /// Lets calls under way forget what they bring.
    pub(crate) fn forget_calls(&self) {
        self.n_forgets.fetch_add(1, Ordering::AcqRel);
    }
}

impl Engine {
    fn new(settings: Arc<Settings>) -> Self {
        Self {
            service: Service::new(&settings),
            threads: Arc::new(Threads::new(settings.spawn)),
            timer: Arc::default(),
            settings,
        }
    }
}

impl Renew for Engine {
    /// Has no thread and no connection yet, and begins at a random replica.
    fn renewed(&self) -> Self {
        Self::new(Arc::clone(&self.settings))
    }
}
