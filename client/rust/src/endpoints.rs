//! Decides which replica to call next, by how the calls before went. It knows no I/O.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::random::Uniform;

const MIN_REST: Duration = Duration::from_secs(1);
const MAX_REST: Duration = Duration::from_secs(30);
const MAX_DOUBLINGS: u32 = 5;
/// An endpoint that gives hurried calls no reply for this time has failed.
const MAX_SILENCE: Duration = Duration::from_secs(1);
/// A rest is longer by up to this part of it, so that clients do not come back together.
const REST_JITTER: f64 = 0.25;

/// One call to one endpoint. [`Endpoints`] must be told how it ended.
#[derive(Clone, Debug)]
pub(crate) struct Turn {
    index: usize,
    pub(crate) url: Arc<str>,
    started: Instant,
    pub(crate) is_probe: bool,
}

/// How one endpoint does.
#[derive(Clone, Copy, Default)]
struct Health {
    n_failures: u32,
    /// When it failed last; `None` if it never failed.
    failed_at: Option<Instant>,
    rests_until: Option<Instant>,
    is_probed: bool,
    /// When the first of the hurried calls began that got no reply. A reply to any call clears it.
    silent_since: Option<Instant>,
}

/// The replicas of an installation. A client begins at a random one, and stays until it fails.
pub(crate) struct Endpoints {
    urls: Vec<Arc<str>>,
    uniform: Uniform,
    state: Mutex<EndpointState>,
}

struct EndpointState {
    health: Vec<Health>,
    current: usize,
}

impl Endpoints {
    /// Makes endpoints of one address or more.
    pub(crate) fn new(urls: Vec<Arc<str>>, uniform: Uniform) -> Self {
        let first = random_index(urls.len(), uniform);
        Self {
            uniform,
            state: Mutex::new(EndpointState {
                health: vec![Health::default(); urls.len()],
                current: first,
            }),
            urls,
        }
    }

    pub(crate) fn is_sole(&self) -> bool {
        self.urls.len() == 1
    }

    /// Returns whom to call now. `None` only if there is no endpoint.
    pub(crate) fn choose(&self, now: Instant) -> Option<Turn> {
        let mut state = self.lock();
        let index = state.pick(now)?;
        let health = state.health.get_mut(index)?;
        let is_probe = health.n_failures > 0;
        health.is_probed |= is_probe;
        state.current = index;
        Some(Turn {
            index,
            url: Arc::clone(self.urls.get(index)?),
            started: now,
            is_probe,
        })
    }

    /// Notes that the endpoint answered, be it with a refusal of the call.
    pub(crate) fn succeeded(&self, turn: &Turn) {
        if let Some(health) = self.lock().health.get_mut(turn.index) {
            health.silent_since = None;
            // A call from before the last failure proves nothing about the time after it.
            if turn.is_probe || health.has_no_failure_since(turn.started) {
                *health = Health::default();
            }
        }
    }

    /// Notes that the endpoint gave no reply, or said that it cannot serve now. It rests.
    pub(crate) fn failed(&self, turn: &Turn, now: Instant) {
        let mut state = self.lock();
        state.end_probe(turn);
        if let Some(health) = state.health.get_mut(turn.index) {
            health.silent_since = None;
            // Calls in flight at the same time fail together, and count once.
            if health.n_failures == 0 || health.has_no_failure_since(turn.started) {
                let doublings = health.n_failures.min(MAX_DOUBLINGS);
                let rest = (MIN_REST * (1_u32 << doublings)).min(MAX_REST);
                let longer = rest.mul_f64(1.0 + (self.uniform)(0.0, REST_JITTER));
                health.n_failures = health.n_failures.saturating_add(1);
                health.failed_at = Some(now);
                health.rests_until = now.checked_add(longer);
            }
        }
        state.leave(turn.index);
    }

    /// Notes that a hurried call got no reply in its time. This alone says nothing about the
    /// endpoint, but a row of such calls is a failure.
    pub(crate) fn hurried(&self, turn: &Turn, now: Instant) {
        let is_failure = self
            .lock()
            .health
            .get_mut(turn.index)
            .is_some_and(|health| health.is_silent_too_long(turn.started, now));
        if is_failure {
            self.failed(turn, now);
        } else {
            self.abandoned(turn);
        }
    }

    /// Notes that the endpoint works, but the next call goes to another one.
    pub(crate) fn moved_on(&self, turn: &Turn) {
        let mut state = self.lock();
        state.end_probe(turn);
        state.leave(turn.index);
    }

    /// Notes that the call ended without saying anything about the endpoint.
    pub(crate) fn abandoned(&self, turn: &Turn) {
        self.lock().end_probe(turn);
    }

    fn lock(&self) -> MutexGuard<'_, EndpointState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EndpointState {
    fn end_probe(&mut self, turn: &Turn) {
        if let Some(health) = self.health.get_mut(turn.index) {
            health.is_probed &= !turn.is_probe;
        }
    }

    fn leave(&mut self, index: usize) {
        if self.current == index {
            self.current = (index + 1) % self.health.len().max(1);
        }
    }

    fn pick(&self, now: Instant) -> Option<usize> {
        let count = self.health.len();
        let in_turn = (0..count).map(|offset| (self.current + offset) % count);
        let mut fit = in_turn.filter(|index| {
            let health = self.health.get(*index);
            health.is_some_and(|health| health.is_fit(now))
        });
        if let Some(index) = fit.next() {
            return Some(index);
        }
        // All rest. Take the one that has rested longest, and rather one that nobody probes.
        let all = self.health.iter().enumerate();
        let longest = all.min_by_key(|(_, health)| (health.is_probed, health.failed_at));
        longest.map(|(index, _)| index)
    }
}

impl Health {
    fn is_fit(&self, now: Instant) -> bool {
        let has_rested = self.rests_until.is_none_or(|until| now >= until);
        self.n_failures == 0 || has_rested && !self.is_probed
    }

    /// Notes a hurried call without a reply. Returns whether there was none for too long.
    fn is_silent_too_long(&mut self, started: Instant, now: Instant) -> bool {
        let since = *self.silent_since.get_or_insert(started);
        now.saturating_duration_since(since) >= MAX_SILENCE
    }

    fn has_no_failure_since(&self, started: Instant) -> bool {
        self.failed_at.is_none_or(|failed_at| started >= failed_at)
    }
}

/// Returns a random number below `count`.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a cast from floating point saturates, and the result is bounded"
)]
fn random_index(count: usize, uniform: Uniform) -> usize {
    let drawn = uniform(0.0, count as f64) as usize;
    drawn.min(count.saturating_sub(1))
}
