//! Tests what a caller can set, what a caller can change, and what the messages say.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests may fail loudly"
)]

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn change(value: Value) -> DefinitionChange {
    DefinitionChange::from_json(value.to_string().as_bytes()).unwrap()
}

fn create(value: Value) -> Result<Definition, DefinitionError> {
    change(value).create(&Definition::default())
}

fn wrong(value: Value) -> String {
    match DefinitionChange::from_json(value.to_string().as_bytes()) {
        Err(ChangeError::Wrong { detail, .. }) => detail,
        other => panic!("{value} gave {other:?}"),
    }
}

fn contract() -> Value {
    json!({
        "kind": "block", "start": "1", "step": 1, "max": "9007199254740991", "order": "relaxed",
        "period": "none", "time_zone": "UTC", "cutover": "00:00", "year_starts": "01-01",
        "period_back": "2d", "period_ahead": "2d", "retain": "400d",
        "block": {"min": 1, "max": 1_000_000_000, "hold": "15m", "refill": "30m"},
        "format": "{value}", "overflow": "refuse", "declared_rate": null,
        "limit": {"rate": 100_000, "burst": 10_000_000},
        "store": "default", "description": ""
    })
}

#[test]
fn the_default_is_the_contracts_and_can_be_sent_back() {
    let default = Definition::default();
    assert_eq!(serde_json::to_value(&default).unwrap(), contract());
    assert_eq!(create(contract()).unwrap(), default);
    assert_eq!(
        change(contract()).apply(&default, 1000, true).unwrap(),
        default
    );
    assert_eq!(create(json!({"layout": null})).unwrap(), default);
}

#[test]
fn fields_are_written_in_the_order_of_the_contract() {
    let stored = Definition::default().to_stored();
    let start = r#"{"kind":"block","start":"1","step":1,"max":"9007199254740991","order":"#;
    assert!(stored.starts_with(start), "{stored}");
}

#[test]
fn a_stored_definition_may_lack_fields_and_have_others() {
    let stored = r#"{"start":"5","block":{"min":7},"from_the_future":{"a":[1]}}"#;
    let expected = Definition {
        start: 5,
        block: BlockPolicy {
            min: 7,
            ..BlockPolicy::default()
        },
        ..Definition::default()
    };
    assert_eq!(Definition::from_stored(stored).unwrap(), expected);
    assert_eq!(
        Definition::from_stored(&expected.to_stored()).unwrap(),
        expected
    );
}

#[test]
fn a_stored_definition_that_cannot_be_served_is_refused() {
    for stored in ["", "5", "{\"start\":1.5}", "{\"kind\":\"dice\"}"] {
        let error = Definition::from_stored(stored).unwrap_err();
        assert!(matches!(error, StoredDefinitionError::Unreadable(_)));
    }
    for stored in ["{\"step\":0}", "{\"kind\":\"snowflake\"}"] {
        let error = Definition::from_stored(stored).unwrap_err();
        assert!(matches!(error, StoredDefinitionError::Refused(_)));
    }
}

#[test]
fn numbers_that_identify_come_as_strings_or_whole_numbers() {
    let definition = create(json!({"start": 10, "max": "9223372036854775805", "step": "2"}));
    let definition = definition.unwrap();
    assert_eq!((definition.start, definition.step), (10, 2));
    assert_eq!(definition.max, i64::MAX - 2);
    let definition = create(json!({"start": 5001.0, "max": 3e4, "step": 2.0})).unwrap();
    assert_eq!((definition.start, definition.step), (5001, 2));
    assert_eq!(definition.max, 30_000);
    let exact = create(json!({"max": 9_007_199_254_740_991.0})).unwrap();
    assert_eq!(exact.max, 9_007_199_254_740_991);
    for bad in [
        json!(1.5),
        json!(9_007_199_254_740_992.0),
        json!(1e300),
        json!("1.0"),
        json!(" 1"),
        json!("+1"),
        json!(""),
        json!("0x1"),
        json!("9223372036854775808"),
        json!(9_223_372_036_854_775_808_u64),
        json!("99999999999999999999999"),
        json!(true),
        json!(null),
        json!([1]),
        json!({}),
    ] {
        for field in ["start", "max", "step"] {
            let detail = wrong(json!({ field: bad }));
            assert!(detail.contains(&format!("`{field}` must be")), "{detail}");
        }
    }
}

