//! Tests definitions of time-ordered sequences: how they are read, completed, refused and kept.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may fail loudly")]

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::snowflake::{DEFAULT_EPOCH_MS, High, LayoutUnit, Parts};
use crate::tests::table;

const DAY_MS: i64 = 86_400_000;

fn change(value: Value) -> DefinitionChange {
    DefinitionChange::from_json(value.to_string().as_bytes()).unwrap()
}

fn create(value: Value) -> Result<Definition, DefinitionError> {
    change(value).create(&Definition::default())
}

fn snowflake(layout: Value) -> Result<Definition, DefinitionError> {
    create(json!({"kind": "snowflake", "layout": layout}))
}

fn wrong(layout: Value) -> String {
    match DefinitionChange::from_value(&json!({ "layout": layout })) {
        Err(ChangeError::Wrong { detail, .. }) => detail,
        other => panic!("{layout} gave {other:?}"),
    }
}

#[test]
fn a_snowflake_without_a_layout_has_the_default_one_and_can_be_sent_back() {
    let definition = create(json!({"kind": "snowflake"})).unwrap();
    assert_eq!(definition.layout, Some(Layout::default()));
    assert_eq!(snowflake(json!(null)).unwrap(), definition);
    assert_eq!(snowflake(json!({})).unwrap(), definition);
    let shown = serde_json::to_value(&definition).unwrap();
    assert_eq!(
        shown["layout"],
        json!({
            "high": "time", "epoch": "2026-01-01T00:00:00Z", "unit": "1ms",
            "time": 41, "worker": 10, "sequence": 12
        })
    );
    assert_eq!(create(shown.clone()).unwrap(), definition);
    for again in [
        shown,
        json!({}),
        json!({"kind": "snowflake"}),
        json!({"layout": null}),
    ] {
        let applied = change(again).apply(&definition, 1, true).unwrap();
        assert_eq!(applied, definition);
    }
    let stored = definition.to_stored();
    assert_eq!(Definition::from_stored(&stored).unwrap(), definition);
}

#[test]
fn what_a_layout_leaves_out_is_as_in_the_default_one() {
    let layout = |value| snowflake(value).unwrap().layout.unwrap();
    assert_eq!(layout(json!("53-bit")), Layout::preset_53_bit());
    assert_eq!(
        layout(json!({"high": "worker", "unit": "10ms"})),
        Layout {
            high: High::Worker,
            unit: LayoutUnit::TenMilliseconds,
            ..Layout::default()
        }
    );
    assert_eq!(
        layout(json!({"epoch": "1970-01-01T01:00:00.5+01:00", "unit": "1s", "worker": 1})),
        Layout {
            epoch_ms: 500,
            unit: LayoutUnit::Second,
            worker: 1,
            ..Layout::default()
        }
    );
}

#[test]
fn a_wrong_layout_is_named_with_what_it_should_be() {
    for [layout, said] in table(
        r#"
        "54-bit"                                 | `layout` must be an object with some of high, epoch
        5                                        | or "53-bit", or null, not 5.
        true                                     | `layout` must be
        {"widths": 1}                            | `layout.widths` is not a field; the fields are high, epoch, unit, time, worker, sequence.
        {"high": "sequence"}                     | `layout.high` must be "time" or "worker", not
        {"unit": "1 ms"}                         | `layout.unit` must be "1ms", "10ms" or "1s", not
        {"unit": 1}                              | `layout.unit` must be
        {"epoch": 1767225600000}                 | `layout.epoch` must be an instant in RFC 3339
        {"epoch": "2026-01-01"}                  | `layout.epoch` must be
        {"epoch": "1969-12-31T23:59:59Z"}        | from 1970 on
        {"epoch": "2026-01-01T00:00:00.0001Z"}   | whole milliseconds
        {"time": "41"}                           | `layout.time` must be a whole number from 1 to 61
        {"worker": 1.5}                          | `layout.worker` must be a whole number from 1 to 22
        {"sequence": -1}                         | `layout.sequence` must be a whole number from 1 to 22
        {"time": null}                           | `layout.time` must be
        "#,
    ) {
        let detail = wrong(layout.parse().unwrap());
        assert!(detail.contains(said), "{detail}");
    }
    let twice = br#"{"layout": {"time": 40, "time": 41}}"#;
    assert!(DefinitionChange::from_json(twice).is_err());
}

