//! Leads to the issuers of the periods of one sequence: each period has an issuer of its own.
//!
//! The issuer under the name of such a sequence never issues. It holds this directory, which leads
//! to the issuer of the period that a caller names, or of the present period. Each call decides
//! once which period that is. The number, and all that is printed of the period, follow from that
//! decision.

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use arc_swap::{ArcSwap, ArcSwapOption};
use odometer_core::{
    definition::Definition,
    period::{Calendar, CalendarPeriod, Period, PeriodKind},
};
use parking_lot::Mutex;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

use crate::{error::SequenceError, issuer::memory::Issuer};

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
    rule: PeriodRule,
    definition: ArcSwap<Definition>,
    /// The issuer of the present period, as of the last call; only with a calendar.
    current: ArcSwapOption<Issuer>,
    period_issuers: Mutex<PeriodIssuers>,
    /// Permits for issuers in memory. Callers that wait get one in their order.
    places: OnceLock<Arc<Semaphore>>,
    /// Lets one of the waiting callers search for issuers that should leave.
    looker: Arc<Semaphore>,
}

/// A permit for one issuer in memory.
pub(crate) type PeriodPermit = OwnedSemaphorePermit;

/// The permit of the one caller that searches on behalf of all waiting callers.
pub(crate) type Looker = OwnedSemaphorePermit;

/// Decides which periods a caller may name.
enum PeriodRule {
    Calendar(Box<Calendar>),
    Keyed,
}

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
    _place: PeriodPermit,
}

/// A period that a caller may count in.
#[derive(Clone, Debug)]
pub(crate) struct Chosen {
    pub(crate) period: Period,
    /// When the period begins and ends; `None` for a caller's key.
    pub(crate) span: Option<PeriodSpan>,
}

/// The time from one Unix millisecond up to another one, which is excluded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PeriodSpan {
    pub(crate) from_ms: i64,
    pub(crate) until_ms: i64,
}

/// The answer to an issuer that is to come into memory.
pub(crate) enum Admission {
    /// The issuer is in memory, and these other issuers should leave.
    In(Arc<Issuer>, Vec<Arc<Issuer>>),
    /// The issuer under the name is leaving memory: look the name up again.
    Closed,
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

impl PeriodSpan {
    pub(crate) fn contains(self, now_ms: i64) -> bool {
        (self.from_ms..self.until_ms).contains(&now_ms)
    }

