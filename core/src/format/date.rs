//! Prints calendar periods by the parts of their dates, and says which periods exist.

use jiff::civil::Date;

use crate::period::{CalendarUnit, PeriodKind, YearStart};

/// A part of the date that names a calendar period.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DatePart {
    /// `{yyyy}`: the year. For a week, the ISO week-year.
    Year,
    /// `{yy}`: the last two digits of `{yyyy}`.
    ShortYear,
    /// `{MM}`: the month.
    Month,
    /// `{dd}`: the day of the month.
    Day,
    /// `{JJJ}`: the day of the year.
    DayOfYear,
}

impl DatePart {
    /// Lists all parts of a date.
    pub(crate) const ALL: [Self; 5] = [
        Self::Year,
        Self::ShortYear,
        Self::Month,
        Self::Day,
        Self::DayOfYear,
    ];

    /// Returns the name of the part in a pattern.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Year => "yyyy",
            Self::ShortYear => "yy",
            Self::Month => "MM",
            Self::Day => "dd",
            Self::DayOfYear => "JJJ",
        }
    }

    /// Returns how many digits the part prints: as many as its name has letters.
    pub(crate) fn length(self) -> usize {
        self.name().len()
    }

    /// Returns whether a period of this kind has this part.
    pub(crate) fn is_part_of(self, kind: PeriodKind) -> bool {
        match kind {
            PeriodKind::Day => true,
            PeriodKind::Month => !matches!(self, Self::Day | Self::DayOfYear),
            PeriodKind::Week | PeriodKind::Year => matches!(self, Self::Year | Self::ShortYear),
            PeriodKind::None | PeriodKind::Keyed => false,
        }
    }

    /// Returns what the part prints for a calendar period. The text is empty for any other period.
    pub(crate) fn of(self, period: &str) -> String {
        let part = match self {
            Self::Year => period.get(..4),
            Self::ShortYear => period.get(2..4),
            Self::Month => period.get(4..6),
            Self::Day => period.get(6..8),
            Self::DayOfYear => {
                let day = CalendarUnit::Day.read(period).map(Date::day_of_year);
                return day.map_or_else(String::new, |day| format!("{day:03}"));
            }
        };
        part.unwrap_or_default().to_owned()
    }
}

/// Returns how many characters a period of a calendar kind has; `None` for the other kinds.
pub(crate) fn length(kind: PeriodKind) -> Option<usize> {
    let unit = CalendarUnit::of(kind, YearStart::NEW_YEAR)?;
    Some(unit.label(unit.first()).len())
}

/// Returns the month and the day for a day of the year, such as `1120`; `None` if the year has no
/// such day.
pub(crate) fn month_and_day(year: &str, day_of_year: &str) -> Option<String> {
    let year: u16 = year.parse().ok()?;
    let first = Date::new(i16::try_from(year).ok()?, 1, 1).ok()?;
    let day = first.with().day_of_year(day_of_year.parse().ok()?);
    let day = day.build().ok()?;
    Some(format!("{:02}{:02}", day.month(), day.day()))
}

/// Returns whether a period of a calendar kind exists, in the years 1 to 9999.
pub(crate) fn exists(kind: PeriodKind, period: &str) -> bool {
    let unit = CalendarUnit::of(kind, YearStart::NEW_YEAR);
    let first = unit.and_then(|unit| unit.read(period));
    first.is_some_and(|first| first.year() > 0)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn a_day_of_the_year_is_the_day_it_came_from() {
        for (day, of_year) in [
            ("20260101", "001"),
            ("20261120", "324"),
            ("20261231", "365"),
            ("20240229", "060"),
            ("20240301", "061"),
            ("20241231", "366"),
            ("19000301", "060"),
            ("20000301", "061"),
        ] {
            assert_eq!(DatePart::DayOfYear.of(day), of_year);
            assert_eq!(month_and_day(&day[..4], of_year).unwrap(), day[4..]);
        }
        for (year, of_year) in [("2026", "366"), ("2024", "367"), ("2026", "000")] {
            assert_eq!(month_and_day(year, of_year), None);
        }
    }

    #[test]
    fn periods_that_no_calendar_has_do_not_exist() {
        for (kind, good, bad) in [
            (
                PeriodKind::Day,
                vec!["20240229", "99991231", "00010101"],
                vec![
                    "20260229",
                    "20261301",
                    "20260001",
                    "20260100",
                    "2026112",
                    "202611201",
                ],
            ),
            (
                PeriodKind::Week,
                vec!["2026W53", "2025W52", "2020W53", "2026W01"],
                vec!["2025W53", "2026W00", "2026W54", "2026w01", "2026W1"],
            ),
            (
                PeriodKind::Month,
                vec!["202601", "202612"],
                vec!["202600", "202613", "2026+1", "20261"],
            ),
            (
                PeriodKind::Year,
                vec!["2026"],
                vec!["0000", "202", "20260", "2O26"],
            ),
            (PeriodKind::None, vec![], vec!["", "2026"]),
            (PeriodKind::Keyed, vec![], vec!["2026"]),
        ] {
            for period in good {
                assert!(exists(kind, period), "{period}");
            }
            for period in bad {
                assert!(!exists(kind, period), "{period}");
            }
        }
    }
}
