//! Loads numbers for the names used most recently, before calls are sent to this replica.
//!
//! So a restarted replica has numbers even if the database is slow or away. Of the block sequences,
//! only names with a rate are loaded. For a name that is rarely used, a block would only become a
//! gap at the next crash.

use std::{
    sync::{Arc, Weak, atomic::Ordering},
    time::Duration,
};

use futures_util::{StreamExt, stream};
use odometer_core::duration::exact;
use odometer_core::period::CounterKey;
use odometer_process::{
    clock,
    faults::{self, Fault},
};
use tokio::{sync::oneshot, time::timeout};

use crate::{actor::command::Command, directory::shared::Shared, issuer::memory::Issuer};

/// Names the log target of the events in this file.
const TARGET: &str = "odometer::sequence::loading";

/// Bounds how many counters are loaded.
const N_LOADED: usize = 100;
/// Bounds how long readiness waits for the names. Loading goes on after that.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Loads the names. Returns when they are loaded, or when the directory is gone.
pub(crate) async fn run(shared: Weak<Shared>) {
    let Some(store) = shared.upgrade().map(|shared| Arc::clone(&shared.store)) else {
        return;
    };
    store.reached().await;
    let Some(shared) = shared.upgrade() else {
        return;
    };
    let loading = async {
        match faults::is(Fault::NothingLoaded) {
            true => 0,
            false => load(&shared).await,
        }
    };
    match timeout(TIMEOUT, loading).await {
        Ok(0) => {}
        Ok(n_names) => {
            tracing::info!(target: TARGET, n_names, "the names used most recently are loaded")
        }
        Err(_) => tracing::warn!(
            target: TARGET,
            "loading the names used most recently takes longer than {}; ready without \
             some of them",
            exact(TIMEOUT)
        ),
    }
    shared.is_loaded.store(true, Ordering::Release);
}

async fn load(shared: &Arc<Shared>) -> usize {
    let counters = match shared.store.recently_used(N_LOADED).await {
        Ok(counters) => counters,
        Err(error) => {
            tracing::warn!(target: TARGET, %error, "the names used most recently could not be read");
            return 0;
        }
    };
    let n_counters = counters.len();
    stream::iter(counters)
        .for_each_concurrent(N_LOADED, |key| {
            // In a task of its own, which goes on if readiness waits no longer.
            let loading = actix::spawn(load_one(Arc::clone(shared), key));
            async move {
                let _ended = loading.await;
            }
        })
        .await;
    n_counters
}

async fn load_one(shared: Arc<Shared>, key: CounterKey) {
    let Some(issuer) = issuer(&shared, key).await else {
        return;
    };
    let (done, waiting) = oneshot::channel();
    shared.tell(&issuer, Command::Load { done });
    // The sender is dropped if the actor died or a drain began. Then a later caller loads the name.
    let _gone = waiting.await;
}

/// Returns the issuer of a counter; `None` if its calendar period is not the present one. Also
/// `None` if memory is full or the store gives no answer: callers load these names later.
async fn issuer(shared: &Arc<Shared>, key: CounterKey) -> Option<Arc<Issuer>> {
    let period = Some(&key.period).filter(|period| !period.is_none());
    let head = shared.resolve(&key.sequence, period).await.ok()?;
    let (Some(period), Some(periods)) = (period, head.periods()) else {
        let fits = period.is_none() && head.periods().is_none();
        return fits.then_some(head);
    };
    let chosen = periods.choose(Some(period), clock::now_ms()).ok()?;
    let is_present = chosen
        .span
        .is_none_or(|span| span.contains(clock::now_ms()));
    if !is_present {
        return None;
    }
    shared.member(&head, periods, chosen).ok()
}