#[test]
fn widths_that_are_no_layout_are_refused_by_field() {
    for [layout, field, said] in table(
        r#"
        {"time": 0}                  | layout.time     | must be 1 to 61 bits, not 0
        {"time": 62}                 | layout.time     | not 62
        {"worker": 0}                | layout.worker   | 1 to 22 bits
        {"worker": 23}               | layout.worker   | not 23
        {"sequence": 0}              | layout.sequence | 1 to 22 bits
        {"sequence": 23}             | layout.sequence | not 23
        {"time": 42}                 | layout          | 63 bits at most, those of `time`
        {"time": 42}                 | layout          | together, not 64
        {"time": 19, "sequence": 12} | layout.time     | `layout.time` and `layout.sequence` must have 32 bits or more together, not 31.
        "#,
    ) {
        let error = snowflake(layout.parse().unwrap()).unwrap_err();
        assert_eq!(error.field(), field, "{error}");
        assert!(error.to_string().contains(said), "{error}");
    }
    for layout in [
        json!({"time": 10, "worker": 22, "sequence": 22}),
        json!({"time": 31, "worker": 1, "sequence": 1}),
        json!({"time": 61, "worker": 1, "sequence": 1}),
    ] {
        snowflake(layout).unwrap();
    }
}

#[test]
fn a_field_that_the_kind_has_no_use_for_is_refused() {
    for (value, field) in [
        (json!({"start": 5}), "start"),
        (json!({"step": 2}), "step"),
        (json!({"max": 5}), "max"),
        (json!({"order": "strict"}), "order"),
        (json!({"period": "day"}), "period"),
        (json!({"time_zone": "Europe/Berlin"}), "time_zone"),
        (json!({"cutover": "06:00"}), "cutover"),
        (json!({"period_back": "3d"}), "period_back"),
        (json!({"period_ahead": "3d"}), "period_ahead"),
        (json!({"retain": "10d"}), "retain"),
        (json!({"block": {"min": 5}}), "block.min"),
        (json!({"block": {"max": 5}}), "block.max"),
        (json!({"block": {"refill": "1h"}}), "block.refill"),
    ] {
        let mut value = value;
        value["kind"] = json!("snowflake");
        let error = create(value).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "`{field}` must be left out for a time-ordered sequence, `kind` \"snowflake\"."
            )
        );
    }
    let error = create(json!({"layout": {}})).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`layout` is for `kind` \"snowflake\", and must be left out or null here."
    );
}

#[test]
fn time_is_reserved_for_two_seconds_to_a_year() {
    let hold = |span: &str| create(json!({"kind": "snowflake", "block": {"hold": span}}));
    for span in ["0s", "1s", "367d"] {
        assert_eq!(hold(span).unwrap_err().field(), "block.hold", "{span}");
    }
    for span in ["2s", "366d"] {
        hold(span).unwrap();
    }
}

#[test]
fn a_format_has_room_for_every_id_and_no_period() {
    let format = |format: &str, overflow: &str| {
        create(json!({"kind": "snowflake", "format": format, "overflow": overflow}))
    };
    for pattern in [
        "{value}",
        "ID-{value:b36}",
        "{value:019}",
        "{value:b62:011}",
    ] {
        format(pattern, "refuse").unwrap();
    }
    format("{value:06}", "widen").unwrap();
    let error = format("{value:018}", "refuse").unwrap_err().to_string();
    assert!(
        error.contains("`format` has room for numbers up to 999999999999999999"),
        "{error}"
    );
    for pattern in ["{period}-{value}", "{yyyy}-{value}"] {
        assert_eq!(format(pattern, "refuse").unwrap_err().field(), "format");
    }
    let preset = json!({"kind": "snowflake", "layout": "53-bit", "format": "{value:016}"});
    assert_eq!(create(preset).unwrap().last(), crate::runway::EXACT);
}

