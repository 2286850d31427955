//! The periods of one sequence in memory: each has an issuer of its own.
//!
//! The issuer found under the name of such a sequence is its head. It never issues; it leads to
//! the issuer of the period that a caller names, or of the present. Which period that is, is
//! decided once a call, and the number and all that is printed of the period follow from it.

use std::{collections::HashMap, sync::Arc};

use arc_swap::{ArcSwap, ArcSwapOption};
use odometer_core::{
    definition::{Definition, PeriodKind},
    period::{Calendar, CalendarPeriod, Period},
};
use parking_lot::Mutex;

use super::{error::SequenceError, issuer::Issuer};

/// More issuers than the bound are tolerated up to so many times it, while the least used are on
/// their way out.
const SLACK: usize = 4;

/// Where the numbers of a sequence with periods come from.
pub(super) struct Periods {
    rule: Rule,
    definition: ArcSwap<Definition>,
    /// That of the present, as it last was; only with a calendar.
    current: ArcSwapOption<Issuer>,
    members: Mutex<Members>,
}

/// What a caller's period is judged by.
enum Rule {
    Calendar(Box<Calendar>),
    Keyed,
}

#[derive(Default)]
struct Members {
    by_period: HashMap<Period, Arc<Issuer>>,
    /// The head is leaving memory: nobody comes in any more.
    is_closed: bool,
}

/// A period that a caller may count in.
#[derive(Clone, Debug)]
pub(super) struct Chosen {
    pub(super) period: Period,
    /// When it is; `None` for a caller's key.
    pub(super) span: Option<Span>,
}

/// From one millisecond of the Unix epoch on, up to but without another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) from_ms: i64,
    pub(super) until_ms: i64,
}

/// What becomes of an issuer that wants in.
pub(super) enum Admission {
    /// It is in, and this one is in the way.
    In(Arc<Issuer>, Option<Arc<Issuer>>),
    /// The head is leaving memory: look the name up again.
    Closed,
    /// There are too many; this one should leave.
    Full(Option<Arc<Issuer>>),
}

impl Members {
    /// The one used least of those that are not leaving.
    fn least_used(&self) -> Option<Arc<Issuer>> {
        let staying = self
            .by_period
            .values()
            .filter(|issuer| !issuer.is_leaving());
        staying.min_by_key(|issuer| issuer.used_at()).cloned()
    }
}

impl Span {
    pub(super) fn contains(self, now_ms: i64) -> bool {
        (self.from_ms..self.until_ms).contains(&now_ms)
    }

    /// Seconds from now, or from its begin where that is later, to its end.
    pub(super) fn seconds_left(self, now_ms: i64) -> f64 {
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
            span: Some(Span {
                from_ms: of.from_ms,
                until_ms: of.until_ms,
            }),
        }
    }
}

impl Periods {
    /// `None` for a sequence that counts without periods.
    pub(super) fn of(definition: &Arc<Definition>) -> Option<Self> {
        let rule = match definition.period {
            PeriodKind::None => return None,
            PeriodKind::Keyed => Rule::Keyed,
            PeriodKind::Day | PeriodKind::Week | PeriodKind::Month | PeriodKind::Year => {
                Rule::Calendar(Box::new(Calendar::of(definition)?))
            }
        };
        Some(Self {
            rule,
            definition: ArcSwap::from(Arc::clone(definition)),
            current: ArcSwapOption::empty(),
            members: Mutex::default(),
        })
    }

    /// Whether the periods of a definition are the same ones.
    pub(super) fn fit(&self, definition: &Definition) -> bool {
        self.definition.load().counts_like(definition)
    }

    pub(super) fn definition(&self) -> Arc<Definition> {
        self.definition.load_full()
    }

    /// Takes over what may have changed: how far back and ahead callers may count.
    pub(super) fn redefine(&self, definition: &Arc<Definition>) {
        self.definition.store(Arc::clone(definition));
    }

