//! Limits how often a repeated thing is logged. Each thing gets a line now and then. The line says
//! how often the thing happened without a line since the line before.
//!
//! Each line stands for one time that the thing happened. So the number of lines, plus the numbers
//! in them, is how often the thing happened. This is true once [`LogThrottle::rest`] was called with
//! a time that is [`PAUSE`] after the last time.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::mem;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Sets the least time between two lines about one thing.
pub const PAUSE: Duration = Duration::from_secs(10);

/// Bounds how many things are counted apart. Further things count together as one.
const MAX_KEYS: usize = 256;

/// The last line about each thing.
pub struct LogThrottle<K> {
    /// The key `None` stands for the things that are too many to be counted apart.
    told: Mutex<BTreeMap<Option<K>, LastLine>>,
}

/// The last line about one thing.
struct LastLine {
    at: Instant,
    /// How often the thing happened since that line, without a line.
    n_untold: u64,
    /// The text that a line would have for the last of these times.
    last: Cow<'static, str>,
}

/// A line to log. It stands for one time that the thing happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line<K> {
    /// The thing, or `None` for several things that are too many to be counted apart.
    pub key: Option<K>,
    /// The text of the line.
    pub what: Cow<'static, str>,
    /// How often the thing happened besides, without a line.
    pub n_untold: u64,
}

impl<K> Default for LogThrottle<K> {
    fn default() -> Self {
        Self {
            told: Mutex::default(),
        }
    }
}

impl<K: Ord + Clone> LogThrottle<K> {
    /// Counts one more time that a thing happened. `what` is the text of its line. Returns the
    /// line, if there is to be one.
    pub fn line(
        &self,
        key: K,
        what: impl Into<Cow<'static, str>>,
        now: Instant,
    ) -> Option<Line<K>> {
        let what = what.into();
        let mut told = self.told.lock();
        let key = Some(key);
        if !told.contains_key(&key) && told.len() >= MAX_KEYS {
            told.retain(|_, last| !last.is_over(now) || last.n_untold > 0);
        }
        let is_one_too_many = !told.contains_key(&key) && told.len() >= MAX_KEYS;
        let key = if is_one_too_many { None } else { key };
        let before = match told.get_mut(&key) {
            Some(last) if !last.is_over(now) => {
                last.n_untold = last.n_untold.saturating_add(1);
                last.last = what;
                return None;
            }
            _ => told.insert(key.clone(), LastLine::at(now)),
        };
        Some(Line {
            key,
            what,
            n_untold: before.map_or(0, |last| last.n_untold),
        })
    }

    /// Returns the lines for things that happened without a line and waited for it long enough.
    /// Forgets things that do not happen any more. At the end, give a time that is [`PAUSE`] ahead:
    /// then everything has waited long enough.
    pub fn rest(&self, now: Instant) -> Vec<Line<K>> {
        let mut rest = Vec::new();
        self.told.lock().retain(|key, told| {
            if !told.is_over(now) {
                return true;
            }
            let LastLine { n_untold, last, .. } = mem::replace(told, LastLine::at(now));
            // The line that is due stands for one of the times.
            let Some(n_untold) = n_untold.checked_sub(1) else {
                return false;
            };
            let key = key.clone();
            rest.push(Line {
                key,
                what: last,
                n_untold,
            });
            true
        });
        rest
    }
}

impl LastLine {
    fn at(at: Instant) -> Self {
        Self {
            at,
            n_untold: 0,
            last: Cow::Borrowed(""),
        }
    }

    fn is_over(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.at) >= PAUSE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns for how many times besides one a line stands, if there is a line.
    fn n_to_tell<K: Ord + Clone>(
        throttle: &LogThrottle<K>,
        key: K,
        what: impl Into<Cow<'static, str>>,
        now: Instant,
    ) -> Option<u64> {
        throttle.line(key, what, now).map(|line| line.n_untold)
    }