#[test]
fn the_highest_id_is_the_limit() {
    let definition = create(json!({"kind": "snowflake"})).unwrap();
    assert_eq!(definition.last(), i64::MAX);
    assert_eq!(
        (definition.end(), definition.first_from(1)),
        (i64::MAX, Some(1))
    );
    assert!(!definition.exhausted(definition.start) && !definition.is_empty());
    let preset = snowflake(json!("53-bit")).unwrap();
    assert_eq!(preset.last(), crate::runway::EXACT);
}

#[test]
fn a_layout_begins_in_the_past_and_lasts_for_ten_years() {
    let check = |layout, now_ms| snowflake(layout).unwrap().check_time(now_ms);
    assert_eq!(check(json!({}), DEFAULT_EPOCH_MS), Ok(()));
    let future = check(json!({}), DEFAULT_EPOCH_MS - 1).unwrap_err();
    assert_eq!(
        future.to_string(),
        "`layout.epoch` must not lie in the future, and 2026-01-01T00:00:00Z does."
    );
    let definition = snowflake(json!({})).unwrap();
    let last = definition.layout.unwrap().ends_at_ms() - 3652 * DAY_MS - DAY_MS / 2;
    assert_eq!(definition.check_time(last), Ok(()));
    let short = definition.check_time(last + 1).unwrap_err();
    assert_eq!(short.field(), "layout.time");
    assert!(
        short.to_string().contains("it ends at 2095-09-07T"),
        "{short}"
    );
    let body = change(json!({"kind": "snowflake"}));
    let default = Definition::default();
    assert_eq!(body.create_at(&default, last), Ok(definition));
    assert_eq!(body.create_at(&default, last + 1), Err(short));
    // A sequence without a layout passes at any time.
    assert_eq!(Definition::default().check_time(i64::MAX), Ok(()));
}

#[test]
fn a_template_of_another_kind_gives_what_both_kinds_have() {
    let template = create(json!({
        "start": 100, "step": 10, "max": 5000, "order": "strict", "period": "day",
        "time_zone": "Europe/Berlin", "block": {"min": 3, "hold": "1s", "refill": "1h"},
        "format": "INV-{period}-{value:06}", "declared_rate": 5.0, "store": "other",
        "description": "invoices"
    }))
    .unwrap();
    let made = change(json!({"kind": "snowflake"}))
        .create(&template)
        .unwrap();
    let expected = Definition {
        kind: Kind::Snowflake,
        layout: Some(Layout::default()),
        block: BlockPolicy {
            hold: Span::from_seconds(2),
            ..BlockPolicy::default()
        },
        declared_rate: Some(5.0),
        limit: None,
        store: "other".to_owned(),
        description: "invoices".to_owned(),
        ..Definition::default()
    };
    assert_eq!(made, expected);
    let back = change(json!({"kind": "block", "start": 7}))
        .create(&made)
        .unwrap();
    assert_eq!(
        (back.layout, back.start, back.store.as_str()),
        (None, 7, "other")
    );
    assert_eq!(back.limit, back.suitable_limit());
    assert_eq!(back.limit.map(|limit| limit.rate()), Some(500));
    // A template of the same kind gives all its fields.
    let template = snowflake(json!("53-bit")).unwrap();
    let made = change(json!({"description": "a"}))
        .create(&template)
        .unwrap();
    assert_eq!(made.layout, Some(Layout::preset_53_bit()));
}

