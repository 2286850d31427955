//! One look a second at the names in use: rates, prefetches that no caller
//! triggered, parking; and now and then one at all names.

use std::{
    sync::{Arc, Weak, atomic::Ordering},
    time::{Duration, Instant},
};

use tokio::time::MissedTickBehavior;

use super::{
    issuer::{Issuer, Link},
    messages::{LowWater, Park, Unload},
    shared::Shared,
};

const INTERVAL: Duration = Duration::from_secs(1);
/// Between two looks at all names, at most; parked ones change only by these.
const WHOLE_INTERVAL: Duration = Duration::from_secs(60);

/// Names that are looked at before the actors get a turn.
const LOOKED_AT_ONCE: usize = 1000;

/// Runs until the directory is gone.
pub(super) async fn run(shared: Weak<Shared>) {
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut whole_at = Instant::now();
    loop {
        ticks.tick().await;
        let Some(shared) = shared.upgrade() else {
            return;
        };
        let now = Instant::now();
        look_at_active(&shared, now);
        if now >= whole_at {
            look_at_all(&shared, now).await;
            let settings = &shared.settings;
            whole_at = now
                + WHOLE_INTERVAL
                    .min(settings.park_after)
                    .min(settings.unload_after / 2)
                    .max(INTERVAL);
        }
    }
}

/// Names with an actor: sample, prefetch, park.
fn look_at_active(shared: &Arc<Shared>, now: Instant) {
    let active = std::mem::take(&mut *shared.active.lock());
    let mut still_active = Vec::with_capacity(active.len());
    for issuer in active {
        issuer.sample(now);
        if !matches!(&*issuer.actor.lock(), Link::Live(address) if address.connected()) {
            // Whoever starts an actor for it again enters it again.
            issuer.is_active.store(false, Ordering::Release);
            if matches!(&*issuer.actor.lock(), Link::Live(address) if address.connected()) {
                shared.enter_active(&issuer);
            }
            continue;
        }
        if issuer.idle_for(now) >= shared.settings.park_after {
            shared.tell(&issuer, Park);
        } else if issuer.wants_prefetch() {
            shared.tell(&issuer, LowWater);
        }
        still_active.push(issuer);
    }
    shared.active.lock().append(&mut still_active);
}

/// All names: those in use without an actor get one, those long idle are unloaded.
async fn look_at_all(shared: &Arc<Shared>, now: Instant) {
    let all: Vec<Arc<Issuer>> = shared.issuers.pin().values().cloned().collect();
    for (n_seen, issuer) in all.into_iter().enumerate() {
        if n_seen % LOOKED_AT_ONCE == 0 {
            // The actors live on this thread too.
            tokio::task::yield_now().await;
        }
        let is_parked = matches!(&*issuer.actor.lock(), Link::Parked);
        let is_used = is_parked && issuer.sample(now);
        let idle_for = issuer.idle_for(now);
        let is_stranger = !issuer.is_known() && idle_for >= INTERVAL;
        if idle_for >= shared.settings.unload_after || is_stranger {
            shared.tell(&issuer, Unload);
        } else if is_used && issuer.wants_prefetch() {
            shared.tell(&issuer, LowWater);
        }
    }
}
