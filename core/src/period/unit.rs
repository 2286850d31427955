//! Computes the days that calendar periods consist of: whole days of the calendar, without a zone.
//!
//! A stretch of days is identified by its first day.

use jiff::{
    ToSpan,
    civil::{Date, ISOWeekDate, Weekday},
};

use super::{digits::digits, kind::PeriodKind, year_start::YearStart};

/// Bounds the calendar: periods begin with this year.
const FIRST_YEAR: i16 = 1970;

/// The length of a calendar period, and how it is printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CalendarUnit {
    Day,
    Week,
    Month,
    Year(YearStart),
}

impl CalendarUnit {
    /// Returns the unit of a calendar kind; `None` for the other kinds.
    pub(crate) fn of(kind: PeriodKind, year_start: YearStart) -> Option<Self> {
        match kind {
            PeriodKind::None | PeriodKind::Keyed => None,
            PeriodKind::Day => Some(Self::Day),
            PeriodKind::Week => Some(Self::Week),
            PeriodKind::Month => Some(Self::Month),
            PeriodKind::Year => Some(Self::Year(year_start)),
        }
    }

    /// Returns the first day of the stretch that `date` lies in.
    pub(crate) fn stretch_start_of(self, date: Date) -> Date {
        match self {
            Self::Day => date,
            Self::Week => {
                let n_since_monday = i64::from(date.weekday().to_monday_zero_offset());
                date.saturating_sub(n_since_monday.days())
            }
            Self::Month => date.first_of_month(),
            Self::Year(start) => match start.in_year(date.year()) {
                Some(first) if first <= date => first,
                Some(_) | None => start.in_year(date.year() - 1).unwrap_or(date),
            },
        }
    }

    /// Returns the first day of the next stretch; `None` after the year 9999.
    pub(crate) fn after(self, first: Date) -> Option<Date> {
        let length = match self {
            Self::Day => 1.day(),
            Self::Week => 1.week(),
            Self::Month => 1.month(),
            Self::Year(_) => 1.year(),
        };
        first.checked_add(length).ok()
    }

    /// Returns the first day of the stretch before; `None` if `first` is the first stretch.
    pub(crate) fn before(self, first: Date) -> Option<Date> {
        let before = self.stretch_start_of(first.yesterday().ok()?);
        (before >= self.first()).then_some(before)
    }

    /// Returns the first day of the first stretch, which is printed with the year 1970.
    pub(crate) fn first(self) -> Date {
        match self {
            Self::Day | Self::Month => Date::constant(FIRST_YEAR, 1, 1),
            // This is the Monday of 1970W01.
            Self::Week => Date::constant(FIRST_YEAR - 1, 12, 29),
            Self::Year(start) => start
                .in_year(FIRST_YEAR)
                .unwrap_or(Date::constant(FIRST_YEAR, 1, 1)),
        }
    }

    /// Prints a stretch: `20261120`, `2026W47`, `202611`, or `2026`. A year is printed as the one
    /// in which the stretch begins.
    pub(crate) fn label(self, first: Date) -> String {
        let (year, month, day) = (first.year(), first.month(), first.day());
        match self {
            Self::Day => format!("{year:04}{month:02}{day:02}"),
            Self::Week => {
                let week = first.iso_week_date();
                format!("{:04}W{:02}", week.year(), week.week())
            }
            Self::Month => format!("{year:04}{month:02}"),
            Self::Year(_) => format!("{year:04}"),
        }
    }

    /// Returns the first day of the stretch that is printed as `label`; `None` if there is no such
    /// stretch from 1970 on.
    pub(crate) fn parse(self, label: &str) -> Option<Date> {
        self.read(label).filter(|first| *first >= self.first())
    }