#[test]
fn kind_and_layout_stay_as_they_were_created() {
    let block = Definition::default();
    let flake = snowflake(json!({})).unwrap();
    for (existing, value, field) in [
        (&block, json!({"kind": "snowflake"}), "kind"),
        (&block, json!({"layout": {}}), "layout"),
        (&flake, json!({"kind": "block"}), "kind"),
        (&flake, json!({"layout": {"worker": 9}}), "layout"),
        (&flake, json!({"layout": "53-bit"}), "layout"),
        (&flake, json!({"start": 5}), "start"),
        (&flake, json!({"order": "strict"}), "order"),
    ] {
        let error = change(value).apply(existing, 1, false).unwrap_err();
        assert!(error.is_immutable(), "{error}");
        assert_eq!(error.field(), field);
    }
    let error = change(json!({"max": 5}))
        .apply(&flake, 1, false)
        .unwrap_err();
    assert!(!error.is_immutable() && error.field() == "max", "{error}");
}

#[test]
fn the_format_of_ids_that_no_counter_tells_of_is_never_given_back() {
    let flake = snowflake(json!({})).unwrap();
    let to = |existing: &Definition, format: &str| {
        change(json!({ "format": format })).apply(existing, 1, false)
    };
    let changed = to(&flake, "A-{value}").unwrap();
    assert_eq!(changed.former_formats.len(), 1);
    let error = to(&flake, "{value:b36}").unwrap_err();
    assert_eq!(error.field(), "format");
    assert!(error.is_immutable(), "{error}");
}

#[test]
fn databases_share_a_snowflake_by_its_worker_ids() {
    let flake = snowflake(json!({})).unwrap();
    let layout = flake.layout.unwrap();
    let stripe = Stripe::new(2, 3).unwrap();
    assert_eq!(*stripe.view(&flake), flake);
    assert_eq!(stripe.reached(&flake, 1), 1);
    for worker in 0..9 {
        let id = layout.compose(worker, 5, 1);
        let index = u16::try_from(worker % 3).unwrap();
        assert_eq!(stripe.index_of(&flake, id), Some(index));
    }
    assert_eq!(stripe.index_of(&flake, -1), None);
}

#[test]
fn an_id_is_printed_and_read_back() {
    let flake = create(json!({"kind": "snowflake", "format": "T-{value:b36}"})).unwrap();
    let id = flake.layout.unwrap().compose(17, 86_400_000, 4);
    let format = Format::of(&flake).unwrap();
    let mut printed = String::new();
    let none = crate::period::Period::none();
    format.printer(&none).print(id, &mut printed);
    assert_eq!(format.read(&printed), Ok((none, id)));
}

proptest! {
    #![proptest_config(crate::tests::properties())]

    #[test]
    fn a_layout_that_is_accepted_composes_ids_that_are_read_back(
        widths in prop_oneof![
            (0_u32..70, 0_u32..30, 0_u32..30),
            (10_u32..45, 1_u32..=22, 1_u32..=22),
        ],
        is_worker_high in any::<bool>(),
        tick in any::<u64>(),
        worker in any::<u32>(),
        counter in any::<u64>(),
    ) {
        let (time, workers, sequence) = widths;
        let high = if is_worker_high { "worker" } else { "time" };
        let made = snowflake(json!({
            "high": high, "time": time, "worker": workers, "sequence": sequence
        }));
        let is_allowed = time >= 1
            && (1..=22).contains(&workers)
            && (1..=22).contains(&sequence)
            && time + workers + sequence <= 63
            && time + sequence >= 32;
        prop_assert_eq!(made.is_ok(), is_allowed);
        if let Ok(definition) = made {
            let layout = definition.layout.unwrap();
            let parts = Parts {
                tick: tick % layout.end_tick(),
                worker: worker % layout.workers(),
                counter: counter % layout.ids_a_tick(),
            };
            let id = layout.compose(parts.worker, parts.tick, parts.counter);
            prop_assert!((0..=definition.last()).contains(&id));
            prop_assert_eq!(layout.read(id), Some(parts));
            prop_assert_eq!(Definition::from_stored(&definition.to_stored()).unwrap(), definition);
        }
    }
}
