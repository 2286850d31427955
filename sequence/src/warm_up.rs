//! Before calls are sent to this replica, the names used most recently get their numbers.
//!
//! So that a restart does not meet a database that is slow or away with empty hands. Only names
//! with a rate are loaded: for a rare one a reserve would be nothing but a gap at the next crash.

use std::{
    sync::{Arc, Weak, atomic::Ordering},
    time::{Duration, Instant},
};

use futures_util::{StreamExt, stream};
use odometer_core::duration::exact;
use odometer_core::period::CounterKey;
use odometer_process::{
    clock,
    faults::{self, Fault},
};
use tokio::{sync::oneshot, time::timeout};

use crate::{command::Command, issuer::Issuer, shared::Shared};

/// By which the log calls what happens here.
const TARGET: &str = "odometer::sequence::loading";

/// Names that are loaded, at most.
const N_LOADED: usize = 100;
/// How long readiness waits for them; they go on loading afterwards.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Runs until the names are loaded, or the directory is gone.
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
        .for_each_concurrent(N_LOADED, |key| load_one(shared, key))
        .await;
    n_counters
}

async fn load_one(shared: &Arc<Shared>, key: CounterKey) {
    let Some(issuer) = issuer(shared, key).await else {
        return;
    };
    let (done, waiting) = oneshot::channel();
    shared.tell(&issuer, Command::Load { done });
    // Dropped where the actor died or a drain began: a caller loads it then, if one comes.
    let _gone = waiting.await;
}

/// The issuer of a counter; none where its calendar period is not the present one. More names than
/// may be in memory are left to their callers, and so are those of which the store says nothing.
async fn issuer(shared: &Arc<Shared>, key: CounterKey) -> Option<Arc<Issuer>> {
    let head = shared.issuer(&key.sequence).ok()?;
    if key.period.is_none() {
        return Some(head);
    }
    let until = Instant::now() + TIMEOUT;
    let periods = shared.periods(&head, until).await.ok()?;
    let chosen = periods.choose(Some(&key.period), clock::now_ms()).ok()?;
    let is_present = chosen
        .span
        .is_none_or(|span| span.contains(clock::now_ms()));
    if !is_present {
        return None;
    }
    shared.member(&head, &periods, chosen).ok()
}