    /// Returns the seconds from now until the end of the span. If the span has not begun, counts
    /// them from its beginning.
    pub(crate) fn seconds_left(self, now_ms: i64) -> f64 {
        let left_ms = self
            .until_ms
            .saturating_sub(now_ms.max(self.from_ms))
            .max(0);
        std::time::Duration::from_millis(left_ms.unsigned_abs()).as_secs_f64()
    }
}

impl From<CalendarPeriod> for Chosen {
    fn from(of: CalendarPeriod) -> Self {
        Self {
            period: of.period,
            span: Some(PeriodSpan {
                from_ms: of.from_ms,
                until_ms: of.until_ms,
            }),
        }
    }
}

impl PeriodDirectory {
    /// Creates the directory for a definition; `None` if the sequence counts without periods.
    pub(crate) fn of(definition: &Arc<Definition>) -> Option<Self> {
        let rule = match definition.period {
            PeriodKind::None => return None,
            PeriodKind::Keyed => PeriodRule::Keyed,
            PeriodKind::Day | PeriodKind::Week | PeriodKind::Month | PeriodKind::Year => {
                PeriodRule::Calendar(Box::new(Calendar::of(definition)?))
            }
        };
        Some(Self {
            rule,
            definition: ArcSwap::from(Arc::clone(definition)),
            current: ArcSwapOption::empty(),
            period_issuers: Mutex::default(),
            places: OnceLock::new(),
            looker: Arc::new(Semaphore::new(1)),
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
        match (&self.rule, asked) {
            (PeriodRule::Keyed, None) => Err(SequenceError::PeriodNeeded),
            (PeriodRule::Keyed, Some(key)) => Ok(Chosen {
                period: key.clone(),
                span: None,
            }),
            (PeriodRule::Calendar(calendar), None) => Ok(calendar.at(now_ms).into()),
            (PeriodRule::Calendar(calendar), Some(label)) => {
                let named = calendar.named(label.as_str())?;
                let definition = self.definition.load();
                let (back, ahead) = (definition.period_back, definition.period_ahead);
                if calendar.admits(&named, now_ms, back, ahead) {
                    return Ok(named.into());
                }
                Err(SequenceError::PeriodOutOfBounds {
                    period: named.period,
                    current: calendar.at(now_ms).period,
                    back,
                    ahead,
                })
            }
        }
    }

    /// Returns the present period; `None` if callers name keys.
    pub(crate) fn now(&self, now_ms: i64) -> Option<Period> {
        match &self.rule {
            PeriodRule::Calendar(calendar) => Some(calendar.at(now_ms).period),
            PeriodRule::Keyed => None,
        }
    }

    /// Refuses a name that no period of the sequence has, past or future.
    pub(crate) fn check(&self, period: &Period) -> Result<(), SequenceError> {
        if let PeriodRule::Calendar(calendar) = &self.rule {
            calendar.named(period.as_str())?;
        }
        Ok(())
    }

    /// Returns the period that begins when another one ends at `until_ms`; `None` if callers name
    /// keys.
    pub(crate) fn next(&self, until_ms: i64) -> Option<Chosen> {
        match &self.rule {
            PeriodRule::Calendar(calendar) => Some(calendar.at(until_ms).into()),
            PeriodRule::Keyed => None,
        }
    }

    /// Returns the issuer of the present period, if it is in memory. After a cut-over, this is
    /// another issuer.
    pub(crate) fn present(&self, now_ms: i64) -> Option<Arc<Issuer>> {
        let is_present =
            |issuer: &Arc<Issuer>| issuer.span.is_some_and(|span| span.contains(now_ms));
        if let Some(issuer) = self.current.load_full().filter(is_present) {
            return Some(issuer);
        }
        let PeriodRule::Calendar(calendar) = &self.rule else {
            return None;
        };
        let period = calendar.at(now_ms).period;
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
        let may_be = issuer.span.is_none_or(|span| {
            let definition = self.definition.load();
            let (back, ahead) = (definition.period_back, definition.period_ahead);
            span.until_ms > now_ms.saturating_sub(back.as_millis())
                && span.from_ms < now_ms.saturating_add(ahead.as_millis())
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

    fn places(&self, limit: usize) -> Arc<Semaphore> {
        let places = self.places.get_or_init(|| {
            let n_places = limit.saturating_mul(SLACK).min(Semaphore::MAX_PERMITS);
            Arc::new(Semaphore::new(n_places))
        });
        Arc::clone(places)
    }

    /// Acquires a permit, if one is free and no caller waits for one.
    pub(crate) fn try_permit(&self, limit: usize) -> Option<PeriodPermit> {
        self.places(limit).try_acquire_owned().ok()
    }

    /// Waits for a permit, behind all callers that have waited longer.
    ///
    /// # Errors
    /// The directory is closed.
    pub(crate) async fn next_permit(&self, limit: usize) -> Result<PeriodPermit, AcquireError> {
        self.places(limit).acquire_owned().await
    }

    /// Waits until no other caller searches for issuers that should leave.
    ///
    /// # Errors
    /// Never: the semaphore is never closed.
    pub(crate) async fn next_looker(&self) -> Result<Looker, AcquireError> {
        Arc::clone(&self.looker).acquire_owned().await
    }

    /// Lets an issuer in, if its period has none. If there are more issuers than `limit`, also
    /// returns issuers that should leave.
    pub(crate) fn admit(
        &self,
        period: &Period,
        (limit, place): (usize, PeriodPermit),
        fresh: impl FnOnce() -> Arc<Issuer>,
    ) -> Admission {
        let mut period_issuers = self.period_issuers.lock();
        if period_issuers.is_closed {
            return Admission::Closed;
        }
        if let Some(issuer) = period_issuers.issuer(period.as_str()) {
            return Admission::In(issuer, Vec::new());
        }
        let fresh = fresh();
        period_issuers.n_admitted = period_issuers.n_admitted.saturating_add(1);
        let member = PeriodIssuer {
            issuer: Arc::clone(&fresh),
            n_issued: 0,
            used: period_issuers.n_admitted,
            _place: place,
        };
        period_issuers.by_period.insert(period.clone(), member);
        let leaving = if period_issuers.is_look_due(limit) {
            period_issuers.look(limit)
        } else {
            Vec::new()
        };
        Admission::In(fresh, leaving)
    }

    /// Returns the issuers that should leave, for a caller that waits for a permit. Returns none if
    /// another search has just been made.
    pub(crate) fn look_again(&self, limit: usize) -> Vec<Arc<Issuer>> {
        let mut period_issuers = self.period_issuers.lock();
        let has_looked = |at: Instant| at.elapsed() < BETWEEN_TWO_LOOKS;
        if period_issuers.looked_at.is_some_and(has_looked) {
            return Vec::new();
        }
        period_issuers.look(limit)
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
    pub(crate) fn close(&self, limit: usize) {
        self.period_issuers.lock().is_closed = true;
        self.places(limit).close();
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
    use odometer_core::{name::SequenceName, period::CounterKey};

    use crate::directory::period_directory::*;

    const LIMIT: usize = 16;

    fn keyed() -> PeriodDirectory {
        PeriodDirectory::of(&Arc::new(Definition {
            period: PeriodKind::Keyed,
            ..Definition::default()
        }))
        .unwrap()
    }

    /// Lets a key in, and returns the keys that should leave.
    fn admit(periods: &PeriodDirectory, key: usize) -> Vec<String> {
        let period = Period::parse(&format!("key-{key:03}")).unwrap();
        let key = CounterKey {
            sequence: SequenceName::parse("many").unwrap(),
            period: period.clone(),
        };
        let place = periods.try_permit(LIMIT).unwrap();
        let fresh = || Arc::new(Issuer::for_tests(key));
        match periods.admit(&period, (LIMIT, place), fresh) {
            Admission::In(_, leaving) => names(&leaving),
            Admission::Closed => panic!("nobody closed it"),
        }
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

    #[tokio::test]
    async fn one_of_those_who_wait_looks_and_hands_that_on() {
        let periods = keyed();
        let looker = periods.next_looker().await.unwrap();
        let mut next = std::pin::pin!(periods.next_looker());
        tokio::select! {
            biased;
            _ = &mut next => panic!("two look at once"),
            () = std::future::ready(()) => {}
        }
        drop(looker);
        drop(next.await.unwrap());
    }

    #[test]
    fn there_are_four_places_for_each_that_may_stay() {
        let periods = keyed();
        for key in 0..SLACK * LIMIT {
            admit(&periods, key);
        }
        assert!(periods.try_permit(LIMIT).is_none());
        let first = periods.member("key-000").unwrap();
        periods.dismiss(&first);
        assert!(periods.try_permit(LIMIT).is_some());
    }
}
