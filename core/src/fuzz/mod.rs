//! Gives the readers of this crate texts that nobody would write.
//!
//! `docs/adr/0032-readers-are-fuzzed-by-property-tests.md` says how the targets are made and run.

pub(crate) mod edit;
mod globs;

use proptest::{collection::vec, prelude::*};

use self::edit::{edit, edited};
use crate::{
    definition::{Definition, DefinitionChange, Span},
    duration::{self, InvalidDuration},
    format::Format,
    period::{Calendar, Period, PeriodKind},
    tests::properties,
};

/// The units of durations, in milliseconds.
const UNITS_MS: [(&str, u128); 6] = [
    ("ms", 1),
    ("s", 1000),
    ("m", 60_000),
    ("h", 3_600_000),
    ("d", 86_400_000),
    ("w", 604_800_000),
];

proptest! {
    #![proptest_config(properties())]

    #[test]
    fn a_duration_is_written_as_it_is_read(
        number in (any::<u64>(), 0..64_u32),
        unit in 0..UNITS_MS.len(),
        edit in edit(),
    ) {
        // Numbers of each length.
        let (number, (unit, unit_ms)) = (number.0 >> number.1, UNITS_MS[unit]);
        let text = format!("{number}{unit}");
        let ms = u128::from(number) * unit_ms;
        let read = duration::parse(&text);
        match u64::try_from(ms / 1000) {
            Ok(_) => assert_eq!(read.map(|read| read.as_millis()), Ok(ms), "{text}"),
            Err(_) => assert_eq!(read, Err(InvalidDuration::TooLong), "{text}"),
        }
        let is_span = read.is_ok() && ms.is_multiple_of(1000);
        assert_eq!(Span::parse(&text).is_ok(), is_span, "{text}");
        for text in [edited(&text, &edit), text] {
            if let Ok(read) = duration::parse(&text) {
                assert_eq!(duration::parse(&duration::exact(read)), Ok(read), "{text}");
            }
            if let Ok(span) = Span::parse(&text) {
                assert_eq!(Span::parse(&span.to_string()), Ok(span), "{text}");
            }
        }
    }

    #[test]
    fn a_period_is_refused_or_is_one_of_its_calendar(
        kind in prop_oneof![
            Just(PeriodKind::Day), Just(PeriodKind::Week), Just(PeriodKind::Month),
            Just(PeriodKind::Year),
        ],
        now_ms in 0..4_000_000_000_000_i64,
        edit in edit(),
    ) {
        let definition = Definition {
            period: kind,
            format: Format::WITH_PERIOD.to_owned(),
            ..Definition::default()
        };
        let calendar = Calendar::of(&definition).expect("it has a calendar");
        let present = calendar.at(now_ms).period;
        let named = calendar.named(present.as_str());
        assert_eq!(named.expect("it is one of the calendar").period, present);
        let other = edited(present.as_str(), &edit);
        if let Ok(named) = calendar.named(&other) {
            assert_eq!(named.period.as_str(), other);
        }
        if let Ok(period) = Period::parse(&other) {
            assert_eq!(period.as_str(), other);
        }
    }
}

/// Fields of definitions in JSON, and what is none.
const FIELDS: &[&str] = &[
    "\"kind\":\"block\"",
    "\"kind\":\"snowflake\"",
    "\"start\":\"0\"",
    "\"start\":5",
    "\"step\":10",
    "\"max\":\"9223372036854775806\"",
    "\"max\":99",
    "\"order\":\"strict\"",
    "\"period\":\"day\"",
    "\"period\":\"keyed\"",
    "\"time_zone\":\"Europe/Berlin\"",
    "\"cutover\":\"02:30\"",
    "\"block\":{\"min\":1,\"max\":5}",
    "\"format\":\"{period}-{value:06}\"",
    "\"format\":\"A{value:04}\"",
    "\"overflow\":\"widen\"",
    "\"declared_rate\":0.5",
    "\"limit\":{\"rate\":1,\"burst\":7}",
    "\"limit\":null",
    "\"layout\":{\"worker\":5}",
    "\"retain\":\"40d\"",
    "\"description\":\"\\u00e9\"",
    "\"confirm\":true",
    "\"none\":1",
    "\"start\":1e400",
    "[",
];

proptest! {
    #![proptest_config(properties())]

    #[test]
    fn a_definition_is_refused_or_stored_as_it_is(fields in vec(0..FIELDS.len(), 0..6)) {
        let fields: Vec<&str> = fields.into_iter().map(|choice| FIELDS[choice]).collect();
        let text = format!("{{{}}}", fields.join(","));
        let Ok(change) = DefinitionChange::from_json(text.as_bytes()) else {
            return Ok(());
        };
        let Ok(created) = change.create(&Definition::default()) else {
            return Ok(());
        };
        let stored = Definition::from_stored(&created.to_stored());
        assert_eq!(stored.expect("it was checked"), created, "{text}");
        let again = change.apply(&created, created.start, true);
        assert_eq!(again.expect("nothing changes"), created, "{text}");
    }
}
