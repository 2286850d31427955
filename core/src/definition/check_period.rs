//! Checks which periods a definition may have.
//!
//! The fields that say when periods begin and end are checked for every definition. They are
//! checked even if the definition has no periods, because a definition of a template may get its
//! period later.

use super::check::{invalid, json, require};
use super::{Definition, DefinitionError, Span};
use crate::period::{Cutover, PeriodKind, YearStart, find_zone, near_zones};

/// Bounds `period_back`, `period_ahead` and `retain`: 100 years.
const MAX_PERIOD_SPAN: Span = Span::from_days(36_525);

/// Names the day on which the years of the calendar start.
const NEW_YEAR: &str = "01-01";

impl Definition {
    pub(crate) fn check_period(&self) -> Result<(), DefinitionError> {
        self.check_zone()?;
        if let Err(reason) = Cutover::parse(&self.cutover) {
            return invalid("cutover", format!("{reason}, not {}", json(&self.cutover)));
        }
        self.check_year_starts()?;
        self.check_spans()
    }

    fn check_zone(&self) -> Result<(), DefinitionError> {
        if find_zone(&self.time_zone).is_some() {
            return Ok(());
        }
        let mut reason = format!(
            "must be the name of an IANA time zone, such as \"Europe/Berlin\", not {}",
            json(&self.time_zone)
        );
        let near = near_zones(&self.time_zone);
        if !near.is_empty() {
            reason.push_str("; near it: ");
            reason.push_str(&near.join(", "));
        }
        invalid("time_zone", reason)
    }

    fn check_year_starts(&self) -> Result<(), DefinitionError> {
        let given = json(&self.year_starts);
        if let Err(reason) = YearStart::parse(&self.year_starts) {
            return invalid("year_starts", format!("{reason}, not {given}"));
        }
        let is_usual = self.year_starts == NEW_YEAR || self.period == PeriodKind::Year;
        require(is_usual, "year_starts", || {
            format!(
                "must be \"{NEW_YEAR}\" unless `period` is \"year\": it is {given}, with `period` {}",
                json(&self.period)
            )
        })
    }

    fn check_spans(&self) -> Result<(), DefinitionError> {
        let (back, retain) = (self.period_back, self.retain);
        for (field, span) in [
            ("period_back", back),
            ("period_ahead", self.period_ahead),
            ("retain", retain),
        ] {
            require(span <= MAX_PERIOD_SPAN, field, || {
                format!("must be at most {MAX_PERIOD_SPAN}, not {span}")
            })?;
        }
        require(retain > back, "retain", || {
            format!(
                "must be longer than `period_back`, {back}, not {retain}: a period that callers \
                 may name is not removed"
            )
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use serde_json::{Value, json};

    use super::super::DefinitionChange;
    use super::*;

    fn create(value: Value) -> Result<Definition, DefinitionError> {
        DefinitionChange::from_value(&value)
            .unwrap()
            .create(&Definition::default())
    }

    #[test]
    fn calendars_are_taken_as_they_are_meant() {
        for value in [
            json!({"period": "day"}),
            json!({"period": "week", "time_zone": "Asia/Kolkata"}),
            json!({"period": "month", "cutover": "22:00", "time_zone": "Europe/Berlin"}),
            json!({"period": "year", "year_starts": "04-06", "time_zone": "Europe/London"}),
            json!({"period": "keyed"}),
            json!({"period": "day", "period_back": "0s", "period_ahead": "0s", "retain": "1s"}),
            json!({"period": "year", "period_back": "36524d", "retain": "36525d"}),
            json!({"period": "none", "cutover": "06:00"}),
        ] {
            create(value).unwrap();
        }
    }

    #[test]
    fn what_no_calendar_can_be_is_refused_with_what_is_allowed() {
        for (value, said) in [
            (
                json!({"time_zone": "Europe/Berln"}),
                "`time_zone` must be the name of an IANA time zone, such as \"Europe/Berlin\", not \
                 \"Europe/Berln\"; near it: Europe/Berlin",
            ),
            (json!({"time_zone": "utc"}), "not \"utc\"; near it: UTC"),
            (
                json!({"time_zone": "Mars/Olympus"}),
                "not \"Mars/Olympus\".",
            ),
            (json!({"time_zone": ""}), "not \"\""),
            (
                json!({"cutover": "25:00"}),
                "`cutover` must be a time of day from \"00:00\" to \"23:59\", not \"25:00\".",
            ),
            (json!({"cutover": "24:00"}), "not \"24:00\"."),
            (
                json!({"period": "year", "year_starts": "02-30"}),
                "`year_starts` must be a month and a day of it, \"MM-DD\", such as \"04-06\", not \
                 \"02-30\".",
            ),
            (
                json!({"period": "year", "year_starts": "02-29"}),
                "`year_starts` must be a day that every year has, not \"02-29\".",
            ),
            (
                json!({"period": "month", "year_starts": "04-06"}),
                "`year_starts` must be \"01-01\" unless `period` is \"year\": it is \"04-06\", with \
                 `period` \"month\".",
            ),
            (
                json!({"period": "keyed", "year_starts": "04-06"}),
                "`year_starts` must be \"01-01\"",
            ),
            (
                json!({"period_back": "36526d", "retain": "36527d"}),
                "`period_back` must be at most 36525d, not 5218w.",
            ),
            (
                json!({"period_ahead": "999999w"}),
                "`period_ahead` must be at most",
            ),
            (json!({"retain": "36526d"}), "`retain` must be at most"),
            (
                json!({"retain": "2d"}),
                "`retain` must be longer than `period_back`, 2d, not 2d: a period that callers may \
                 name is not removed.",
            ),
            (json!({"retain": "1d"}), "not 1d"),
            (json!({"period_back": "400d"}), "`retain` must be longer"),
        ] {
            let error = create(value).unwrap_err();
            assert!(
                matches!(error, DefinitionError::Invalid { .. }),
                "{error:?}"
            );
            assert!(error.to_string().contains(said), "{error}");
        }
        let long = create(json!({"time_zone": "z".repeat(9_000)})).unwrap_err();
        assert!(long.to_string().len() < 300, "{long}");
    }
}