    /// Returns the first day of the stretch that is printed as `label`, in the years 0 to 9999.
    pub(crate) fn read(self, label: &str) -> Option<Date> {
        let (year, rest) = label.split_at_checked(4)?;
        let year = digits(year, 4)?;
        match self {
            Self::Day => {
                let (month, day) = rest.split_at_checked(2)?;
                Date::new(year, digits(month, 2)?, digits(day, 2)?).ok()
            }
            Self::Week => {
                let week = digits(rest.strip_prefix('W')?, 2)?;
                let monday = ISOWeekDate::new(year, week, Weekday::Monday);
                monday.ok().map(ISOWeekDate::date)
            }
            Self::Month => Date::new(year, digits(rest, 2)?, 1).ok(),
            Self::Year(start) => start.in_year(year).filter(|_| rest.is_empty()),
        }
    }

    /// Describes the periods of this unit, how they are printed, and which years they are in.
    pub(crate) fn described(self) -> &'static str {
        match self {
            Self::Day => "a day printed as 20261120, of the years 1970 to 9999",
            Self::Week => "an ISO week printed as 2026W47, of the years 1970 to 9999",
            Self::Month => "a month printed as 202611, of the years 1970 to 9999",
            Self::Year(_) => "a year from 1970 to 9999, the one it begins in",
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use jiff::civil::date;

    use super::*;

    fn units() -> [CalendarUnit; 5] {
        let fiscal = YearStart::parse("04-06").unwrap();
        let calendar = YearStart::parse("01-01").unwrap();
        [
            CalendarUnit::Day,
            CalendarUnit::Week,
            CalendarUnit::Month,
            CalendarUnit::Year(calendar),
            CalendarUnit::Year(fiscal),
        ]
    }

    #[test]
    fn stretches_are_printed_as_the_contract_has_them() {
        let day = date(2026, 11, 20);
        let printed = units().map(|unit| unit.label(unit.stretch_start_of(day)));
        assert_eq!(printed, ["20261120", "2026W47", "202611", "2026", "2026"]);
        let spring = date(2026, 4, 5);
        let printed = units().map(|unit| unit.label(unit.stretch_start_of(spring)));
        assert_eq!(printed, ["20260405", "2026W14", "202604", "2026", "2025"]);
        // The last days of a year may lie in the first week of the next year. The first days of a
        // year may lie in the last week of the year before.
        let weeks = [date(2024, 12, 30), date(2027, 1, 3), date(2020, 12, 31)]
            .map(|day| CalendarUnit::Week.label(CalendarUnit::Week.stretch_start_of(day)));
        assert_eq!(weeks, ["2025W01", "2026W53", "2020W53"]);
    }

    #[test]
    fn every_stretch_is_read_back_and_follows_the_one_before() {
        for unit in units() {
            let mut first = unit.first();
            assert_eq!(unit.before(first), None);
            let mut n_seen = 0;
            while let Some(next) = unit.after(first) {
                let label = unit.label(first);
                assert!(label < unit.label(next), "{label}");
                assert_eq!(unit.parse(&label), Some(first), "{label}");
                assert_eq!(unit.before(next), Some(first), "{label}");
                assert_eq!(
                    unit.stretch_start_of(next.yesterday().unwrap()),
                    first,
                    "{label}"
                );
                assert_eq!(unit.stretch_start_of(next), next, "{label}");
                first = next;
                n_seen += 1;
            }
            assert_eq!(unit.parse(&unit.label(first)), Some(first));
            assert_eq!(unit.label(first).get(..4), Some("9999"));
            assert!(n_seen >= 8_029, "{unit:?}: {n_seen}");
        }
    }

    #[test]
    fn what_no_stretch_is_printed_as_is_not_read() {
        for text in [
            "",
            "2",
            "202",
            "é026",
            "20261",
            "2026-11-20",
            "20261131",
            "20260229",
            "19691231",
            "2026W00",
            "2026W54",
            "2025W53",
            "2026w47",
            "2026W7",
            "2026W471",
            "202613",
            "202600",
            "1969W52",
            "196912",
            "1969",
            "+026",
            " 2026",
            "2026 ",
            "２０２６",
            "10000",
            "2026112",
            "202611200",
            "0000",
            "+2026112",
            "2026W+1",
        ] {
            for unit in units() {
                assert_eq!(unit.parse(text), None, "{text:?} as {unit:?}");
            }
        }
    }
}
