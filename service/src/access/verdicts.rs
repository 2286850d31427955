//! Remembers the JSON Web Tokens that were right, so that none is verified at each call.

use std::collections::HashMap;
use std::mem;
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;

use super::callers::KnownCaller;
use super::token::TokenHash;

/// The most tokens that are remembered. Further tokens are verified at each call that a connection
/// does not answer from its memo.
const MAX_VERDICTS: usize = 4096;

/// The most tokens of one caller that are remembered, so that no caller takes all places.
const MAX_OF_CALLER: usize = 512;

/// The tokens that were right. A wrong token is never remembered, so it takes no place.
#[derive(Default)]
pub struct Verdicts(Mutex<KeptVerdicts>);

/// Whose token a token is.
#[derive(Clone, Debug)]
pub struct Verdict {
    pub caller: Arc<KnownCaller>,
    /// From this time on, the token is wrong.
    pub until: SystemTime,
}

#[derive(Default)]
struct KeptVerdicts {
    /// How often keys and callers had changed when these verdicts were made.
    generation: u64,
    by_token: HashMap<TokenHash, Verdict>,
    /// How many tokens of each caller are remembered, by the caller's name.
    n_of_caller: HashMap<Arc<str>, usize>,
    /// No verdict ends before this time. `None` if there is none.
    first_end: Option<SystemTime>,
}

impl Verdicts {
    /// Returns the caller of a token that was right, and still is at the time `now`.
    ///
    /// `generation` says how often keys and callers have changed. A verdict of another generation
    /// says nothing.
    pub fn get(
        &self,
        token: &TokenHash,
        generation: u64,
        now: SystemTime,
    ) -> Option<Arc<KnownCaller>> {
        let kept = self.0.lock();
        let verdict = kept.by_token.get(token)?;
        let counts = kept.generation == generation && now < verdict.until;
        let counts = counts && !verdict.caller.has_expired(now);
        counts.then(|| Arc::clone(&verdict.caller))
    }

    /// Remembers that a token was right at the time `now`. `generation` was read before the keys and
    /// the callers that the verdict is made of.
    pub fn keep(&self, token: TokenHash, verdict: Verdict, generation: u64, now: SystemTime) {
        let mut kept = self.0.lock();
        if generation < kept.generation {
            return;
        }
        if generation > kept.generation {
            *kept = KeptVerdicts {
                generation,
                ..KeptVerdicts::default()
            };
        }
        if !kept.has_room_for(&verdict.caller) {
            kept.remove_ended(now);
            if !kept.has_room_for(&verdict.caller) {
                return;
            }
        }
        let until = verdict.until;
        kept.first_end = Some(kept.first_end.map_or(until, |first| first.min(until)));
        kept.insert(token, verdict);
    }
}

impl KeptVerdicts {
    /// Returns whether one more token of a caller can be remembered.
    fn has_room_for(&self, caller: &KnownCaller) -> bool {
        let n_of_caller = self.n_of_caller.get(&caller.name).copied();
        self.by_token.len() < MAX_VERDICTS && n_of_caller.unwrap_or_default() < MAX_OF_CALLER
    }

    fn insert(&mut self, token: TokenHash, verdict: Verdict) {
        let name = Arc::clone(&verdict.caller.name);
        if self.by_token.insert(token, verdict).is_none() {
            *self.n_of_caller.entry(name).or_default() += 1;
        }
    }

