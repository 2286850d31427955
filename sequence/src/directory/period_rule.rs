//! Decides which periods a sequence has, and in which of them callers may count.

use odometer_core::{
    definition::Definition,
    period::{Calendar, CalendarPeriod, Period, PeriodKind, PeriodSpan},
};

use crate::error::SequenceError;

/// Decides which periods a sequence has.
pub(crate) enum PeriodRule {
    Calendar(Box<Calendar>),
    Keyed,
}

/// A period that a caller may count in.
#[derive(Clone, Debug)]
pub(crate) struct Chosen {
    pub(crate) period: Period,
    /// When the period begins and ends; `None` for a caller's key.
    pub(crate) span: Option<PeriodSpan>,
}

impl From<CalendarPeriod> for Chosen {
    fn from(of: CalendarPeriod) -> Self {
        Self {
            period: of.period,
            span: Some(of.span),
        }
    }
}

impl PeriodRule {
    /// Returns the rule of a definition; `None` if the sequence counts without periods.
    pub(crate) fn of(definition: &Definition) -> Option<Self> {
        match definition.period {
            PeriodKind::None => None,
            PeriodKind::Keyed => Some(Self::Keyed),
            PeriodKind::Day | PeriodKind::Week | PeriodKind::Month | PeriodKind::Year => {
                Some(Self::Calendar(Box::new(Calendar::of(definition)?)))
            }
        }
    }

    /// Returns the period that a call counts in. The definition has this rule.
    pub(crate) fn choose(
        &self,
        definition: &Definition,
        asked: Option<&Period>,
        now_ms: i64,
    ) -> Result<Chosen, SequenceError> {
        match (self, asked) {
            (Self::Keyed, None) => Err(SequenceError::PeriodNeeded),
            (Self::Keyed, Some(key)) => Ok(Chosen {
                period: key.clone(),
                span: None,
            }),
            (Self::Calendar(calendar), None) => Ok(calendar.at(now_ms).into()),
            (Self::Calendar(calendar), Some(label)) => {
                let named = calendar.named(label.as_str())?;
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

    /// Returns the period that an instant lies in; `None` if callers name keys.
    pub(crate) fn at(&self, now_ms: i64) -> Option<Chosen> {
        match self {
            Self::Calendar(calendar) => Some(calendar.at(now_ms).into()),
            Self::Keyed => None,
        }
    }

    /// Refuses a name that no period of the sequence has, past or future.
    pub(crate) fn check(&self, period: &Period) -> Result<(), SequenceError> {
        if let Self::Calendar(calendar) = self {
            calendar.named(period.as_str())?;
        }
        Ok(())
    }
}
