//! Before calls are sent to this replica, the names used most recently get their numbers.
//!
//! So that a restart does not meet a database that is slow or away with empty hands. Only names
//! with a rate are loaded: for a rare one a reserve would be nothing but a gap at the next crash.

use std::{
    sync::{Arc, Weak, atomic::Ordering},
    time::Duration,
};

use futures_util::{StreamExt, stream};
use odometer_core::name::SequenceName;
use tokio::{sync::oneshot, time::timeout};

use super::{messages::Load, shared::Shared};

/// Names that are loaded, at most.
const N_LOADED: usize = 100;
/// How long readiness waits for them; they go on loading afterwards.
const PATIENCE: Duration = Duration::from_secs(5);

/// Runs until the names are loaded, or the directory is gone.
pub(super) async fn run(shared: Weak<Shared>) {
    let Some(store) = shared.upgrade().map(|shared| Arc::clone(&shared.store)) else {
        return;
    };
    store.reached().await;
    let Some(shared) = shared.upgrade() else {
        return;
    };
    match timeout(PATIENCE, load(&shared)).await {
        Ok(0) => {}
        Ok(n_names) => tracing::info!(n_names, "the names used most recently are loaded"),
        Err(_) => tracing::warn!(
            "loading the names used most recently takes longer than {PATIENCE:?}; ready without \
             some of them"
        ),
    }
    shared.is_loaded.store(true, Ordering::Release);
}

async fn load(shared: &Arc<Shared>) -> usize {
    let names: Vec<SequenceName> = match shared.store.recently_used(N_LOADED).await {
        Ok(counters) => {
            let whole = counters.into_iter().filter(|key| key.period.is_none());
            whole.map(|key| key.sequence).collect()
        }
        Err(error) => {
            tracing::warn!(%error, "the names used most recently could not be read");
            return 0;
        }
    };
    let n_names = names.len();
    stream::iter(names)
        .for_each_concurrent(N_LOADED, |name| load_one(shared, name))
        .await;
    n_names
}

async fn load_one(shared: &Arc<Shared>, name: SequenceName) {
    // More names than may be in memory are left to their callers.
    let Ok(issuer) = shared.issuer(&name) else {
        return;
    };
    let (done, waiting) = oneshot::channel();
    shared.tell(&issuer, Load { done });
    // Dropped where the actor died or a drain began: a caller loads it then, if one comes.
    let _gone = waiting.await;
}