#[test]
fn numbers_that_count_are_whole_however_they_are_written() {
    let block = json!({"block": {"min": 5.0, "max": 1e3}});
    let definition = create(block).unwrap();
    assert_eq!((definition.block.min, definition.block.max), (5, 1000));
    let layout = json!({"kind": "snowflake", "layout": {"time": 41.0, "worker": 5.0}});
    let layout = create(layout).unwrap().layout.unwrap();
    assert_eq!((layout.time, layout.worker), (41, 5));
    for bad in [json!(5.5), json!(-5.0), json!(1e300), json!("5")] {
        let detail = wrong(json!({"block": {"min": bad}}));
        assert!(detail.contains("`block.min` must be"), "{detail}");
        let detail = wrong(json!({"layout": {"time": bad}}));
        assert!(detail.contains("`layout.time` must be"), "{detail}");
    }
}

#[test]
fn what_is_not_an_object_is_told_from_a_wrong_field() {
    for bytes in [
        "",
        "nonsense",
        "{",
        "[]",
        "5",
        "null",
        "\"a\"",
        "{} {}",
        "\u{feff}{}",
    ] {
        let error = DefinitionChange::from_json(bytes.as_bytes()).unwrap_err();
        assert!(matches!(error, ChangeError::NotJson { .. }), "{bytes:?}");
    }
    assert!(DefinitionChange::from_json(b"\xff").is_err());
    assert_eq!(change(json!({})), DefinitionChange::default());
}

#[test]
fn a_wrong_field_is_named_with_what_it_should_be() {
    for (value, part) in [
        (
            json!({"stepp": 1}),
            "`stepp` is not a field; the fields are kind, start",
        ),
        (
            json!({"block": {"size": 1}}),
            "`block.size` is not a field; the fields are min, max",
        ),
        (json!({"block": 5}), "`block` must be an object"),
        (
            json!({"block": {"min": "5"}}),
            "`block.min` must be a whole number",
        ),
        (
            json!({"block": {"max": -1}}),
            "`block.max` must be a whole number",
        ),
        (
            json!({"block": {"hold": 5}}),
            "`block.hold` must be a duration",
        ),
        (json!({"block": {"hold": "5 m"}}), "not \"5 m\"."),
        (
            json!({"kind": "dice"}),
            "`kind` must be \"block\" or \"snowflake\", not \"dice\".",
        ),
        (
            json!({"order": null}),
            "`order` must be \"relaxed\" or \"strict\", not null.",
        ),
        (json!({"period": 1}), "`period` must be \"none\""),
        (
            json!({"overflow": {"widen": 1}}),
            "`overflow` must be \"refuse\" or \"widen\", not an object.",
        ),
        (
            json!({"description": 1}),
            "`description` must be a string, not 1.",
        ),
        (
            json!({"declared_rate": "fast"}),
            "`declared_rate` must be a number above 0, or null",
        ),
        (
            json!({"declared_rate": -1}),
            "`declared_rate` must be a number above 0, or null",
        ),
        (
            json!({"layout": []}),
            "`layout` must be an object with some of high, epoch, unit, time, worker, sequence, or \
             \"53-bit\", or null, not an array.",
        ),
    ] {
        let detail = wrong(value);
        assert!(detail.contains(part), "{detail}");
    }
    let long = wrong(json!({"format": ["x".repeat(9_000)], "y".repeat(9_000): 1}));
    assert!(long.len() < 1_000, "{long}");
}

#[test]
fn values_out_of_range_are_refused_by_field() {
    for (value, field) in [
        (json!({"step": 0}), "step"),
        (json!({"step": -1}), "step"),
        (json!({"step": 9_007_199_254_740_992_i64}), "step"),
        (json!({"start": -1}), "start"),
        (json!({"start": 10, "max": 9}), "start"),
        (json!({"max": -5}), "start"),
        (json!({"max": i64::MAX}), "max"),
        (json!({"max": i64::MAX - 1, "step": 2}), "max"),
        (json!({"block": {"min": 0}}), "block.min"),
        (json!({"block": {"min": 11, "max": 10}}), "block.min"),
        (json!({"block": {"max": 0}}), "block.max"),
        (json!({"block": {"max": 4_294_967_297_u64}}), "block.max"),
        (json!({"block": {"hold": "0s"}}), "block.hold"),
        (json!({"block": {"refill": "367d"}}), "block.refill"),
        (json!({"description": "x".repeat(1025)}), "description"),
        (json!({"description": "a\nb"}), "description"),
    ] {
        let error = create(value.clone()).unwrap_err();
        assert!(
            matches!(error, DefinitionError::Invalid { .. }),
            "{error:?}"
        );
        assert_eq!(error.field(), field, "{value}");
        assert!(error.to_string().starts_with('`') && error.to_string().ends_with('.'));
    }
    for value in [
        json!({"start": 0, "max": 0}),
        json!({"max": i64::MAX - 1}),
        json!({"step": 9_007_199_254_740_991_i64}),
        json!({"block": {"min": 4_294_967_296_u64, "max": 4_294_967_296_u64}}),
        json!({"block": {"hold": "1s", "refill": "366d"}}),
        json!({"description": "é".repeat(1024)}),
    ] {
        create(value).unwrap();
    }
}

