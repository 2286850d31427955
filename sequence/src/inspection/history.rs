//! Records what was issued in the last minutes, second by second, for the names in use.
//!
//! The sweep writes the histories of at most [`MAX`] counters. The first counters keep their
//! histories until they were idle for as long as a history reaches back.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Weak},
    time::Instant,
};

use odometer_core::period::CounterKey;
use parking_lot::Mutex;

use crate::{inspection::description::to_float, issuer::memory::Issuer, issuer::state::Sampled};

/// Sets how many seconds a history reaches back.
const REACH_S: usize = 300;
/// Bounds how many counters have a history, of 2.4 kB each.
const MAX: usize = 1000;

/// One second of a counter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UsageSecond {
    /// Numbers issued a second.
    pub rate: f32,
    /// For how many seconds the numbers in memory would have lasted; `None` if that is not known.
    pub reserve_seconds: Option<f32>,
}

/// The histories of all counters.
#[derive(Default)]
pub(crate) struct Histories(Mutex<HashMap<CounterKey, History>>);

struct History {
    issuer: Weak<Issuer>,
    n_issued: u64,
    noted_at: Instant,
    /// Seconds since a number was last issued.
    n_idle: usize,
    /// The rate of each second and how long memory would last, the oldest second first. NaN stands
    /// for an unknown time.
    moments: VecDeque<(f32, f32)>,
}

impl Histories {
    /// Begins the history of a counter that was just found in use, if there are fewer than [`MAX`].
    pub(crate) fn begin(&self, issuer: &Arc<Issuer>, sampled: Sampled) {
        let mut histories = self.0.lock();
        if histories.len() >= MAX || histories.contains_key(&issuer.key) {
            return;
        }
        let history = History {
            issuer: Arc::downgrade(issuer),
            n_issued: issuer.n_issued().saturating_sub(sampled.n_issued),
            noted_at: sampled.since,
            n_idle: 0,
            moments: VecDeque::with_capacity(REACH_S),
        };
        histories.insert(issuer.key.clone(), history);
    }

    /// Adds one second to each history. `find` finds the issuers of names that were parked or woken
    /// since.
    pub(crate) fn note(&self, now: Instant, find: impl Fn(&CounterKey) -> Option<Arc<Issuer>>) {
        let mut histories = self.0.lock();
        histories.retain(|key, history| history.note(now, || find(key)));
    }

    /// Returns the last seconds of a counter, the oldest first; none if the counter was not in use.
    pub(crate) fn of(&self, key: &CounterKey) -> Vec<UsageSecond> {
        let histories = self.0.lock();
        let moments = histories.get(key).into_iter().flat_map(|of| &of.moments);
        moments
            .map(|(rate, reserve)| UsageSecond {
                rate: *rate,
                reserve_seconds: reserve.is_finite().then_some(*reserve),
            })
            .collect()
    }
}

impl History {
    /// Adds one second. Returns whether the history is worth keeping.
    fn note(&mut self, now: Instant, find: impl FnOnce() -> Option<Arc<Issuer>>) -> bool {
        let issuer = self.issuer.upgrade().filter(|it| !it.has_left());
        let issuer = issuer.or_else(|| {
            let next = find().filter(|next| !next.has_left())?;
            (self.issuer, self.n_issued) = (Arc::downgrade(&next), 0);
            Some(next)
        });
        let Some(issuer) = issuer else {
            return false;
        };
        let n_issued = issuer.n_issued();
        let n_since = n_issued.saturating_sub(self.n_issued);
        let seconds = now.saturating_duration_since(self.noted_at).as_secs_f64();
        if seconds <= 0.0 {
            return true;
        }
        (self.n_issued, self.noted_at) = (n_issued, now);
        self.n_idle = if n_since == 0 { self.n_idle + 1 } else { 0 };
        if self.moments.len() >= REACH_S {
            self.moments.pop_front();
        }
        let rate = to_float(n_since) / seconds;
        let reserve = issuer.reserve_seconds().unwrap_or(f64::NAN);
        self.moments.push_back((single(rate), single(reserve)));
        self.n_idle < REACH_S
    }
}

/// Rounds a value to single precision: a chart needs no more digits.
#[expect(clippy::cast_possible_truncation, reason = "it loses digits only")]
fn single(value: f64) -> f32 {
    value as f32
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use odometer_core::name::SequenceName;

    use super::*;

    fn issuer(name: &str) -> Arc<Issuer> {
        let name = SequenceName::parse(name).unwrap_or_else(|error| unreachable!("{error}"));
        Arc::new(Issuer::for_tests(CounterKey::whole(name)))
    }

    fn sampled(n_issued: u64, since: Instant) -> Sampled {
        Sampled { n_issued, since }
    }

    #[test]
    fn a_history_has_each_second_and_an_end() {
        let (histories, orders) = (Histories::default(), issuer("orders"));
        let start = Instant::now();
        let second = |n: u64| start + Duration::from_secs(n);
        orders.add_direct(5);
        histories.begin(&orders, sampled(5, start));
        histories.note(second(1), |_| None);
        orders.add_direct(20);
        histories.note(second(3), |_| None);
        let rates: Vec<f32> = histories
            .of(&orders.key)
            .iter()
            .map(|moment| moment.rate)
            .collect();
        assert_eq!(rates, [5.0, 10.0]);
        for n in 4..1000 {
            if n < 500 {
                orders.add_direct(1);
            }
            histories.note(second(n), |_| None);
            assert!(histories.of(&orders.key).len() <= REACH_S);
        }
        // The counter was idle for too long.
        assert_eq!(histories.of(&orders.key), []);
    }

    #[test]
    fn what_was_issued_in_a_minute_is_not_of_one_second() {
        let (histories, orders) = (Histories::default(), issuer("orders"));
        let start = Instant::now();
        orders.add_direct(600);
        let now = start + Duration::from_secs(60);
        histories.begin(&orders, sampled(600, start));
        histories.note(now, |_| None);
        let moments = histories.of(&orders.key);
        assert!(matches!(moments.as_slice(), [only] if (9.9..10.1).contains(&only.rate)));
    }

    #[test]
    fn only_so_many_have_one_and_none_outlives_its_name() {
        let (histories, now) = (Histories::default(), Instant::now());
        let all: Vec<_> = (0..=MAX).map(|n| issuer(&format!("n{n}"))).collect();
        for issuer in &all {
            histories.begin(issuer, sampled(0, now));
        }
        assert_eq!(histories.0.lock().len(), MAX);
        drop(all);
        histories.note(now + Duration::from_secs(1), |_| None);
        assert_eq!(histories.0.lock().len(), 0);
    }
}
