//! Computes when a year begins, from its month and day.

use jiff::civil::Date;

use super::digits::two_numbers;

/// A month and a day that every year has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct YearStart {
    month: i8,
    day: i8,
}

impl YearStart {
    /// The day on which the years of the calendar begin.
    pub(crate) const NEW_YEAR: Self = Self { month: 1, day: 1 };

    /// Reads `MM-DD`. The error is read after the field's name.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        const UNFIT: &str = "must be a month and a day of it, \"MM-DD\", such as \"04-06\"";
        if text == "02-29" {
            return Err("must be a day that every year has");
        }
        let (month, day) = two_numbers(text, '-').ok_or(UNFIT)?;
        // 2026 is not a leap year.
        Date::new(2026, month, day).map_err(|_| UNFIT)?;
        Ok(Self { month, day })
    }

    /// Returns the day on which a year begins; `None` for a year before -9999 or after 9999.
    pub(crate) fn in_year(self, year: i16) -> Option<Date> {
        Date::new(year, self.month, self.day).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_year_begins_on_a_day_that_every_year_has() {
        for text in ["01-01", "04-06", "02-28", "12-31", "10-01"] {
            assert!(YearStart::parse(text).is_ok(), "{text}");
        }
        for text in [
            "", "-", "0101", "1-1", "01-32", "13-01", "00-01", "01-00", "02-30", "04-31", "+1-01",
            "01-+1", "01-01-01", " 01-01", "01/01", "é-01", "2026-01",
        ] {
            let said = YearStart::parse(text).err().unwrap_or_default();
            assert!(said.contains("MM-DD"), "{text}");
        }
        let said = YearStart::parse("02-29").err().unwrap_or_default();
        assert!(said.contains("every year"), "{said}");
    }
}
