//! Gives the readers of this crate texts that nobody would write: each is refused, or kept to.
//!
//! Like all property tests, each meets 256 inputs by the seed of the run. `tests/run --all` goes on
//! for ten seconds for each test, and `tests/run --full fuzz` for a minute. What was found becomes
//! an input of an ordinary test.
//!
//! An input begins as one that must be taken. Then a character is changed: the text is refused from
//! now on, or it is another one that says what it says.

use proptest::{collection::vec, prelude::*, sample::Index};

use crate::{
    definition::{Definition, DefinitionChange, Span},
    duration,
    format::{Format, Overflow},
    glob::Glob,
    name::SequenceName,
    period::{Calendar, Period, PeriodKind},
    tests::properties,
};

/// Characters that some reader knows, and others.
const CHARACTERS: &str = "0129aAzZ.-_:*?[]{}!%+ W\u{e9}\0";

/// A change of one character of a text: one that is left out, doubled, or replaced.
#[derive(Clone, Debug)]
enum Edit {
    Leave(Index),
    Double(Index),
    Replace(Index, Index),
}

fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        any::<Index>().prop_map(Edit::Leave),
        any::<Index>().prop_map(Edit::Double),
        (any::<Index>(), any::<Index>()).prop_map(|(at, by)| Edit::Replace(at, by)),
    ]
}

fn edited(text: &str, edit: &Edit) -> String {
    let mut characters: Vec<char> = text.chars().collect();
    if characters.is_empty() {
        return String::new();
    }
    let n = characters.len();
    match edit {
        Edit::Leave(at) => {
            characters.remove(at.index(n));
        }
        Edit::Double(at) => characters.insert(at.index(n), characters[at.index(n)]),
        Edit::Replace(at, by) => {
            let others: Vec<char> = CHARACTERS.chars().collect();
            characters[at.index(n)] = others[by.index(others.len())];
        }
    }
    characters.into_iter().collect()
}

proptest! {
    #![proptest_config(properties())]

    #[test]
    fn a_pattern_fits_the_name_that_it_was_made_of(
        name in "[a-c][a-c0-2._:-]{0,8}",
        at in any::<Index>(),
        n in 0..3_usize,
        edit in edit(),
    ) {
        let named = SequenceName::parse(&name).expect("it is a name");
        let fits = |pattern: &str| Glob::parse(pattern).map(|glob| glob.fits(&named));
        assert_eq!(fits(&name), Ok(true), "{name}");
        let first = at.index(name.len());
        let (before, from) = name.split_at(first);
        let after = from.get(n.min(from.len())..).unwrap_or_default();
        let one_after = &from[1..];
        for (pattern, does_fit) in [
            (format!("{before}*{after}"), true),
            (format!("{before}?{one_after}"), true),
            (format!("{before}[{}]{one_after}", &from[..1]), true),
            (format!("{before}[!{}]{one_after}", &from[..1]), false),
            (format!("{name}?"), false),
            (format!("{name}*"), true),
        ] {
            // A set of one sign may be a range or the end of a set.
            if let Ok(found) = fits(&pattern) {
                assert_eq!(found, does_fit, "{pattern} {name}");
            }
        }
        let other = edited(&name, &edit);
        if let (Ok(other), false) = (SequenceName::parse(&other), other == name) {
            assert!(!Glob::parse(&name).is_ok_and(|glob| glob.fits(&other)), "{other}");
        }
    }

    #[test]
    fn a_duration_is_written_as_it_is_read(
        n in 0..1_000_000_u64,
        unit in prop_oneof![Just("ms"), Just("s"), Just("m"), Just("h"), Just("d"), Just("w")],
        edit in edit(),
    ) {
        let text = format!("{n}{unit}");
        let read = duration::parse(&text);
        assert!(read.is_ok(), "{text}: {read:?}");
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

/// Each kind of period, with one of its periods and the parts of formats that it can have.
const PERIODS: &[(PeriodKind, &str, &[&str])] = &[
    (PeriodKind::None, "", &[]),
    (
        PeriodKind::Day,
        "20261120",
        &["{period}", "{yyyy}{MM}{dd}", "{yyyy}{JJJ}"],
    ),
    (PeriodKind::Week, "2026W53", &["{period}"]),
    (PeriodKind::Month, "202602", &["{period}", "{MM}/{yyyy}"]),
    (PeriodKind::Year, "2026", &["{period}", "{yyyy}"]),
    (PeriodKind::Keyed, "eod-7", &["{period}"]),
];

const VALUES: &[&str] = &[
    "{value}",
    "{value:06}",
    "{value:b36}",
    "{value:b62:08}",
    "{value:crockford:05}",
];

const ENDS: &[&str] = &["", "{check:luhn}", "-{check:mod97}", "}}", "{{", ".X"];

proptest! {
    #![proptest_config(properties())]

    #[test]
    fn a_format_is_refused_or_reads_what_it_prints_and_nothing_else(
        of in 0..PERIODS.len(),
        parts in (any::<Index>(), 0..VALUES.len(), 0..ENDS.len(), "[-/.A-Z]{0,3}"),
        overflow in prop_oneof![Just(Overflow::Refuse), Just(Overflow::Widen)],
        value in (0..i64::MAX, 1..19_u32),
        (of_pattern, of_id) in (edit(), edit()),
    ) {
        let (kind, period, parts_of_period) = PERIODS[of];
        let (which, number, end, between) = parts;
        let dated = match parts_of_period.len() {
            0 => "",
            n => parts_of_period[which.index(n)],
        };
        let pattern = format!("{dated}{between}{}{}", VALUES[number], ENDS[end]);
        for pattern in [edited(&pattern, &of_pattern), pattern] {
            let definition = Definition {
                start: 0,
                period: kind,
                format: pattern,
                overflow,
                ..Definition::default()
            };
            let Ok(format) = Format::of(&definition) else {
                continue;
            };
            let period = Period::from_stored(period);
            // Numbers of each length.
            let value = (value.0 % 10_i64.pow(value.1)).min(definition.last());
            let printer = format.printer(&period);
            let mut id = String::new();
            printer.print(value, &mut id);
            assert!(id.len() <= printer.room(), "{definition:?}: {id}");
            assert_eq!(format.read(&id), Ok((period, value)), "{definition:?}: {id}");
            let other = edited(&id, &of_id);
            if let Ok((period, value)) = format.read(&other) {
                let mut again = String::new();
                format.printer(&period).print(value, &mut again);
                assert_eq!(again, other, "{definition:?}");
            }
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
