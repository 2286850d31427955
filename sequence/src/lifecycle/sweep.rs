//! Looks at the names in use once a second: samples rates, starts prefetches that no caller
//! triggered, and parks. Less often, looks at all names.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, Weak, atomic::Ordering},
    time::{Duration, Instant},
};

use odometer_core::name::SequenceName;
use odometer_process::{
    clock,
    faults::{self, Fault},
};
use odometer_store::Contact;
use tokio::{sync::oneshot, time::MissedTickBehavior};

use crate::{
    actor::command::Command, directory::shared::Shared, issuer::memory::Issuer,
    issuer::ownership::Ownership,
};

const INTERVAL: Duration = Duration::from_secs(1);
/// Bounds the time between two looks at all names. Only these looks change parked names.
const WHOLE_INTERVAL: Duration = Duration::from_secs(60);

/// Bounds how many names are looked at before the actors may run.
const LOOKED_AT_ONCE: usize = 1000;

/// Runs the sweep until the directory is gone.
pub(crate) async fn run(shared: Weak<Shared>) {
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

/// Looks at the names with an actor: samples, prefetches, parks.
fn look_at_active(shared: &Arc<Shared>, now: Instant) {
    let active = std::mem::take(&mut *shared.active.lock());
    let mut still_active = Vec::with_capacity(active.len());
    for issuer in active {
        let sampled = issuer.sample(now);
        if sampled.n_issued > 0 {
            shared.histories.begin(&issuer, sampled);
        }
        if !issuer.has_actor() {
            // The code that starts an actor for this issuer enters the issuer again.
            issuer.is_active.store(false, Ordering::Release);
            if issuer.has_actor() {
                shared.enter_active(&issuer);
            }
            continue;
        }
        if issuer.idle_for(now) >= shared.settings.park_after {
            shared.tell(&issuer, Command::Park);
        } else if issuer.wants_prefetch() {
            shared.tell(&issuer, Command::LowWater);
        }
        shared.fetch_next_period(&issuer, now);
        still_active.push(issuer);
    }
    shared.active.lock().append(&mut still_active);
    shared.histories.note(now, |key| shared.find(key));
}

/// Looks at all names: starts an actor if a name without one needs a prefetch, parks names that
/// were woken, and unloads names that were idle for long.
async fn look_at_all(shared: &Arc<Shared>, now: Instant) {
    shared.forget_index(now);
    for (n_seen, issuer) in shared.all_issuers().into_iter().enumerate() {
        if n_seen % LOOKED_AT_ONCE == 0 {
            // The actors run on this thread, too.
            tokio::task::yield_now().await;
        }
        if let Some(periods) = issuer.periods() {
            let is_idle = issuer.idle_for(now) >= shared.settings.unload_after;
            if is_idle && periods.close_if_empty() {
                shared.dismiss_periods(&issuer);
            }
            continue;
        }
        let term = issuer.term_without_actor();
        let sampled = term.map(|_no_actor| issuer.sample(now));
        let sampled = sampled.filter(|sampled| sampled.n_issued > 0);
        let is_used = sampled.is_some();
        if let Some(sampled) = sampled {
            shared.histories.begin(&issuer, sampled);
        }
        let idle_for = issuer.idle_for(now);
        // After the end of a period, no more calls for it are expected.
        let unload_after = if issuer.is_over() {
            shared.settings.park_after
        } else {
            shared.settings.unload_after
        };
        shared.fetch_next_period(&issuer, now);
        if issuer.is_ahead() {
            // The issuer waits for its period to begin.
        } else if idle_for >= unload_after || (!issuer.is_known() && idle_for >= INTERVAL) {
            shared.tell(&issuer, Command::Unload);
        } else if is_used && issuer.wants_prefetch() {
            shared.tell(&issuer, Command::LowWater);
        } else if let Some(term) = term
            && idle_for >= shared.settings.park_after
            && issuer.can_be_parked()
            // An actor that was started since the look is the owner instead of the sweep.
            && let Some(owner) = Ownership::take_over(&issuer, term)
        {
            // The name was woken, and none of its callers has needed an actor.
            shared.park(&owner);
        }
    }
    unload_parked(shared).await;
}

/// Unloads parked names that were idle for long, if their store can take the numbers back.
async fn unload_parked(shared: &Arc<Shared>) {
    let unload_after = shared.settings.unload_after;
    let is_up = |store: &str| shared.store.contact_of(store) == Contact::Up;
    let names = shared.names.parked_for(unload_after, is_up);
    for (n_seen, name) in names.into_iter().enumerate() {
        if n_seen % LOOKED_AT_ONCE == 0 {
            tokio::task::yield_now().await;
        }
        let Some(issuer) = shared.names.find_surely(name.as_str()) else {
            continue;
        };
        let now = Instant::now();
        issuer.sample(now);
        // A caller may have woken the name meanwhile.
        if issuer.idle_for(now) >= unload_after {
            shared.tell(&issuer, Command::Unload);
        }
    }
}

impl Shared {
    /// Loads the first block of the next period before that period begins, if this period is in
    /// use. The time is within the last `hold` of this period, and differs from name to name.
    fn fetch_next_period(self: &Arc<Self>, issuer: &Arc<Issuer>, now: Instant) {
        let Some(span) = issuer.span() else {
            return;
        };
        let Some(head) = self.names.look(&issuer.key.sequence) else {
            return;
        };
        let Some(periods) = head.periods() else {
            return;
        };
        let now_ms = clock::now_ms();
        let hold = periods.definition().block.hold;
        let is_used = issuer.idle_for(now).as_secs_f64() < hold.as_secs_f64();
        let is_due = span.contains(now_ms)
            && span.seconds_left(now_ms) < hold.as_secs_f64() * share_of(&issuer.key.sequence);
        let is_retired = issuer.memory.lock().is_retired;
        if !is_used || !is_due || is_retired || faults::is(Fault::NoPrefetch) {
            return;
        }
        let Some(next) = periods.rule.at(span.until_ms) else {
            return;
        };
        // If memory is full, the block is reserved when a caller asks for it.
        if let Ok(next) = self.member(&head, periods, next)
            && !next.is_known()
        {
            // No caller waits for this.
            let (done, _waiting) = oneshot::channel();
            self.tell(&next, Command::Load { done });
        }
    }
}

/// Returns which part of `hold` before the end of a period the next period is loaded: 0.25 to 1.
///
/// So the names of one time zone are not all loaded at the same time, and none is loaded at the
/// last moment.
fn share_of(name: &SequenceName) -> f64 {
    let mut hasher = DefaultHasher::new();
    name.as_str().hash(&mut hasher);
    let share = u32::try_from(hasher.finish() >> 32).unwrap_or(u32::MAX);
    0.25 + 0.75 * f64::from(share) / f64::from(u32::MAX)
}
