//! Leads to the issuers of the periods of one sequence: each period has an issuer of its own.
//!
//! The issuer under the name of such a sequence never issues. It holds this directory, which leads
//! to the issuer of the period that a caller names, or of the present period. Each call decides
//! once which period that is. The number, and all that is printed of the period, follow from that
//! decision.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use arc_swap::{ArcSwap, ArcSwapOption};
use odometer_core::{definition::Definition, period::Period};
use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, OwnedSemaphorePermit, Semaphore};

use crate::{
    directory::period_rule::{Chosen, PeriodRule},
    error::SequenceError,
    issuer::memory::Issuer,
};

/// Multiplies the bound on periods in memory: this many times as many permits exist. An issuer that
/// leaves keeps its permit until its numbers are given back.
const SLACK: usize = 4;
/// Divides the bound on periods in memory: one such part leaves at the same time. So few new
/// issuers cause a search for issuers that should leave.
const PART: usize = 8;
/// The pause between two searches for issuers that should leave, while callers wait for a permit.
pub(crate) const BETWEEN_TWO_LOOKS: Duration = Duration::from_millis(5);

/// The way to the issuers of the periods of one sequence.
pub(crate) struct PeriodDirectory {
    pub(crate) rule: PeriodRule,
    definition: ArcSwap<Definition>,
    /// The issuer of the present period, as of the last call; only with a calendar.
    current: ArcSwapOption<Issuer>,
    period_issuers: Mutex<PeriodIssuers>,
    /// About how many issuers stay in memory.
    limit: usize,
    /// Permits for issuers in memory. Callers that wait get one in their order.
    permits: Arc<Semaphore>,
    /// Held by the one of the waiting callers that searches for issuers that should leave.
    pub(crate) looker: AsyncMutex<()>,
}

/// A permit for one issuer in memory.
pub(crate) type PeriodPermit = OwnedSemaphorePermit;

#[derive(Default)]
struct PeriodIssuers {
    by_period: HashMap<Period, PeriodIssuer>,
    /// How many issuers ever came in.
    n_admitted: u64,
    /// What `n_admitted` was at the last search for issuers that should leave. `looked_at` is when
    /// that search was.
    n_looked: u64,
    looked_at: Option<Instant>,
    /// Whether the issuer under the name is leaving memory. Then no issuer comes in any more.
    is_closed: bool,
}

struct PeriodIssuer {
    issuer: Arc<Issuer>,
    /// How many numbers the issuer had issued at the last search.
    n_issued: u64,
    /// What `n_admitted` was when a search last found the issuer used, or when the issuer came in.
    /// The lower, the longer ago.
    used: u64,
    _permit: PeriodPermit,
}

impl PeriodIssuers {
    fn issuer(&self, period: &str) -> Option<Arc<Issuer>> {
        let member = self.by_period.get(period)?;
        Some(Arc::clone(&member.issuer))
    }

    /// Returns whether the next search is due, because enough issuers came in since the last one.
    fn is_look_due(&self, limit: usize) -> bool {
        let n_since = self.n_admitted.saturating_sub(self.n_looked);
        let part = u64::try_from(limit / PART).unwrap_or(u64::MAX);
        self.by_period.len() > limit && n_since > part
    }

    /// Returns the least used issuers, which should leave: all but the bound less one part.
    ///
    /// An issuer that callers wait for does not leave, and the next search considers it again.
    fn look(&mut self, limit: usize) -> Vec<Arc<Issuer>> {
        self.n_looked = self.n_admitted;
        self.looked_at = Some(Instant::now());
        let now = self.n_admitted;
        let mut staying = Vec::with_capacity(self.by_period.len());
        for member in self.by_period.values_mut() {
            if member.issuer.has_left() {
                continue;
            }
            let n_issued = member.issuer.n_issued();
            if std::mem::replace(&mut member.n_issued, n_issued) != n_issued {
                member.used = now;
            }
            staying.push((member.used, &member.issuer));
        }
        let n_kept = limit.saturating_sub(limit / PART);
        let n_leaving = staying.len().saturating_sub(n_kept);
        staying.sort_unstable_by_key(|(used, _)| *used);
        let leaving = staying.into_iter().take(n_leaving);
        leaving.map(|(_, issuer)| Arc::clone(issuer)).collect()
    }
}

impl PeriodDirectory {
    /// Creates the directory for a definition; `None` if the sequence counts without periods. About
    /// `limit` periods may be in memory.
    pub(crate) fn of(definition: &Arc<Definition>, limit: usize) -> Option<Self> {
        let n_permits = limit.saturating_mul(SLACK).min(Semaphore::MAX_PERMITS);
        Some(Self {
            rule: PeriodRule::of(definition)?,
            definition: ArcSwap::from(Arc::clone(definition)),
            current: ArcSwapOption::empty(),
            period_issuers: Mutex::default(),
            limit,
            permits: Arc::new(Semaphore::new(n_permits)),
            looker: AsyncMutex::default(),
        })
    }

