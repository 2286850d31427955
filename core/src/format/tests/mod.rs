//! Tests what is printed, what is refused, and what is read back.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests may fail loudly"
)]

mod definitions;
mod fuzz;
mod identity;

use super::*;
use crate::period::Period;
use crate::tests::table;

fn defined(period: PeriodKind, pattern: &str) -> Definition {
    Definition {
        period,
        format: pattern.to_owned(),
        ..Definition::default()
    }
}

fn format(period: PeriodKind, pattern: &str) -> Format {
    Format::of(&defined(period, pattern)).unwrap_or_else(|error| panic!("{pattern} {error}"))
}

fn refused(period: PeriodKind, pattern: &str) -> String {
    Format::of(&defined(period, pattern))
        .unwrap_err()
        .to_string()
}

fn kind_named(name: &str) -> PeriodKind {
    serde_json::from_value(name.into()).unwrap()
}

fn printed(format: &Format, period: &str, value: i64) -> String {
    let mut id = String::new();
    format
        .printer(&Period::from_stored(period))
        .print(value, &mut id);
    id
}

#[test]
fn every_field_is_printed_as_the_contract_has_it_and_read_back() {
    for row in table(
        "
        none  | {value}                          |          | 42         | 42
        none  | INV-{value:06}                   |          | 42         | INV-000042
        none  | {{{value:b36}}}                  |          | 46655      | {ZZZ}
        none  | {value:b62:06}                   |          | 238327     | 000zzz
        none  | {value:crockford}                |          | 1023       | ZZ
        none  | {value:crockford:05}             |          | 1023       | 000ZZ
        none  | {value}{check:luhn}              |          | 7992739871 | 79927398713
        none  | {value}-{check:mod97}            |          | 794        | 794-44
        day   | {period}-{value}                 | 20261120 | 7          | 20261120-7
        day   | {yyyy}/{MM}/{dd} {value:04}      | 20261120 | 7          | 2026/11/20 0007
        day   | {yyyy}{JJJ}{value:05}            | 20261120 | 7          | 202632400007
        day   | {value}.{yy}{period}             | 20261120 | 7          | 7.2620261120
        week  | {period}/{value}                 | 2026W47  | 7          | 2026W47/7
        week  | {yyyy}:{period}{value}           | 2026W53  | 7          | 2026:2026W537
        month | {MM}/{yyyy}-{value}              | 202611   | 7          | 11/2026-7
        year  | RE{yyyy}-{value:06}-{check:luhn} | 2026     | 42         | RE2026-000042-9
        keyed | {period}-{value}                 | eod-7    | 12         | eod-7-12
        keyed | {period}{value:04}               | eod-7    | 12         | eod-70012
        keyed | {value}/{period}                 | 7        | 12         | 12/7
        keyed | {value}{check:mod97}-{period}    | 7        | 794        | 79444-7
        ",
    ) {
        let [kind, pattern, period, value, id] = row;
        let (format, value) = (format(kind_named(kind), pattern), value.parse().unwrap());
        assert_eq!(printed(&format, period, value), id);
        let pair = (Period::from_stored(period), value);
        assert_eq!(format.read(id), Ok(pair), "{id}");
    }
}

#[test]
fn only_the_number_alone_is_plain() {
    assert!(format(PeriodKind::None, "{value}").is_plain());
    for pattern in [
        "{value:01}",
        "-{value}",
        "{value}{check:luhn}",
        "{value:b36}",
    ] {
        assert!(!format(PeriodKind::None, pattern).is_plain(), "{pattern}");
    }
}

