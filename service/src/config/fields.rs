//! Reads fields of a definition as people write them in a file.
//!
//! The fields are read like the body of a `PUT`. An error names the field that is wrong.

use std::sync::LazyLock;

use odometer_core::{
    definition::{ChangeError, Definition, DefinitionChange},
    snowflake::Layout,
};
use serde_json::{Map, Value};

use super::error::ConfigError;

/// Says what to give in place of a section that is none.
pub(crate) const NO_SECTION: &str = "give a section with fields of a definition";

/// The known fields of a definition. Fields of a block begin with `block.`, fields of a layout with
/// `layout.`.
static KNOWN: LazyLock<Vec<String>> = LazyLock::new(|| {
    // A definition without a layout leaves the field out.
    let with_layout = Definition {
        layout: Some(Layout::default()),
        ..Definition::default()
    };
    let mut known = Vec::new();
    if let Ok(Value::Object(fields)) = serde_json::to_value(with_layout) {
        for (field, value) in &fields {
            known.push(field.clone());
            let inner = value.as_object().into_iter().flat_map(Map::keys);
            known.extend(inner.map(|inner| format!("{field}.{inner}")));
        }
    }
    known
});

/// Reads the fields that `section` gives.
///
/// `others` are further keys that the section may have. An error about an unknown field lists them.
///
/// # Errors
/// The path of the first field that is wrong, such as `block.min`.
pub(crate) fn change(
    section: &Map<String, Value>,
    others: &[&str],
) -> Result<DefinitionChange, ConfigError> {
    let mut fields = section.clone();
    fields.retain(|field, _| !others.contains(&field.as_str()));
    for (field, value) in &fields {
        if !KNOWN.contains(field) {
            return Err(unknown(field, value, others));
        }
        if let ("block" | "layout", Some(inner)) = (field.as_str(), value.as_object()) {
            for (inner, value) in inner {
                let path = format!("{field}.{inner}");
                if !KNOWN.contains(&path) {
                    return Err(unknown(&path, value, &[]));
                }
            }
        }
    }
    DefinitionChange::from_value(&Value::Object(fields)).map_err(|error| match error {
        ChangeError::NotJson { .. } => ConfigError::new("", NO_SECTION),
        ChangeError::Wrong { field, detail } => ConfigError::new(field, detail),
    })
}

fn unknown(field: &str, value: &Value, others: &[&str]) -> ConfigError {
    let (section, name) = match field.rsplit_once('.') {
        Some((section, name)) => (format!("{section}."), name),
        None => (String::new(), field),
    };
    let beside = KNOWN.iter().map(String::as_str);
    let beside = beside.filter_map(|known| known.strip_prefix(&section));
    let beside = beside.filter(|known| !known.contains('.'));
    let known: Vec<&str> = others.iter().copied().chain(beside).collect();
    let problem = match (nearest(name, &known), value.is_object()) {
        (Some(near), _) => format!("there is no such field; is `{near}` meant?"),
        (None, true) if section.is_empty() => format!(
            "there is no such field; a name with dots or colons stands in quotation marks; the \
             fields are {}",
            known.join(", ")
        ),
        (None, _) => format!(
            "there is no such field; the fields are {}",
            known.join(", ")
        ),
    };
    ConfigError::new(field, problem)
}

/// Returns the known word that the writer may have meant.
fn nearest<'a>(wanted: &str, known: &[&'a str]) -> Option<&'a str> {
    let most = (wanted.len() / 3).clamp(1, 3);
    let ranked = known.iter().map(|known| {
        (
            strsim::osa_distance(&wanted.to_ascii_lowercase(), known),
            *known,
        )
    });
    ranked
        .filter(|(edits, _)| *edits <= most)
        .min()
        .map(|(_, known)| known)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<DefinitionChange, ConfigError> {
        let Ok(Value::Object(section)) = serde_json::from_str(text) else {
            unreachable!("the test gives an object: {text}")
        };
        change(&section, &["match", "share"])
    }

    #[test]
    fn what_is_given_is_read_and_what_stands_beside_it_is_left() {
        let given = r#"{"match":"a*","start":5,"max":"9","block":{"min":2,"hold":"1h"}}"#;
        let change = read(given).unwrap();
        assert_eq!((change.start, change.max), (Some(5), Some(9)));
        assert_eq!(change.block.unwrap().min, Some(2));
        let given = r#"{"kind":"snowflake","layout":{"high":"worker","time":40}}"#;
        let layout = read(given).unwrap().layout.flatten().unwrap();
        assert_eq!((layout.time, layout.worker), (40, 10));
        assert_eq!(read("{}").unwrap(), DefinitionChange::default());
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        for (text, field, said) in [
            (r#"{"formt":"x"}"#, "formt", "is `format` meant?"),
            (r#"{"Start":1}"#, "Start", "is `start` meant?"),
            (r#"{"mach":"a"}"#, "mach", "is `match` meant?"),
            (r#"{"colour":1}"#, "colour", "the fields are match, share"),
            (r#"{"colour":{}}"#, "colour", "in quotation marks"),
            (r#"{"block":{"mni":1}}"#, "block.mni", "is `min` meant?"),
            (
                r#"{"block":{"size":1}}"#,
                "block.size",
                "the fields are hold, max, min, refill",
            ),
            (r#"{"block":{"min":"x"}}"#, "block.min", "must be"),
            (r#"{"block":5}"#, "block", "an object"),
            (
                r#"{"layout":{"worke":1}}"#,
                "layout.worke",
                "is `worker` meant?",
            ),
            (r#"{"layout":{"time":"x"}}"#, "layout.time", "must be"),
            (r#"{"layout":"52-bit"}"#, "layout", "\"53-bit\""),
            (r#"{"step":"x"}"#, "step", "must be"),
            (r#"{"description":5}"#, "description", "a string"),
            (r#"{"block.min":5}"#, "block.min", "is not a field"),
        ] {
            let wrong = read(text).unwrap_err();
            assert_eq!(wrong.key, field, "{text}: {wrong:?}");
            assert!(wrong.problem.contains(said), "{text}: {wrong:?}");
        }
    }
}
