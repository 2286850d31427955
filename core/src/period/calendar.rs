//! Finds the period that an instant lies in, and when a period begins and ends.
//!
//! Days begin and end at the cut-over of their zone. Weeks, months and years consist of such days.
//! Each instant lies in exactly one period. A day begins with the first instant at which local time
//! is at or past the cut-over. So a day never begins before the day before it.
//!
//! The clock may be set past a whole day, as in Samoa on 30 December 2011. That day has no length,
//! and there is no such period.

use std::time::Duration;

use jiff::{Timestamp, civil::Date, tz::TimeZone};

use super::{
    InvalidPeriod, Period, cut,
    cutover::{Cutover, END_MS},
    unit::CalendarUnit,
    year_start::YearStart,
    zone,
};
use crate::definition::{Definition, Span};

/// The calendar of a sequence whose periods are days, weeks, months or years. Clones share the
/// zone.
#[derive(Clone, Debug)]
pub struct Calendar {
    unit: CalendarUnit,
    cutover: Cutover,
    zone: TimeZone,
}

/// One period, and its time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CalendarPeriod {
    /// The period as it is printed.
    pub period: Period,
    /// When the period begins and ends.
    pub span: PeriodSpan,
}

/// The time from `from_ms` up to, but without, `until_ms`. Times are in milliseconds of the Unix
/// epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeriodSpan {
    /// The first millisecond of the period.
    pub from_ms: i64,
    /// The first millisecond after the period, in which the next period begins.
    pub until_ms: i64,
}

impl Calendar {
    /// Creates the calendar of a definition.
    ///
    /// `None` if the definition has no calendar periods. `None` also if its zone, cut-over or start
    /// of the year is invalid, which no checked definition has.
    #[must_use]
    pub fn of(definition: &Definition) -> Option<Self> {
        let year_start = YearStart::parse(&definition.year_starts).ok()?;
        Some(Self {
            unit: CalendarUnit::of(definition.period, year_start)?,
            cutover: Cutover::parse(&definition.cutover).ok()?,
            zone: zone::find(&definition.time_zone)?,
        })
    }

    /// Returns the period that an instant lies in. The instant is in milliseconds of the Unix
    /// epoch.
    ///
    /// An instant before the first period, which is of 1970, gives the first period. An instant
    /// from the year 10000 on gives the last one. `at(until_ms)` of a period gives the next period.
    #[must_use]
    pub fn at(&self, now_ms: i64) -> CalendarPeriod {
        let first = self.begin_ms(self.unit.first());
        let now_ms = now_ms.clamp(first, END_MS - 1);
        let now = Timestamp::from_millisecond(now_ms).unwrap_or(Timestamp::MAX);
        let today = self.cutover.day_of(self.zone.to_datetime(now));
        let mut start = self.unit.stretch_start_of(today);
        // If the clock is set back over a cut-over, local time is in the day before again. So the
        // beginnings of the periods decide, not local time.
        while self.begin_ms(start) > now_ms
            && let Some(before) = self.unit.before(start)
        {
            start = before;
        }
        while let Some(next) = self.unit.after(start)
            && self.begin_ms(next) <= now_ms
        {
            start = next;
        }
        self.starting(start)
    }

    /// Returns the period that is printed as `label`.
    ///
    /// # Errors
    /// [`InvalidPeriod`] if no period is printed in this way, or if the clock was set past the
    /// period.
    pub fn named(&self, label: &str) -> Result<CalendarPeriod, InvalidPeriod> {
        let first = self.unit.parse(label);
        let first = first.ok_or_else(|| {
            let (known, text) = (self.unit.described(), cut(label));
            InvalidPeriod(format!(
                "A period of this sequence is {known}; {text:?} is none."
            ))
        })?;
        let named = self.starting(first);
        if named.span.from_ms < named.span.until_ms {
            return Ok(named);
        }
        let zone = self.zone.iana_name().unwrap_or_default();
        Err(InvalidPeriod(format!(
            "There was no {label} in {zone}: the clock was set past it."
        )))
    }

    /// Returns whether a caller may name a period now.
    ///
    /// The present period is always allowed. An earlier one is allowed if it ended less than `back`
    /// ago, and a later one if it begins in less than `ahead`.
    #[must_use]
    pub fn admits(&self, asked: &CalendarPeriod, now_ms: i64, back: Span, ahead: Span) -> bool {
        asked.span.is_near(now_ms, back, ahead) || asked.period == self.at(now_ms).period
    }

    /// Returns the last period that ended `retain` ago or earlier. This period and all before it
    /// may be removed.
    #[must_use]
    pub fn removable_through(&self, now_ms: i64, retain: Span) -> Option<Period> {
        let kept = self.at(now_ms.saturating_sub(retain.as_millis()));
        let before = self.at(kept.span.from_ms.saturating_sub(1));
        (before.period != kept.period).then_some(before.period)
    }

    fn starting(&self, first: Date) -> CalendarPeriod {
        let next = self.unit.after(first);
        CalendarPeriod {
            period: Period::from_stored(&self.unit.label(first)),
            span: PeriodSpan {
                from_ms: self.begin_ms(first),
                until_ms: next.map_or(END_MS, |next| self.begin_ms(next)),
            },
        }
    }

    fn begin_ms(&self, day: Date) -> i64 {
        self.cutover.begin_ms(day, &self.zone)
    }
}

impl PeriodSpan {
    /// Returns whether an instant lies in the period. The instant is in milliseconds of the Unix
    /// epoch.
    #[must_use]
    pub fn contains(&self, now_ms: i64) -> bool {
        (self.from_ms..self.until_ms).contains(&now_ms)
    }

    /// Returns whether the period ended less than `back` ago, or did not end, and begins in less
    /// than `ahead`, or has begun.
    #[must_use]
    pub fn is_near(&self, now_ms: i64, back: Span, ahead: Span) -> bool {
        self.until_ms > now_ms.saturating_sub(back.as_millis())
            && self.from_ms < now_ms.saturating_add(ahead.as_millis())
    }

    /// Returns the seconds from now until the end of the period. If the period has not begun,
    /// counts them from its beginning.
    #[must_use]
    pub fn seconds_left(&self, now_ms: i64) -> f64 {
        let from_ms = now_ms.max(self.from_ms);
        let left_ms = self.until_ms.saturating_sub(from_ms).max(0);
        Duration::from_millis(left_ms.unsigned_abs()).as_secs_f64()
    }
}