#[test]
fn patterns_whose_ids_could_repeat_are_refused_saying_why() {
    for row in table(
        "
        none  | INV2026{value:06}            | has `6` next to `{value:06}`
        none  | {value}0                     | has `0` next to `{value}`
        none  | INV{value:b36}               | has `V` next to `{value:b36}`
        none  | {value:b62}x                 | has `x` next to
        none  | {period}-{value}             | has `{period}`, and counts without periods
        none  | {yyyy}-{value}               | has `{yyyy}`, and counts without periods
        none  | {check:luhn}{value}          | `{check:luhn}` before the value
        day   | {value}                      | does not tell the periods apart
        day   | {yy}{MM}{dd}-{value}         | `{yyyy}` with `{MM}` and `{dd}`
        day   | {yyyy}{MM}-{value}           | does not tell the periods apart
        day   | {MM}{JJJ}-{value}            | does not tell the periods apart
        week  | {yyyy}-{value}               | it needs `{period}`
        week  | {period}{MM}-{value}         | has `{MM}`, which an ISO week does not tell
        month | {period}{dd}-{value}         | has `{dd}`, which is finer
        month | {period}{JJJ}-{value}        | has `{JJJ}`, which is finer
        month | {MM}-{value}                 | it needs `{period}`, or `{yyyy}` and `{MM}`
        year  | {yyyy}{MM}-{value}           | has `{MM}`, which is finer
        year  | {yy}-{value}                 | it needs `{period}` or `{yyyy}`
        keyed | {value}                      | it needs `{period}`
        keyed | {yyyy}-{period}-{value}      | which a caller's key does not tell
        keyed | {period}{value}              | cannot always be read back
        keyed | {value}{period}              | cannot always be read back
        keyed | {value}{check:luhn}{period}  | cannot always be read back
        keyed | {value}{check:luhn}7{period} | cannot always be read back
        keyed | {period}-{period}-{value:04} | has `{period}` twice
        ",
    ) {
        let [kind, pattern, said] = row;
        let sentence = refused(kind_named(kind), pattern);
        assert!(sentence.contains(said), "{pattern}: {sentence}");
    }
    let mut widens = defined(PeriodKind::Keyed, "{period}{value:04}");
    Format::of(&widens).unwrap();
    widens.overflow = Overflow::Widen;
    let sentence = Format::of(&widens).unwrap_err().to_string();
    assert!(
        sentence.contains("cannot always be read back"),
        "{sentence}"
    );
    let mut narrow = defined(PeriodKind::None, "{value:02}");
    narrow.start = 100;
    let sentence = Format::of(&narrow).unwrap_err().to_string();
    assert_eq!(
        sentence,
        "has room for numbers up to 99, and `start` is 100"
    );
    narrow.overflow = Overflow::Widen;
    Format::of(&narrow).unwrap();
}

#[test]
fn a_number_past_its_padding_does_not_exist_unless_it_may_widen() {
    let mut definition = defined(PeriodKind::None, "A{value:03}");
    assert_eq!((definition.last(), definition.end()), (999, 1000));
    assert_eq!(
        (
            definition.left(1),
            definition.left(999),
            definition.left(1000)
        ),
        (999, 1, 0)
    );
    assert!(definition.exhausted(1000) && !definition.exhausted(999));
    assert_eq!(definition.first_from(1000), Some(1000));
    assert_eq!(definition.first_from(1001), None);
    definition.step = 7;
    assert_eq!((definition.left(1), definition.end()), (143, 1002));
    definition.max = 500;
    assert_eq!(definition.last(), 500);
    definition.overflow = Overflow::Widen;
    definition.max = 5_000;
    assert_eq!(definition.last(), 5_000);
    let format = Format::of(&definition).unwrap();
    assert_eq!(printed(&format, "", 1002), "A1002");
    assert_eq!(format.read("A1002").unwrap().1, 1002);
}