    /// Removes the verdicts that have ended. It looks only if one may have ended, so a flood of
    /// tokens does not make it look again and again.
    fn remove_ended(&mut self, now: SystemTime) {
        if self.first_end.is_none_or(|first| now < first) {
            return;
        }
        let by_token = mem::take(&mut self.by_token).into_iter();
        self.n_of_caller.clear();
        for (token, verdict) in by_token.filter(|(_, verdict)| now < verdict.until) {
            self.insert(token, verdict);
        }
        self.first_end = self.by_token.values().map(|verdict| verdict.until).min();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::role::Role;
    use super::super::token;
    use super::*;

    fn verdict(name: &str, until: SystemTime, expires: Option<&str>) -> Verdict {
        let caller = Arc::new(KnownCaller {
            name: name.into(),
            role: Arc::new(Role::new("taker")),
            expires: expires.and_then(|expires| expires.parse().ok()),
        });
        Verdict { caller, until }
    }

    fn hash(n: usize) -> TokenHash {
        token::digest(&n.to_string())
    }

    #[test]
    fn a_verdict_ends_with_its_token_its_caller_and_its_generation() {
        let verdicts = Verdicts::default();
        let (start, minute) = (SystemTime::UNIX_EPOCH, Duration::from_secs(60));
        let is_kept = |generation, at| verdicts.get(&hash(1), generation, at).is_some();
        assert!(!is_kept(3, start));
        verdicts.keep(hash(1), verdict("billing", start + minute, None), 3, start);
        let last = start + minute - Duration::from_nanos(1);
        assert!(is_kept(3, last) && !is_kept(3, start + minute));
        assert!(!is_kept(2, start) && !is_kept(4, start));
        assert!(verdicts.get(&hash(2), 3, start).is_none());

        verdicts.keep(hash(1), verdict("billing", start + minute, None), 2, start);
        assert!(is_kept(3, start), "an older verdict replaces nothing");
        let expires = Some("1970-01-01T00:00:30Z");
        verdicts.keep(
            hash(1),
            verdict("billing", start + minute, expires),
            4,
            start,
        );
        assert!(is_kept(4, start) && !is_kept(4, start + minute / 2));
        assert!(!is_kept(3, start));
    }

    #[test]
    fn a_flood_of_one_caller_leaves_places_to_the_others() {
        let verdicts = Verdicts::default();
        let (start, second) = (SystemTime::UNIX_EPOCH, Duration::from_secs(1));
        let [flooding, other] =
            ["flooding", "other"].map(|name| verdict(name, start + second, None));
        let n_kept = || verdicts.0.lock().by_token.len();
        for n in 0..2 * MAX_VERDICTS {
            verdicts.keep(hash(n), flooding.clone(), 0, start);
        }
        assert_eq!(n_kept(), MAX_OF_CALLER);
        let token = hash(2 * MAX_VERDICTS);
        verdicts.keep(token, other, 0, start);
        assert!(verdicts.get(&token, 0, start).is_some());
        // The places of tokens that have ended are given to others of the same caller.
        let later = Verdict {
            until: start + 9 * second,
            ..flooding
        };
        verdicts.keep(token, later, 0, start + second);
        assert!(verdicts.get(&token, 0, start + second).is_some());
        assert_eq!(n_kept(), 1);
    }

    #[test]
    fn a_flood_of_right_tokens_takes_no_more_than_its_places() {
        /// So many that their own bounds are not met first.
        const N_CALLERS: usize = 2 * MAX_VERDICTS / MAX_OF_CALLER;
        let verdicts = Verdicts::default();
        let (start, second) = (SystemTime::UNIX_EPOCH, Duration::from_secs(1));
        let n_kept = |generation, now| {
            let kept = (0..3 * MAX_VERDICTS).filter(|n| {
                let found = verdicts.get(&hash(*n), generation, now);
                found.is_some()
            });
            kept.count()
        };
        for n in 0..2 * MAX_VERDICTS {
            let until = start + if n == 0 { second } else { 9 * second };
            let name = format!("caller-{}", n % N_CALLERS);
            verdicts.keep(hash(n), verdict(&name, until, None), 0, start);
        }
        assert_eq!(n_kept(0, start), MAX_VERDICTS);
        assert_eq!(verdicts.0.lock().by_token.len(), MAX_VERDICTS);
        // The place of one that has ended is given to another one.
        for n in 2 * MAX_VERDICTS..2 * MAX_VERDICTS + 2 {
            let later = verdict("another", start + 9 * second, None);
            verdicts.keep(hash(n), later, 0, start + second);
        }
        assert_eq!(n_kept(0, start + second), MAX_VERDICTS);
        assert!(
            verdicts
                .get(&hash(2 * MAX_VERDICTS), 0, start + second)
                .is_some()
        );
        assert_eq!(n_kept(0, start + 9 * second), 0);
        // A change makes room for all.
        verdicts.keep(hash(0), verdict("another", start + second, None), 1, start);
        assert_eq!(verdicts.0.lock().by_token.len(), 1);
    }
}
