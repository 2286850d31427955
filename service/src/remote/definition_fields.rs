//! Reads the fields of a definition from the command line and from a file, as the API takes them.

use std::fs;
use std::path::Path;

use serde_json::{Map, Number, Value};

use crate::commands::failure::CommandFailure;

/// Fields whose values are JSON numbers. The API takes all other fields as strings.
const NUMBERS: [&str; 9] = [
    "step",
    "declared_rate",
    "block.min",
    "block.max",
    "limit.rate",
    "limit.burst",
    "layout.time",
    "layout.worker",
    "layout.sequence",
];
/// Fields that may be null.
const NULLABLE: [&str; 3] = ["declared_rate", "limit", "layout"];

/// Returns the fields of a file, with the fields `FIELD=VALUE` put over them.
///
/// # Errors
/// The file or a field cannot be read. Whether fields and values are right is left to the replica.
pub(crate) fn read(
    file: Option<&Path>,
    given: &[String],
) -> Result<Map<String, Value>, CommandFailure> {
    let mut fields = match file {
        Some(path) => in_file(path)?,
        None => Map::new(),
    };
    let mut seen: Vec<&str> = Vec::new();
    for field in given {
        let (path, value) = field.split_once('=').ok_or_else(|| {
            CommandFailure::usage(format!(
                "{field}: write FIELD=VALUE, as in max=9999 or block.hold=1h"
            ))
        })?;
        if seen.contains(&path) {
            let sentence = format!("{path}: the field is given twice; keep one of the two");
            return Err(CommandFailure::usage(sentence));
        }
        seen.push(path);
        insert(&mut fields, path, value)
            .map_err(|problem| CommandFailure::usage(format!("{path}: {problem}")))?;
    }
    Ok(fields)
}

/// Puts the value of one field at its path, which may have a dot: `block.min`.
fn insert(fields: &mut Map<String, Value>, path: &str, text: &str) -> Result<(), &'static str> {
    let value = value_of(path, text);
    let Some((section, field)) = path.split_once('.') else {
        if path.is_empty() {
            return Err("the field has no name; write FIELD=VALUE");
        }
        fields.insert(path.to_owned(), value);
        return Ok(());
    };
    let section = fields
        .entry(section)
        .or_insert_with(|| Value::Object(Map::new()));
    let Some(section) = section.as_object_mut() else {
        return Err("the same section is given as one value; keep one of the two");
    };
    section.insert(field.to_owned(), value);
    Ok(())
}

/// Returns a value in the JSON type that its field has. A value that does not fit stays a text,
/// which the replica refuses with its own sentence.
fn value_of(path: &str, text: &str) -> Value {
    if text == "null" && NULLABLE.contains(&path) {
        return Value::Null;
    }
    if NUMBERS.contains(&path)
        && let Ok(number) = serde_json::from_str::<Number>(text)
    {
        return Value::Number(number);
    }
    match (path, text) {
        ("confirm", "true") => Value::Bool(true),
        ("confirm", "false") => Value::Bool(false),
        _ => Value::String(text.to_owned()),
    }
}

fn in_file(path: &Path) -> Result<Map<String, Value>, CommandFailure> {
    let shown = path.display();
    let refused = |problem: String| CommandFailure::usage(format!("--file: {shown} {problem}"));
    let content = fs::read_to_string(path).map_err(|error| {
        refused(format!(
            "cannot be read ({error}); correct its path or its permissions"
        ))
    })?;
    let is_json = match path.extension() {
        Some(extension) if extension == "json" => true,
        Some(extension) if extension == "toml" => false,
        _ => content.trim_start().starts_with('{'),
    };
    let parsed = parse(&content, is_json).map_err(refused)?;
    let Value::Object(fields) = parsed else {
        let problem = "has no fields; give the fields of one definition";
        return Err(refused(problem.to_owned()));
    };
    if fields.contains_key("sequences") {
        let problem = "has tables [sequences.NAME]; use `odometer apply`, or give the fields of \
                       one definition";
        return Err(refused(problem.to_owned()));
    }
    Ok(fields)
}