#[test]
fn what_is_not_printed_is_not_read_and_the_fault_is_named() {
    for row in table(
        "
        none  | {value}                     |                      | does not have 0 characters
        none  | {value}                     | 12a                  | \"12a\" at character 1 is no number
        none  | {value}                     | é1                   | is no number
        none  | {value}                     | -1                   | is no number
        none  | {value}                     | 01                   | printed otherwise by this sequence, from character 1 on
        none  | {value}                     | 99999999999999999999 | does not have 20 characters
        none  | {value}                     | 9223372036854775808  | above 2^63 - 1
        none  | {value}                     | 9007199254740992     | has 1 to 9007199254740991
        none  | {value}                     | 0                    | The number 0 is not of this sequence
        none  | INV-{value:06}              | INV_000042           | has \"INV-\" at character 1; this one has \"INV_\"
        none  | INV-{value:06}              | INV-42               | does not have 6 characters
        none  | INV-{value:06}              | inv-000042           | has \"INV-\" at character 1
        none  | INV-{value:06}              | INV-0000é            | is no number as `{value:06}` prints it
        none  | {value:b36}                 | zz                   | \"zz\" at character 1 is no number
        none  | {value:crockford}           | 1O                   | is no number
        none  | {value}{check:luhn}         | 79927398710          | check digits \"0\" at character 11
        none  | {value}{check:luhn}         | 79927398613          | check digits \"3\" at character 11
        none  | {value}-{check:mod97}       | 794-45               | check digits \"45\" at character 5
        day   | {period}-{value}            | 20261320-7           | \"20261320\" is no period
        day   | {yyyy}{MM}{dd}-{value}      | 20260229-7           | \"20260229\" is no period
        day   | {yyyy}{JJJ}-{value}         | 2026366-7            | \"2026366\" is no period
        day   | {yy}-{period}-{value}       | 25-20261120-7        | printed otherwise by this sequence, from character 2 on
        day   | {yyyy}{JJJ}{MM}{dd}-{value} | 20263241121-7        | printed otherwise
        week  | {period}-{value}            | 2025W53-7            | \"2025W53\" is no period
        year  | {yyyy}-{value:04}           | +026-0007            | \"+026\" is no period
        keyed | {period}-{value}            | -a-7                 | \"-a\" is no period
        keyed | {period}-{value}            | a_7                  | has \"-\" at character 2; this one has \"_\"
        keyed | {period}-{value}            | a-                   | does not have 2 characters
        keyed | {value}-{period}            | 7-a b                | \"a b\" is no period
        ",
    ) {
        let [kind, pattern, id, said] = row;
        let refused = format(kind_named(kind), pattern).read(id).unwrap_err();
        let refused = refused.to_string();
        assert!(refused.contains(said), "{pattern} {id}: {refused}");
    }
    let mut definition = defined(PeriodKind::None, "{value}");
    definition.step = 10;
    let refused = Format::of(&definition).unwrap().read("12").unwrap_err();
    assert!(
        refused.to_string().ends_with("goes from 1 in steps of 10."),
        "{refused}"
    );
}

#[test]
fn formats_that_share_no_id_are_told_from_those_that_may() {
    for row in table(
        "
        none  | INV-{value:04}     | INV-{value:06}            | true
        none  | INV-{value:06}     | RE-{value:06}             | true
        none  | {value}            | INV-{value}               | true
        none  | {value}-A          | {value}-B                 | true
        none  | AX-{value}-CX      | BX-{value}-CX             | true
        none  | X-{value}-AC       | X-{value}-BC              | true
        none  | {value}            | {value:b36}               | false
        none  | {value}            | {value:06}                | false
        none  | {value}            | {value}{check:luhn}       | false
        none  | A-{value:b36}      | A-{value}                 | false
        none  | A-{value}          | A-{value}-{check:luhn}    | true
        day   | {period}-{value}   | {period}/{value}          | true
        day   | {period}{value:06} | {yyyy}-{MM}{dd}{value:06} | true
        day   | {period}{value:06} | {yyyy}{JJJ}{value:06}     | true
        day   | {period}{value:06} | {yyyy}{JJJ}{value:07}     | false
        keyed | {period}-{value}   | {period}:{value}          | false
        keyed | {period}-{value}   | {period}/{value}          | true
        ",
    ) {
        let [kind, one, other, apart] = row;
        let (first, second) = (
            format(kind_named(kind), one),
            format(kind_named(kind), other),
        );
        let is_apart = apart == "true";
        assert_eq!(
            first.cannot_print_any_of(&second),
            is_apart,
            "{one} {other}"
        );
        assert_eq!(
            second.cannot_print_any_of(&first),
            is_apart,
            "{other} {one}"
        );
        assert!(!first.cannot_print_any_of(&first));
    }
    let mut widens = defined(PeriodKind::None, "INV-{value:04}");
    widens.overflow = Overflow::Widen;
    let widens = Format::of(&widens).unwrap();
    assert!(!format(PeriodKind::None, "INV-{value:06}").cannot_print_any_of(&widens));
}

#[test]
fn printing_needs_no_more_room_than_it_says() {
    for (kind, pattern, period) in [
        (PeriodKind::None, "{value}", ""),
        (PeriodKind::None, "A-{value:b62}-{check:mod97}", ""),
        (PeriodKind::Keyed, "{period}-{value:06}", "eod-7"),
    ] {
        let printer = format(kind, pattern).printer(&Period::from_stored(period));
        let mut id = String::with_capacity(printer.room());
        let had = id.capacity();
        printer.print(i64::MAX, &mut id);
        assert_eq!(id.capacity(), had, "{id}");
    }
}
