//! Tests formats as fields of definitions: defaults, changes, and the former formats that are kept.

use serde_json::{Value, json};

use super::*;
use crate::definition::{DefinitionChange, DefinitionError};

fn change(value: Value) -> DefinitionChange {
    DefinitionChange::from_json(value.to_string().as_bytes()).unwrap()
}

fn created(value: Value) -> Definition {
    change(value).create(&Definition::default()).unwrap()
}

/// Returns the format that `template` and `asked` result in, or the error.
fn format_of(template: &Definition, asked: Value) -> String {
    match change(asked).create(template) {
        Ok(definition) => definition.format,
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_format_nobody_asked_for_prints_the_period_where_there_is_one() {
    let plain = Definition::default();
    assert_eq!(format_of(&plain, json!({})), "{value}");
    let mut by_day = defined(PeriodKind::Day, "{period}-{value}");
    for template in ["{value}", "{period}-{value}"] {
        template.clone_into(&mut by_day.format);
        assert_eq!(format_of(&by_day, json!({"period": "none"})), "{value}");
    }
    "N-{value}".clone_into(&mut by_day.format);
    assert_eq!(format_of(&by_day, json!({"period": "none"})), "N-{value}");
    for period in ["day", "week", "month", "year", "keyed"] {
        let said = format_of(&plain, json!({"period": period, "format": "{value}"}));
        assert!(said.contains("does not tell the periods apart"), "{said}");
        let said = format_of(&plain, json!({ "period": period }));
        assert!(!said.contains("`format`"), "{said}");
    }
}

#[test]
fn a_bad_format_and_a_bad_rate_are_refused_by_field() {
    for (value, field) in [
        (json!({"format": "{value:040}"}), "format"),
        (json!({"format": ""}), "format"),
        (json!({"format": "A{value:02}", "start": 100}), "format"),
        (json!({"declared_rate": 1e9 + 1.0}), "declared_rate"),
        (json!({"declared_rate": 1e300}), "declared_rate"),
    ] {
        let error = change(value).create(&Definition::default()).unwrap_err();
        assert!(matches!(error, DefinitionError::Invalid { .. }), "{error}");
        assert_eq!(error.field(), field);
        let sentence = error.to_string();
        assert!(
            sentence.starts_with('`') && sentence.ends_with('.'),
            "{sentence}"
        );
    }
    let definition = created(json!({"declared_rate": 0.001}));
    assert_eq!(definition.declared_rate, Some(0.001));
    assert_eq!(
        created(json!({"declared_rate": 1e9})).declared_rate,
        Some(1e9)
    );
}

#[test]
fn a_format_changes_freely_until_a_number_was_issued() {
    let existing = created(json!({"format": "A-{value}"}));
    let asked = change(json!({"format": "{value:b36}"}));
    let changed = asked.apply(&existing, 1, false).unwrap();
    assert_eq!(changed.format, "{value:b36}");
    assert!(changed.former_formats.is_empty());
}

#[test]
fn afterwards_it_changes_to_one_that_cannot_print_an_old_id() {
    let existing = created(json!({}));
    let asked = |format: &str| change(json!({ "format": format }));
    let error = asked("{value:b36}").apply(&existing, 9, true).unwrap_err();
    assert!(error.is_immutable() && error.field() == "format");
    assert!(error.to_string().contains("under \"{value}\"."), "{error}");
    let lettered = asked("A-{value}").apply(&existing, 9, true).unwrap();
    assert_eq!(lettered.former_formats.len(), 1);
    assert_eq!(
        asked("A-{value}").apply(&lettered, 9, true).unwrap(),
        lettered
    );
    // It shares no id with the format before, but it shares ids with an earlier format.
    let error = asked("{value:b36}").apply(&lettered, 9, true).unwrap_err();
    assert!(error.is_immutable(), "{error}");
    // No number is issued twice, so a format may come back.
    let back = asked("{value}").apply(&lettered, 9, true).unwrap();
    assert_eq!(back.former_formats.len(), 2);
    assert_eq!(
        asked("A-{value}")
            .apply(&back, 9, true)
            .unwrap()
            .former_formats
            .len(),
        2
    );
}

#[test]
fn an_id_printed_under_a_former_format_is_still_read() {
    let existing = created(json!({"format": "A-{value:03}"}));
    let changed = change(json!({"format": "B-{value}"}));
    let changed = changed.apply(&existing, 9, true).unwrap();
    for id in ["A-007", "B-7"] {
        assert_eq!(changed.read(id), Ok((Period::none(), 7)), "{id}");
    }
    let refused = changed.read("C-7").unwrap_err().to_string();
    assert!(refused.contains("\"B-\""), "{refused}");
}

#[test]
fn former_formats_are_kept_by_the_store_and_shown_to_nobody() {
    let asked = change(json!({"format": "A-{value}"}));
    let changed = asked.apply(&created(json!({})), 9, true).unwrap();
    let stored = changed.to_stored();
    assert!(
        stored.starts_with("{\"kind\":\"block\",\"start\":\"1\","),
        "{stored}"
    );
    assert_eq!(Definition::from_stored(&stored).unwrap(), changed);
    let shown = serde_json::to_string(&changed).unwrap();
    assert!(!shown.contains("former"), "{shown}");
    assert!(!Definition::default().to_stored().contains("former"));
}

#[test]
fn a_format_changes_only_if_confirmed_where_the_store_forgot_some() {
    let mut existing = created(json!({"format": "A-{value}"}));
    existing.formats_unknown = true;
    let lettered = json!({"format": "B-{value}"});
    // This holds even if no counter shows that a number was issued.
    for (next_value, issued) in [(1, false), (9, true)] {
        let error = change(lettered.clone()).apply(&existing, next_value, issued);
        assert_eq!(error, Err(DefinitionError::FormatsUnknown), "{issued}");
        let confirmed = change(json!({"format": "B-{value}", "confirm": true}));
        let changed = confirmed.apply(&existing, next_value, issued).unwrap();
        assert!(!changed.formats_unknown, "{issued}");
        assert_eq!(changed.former_formats.len(), 1, "{issued}");
    }
    // To confirm an overflow does not confirm a format.
    let widened = change(json!({"overflow": "widen", "confirm": true}));
    let widened = widened.apply(&existing, 9, true).unwrap();
    assert!(widened.formats_unknown);
    let error = change(lettered).apply(&widened, 9, true);
    assert_eq!(error, Err(DefinitionError::FormatsUnknown));
}

#[test]
fn formats_do_not_change_for_ever() {
    let mut definition = created(json!({"format": "{value}-A"}));
    let mut n_changes = 0;
    let error = loop {
        let asked = change(json!({"format": format!("{{value}}-{n_changes:02}/A")}));
        match asked.apply(&definition, 9, true) {
            Ok(changed) => definition = changed,
            Err(error) => break error,
        }
        n_changes += 1;
        assert!(n_changes < 100);
    };
    assert_eq!((n_changes, error.field()), (16, "format"));
    assert!(!error.is_immutable(), "{error}");
}

#[test]
fn what_is_reserved_keeps_its_room() {
    let existing = created(json!({"format": "A-{value:03}", "overflow": "widen"}));
    let narrow = change(json!({"overflow": "refuse"}));
    assert_eq!(narrow.apply(&existing, 1000, true).unwrap().last(), 999);
    let error = narrow.apply(&existing, 1002, true).unwrap_err();
    assert_eq!(error.field(), "overflow");
    assert!(
        error.to_string().contains("1001 is reserved already"),
        "{error}"
    );
    let narrower = change(json!({"format": "B-{value:02}", "overflow": "refuse"}));
    let error = narrower.apply(&existing, 500, true).unwrap_err();
    assert_eq!(error.field(), "format");
    // After its numbers are used up, a sequence goes on if it may print wider numbers.
    let full = created(json!({"format": "A-{value:03}"}));
    let widened = change(json!({"overflow": "widen"}))
        .apply(&full, 1000, true)
        .unwrap();
    assert_eq!(
        (full.left(1000), widened.left(1000)),
        (0, 9_007_199_254_739_992)
    );
}

#[test]
fn a_width_that_is_soon_used_up_is_told() {
    let hold = json!({"hold": "1s"});
    let definition = created(json!({"format": "A-{value:06}", "block": hold}));
    let told = definition.warnings(1, 1.0, 0).concat();
    assert_eq!(
        told,
        "At 1.00 numbers a second the 999999 numbers left that `format` has room for last for \
         12 days."
    );
    let told = definition.warnings(950_000, 0.0, 0).concat();
    assert!(told.contains("`overflow` may be \"widen\""), "{told}");
    let mut declared = definition.clone();
    declared.declared_rate = Some(1.0);
    assert_eq!(declared.warnings(1, 0.0, 0), definition.warnings(1, 1.0, 0));
    // Each day has enough numbers for a day.
    let mut by_day = declared;
    by_day.period = PeriodKind::Day;
    "{period}-{value:06}".clone_into(&mut by_day.format);
    assert_eq!(by_day.warnings(1, 0.0, 0), Vec::<String>::new());
}
