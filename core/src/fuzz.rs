//! Gives the readers of this crate texts that nobody would write: each is refused, or kept to.
//!
//! Like all property tests, each meets 256 inputs by the seed of the run. `tests/run --all` goes on
//! for ten seconds for each test, and `tests/run --full fuzz` for a minute. What was found becomes
//! an input of an ordinary test.

use proptest::{collection::vec, prelude::*};

use crate::{
    definition::{Definition, DefinitionChange, Span},
    duration,
    format::{Format, Overflow},
    glob::Glob,
    name::SequenceName,
    period::{Calendar, Period, PeriodKind},
    tests::properties,
};

/// Choices of what a text is built of.
fn choices() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..6)
}

/// Builds a text: of four bytes three choose a piece that the reader may know, and one is a
/// character.
fn text_of(pieces: &[&str], choices: &[u8]) -> String {
    let mut text = String::new();
    for choice in choices {
        match pieces.get(usize::from(choice / 4) % pieces.len()) {
            Some(piece) if choice % 4 != 0 => text.push_str(piece),
            _ => text.push(char::from(*choice)),
        }
    }
    text
}

/// Pieces of names and of patterns over them.
const NAMES: &[&str] = &[
    "a", "Z", "0", "orders", ".", "_", ":", "-", "*", "?", "[", "]", "!", "[a-f]", "[!a-f]", "**",
    "/", "%2F", "\u{e9}",
];

proptest! {
    #![proptest_config(properties())]

    #[test]
    fn a_name_is_refused_or_kept_as_it_is(choices in choices()) {
        let text = text_of(NAMES, &choices);
        let Ok(name) = SequenceName::parse(&text) else {
            return Ok(());
        };
        assert_eq!(name.as_str(), text);
        assert!((1..=128).contains(&text.len()));
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || "._:-".contains(c);
        assert!(text.chars().all(is_allowed));
        assert!(text.starts_with(|c: char| c.is_ascii_alphanumeric()));
        // A name without signs of patterns is a pattern that fits itself.
        assert!(Glob::parse(&text).is_ok_and(|glob| glob.fits(&name)));
    }
}

proptest! {
    #![proptest_config(properties())]

    #[test]
    fn a_pattern_is_refused_or_fits_what_its_parts_fit(pattern in choices(), name in choices()) {
        let pattern = text_of(NAMES, &pattern);
        let name = SequenceName::parse(&text_of(&NAMES[..8], &name));
        let (Ok(glob), Ok(name)) = (Glob::parse(&pattern), name) else {
            return Ok(());
        };
        let fits = glob.fits(&name);
        if !pattern.contains(['*', '?', '[']) {
            assert_eq!(fits, pattern == name.as_str());
        }
        // What comes before the first sign stands for itself.
        let literal = pattern.split(['*', '?', '[']).next().unwrap_or_default();
        assert!(!fits || name.as_str().starts_with(literal));
        if let Ok(open) = Glob::parse(&format!("{literal}*")) {
            assert_eq!(open.fits(&name), name.as_str().starts_with(literal));
        }
    }
}

/// Pieces of durations and of periods.
const TIMES: &[&str] = &[
    "0",
    "1",
    "9",
    "12",
    "500",
    "ms",
    "s",
    "m",
    "h",
    "d",
    "w",
    ".",
    "-",
    "+",
    " ",
    "20261120",
    "2026W47",
    "202611",
    "2026",
    "W53",
    "0229",
    "eod-7",
    "9223372036854775807",
];

proptest! {
    #![proptest_config(properties())]

    #[test]
    fn a_duration_is_refused_or_written_as_it_is_read(choices in choices()) {
        let text = text_of(TIMES, &choices);
        if let Ok(read) = duration::parse(&text) {
            assert_eq!(duration::parse(&duration::exact(read)), Ok(read), "{text}");
        }
        if let Ok(span) = Span::parse(&text) {
            assert_eq!(Span::parse(&span.to_string()), Ok(span), "{text}");
        }
    }
}

proptest! {
    #![proptest_config(properties())]

    #[test]
    fn a_period_is_refused_or_is_one_of_its_calendar(choices in choices()) {
        let text = text_of(TIMES, &choices);
        let _checked = Period::parse(&text).map(|period| assert_eq!(period.as_str(), text));
        for kind in CALENDARS {
            let definition = Definition {
                period: *kind,
                format: Format::WITH_PERIOD.to_owned(),
                ..Definition::default()
            };
            let calendar = Calendar::of(&definition).expect("it has a calendar");
            if let Ok(named) = calendar.named(&text) {
                assert_eq!(named.period.as_str(), text);
            }
        }
    }
}

const CALENDARS: &[PeriodKind] = &[
    PeriodKind::Day,
    PeriodKind::Week,
    PeriodKind::Month,
    PeriodKind::Year,
];

/// Each kind of period, with one of its periods.
const PERIODS: &[(PeriodKind, &str)] = &[
    (PeriodKind::None, ""),
    (PeriodKind::Day, "20261120"),
    (PeriodKind::Week, "2026W53"),
    (PeriodKind::Month, "202602"),
    (PeriodKind::Year, "2026"),
    (PeriodKind::Keyed, "eod-7"),
];

/// Pieces of formats, and of what they print.
const FORMATS: &[&str] = &[
    "{value}",
    "{value:06}",
    "{value:b36}",
    "{value:b62:08}",
    "{value:crockford:05}",
    "{period}",
    "{yyyy}",
    "{yy}",
    "{MM}",
    "{dd}",
    "{JJJ}",
    "{check:luhn}",
    "{check:mod97}",
    "{{",
    "}}",
    "{",
    "}",
    ":",
    "-",
    "INV",
    "0",
    "9",
    "Z",
];

proptest! {
    #![proptest_config(properties())]

    #[test]
    fn a_format_is_refused_or_reads_what_it_prints_and_nothing_else(
        pattern in vec(any::<u8>(), 0..8),
        of in 0..PERIODS.len(),
        overflow in prop_oneof![Just(Overflow::Refuse), Just(Overflow::Widen)],
        value in 0..i64::MAX,
        other in vec(any::<u8>(), 0..8),
    ) {
        let (kind, period) = PERIODS[of];
        let definition = Definition {
            period: kind,
            format: text_of(FORMATS, &pattern),
            overflow,
            ..Definition::default()
        };
        let Ok(format) = Format::of(&definition) else {
            return Ok(());
        };
        let (period, value) = (Period::from_stored(period), value.min(definition.last()));
        let printer = format.printer(&period);
        let mut id = String::new();
        printer.print(value, &mut id);
        assert!(id.len() <= printer.room(), "{definition:?}: {id}");
        assert_eq!(format.read(&id), Ok((period, value)), "{definition:?}: {id}");
        let other = text_of(FORMATS, &other);
        if let Ok((period, value)) = format.read(&other) {
            let mut again = String::new();
            format.printer(&period).print(value, &mut again);
            assert_eq!(again, other, "{definition:?}");
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
