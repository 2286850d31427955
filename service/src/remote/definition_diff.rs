//! Compares definitions field by field: with the defaults, and with what they were before.

use odometer_core::definition::{Definition, DefinitionChange};
use serde_json::{Map, Value};

/// Fields from which the defaults of all others follow, except that of `limit`.
const DECIDING: [&str; 2] = ["kind", "period"];
/// The field whose default follows from all others.
const LIMIT: &str = "limit";

/// Returns each field of a definition with its value, as `define` takes them: `block.min`, `100`.
pub(crate) fn fields(definition: &Map<String, Value>) -> Vec<(String, String)> {
    let mut fields = Vec::new();
    for (name, value) in definition {
        if let Value::Object(inner) = value {
            let inner = inner.iter();
            fields.extend(inner.map(|(inner, value)| (format!("{name}.{inner}"), text(value))));
        } else {
            fields.push((name.clone(), text(value)));
        }
    }
    fields
}

/// Returns the fields that differ from the defaults that this program gives a new sequence of the
/// same kind and period. The description has a line of its own.
pub(crate) fn unusual(definition: &Map<String, Value>) -> Vec<(String, String)> {
    let usual = usual(definition);
    let mut unusual = fields(definition);
    unusual.retain(|field| field.0 != "description" && !usual.contains(field));
    unusual
}

fn usual(definition: &Map<String, Value>) -> Vec<(String, String)> {
    let is_deciding = |name: &str| DECIDING.contains(&name);
    let is_of_limit = |name: &str| name.starts_with(LIMIT);
    let mut usual = created(definition, |_| false);
    usual.retain(|(name, _)| is_deciding(name));
    let others = created(definition, is_deciding).into_iter();
    usual.extend(others.filter(|(name, _)| !is_deciding(name) && !is_of_limit(name)));
    let limit = created(definition, |name| name != LIMIT).into_iter();
    usual.extend(limit.filter(|(name, _)| is_of_limit(name)));
    usual
}

/// Returns the fields of a new sequence that is given only some fields of a definition.
fn created(
    definition: &Map<String, Value>,
    is_given: impl Fn(&str) -> bool,
) -> Vec<(String, String)> {
    let mut basis = definition.clone();
    basis.retain(|field, _| is_given(field));
    let change = DefinitionChange::from_value(&Value::Object(basis)).ok();
    let created = change.and_then(|change| change.create(&Definition::default()).ok());
    match created.map(serde_json::to_value) {
        Some(Ok(Value::Object(created))) => fields(&created),
        // A newer replica may have what this program does not know. Then all fields are shown.
        _ => Vec::new(),
    }
}

/// Returns each field that is not as it was before: `before → after`.
pub(crate) fn changes(
    before: &Map<String, Value>,
    after: &Map<String, Value>,
) -> Vec<(String, String)> {
    let (before, after) = (given(before), given(after));
    let in_before = |name: &str| {
        before
            .iter()
            .find(|(of, _)| of == name)
            .map(|(_, value)| value)
    };
    let mut changed: Vec<(String, String)> = after
        .iter()
        .filter(|(name, value)| in_before(name) != Some(value))
        .map(|(name, value)| {
            let was = in_before(name).map_or("", String::as_str);
            (
                name.clone(),
                format!("{} → {}", or_none(was), or_none(value)),
            )
        })
        .collect();
    let gone = before
        .iter()
        .filter(|(name, _)| !after.iter().any(|(of, _)| of == name));
    changed.extend(gone.map(|(name, value)| (name.clone(), format!("{value} → none"))));
    changed
}

/// Returns the fields that are not null.
fn given(definition: &Map<String, Value>) -> Vec<(String, String)> {
    let mut given = definition.clone();
    given.retain(|_, value| !value.is_null());
    fields(&given)
}

fn or_none(value: &str) -> &str {
    if value.is_empty() { "none" } else { value }
}

/// Returns a text of a definition, if it has one that is not empty.
pub(crate) fn text_of(definition: &Map<String, Value>, field: &str) -> Option<String> {
    let text = definition.get(field)?.as_str()?;
    (!text.is_empty()).then(|| text.to_owned())
}

/// Returns a value as `FIELD=VALUE` takes it.
fn text(value: &Value) -> String {
    match value.as_str() {
        Some(text) => text.to_owned(),
        None => value.to_string(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use serde_json::json;

    use super::*;

    fn definition(given: &Value) -> Map<String, Value> {
        let change = DefinitionChange::from_value(given).unwrap();
        let created = change.create(&Definition::default()).unwrap();
        let created = serde_json::to_value(created).unwrap();
        created.as_object().unwrap().clone()
    }

    fn shown(fields: Vec<(String, String)>) -> Vec<String> {
        let fields = fields.into_iter();
        fields
            .map(|(name, value)| format!("{name}: {value}"))
            .collect()
    }

    #[test]
    fn only_what_differs_from_the_defaults_is_unusual() {
        let unusual = |given: &Value| shown(unusual(&definition(given)));
        assert_eq!(unusual(&json!({})), [""; 0]);
        assert_eq!(unusual(&json!({"description": "A"})), [""; 0]);
        let kept = json!({"start": 1001, "block": {"hold": "1h", "refill": "2h"}});
        let expected = ["block.hold: 1h", "block.refill: 2h", "start: 1001"];
        let mut found = unusual(&kept);
        found.sort();
        assert_eq!(found, expected);
        // The formats and the limits of sequences with periods, formats and rates are others.
        assert_eq!(unusual(&json!({"period": "month"})), ["period: month"]);
        let format = json!({"format": "A{value:06}"});
        assert_eq!(unusual(&format), ["format: A{value:06}"]);
        // So is the limit of a short range.
        assert_eq!(unusual(&json!({"max": 99})), ["max: 99"]);
        let rate = json!({"declared_rate": 5000});
        assert_eq!(unusual(&rate), ["declared_rate: 5000.0"]);
        let snowflake = json!({"kind": "snowflake"});
        assert_eq!(unusual(&snowflake), ["kind: snowflake"]);
        // What this program does not know is shown.
        let newer = json!({"kind": "other", "start": "1"});
        let newer = super::unusual(newer.as_object().unwrap());
        assert_eq!(shown(newer), ["kind: other", "start: 1"]);
    }

    #[test]
    fn a_change_shows_both_values() {
        let before = definition(&json!({"max": 9999, "declared_rate": 5}));
        let after = definition(&json!({"max": 99_999, "limit": {"rate": 7, "burst": 100}}));
        let mut found = shown(changes(&before, &after));
        found.sort();
        assert!(found.contains(&"max: 9999 → 99999".to_owned()), "{found:?}");
        assert!(
            found.contains(&"declared_rate: 5.0 → none".to_owned()),
            "{found:?}"
        );
        assert!(
            found.iter().any(|it| it.starts_with("limit.rate: ")),
            "{found:?}"
        );
        assert_eq!(shown(changes(&before, &before)), [""; 0]);
        let described = definition(&json!({"max": 9999, "declared_rate": 5, "description": "A"}));
        let found = shown(changes(&before, &described));
        assert_eq!(found, ["description: none → A"]);
    }
}
