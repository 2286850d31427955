//! Sequences that count by the calendar, and checks of what a reply says about each number.

use odometer_core::{
    definition::{Definition, DefinitionChange},
    period::Calendar,
};
use serde_json::{Value, json};

use crate::support::{Range, Reply};

/// A sequence with a calendar. A right clock is in the period `before` before the moment of a test,
/// and in the period `after` after it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Count {
    pub(super) name: &'static str,
    /// The period, the time zone and the cut-over.
    pub(super) calendar: (&'static str, &'static str, &'static str),
    pub(super) year_starts: &'static str,
    pub(super) before: &'static str,
    pub(super) after: &'static str,
}

/// The numbers of one call, all in one period.
#[derive(Clone, Debug)]
pub(super) struct Given {
    pub(super) period: String,
    pub(super) ranges: Vec<Range>,
}

impl Count {
    pub(super) const fn new(
        name: &'static str,
        calendar: (&'static str, &'static str, &'static str),
        (before, after): (&'static str, &'static str),
    ) -> Self {
        Self {
            name,
            calendar,
            year_starts: "01-01",
            before,
            after,
        }
    }

    pub(super) const fn fiscal(mut self, year_starts: &'static str) -> Self {
        self.year_starts = year_starts;
        self
    }

    /// Returns the definition. Each kind prints its date in parts, so that a part of another day
    /// would show.
    pub(super) fn definition(&self) -> Value {
        let (period, zone, cutover) = self.calendar;
        let date = match period {
            "day" => "{yyyy}-{MM}-{dd}",
            "month" => "{yyyy}-{MM}",
            "year" => "{yyyy}",
            _ => "{period}",
        };
        json!({
            "period": period, "time_zone": zone, "cutover": cutover,
            "year_starts": self.year_starts, "format": format!("{date}/{{value:012}}"),
            // Callers take more than people read.
            "limit": {"rate": 1_000_000, "burst": 100_000_000},
        })
    }

    pub(super) fn calendar(&self) -> Calendar {
        let change = DefinitionChange::from_value(&self.calendar_alone()).expect("a definition");
        let definition = change.create(&Definition::default());
        Calendar::of(&definition.expect("a definition")).expect("a calendar")
    }

    fn calendar_alone(&self) -> Value {
        let mut definition = self.definition();
        let fields = definition.as_object_mut().expect("an object");
        fields.remove("format");
        definition
    }

    /// Returns the id of a number in the period that the reply names.
    fn printed(&self, period: &str, value: i64) -> String {
        let part = |from: usize, to: usize| period.get(from..to).unwrap_or("?");
        let date = match self.calendar.0 {
            "day" => format!("{}-{}-{}", part(0, 4), part(4, 6), part(6, 8)),
            "month" => format!("{}-{}", part(0, 4), part(4, 6)),
            _ => period.to_owned(),
        };
        format!("{date}/{value:012}")
    }

    /// Returns the numbers of a reply. The error says which part of the reply disagrees with
    /// another one.
    pub(super) fn given(&self, reply: &Reply) -> Result<Given, String> {
        if reply.status != 200 {
            return Err(format!("{}: {reply:?}", self.name));
        }
        let body = reply.json();
        let wrong = |what: &str| Err(format!("{}: {what}: {}", self.name, reply.body));
        let Some(period) = body["period"].as_str().map(str::to_owned) else {
            return wrong("no period");
        };
        let (ranges, ids): (Vec<Range>, Option<Vec<&Value>>) =
            if let Some(ranges) = body["ranges"].as_array() {
                let ids = body["ids"].as_array().map(|ids| ids.iter().collect());
                (ranges.iter().map(Range::of_json).collect(), ids)
            } else if body.get("first").is_some() {
                (vec![Range::of_json(&body)], None)
            } else {
                let value = Range::identifier(&body["value"]);
                (vec![Range::single(value)], Some(vec![&body["id"]]))
            };
        if let Some(ids) = ids {
            let values = ranges.iter().flat_map(Range::values);
            let expected = values.map(|value| Value::String(self.printed(&period, value)));
            if !expected.eq(ids.into_iter().cloned()) {
                return wrong("printed otherwise than its period and number say");
            }
        }
        Ok(Given { period, ranges })
    }
}