fn parse(content: &str, is_json: bool) -> Result<Value, String> {
    if is_json {
        return serde_json::from_str(content).map_err(|error| format!("is no JSON ({error})"));
    }
    let parsed: Result<Value, _> = toml_edit::de::from_str(content);
    parsed.map_err(|error| {
        let line = error.span().map(|span| {
            let before = content.bytes().take(span.start);
            1 + before.filter(|byte| *byte == b'\n').count()
        });
        let place = line
            .map(|line| format!(", line {line}"))
            .unwrap_or_default();
        format!("is no TOML ({}{place})", error.message())
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use odometer_core::definition::{Definition, DefinitionChange};
    use serde_json::json;

    use super::*;

    fn given(fields: &[&str]) -> Result<Value, String> {
        let fields: Vec<String> = fields.iter().map(|field| (*field).to_owned()).collect();
        read(None, &fields)
            .map(Value::Object)
            .map_err(|failure| failure.to_string())
    }

    #[test]
    fn values_have_the_type_that_the_api_takes() {
        let expected = json!({
            "start": "1001", "step": 5, "max": "9223372036854775806", "description": "12",
            "format": "A={value}", "declared_rate": 0.5, "limit": {"rate": 100, "burst": 10_000},
            "block": {"min": 100, "hold": "1h"}, "layout": null, "confirm": true,
        });
        let fields = given(&[
            "start=1001",
            "step=5",
            "max=9223372036854775806",
            "description=12",
            "format=A={value}",
            "declared_rate=0.5",
            "limit.rate=100",
            "limit.burst=10000",
            "block.min=100",
            "block.hold=1h",
            "layout=null",
            "confirm=true",
        ]);
        assert_eq!(fields, Ok(expected));
        let expected = json!({"declared_rate": null, "description": "null", "block": {"min": "x"},
            "layout": {"high": "worker", "time": 39}, "other": "1"});
        let fields = given(&[
            "declared_rate=null",
            "description=null",
            "block.min=x",
            "layout.high=worker",
            "layout.time=39",
            "other=1",
        ]);
        assert_eq!(fields, Ok(expected));
        assert_eq!(given(&["layout=53-bit"]), Ok(json!({"layout": "53-bit"})));
    }

    /// Every field that a definition shows can be given in the form in which it is shown.
    #[test]
    fn what_is_shown_of_a_definition_can_be_given() {
        for kind in ["block", "snowflake"] {
            let change = DefinitionChange::from_value(&json!({"kind": kind})).unwrap();
            let definition = change.create(&Definition::default()).unwrap();
            let Value::Object(shown) = serde_json::to_value(&definition).unwrap() else {
                unreachable!("a definition is an object")
            };
            let fields = super::super::definition_diff::fields(&shown);
            let fields: Vec<String> = fields
                .iter()
                .map(|(field, value)| format!("{field}={value}"))
                .collect();
            assert!(fields.len() > 20, "vacuous: {fields:?}");
            let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
            let sent = given(&fields).unwrap();
            let read = DefinitionChange::from_value(&sent);
            let read = read.map(|change| {
                let created = change.create(&Definition::default());
                created.map_err(|error| error.to_string())
            });
            assert_eq!(read, Ok(Ok(definition)), "{sent}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        for (fields, said) in [
            (&["max"][..], "write FIELD=VALUE"),
            (&["=5"], "has no name"),
            (&["max=1", "max=2"], "max: the field is given twice"),
            (&["block=1", "block.min=2"], "block.min: the same section"),
        ] {
            let refused = given(fields).unwrap_err();
            assert!(refused.contains(said), "{refused}");
        }
    }

    #[test]
    fn a_file_has_one_definition_in_toml_or_json() {
        let folder = std::env::temp_dir().join(format!("odometer-{}", uuid::Uuid::new_v4()));
        fs::create_dir(&folder).unwrap();
        let file = |name: &str, content: &str, fields: &[&str]| {
            let path = folder.join(name);
            fs::write(&path, content).unwrap();
            let fields: Vec<String> = fields.iter().map(|field| (*field).to_owned()).collect();
            read(Some(&path), &fields)
                .map(Value::Object)
                .map_err(|failure| failure.to_string())
        };
        let toml = "start = 1001\n[block]\nmin = 5\nhold = \"1h\"\n";
        let expected = json!({"start": 1001, "block": {"min": 7, "hold": "1h"}, "max": "9"});
        let over = ["block.min=7", "max=9"];
        assert_eq!(file("a.toml", toml, &over), Ok(expected.clone()));
        let json = r#"{"start": 1001, "block": {"min": 5, "hold": "1h"}}"#;
        assert_eq!(file("a.json", json, &over), Ok(expected.clone()));
        assert_eq!(file("definition", json, &over), Ok(expected.clone()));
        assert_eq!(file("definition", toml, &over), Ok(expected));
        for (name, content, said) in [
            ("a.toml", "start = 1\nmax 5\n", "is no TOML ("),
            ("a.json", "{", "is no JSON ("),
            ("a.json", "[]", "has no fields"),
            (
                "a.toml",
                "[sequences.orders]\nstart = 1\n",
                "`odometer apply`",
            ),
        ] {
            let refused = file(name, content, &[]).unwrap_err();
            assert!(
                refused.starts_with("--file: ") && refused.contains(said),
                "{refused}"
            );
        }
        let line = file("a.toml", "start = 1\nmax 5\n", &[]).unwrap_err();
        assert!(line.contains("line 2"), "{line}");
        fs::remove_dir_all(&folder).unwrap();
        let missing = read(Some(&folder.join("a.toml")), &[]).unwrap_err();
        assert!(missing.to_string().contains("cannot be read"), "{missing}");
    }
}