    /// The period that a call counts in.
    pub(super) fn choose(
        &self,
        asked: Option<&Period>,
        now_ms: i64,
    ) -> Result<Chosen, SequenceError> {
        match (&self.rule, asked) {
            (Rule::Keyed, None) => Err(SequenceError::PeriodNeeded),
            (Rule::Keyed, Some(key)) => Ok(Chosen {
                period: key.clone(),
                span: None,
            }),
            (Rule::Calendar(calendar), None) => Ok(calendar.at(now_ms).into()),
            (Rule::Calendar(calendar), Some(label)) => {
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

    /// The period of the present; `None` for callers' keys.
    pub(super) fn now(&self, now_ms: i64) -> Option<Period> {
        match &self.rule {
            Rule::Calendar(calendar) => Some(calendar.at(now_ms).period),
            Rule::Keyed => None,
        }
    }

    /// Refuses what is no period of the sequence, whenever that is.
    pub(super) fn check(&self, period: &Period) -> Result<(), SequenceError> {
        if let Rule::Calendar(calendar) = &self.rule {
            calendar.named(period.as_str())?;
        }
        Ok(())
    }

    /// The period after the one that ends then; `None` for callers' keys.
    pub(super) fn next(&self, until_ms: i64) -> Option<Chosen> {
        match &self.rule {
            Rule::Calendar(calendar) => Some(calendar.at(until_ms).into()),
            Rule::Keyed => None,
        }
    }

    /// The issuer of the present, if it is in memory; at a cut-over it moves on.
    pub(super) fn present(&self, now_ms: i64) -> Option<Arc<Issuer>> {
        let is_present =
            |issuer: &Arc<Issuer>| issuer.span.is_some_and(|span| span.contains(now_ms));
        if let Some(issuer) = self.current.load_full().filter(is_present) {
            return Some(issuer);
        }
        let Rule::Calendar(calendar) = &self.rule else {
            return None;
        };
        let period = calendar.at(now_ms).period;
        // Under the lock, or who leaves meanwhile would be put in front of those to come.
        let members = self.members.lock();
        let present = members.by_period.get(period.as_str()).cloned()?;
        self.current.store(Some(Arc::clone(&present)));
        Some(present)
    }

    /// The issuer of the period that a caller names, if it is in memory and may be named now.
    pub(super) fn named(&self, period: &str, now_ms: i64) -> Option<Arc<Issuer>> {
        let issuer = self.member(period)?;
        let may_be = issuer.span.is_none_or(|span| {
            let definition = self.definition.load();
            let (back, ahead) = (definition.period_back, definition.period_ahead);
            span.until_ms > now_ms.saturating_sub(back.as_millis())
                && span.from_ms < now_ms.saturating_add(ahead.as_millis())
        });
        may_be.then_some(issuer)
    }

    pub(super) fn member(&self, period: &str) -> Option<Arc<Issuer>> {
        self.members.lock().by_period.get(period).cloned()
    }

    /// Whether no issuer of a period is in memory.
    pub(super) fn is_empty(&self) -> bool {
        self.members.lock().by_period.is_empty()
    }

    /// All issuers of periods in memory.
    pub(super) fn members(&self) -> Vec<Arc<Issuer>> {
        self.members.lock().by_period.values().cloned().collect()
    }

    /// Lets an issuer in where there is none of its period; of more than `limit` the one used least
    /// should leave, and is told of in any case.
    pub(super) fn admit(
        &self,
        period: &Period,
        limit: usize,
        fresh: impl FnOnce() -> Arc<Issuer>,
    ) -> Admission {
        let mut members = self.members.lock();
        if members.is_closed {
            return Admission::Closed;
        }
        if let Some(issuer) = members.by_period.get(period.as_str()) {
            return Admission::In(Arc::clone(issuer), None);
        }
        let in_the_way = (members.by_period.len() >= limit)
            .then(|| members.least_used())
            .flatten();
        if members.by_period.len() >= limit.saturating_mul(SLACK) {
            return Admission::Full(in_the_way);
        }
        let fresh = fresh();
        members.by_period.insert(period.clone(), Arc::clone(&fresh));
        Admission::In(fresh, in_the_way)
    }

    /// Lets an issuer out, if it is in.
    pub(super) fn dismiss(&self, issuer: &Issuer) {
        let is_this = |found: &Arc<Issuer>| std::ptr::eq(&raw const **found, issuer);
        let mut members = self.members.lock();
        let period = issuer.key.period.as_str();
        if !members.by_period.get(period).is_some_and(is_this) {
            return;
        }
        members.by_period.remove(period);
        if self.current.load().as_ref().is_some_and(is_this) {
            self.current.store(None);
        }
    }

    /// Lets nobody in any more, where nobody is in.
    pub(super) fn close(&self) -> bool {
        let mut members = self.members.lock();
        members.is_closed = members.by_period.is_empty();
        members.is_closed
    }
}
