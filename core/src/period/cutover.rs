//! Computes when a day begins, from the time of day at which days are cut.

use jiff::{
    Timestamp,
    civil::{Date, DateTime, Time},
    tz::{AmbiguousOffset, Offset, TimeZone},
};

use super::digits::two_numbers;

/// Bounds the calendar: the year 10000, in milliseconds of the Unix epoch. No calendar period
/// begins at or after this instant. The last periods end with it.
pub(crate) const END_MS: i64 = 253_402_300_800_000;

/// Bounds the transitions that are searched for the one that a gap of local time comes from.
const MAX_TRANSITIONS: usize = 16;

/// The time of day at which one day ends and the next begins.
///
/// At `00:00` a day is the day of the calendar. At any other time, a day has the date on which it
/// *ends*. At `22:00`, the day D goes from 22:00 of the day before to 22:00 of D, as in the books
/// of a bank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Cutover(Time);

impl Cutover {
    /// Reads `HH:MM`. The error is read after the field's name.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        const UNFIT: &str = "must be a time of day from \"00:00\" to \"23:59\"";
        let (hour, minute) = two_numbers(text, ':').ok_or(UNFIT)?;
        Time::new(hour, minute, 0, 0).map(Self).map_err(|_| UNFIT)
    }

    /// Returns whether the cut-over is in the morning. Then most waking hours of a date belong to
    /// the day with the next date.
    pub(crate) fn is_early(self) -> bool {
        self.0 != Time::midnight() && self.0.hour() < 12
    }

    /// Returns the day that a local time lies in.
    pub(crate) fn day_of(self, local: DateTime) -> Date {
        let is_cut = self.0 != Time::midnight() && local.time() >= self.0;
        if is_cut {
            return local.date().tomorrow().unwrap_or(Date::MAX);
        }
        local.date()
    }

    /// Returns when a day begins, in milliseconds of the Unix epoch.
    ///
    /// It is the first instant at which local time is at or past the cut-over. If the cut-over
    /// comes twice, the first one counts. If the clock is set past the cut-over, the instant of
    /// that change counts. It is [`END_MS`] if the beginning is too late for a timestamp.
    pub(crate) fn begin_ms(self, day: Date, zone: &TimeZone) -> i64 {
        let date = if self.0 == Time::midnight() {
            day
        } else {
            day.yesterday().unwrap_or(Date::MIN)
        };
        begin(date.to_datetime(self.0), zone).map_or(END_MS, Timestamp::as_millisecond)
    }
}

/// Returns the first instant at which local time is at or past `local`; `None` if no timestamp is
/// that late.
fn begin(local: DateTime, zone: &TimeZone) -> Option<Timestamp> {
    let at = |offset: Offset| offset.to_timestamp(local).ok();
    match zone.to_ambiguous_timestamp(local).offset() {
        AmbiguousOffset::Unambiguous { offset } => at(offset),
        AmbiguousOffset::Fold { before, .. } => at(before),
        AmbiguousOffset::Gap { before, after } => {
            // With the offset after the change, the time lies before the instant at which the clock
            // is set forward.
            zone.following(at(after)?)
                .take(MAX_TRANSITIONS)
                .map(|transition| transition.timestamp())
                .find(|instant| zone.to_datetime(*instant) >= local)
                .or_else(|| at(before))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_over_is_a_time_of_day_to_the_minute() {
        for text in ["00:00", "00:01", "22:00", "23:59"] {
            assert!(Cutover::parse(text).is_ok(), "{text}");
        }
        for text in [
            "", ":", "24:00", "25:00", "12:60", "2200", "22", "22:0", "022:00", "22:00:00",
            "-1:00", "+1:00", " 22:00", "22.00", "é:00", "22:é",
        ] {
            assert!(Cutover::parse(text).is_err(), "{text}");
        }
    }
}