    pub(crate) fn definition(&self) -> Arc<Definition> {
        self.definition.load_full()
    }

    /// Replaces the definition by one with the same periods. How far back and ahead callers may
    /// count may be different.
    pub(crate) fn redefine(&self, definition: &Arc<Definition>) {
        self.definition.store(Arc::clone(definition));
    }

    /// Returns the period that a call counts in.
    pub(crate) fn choose(
        &self,
        asked: Option<&Period>,
        now_ms: i64,
    ) -> Result<Chosen, SequenceError> {
        self.rule.choose(&self.definition.load(), asked, now_ms)
    }

    /// Returns the issuer of the present period, if it is in memory. After a cut-over, this is
    /// another issuer.
    pub(crate) fn present(&self, now_ms: i64) -> Option<Arc<Issuer>> {
        let is_present =
            |issuer: &Arc<Issuer>| issuer.span().is_some_and(|span| span.contains(now_ms));
        if let Some(issuer) = self.current.load_full().filter(is_present) {
            return Some(issuer);
        }
        let period = self.rule.at(now_ms)?.period;
        // Store the issuer under the lock. Otherwise an issuer that leaves meanwhile could stay in
        // `current` and hide the issuers that come after it.
        let period_issuers = self.period_issuers.lock();
        let present = period_issuers.issuer(period.as_str())?;
        self.current.store(Some(Arc::clone(&present)));
        Some(present)
    }

    /// Returns the issuer of the period that a caller names, if it is in memory and callers may
    /// count in it now.
    pub(crate) fn named(&self, period: &str, now_ms: i64) -> Option<Arc<Issuer>> {
        let issuer = self.member(period)?;
        let may_be = issuer.span().is_none_or(|span| {
            let definition = self.definition.load();
            span.is_near(now_ms, definition.period_back, definition.period_ahead)
        });
        may_be.then_some(issuer)
    }

    pub(crate) fn member(&self, period: &str) -> Option<Arc<Issuer>> {
        self.period_issuers.lock().issuer(period)
    }

    /// Returns all issuers of periods in memory.
    pub(crate) fn period_issuers(&self) -> Vec<Arc<Issuer>> {
        let period_issuers = self.period_issuers.lock();
        let period_issuers = period_issuers.by_period.values();
        period_issuers
            .map(|member| Arc::clone(&member.issuer))
            .collect()
    }

    /// Acquires a permit, if one is free and no caller waits for one.
    pub(crate) fn try_permit(&self) -> Option<PeriodPermit> {
        Arc::clone(&self.permits).try_acquire_owned().ok()
    }

    /// Waits for a permit, behind all callers that have waited longer. Returns `None` if the
    /// directory is closed.
    pub(crate) async fn next_permit(&self) -> Option<PeriodPermit> {
        Arc::clone(&self.permits).acquire_owned().await.ok()
    }

    /// Lets an issuer in, if its period has none. `fresh` makes it by the present definition. If
    /// there are more issuers than `limit`, also returns issuers that should leave. Returns `None`
    /// if the issuer under the name is leaving memory: look the name up again.
    pub(crate) fn admit(
        &self,
        period: &Period,
        permit: PeriodPermit,
        fresh: impl FnOnce(Arc<Definition>) -> Arc<Issuer>,
    ) -> Option<(Arc<Issuer>, Vec<Arc<Issuer>>)> {
        let mut period_issuers = self.period_issuers.lock();
        if period_issuers.is_closed {
            return None;
        }
        if let Some(issuer) = period_issuers.issuer(period.as_str()) {
            return Some((issuer, Vec::new()));
        }
        // The definition is read under the lock. Otherwise a change could come after that and miss
        // this issuer among those in memory.
        let fresh = fresh(self.definition());
        period_issuers.n_admitted = period_issuers.n_admitted.saturating_add(1);
        let member = PeriodIssuer {
            issuer: Arc::clone(&fresh),
            n_issued: 0,
            used: period_issuers.n_admitted,
            _permit: permit,
        };
        period_issuers.by_period.insert(period.clone(), member);
        let leaving = if period_issuers.is_look_due(self.limit) {
            period_issuers.look(self.limit)
        } else {
            Vec::new()
        };
        Some((fresh, leaving))
    }

    /// Returns the issuers that should leave, for a caller that waits for a permit. Returns none if
    /// another search has just been made.
    pub(crate) fn look_again(&self) -> Vec<Arc<Issuer>> {
        let mut period_issuers = self.period_issuers.lock();
        let has_looked = |at: Instant| at.elapsed() < BETWEEN_TWO_LOOKS;
        if period_issuers.looked_at.is_some_and(has_looked) {
            return Vec::new();
        }
        period_issuers.look(self.limit)
    }

