//! Reads a file of definitions for `odometer apply`: tables `[sequences.NAME]`.

use std::fs;
use std::ops::Range;
use std::path::Path;

use odometer_core::{definition::DefinitionChange, name::SequenceName};
use serde_json::Value;
use toml_edit::{ImDocument, Item, TableLike};

use super::error::ConfigError;
use super::fields;

/// What a file says of one sequence. A field that the file leaves out stays as it is, or comes from
/// a template.
#[derive(Clone, Debug, PartialEq)]
pub struct WantedDefinition {
    pub name: SequenceName,
    pub change: DefinitionChange,
}

/// Reads a file of definitions, in the file's order.
///
/// # Errors
/// The first thing that cannot be used, with its key and its line.
pub fn read(path: &Path) -> Result<Vec<WantedDefinition>, ConfigError> {
    let file = path.display().to_string();
    let content = fs::read_to_string(path).map_err(|error| {
        let problem = format!(
            "the file of definitions cannot be read ({error}); correct its path or its permissions"
        );
        ConfigError::new(&file, problem)
    })?;
    parse(&file, &content)
}

fn parse(file: &str, content: &str) -> Result<Vec<WantedDefinition>, ConfigError> {
    let place = |line: Option<usize>| match line {
        Some(line) => format!("{file}:{line}"),
        None => file.to_owned(),
    };
    let unread = |span: Option<Range<usize>>, problem: String| {
        let line = span.map(|span| line_at(content, span.start));
        ConfigError::new(place(line), problem)
    };
    let document = ImDocument::parse(content).map_err(|error| {
        let problem = format!("not a TOML file: {}", error.message());
        unread(error.span(), problem)
    })?;
    let at = |path: &[&str], problem: String| {
        let place = place(line_of(&document, path));
        ConfigError::new(format!("{} in {place}", shown(path)), problem)
    };
    for (key, _) in document.iter() {
        if key != "sequences" {
            let problem = "there is no such key; a file of definitions has tables \
                           [sequences.NAME], and all else stands in the configuration file";
            return Err(at(&[key], problem.to_owned()));
        }
    }
    let Some(sequences) = document.get("sequences").and_then(Item::as_table_like) else {
        let problem = "it defines nothing; give tables [sequences.NAME]";
        return Err(at(&["sequences"], problem.to_owned()));
    };
    let values: Result<Value, _> = toml_edit::de::from_str(content);
    let values = values.map_err(|error| unread(error.span(), error.message().to_owned()))?;
    let mut wanted = Vec::new();
    for (text, _) in sequences.iter() {
        let of_name = ["sequences", text];
        let name = SequenceName::parse(text).map_err(|error| at(&of_name, error.to_string()))?;
        let Some(section) = values
            .get("sequences")
            .and_then(|all| all.get(text)?.as_object())
        else {
            let problem = "give a table with fields of a definition".to_owned();
            return Err(at(&of_name, problem));
        };
        let change = fields::change(section, &[]).map_err(|wrong| {
            let inner = wrong.key.split('.');
            let path: Vec<&str> = of_name.into_iter().chain(inner).collect();
            at(&path, wrong.problem)
        })?;
        wanted.push(WantedDefinition { name, change });
    }
    Ok(wanted)
}

/// Returns a path as it is written in the file.
fn shown(path: &[&str]) -> String {
    let is_bare = |key: &str| {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        !key.is_empty() && key.chars().all(is_allowed)
    };
    let keys: Vec<String> = path
        .iter()
        .map(|key| {
            if is_bare(key) {
                (*key).to_owned()
            } else {
                format!("{key:?}")
            }
        })
        .collect();
    keys.join(".")
}

/// Returns the line of the last key of `path` that the file has.
fn line_of(document: &ImDocument<&str>, path: &[&str]) -> Option<usize> {
    let mut table: &dyn TableLike = document.as_table();
    let mut found = None;
    for key in path {
        let Some((key, item)) = table.get_key_value(key) else {
            break;
        };
        found = key.span().or_else(|| item.span()).or(found);
        let Some(inner) = item.as_table_like() else {
            break;
        };
        table = inner;
    }
    found.map(|span| line_at(document.raw(), span.start))
}

fn line_at(content: &str, at: usize) -> usize {
    let before = content.bytes().take(at);
    before.filter(|byte| *byte == b'\n').count() + 1
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn definitions_come_in_the_order_of_the_file() {
        let content = "[sequences.zebra]\nstart = 5\n[sequences.zebra.block]\nmin = 2\n\
                       [sequences.\"a.b:c\"]\n[sequences]\nm = { max = \"10\" }\n";
        let wanted = parse("f", content).unwrap();
        let names: Vec<&str> = wanted.iter().map(|wanted| wanted.name.as_str()).collect();
        assert_eq!(names, ["zebra", "a.b:c", "m"]);
        let change = |at: usize| wanted.get(at).map(|wanted| wanted.change.clone()).unwrap();
        assert_eq!(change(0).start, Some(5));
        assert_eq!(change(0).block.unwrap().min, Some(2));
        assert_eq!(change(1), DefinitionChange::default());
        assert_eq!(change(2).max, Some(10));
    }

    #[test]
    fn what_cannot_be_used_is_named_with_its_line() {
        for (content, key, line, said) in [
            ("", Some("sequences"), None, "it defines nothing"),
            (
                "sequences = 5",
                Some("sequences"),
                Some(1),
                "it defines nothing",
            ),
            ("a = 1\nthis is no toml\n", None, Some(2), "not a TOML file"),
            (
                "[sequences.a]\nmax = 1\nmax = 2\n",
                None,
                Some(3),
                "duplicate key",
            ),
            (
                "[sequences.a]\n\n[sequences.a]\n",
                None,
                Some(3),
                "not a TOML file",
            ),
            (
                "[[template]]\nmatch = \"a*\"\n",
                Some("template"),
                Some(1),
                "configuration file",
            ),
            (
                "[sequences.a]\n# about b\n[sequences.\"b c\"]\n",
                Some("sequences.\"b c\""),
                Some(3),
                "' '",
            ),
            (
                "[sequences]\na = 1\n",
                Some("sequences.a"),
                Some(2),
                "a table",
            ),
            (
                "[sequences.a]\nstart = 1\nformt = \"x\"\n",
                Some("sequences.a.formt"),
                Some(3),
                "is `format` meant?",
            ),
            (
                "[sequences.a.block]\nmin = 1\nhold = 5\n",
                Some("sequences.a.block.hold"),
                Some(3),
                "must be",
            ),
            (
                "[sequences.shop.orders]\nstart = 1\n",
                Some("sequences.shop.orders"),
                Some(1),
                "is `order` meant?",
            ),
            (
                "[sequences.shop.eu-1]\nstart = 1\n",
                Some("sequences.shop.eu-1"),
                Some(1),
                "in quotation marks",
            ),
        ] {
            let wrong = parse("f", content).unwrap_err();
            let place = line.map_or("f".to_owned(), |line| format!("f:{line}"));
            let named = key.map_or(place.clone(), |key| format!("{key} in {place}"));
            assert_eq!(wrong.key, named, "{content}: {wrong:?}");
            assert!(wrong.problem.contains(said), "{content}: {wrong:?}");
        }
    }
}