#[test]
fn a_store_is_named_or_refused() {
    for name in ["default", "a", "tickets_2", &"a".repeat(32)] {
        create(json!({ "store": name })).unwrap();
    }
    for name in [
        "",
        "Tickets",
        "2x",
        "_x",
        "a-b",
        "a b",
        "é",
        &"a".repeat(33),
    ] {
        let error = create(json!({ "store": name })).unwrap_err();
        assert_eq!(error.field(), "store", "{name}");
    }
}

#[test]
fn what_was_created_stays_and_is_named() {
    let existing = create(json!({"start": 5, "step": 2})).unwrap();
    for (field, value) in [
        ("kind", json!("snowflake")),
        ("start", json!("1")),
        ("step", json!(1)),
        ("period", json!("day")),
        ("time_zone", json!("Europe/Berlin")),
        ("cutover", json!("06:00")),
        ("store", json!("other")),
        ("layout", json!({"high": "time"})),
        ("order", json!("strict")),
    ] {
        let error = change(json!({ field: value }))
            .apply(&existing, 5, false)
            .unwrap_err();
        assert!(error.is_immutable(), "{error:?}");
        assert_eq!(error.field(), field);
    }
    let error = change(json!({"start": "1"})).apply(&existing, 5, false);
    assert_eq!(
        error.unwrap_err().to_string(),
        "`start` cannot be changed once the sequence exists: it is \"5\"."
    );
    let yearly = create(json!({"period": "year"})).unwrap();
    let error = change(json!({"year_starts": "04-01"})).apply(&yearly, 1, false);
    assert_eq!(error.unwrap_err().field(), "year_starts");
    // A value that no sequence may have is wrong, whether or not it is a change.
    let error = change(json!({"step": 0}))
        .apply(&existing, 5, false)
        .unwrap_err();
    assert!(!error.is_immutable());
}

#[test]
fn order_may_be_relaxed_and_not_made_strict() {
    let strict = create(json!({"order": "strict"})).unwrap();
    let relaxed = change(json!({"order": "relaxed"}))
        .apply(&strict, 5, true)
        .unwrap();
    assert_eq!(relaxed.order, Order::Relaxed);
    let error = change(json!({"order": "strict"})).apply(&relaxed, 5, true);
    assert_eq!(
        error.unwrap_err().to_string(),
        "`order` cannot be changed once the sequence exists: it is \"relaxed\"."
    );
}

#[test]
fn what_may_change_does_and_the_rest_stays() {
    let existing = create(json!({"start": 5, "block": {"min": 3, "hold": "1h"}})).unwrap();
    let asked = change(json!({"description": "invoices", "max": 1000, "block": {"max": 9}}));
    let changed = asked.apply(&existing, 5, false).unwrap();
    let expected = Definition {
        description: "invoices".to_owned(),
        max: 1000,
        block: BlockPolicy {
            max: 9,
            ..existing.block
        },
        // So few numbers have no limit.
        limit: None,
        ..existing
    };
    assert_eq!(changed, expected);
    assert_eq!(asked.apply(&changed, 5, false).unwrap(), changed);
}

#[test]
fn max_does_not_fall_below_what_is_reserved() {
    let existing = create(json!({"start": 10, "step": 5, "max": 1000})).unwrap();
    let to = |max: i64, next_value| change(json!({"max": max})).apply(&existing, next_value, true);
    // 10, 15, 20 are reserved.
    assert!(to(20, 25).is_ok());
    assert_eq!(to(19, 25).unwrap_err().field(), "max");
    assert!(to(10, 10).is_ok());
    assert_eq!(to(9, 10).unwrap_err().field(), "start");
}