    #[test]
    fn of_each_thing_one_is_told_now_and_then_and_how_many_were_not() {
        let throttle = LogThrottle::default();
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!(n_to_tell(&throttle, "default", "", at(0)), Some(0));
        for ms in 1..=1000 {
            assert_eq!(n_to_tell(&throttle, "default", "", at(ms)), None);
        }
        assert_eq!(n_to_tell(&throttle, "other", "", at(1000)), Some(0));
        assert_eq!(n_to_tell(&throttle, "default", "", at(9_999)), None);
        assert_eq!(n_to_tell(&throttle, "default", "", at(10_000)), Some(1001));
        assert_eq!(n_to_tell(&throttle, "default", "", at(19_999)), None);
        assert_eq!(n_to_tell(&throttle, "default", "", at(60_000)), Some(1));
        assert_eq!(n_to_tell(&throttle, "default", "", at(70_000)), Some(0));
    }

    #[test]
    fn the_rest_of_a_burst_is_told_although_nothing_more_happens() {
        let throttle = LogThrottle::default();
        let start = Instant::now();
        for n in 0..7 {
            let _ = n_to_tell(&throttle, "burst", n.to_string(), start);
        }
        assert_eq!(n_to_tell(&throttle, "once", "", start), Some(0));
        assert_eq!(throttle.rest(start), []);
        let later = start + PAUSE;
        let rest = Line {
            key: Some("burst"),
            what: "6".into(),
            n_untold: 5,
        };
        assert_eq!(throttle.rest(later), [rest]);
        assert!(!throttle.told.lock().contains_key(&Some("once")));
        // The line about the rest begins a pause, like any other line.
        assert_eq!(n_to_tell(&throttle, "burst", "7", later), None);
        assert_eq!(throttle.rest(later), []);
        let whole_rest = throttle.rest(later + PAUSE);
        let n_untold: Vec<u64> = whole_rest.iter().map(|rest| rest.n_untold).collect();
        assert_eq!(n_untold, [0]);
        assert_eq!(throttle.rest(later + 2 * PAUSE), []);
    }

    #[test]
    fn lines_and_what_they_say_had_none_are_how_often_it_happened() {
        let throttle = LogThrottle::default();
        let start = Instant::now();
        let (mut n_lines, mut n_untold) = (0, 0);
        let mut tell = |untold: u64| {
            n_lines += 1;
            n_untold += untold;
        };
        for ms in 0..50_000_u64 {
            let now = start + Duration::from_millis(ms);
            // There are more things than are counted apart, and each of them comes in bursts.
            let key = ms % 600 * (ms / 11_000 % 2);
            if let Some(untold) = n_to_tell(&throttle, key, "", now) {
                tell(untold);
            }
            if ms % 1000 == 0 {
                throttle
                    .rest(now)
                    .iter()
                    .for_each(|rest| tell(rest.n_untold));
            }
        }
        let rest = throttle.rest(start + Duration::from_secs(50) + PAUSE);
        rest.iter().for_each(|rest| tell(rest.n_untold));
        assert_eq!(n_lines + n_untold, 50_000);
        assert!(n_lines < 3000, "{n_lines}");
    }

    #[test]
    fn more_things_than_are_kept_apart_count_together_until_there_is_room() {
        let throttle = LogThrottle::default();
        let now = Instant::now();
        let n_lines = (0..5000)
            .filter(|n| n_to_tell(&throttle, *n, "", now).is_some())
            .count();
        assert_eq!(n_lines, MAX_KEYS + 1);
        // Each of the things happens again, and gets no line.
        for n in 0..5000 {
            assert_eq!(n_to_tell(&throttle, n, "", now), None);
        }
        // A line about many things names none of them.
        let later = now + PAUSE;
        let line = throttle.line(4999, "", later);
        assert!(line.is_some_and(|line| line.key.is_none() && line.n_untold > 0));
        assert_eq!(throttle.rest(later).len(), MAX_KEYS);
        assert_eq!(throttle.rest(later + PAUSE), []);
        assert_eq!(n_to_tell(&throttle, 5000, "", later + PAUSE), Some(0));
        assert_eq!(n_to_tell(&throttle, 5001, "", later + PAUSE), Some(0));
        assert_eq!(throttle.told.lock().len(), 2);
    }
}