    /// Lets an issuer out, if it is in.
    pub(crate) fn dismiss(&self, issuer: &Issuer) {
        let is_this = |found: &Arc<Issuer>| std::ptr::eq(&raw const **found, issuer);
        let mut period_issuers = self.period_issuers.lock();
        let period = issuer.key.period.as_str();
        if !period_issuers.issuer(period).as_ref().is_some_and(is_this) {
            return;
        }
        period_issuers.by_period.remove(period);
        if self.current.load().as_ref().is_some_and(is_this) {
            self.current.store(None);
        }
    }

    /// Closes the directory for new issuers. Callers that wait for a permit wait no longer.
    pub(crate) fn close(&self) {
        self.period_issuers.lock().is_closed = true;
        self.permits.close();
    }

    /// Closes the directory for new issuers, if none is in. Returns whether it is closed.
    pub(crate) fn close_if_empty(&self) -> bool {
        let mut period_issuers = self.period_issuers.lock();
        period_issuers.is_closed |= period_issuers.by_period.is_empty();
        period_issuers.is_closed
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests may fail loudly")]
mod tests {
    use odometer_core::{
        name::SequenceName,
        period::{CounterKey, PeriodKind},
    };

    use crate::directory::period_directory::*;

    const LIMIT: usize = 16;

    fn keyed() -> PeriodDirectory {
        let definition = Definition {
            period: PeriodKind::Keyed,
            ..Definition::default()
        };
        PeriodDirectory::of(&Arc::new(definition), LIMIT).unwrap()
    }

    /// Lets a key in, and returns the keys that should leave.
    fn admit(periods: &PeriodDirectory, key: usize) -> Vec<String> {
        let period = Period::parse(&format!("key-{key:03}")).unwrap();
        let key = CounterKey {
            sequence: SequenceName::parse("many").unwrap(),
            period: period.clone(),
        };
        let permit = periods.try_permit().unwrap();
        let fresh = |_definition| Arc::new(Issuer::for_tests(key));
        let (_in, leaving) = periods.admit(&period, permit, fresh).unwrap();
        names(&leaving)
    }

    fn names(issuers: &[Arc<Issuer>]) -> Vec<String> {
        let period = |issuer: &Arc<Issuer>| issuer.key.period.as_str().to_owned();
        issuers.iter().map(period).collect()
    }

    #[test]
    fn those_used_least_leave_several_at_once() {
        let periods = keyed();
        for key in 0..LIMIT {
            assert!(admit(&periods, key).is_empty());
        }
        // `key-000` was used since it came in, and `key-001` was not.
        periods.member("key-000").unwrap().add_direct(1);
        // The bound, less one part, stays.
        let leaving = admit(&periods, LIMIT);
        assert_eq!(leaving, ["key-001", "key-002", "key-003"]);
        // No search is made until this many issuers have come in again.
        assert!(admit(&periods, LIMIT + 1).is_empty());
        assert!(admit(&periods, LIMIT + 2).is_empty());
        assert!(!admit(&periods, LIMIT + 3).is_empty());
    }

    #[test]
    fn an_issuer_that_a_change_misses_has_the_changed_definition() {
        let periods = keyed();
        let permit = periods.try_permit().unwrap();
        let earlier = periods.definition();
        let changed = Definition {
            format: "{period}-{value}".to_owned(),
            ..Definition::clone(&earlier)
        };
        periods.redefine(&Arc::new(changed.clone()));
        assert!(periods.period_issuers().is_empty());
        let period = Period::parse("key").unwrap();
        let key = CounterKey {
            sequence: SequenceName::parse("many").unwrap(),
            period: period.clone(),
        };
        let fresh = |definition| Arc::new(Issuer::of_period(key, None, definition, None));
        let (issuer, _leaving) = periods.admit(&period, permit, fresh).unwrap();
        assert_eq!(*issuer.definition(), changed);
        // The control: a definition that is read before the issuer is let in.
        assert_ne!(*earlier, changed);
    }

    #[tokio::test]
    async fn one_of_those_who_wait_looks_and_hands_that_on() {
        let periods = keyed();
        let looker = periods.looker.lock().await;
        let mut next = std::pin::pin!(periods.looker.lock());
        tokio::select! {
            biased;
            _ = &mut next => panic!("two look at once"),
            () = std::future::ready(()) => {}
        }
        drop(looker);
        drop(next.await);
    }

    #[test]
    fn there_are_four_places_for_each_that_may_stay() {
        let periods = keyed();
        for key in 0..SLACK * LIMIT {
            admit(&periods, key);
        }
        assert!(periods.try_permit().is_none());
        let first = periods.member("key-000").unwrap();
        periods.dismiss(&first);
        assert!(periods.try_permit().is_some());
    }
}