#[test]
fn what_is_left_counts_the_last_number_too() {
    let definition = create(json!({"start": 1, "step": 3, "max": 10})).unwrap();
    let left: Vec<u64> = [1, 4, 7, 10, 13].map(|next| definition.left(next)).into();
    assert_eq!(left, [4, 3, 2, 1, 0]);
    assert!(definition.exhausted(13) && !definition.exhausted(10));
    let all = create(json!({"start": 0, "max": i64::MAX - 1})).unwrap();
    assert_eq!(all.left(0), u64::try_from(i64::MAX).unwrap());
    assert_eq!(all.left(i64::MAX), 0);
}

#[test]
fn spans_read_and_print_in_the_largest_exact_unit() {
    for (text, seconds, printed) in [
        ("0s", 0, "0s"),
        ("0d", 0, "0s"),
        ("90s", 90, "90s"),
        ("60m", 3_600, "1h"),
        ("015m", 900, "15m"),
        ("400d", 34_560_000, "400d"),
        ("14d", 1_209_600, "2w"),
        ("18446744073709551615s", u64::MAX, "18446744073709551615s"),
    ] {
        let span = Span::parse(text).unwrap();
        assert_eq!(
            (span.seconds(), span.to_string().as_str()),
            (seconds, printed)
        );
    }
    for text in [
        "",
        "s",
        "5",
        "5x",
        "5 m",
        " 5m",
        "5m ",
        "-5m",
        "+5m",
        "1.5h",
        "1h30m",
        "5M",
        "500ms",
        "18446744073709551615m",
        "99999999999999999999s",
    ] {
        assert_eq!(Span::parse(text), Err(InvalidSpan), "{text:?}");
    }
}

#[test]
fn a_change_is_read_from_any_format_with_the_same_sentences() {
    let read = DefinitionChange::from_value(&json!({"start": "7"})).unwrap();
    assert_eq!(read, change(json!({"start": 7})));
    let error = DefinitionChange::from_value(&json!({"stat": 7})).unwrap_err();
    assert!(error.to_string().contains("`stat` is not a field"));
}

proptest! {
    #![proptest_config(crate::tests::properties())]

    #[test]
    fn a_definition_survives_the_store_and_leaves_no_number_out(
        start in 0_i64..1000,
        step in 1_i64..1000,
        extra in 0_i64..100_000,
        taken in 0_i64..200,
    ) {
        let definition = create(json!({"start": start, "step": step, "max": start + extra})).unwrap();
        prop_assert_eq!(&Definition::from_stored(&definition.to_stored()).unwrap(), &definition);
        let next = start + taken * step;
        let one_by_one = (0..).map(|n| next + n * step).take_while(|n| *n <= definition.max);
        prop_assert_eq!(definition.left(next), u64::try_from(one_by_one.count()).unwrap());
        prop_assert_eq!(definition.left(next) == 0, definition.exhausted(next));
    }

    #[test]
    fn no_bytes_make_a_change_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let _ = DefinitionChange::from_json(&bytes);
    }
}

#[test]
fn a_floor_is_the_next_number_of_the_sequence() {
    let definition = Definition {
        start: 5,
        step: 10,
        max: 100,
        ..Definition::default()
    };
    assert_eq!(definition.end(), 105);
    for (floor, first) in [
        (i64::MIN, Some(5)),
        (5, Some(5)),
        (6, Some(15)),
        (15, Some(15)),
        (95, Some(95)),
        (96, Some(105)),
        (105, Some(105)),
        (106, None),
        (i64::MAX, None),
    ] {
        assert_eq!(definition.first_from(floor), first, "{floor}");
    }
}

#[test]
fn the_end_of_the_longest_sequences_fits() {
    for step in [1, 2, 7, (1 << 53) - 1] {
        for start in [0, 1, i64::MAX - step - 1] {
            let definition = Definition {
                start,
                step,
                max: i64::MAX - step,
                ..Definition::default()
            };
            let end = definition.end();
            assert!(
                end > definition.max && end - step <= definition.max,
                "{step}"
            );
            assert_eq!(definition.first_from(end), Some(end));
            assert_eq!(
                definition.first_from(end.saturating_add(1)).is_some(),
                end == i64::MAX
            );
        }
    }
}
