//! Tests the tables of the configuration: every key, its variable, and its default.

use std::collections::BTreeSet;

use odometer::commands::init;
use odometer::config::{Config, Environment, Flags};

use super::markdown::{Document, inline_code};
use crate::support::directory;

/// Keys with a default that nobody could write as a value.
const WITHOUT_DEFAULT: [&str; 21] = [
    "database_url_file",
    "unknown",
    "worker",
    "admin_token",
    "admin_token_file",
    "stores.*",
    "default.*",
    "template",
    "access.*",
    "resp.listen",
    "resp.password",
    "resp.password_file",
    "resp.key",
    "tls.certificate_file",
    "tls.key_file",
    "tls.clients_ca_file",
    "tls.clients_crl_file",
    "http.hosts",
    "operations.listen",
    "http.workers",
    "telemetry.otlp_endpoint",
];

struct Row {
    key: String,
    variables: Vec<String>,
    default: Option<String>,
}

fn rows() -> Vec<Row> {
    let columns = ["Key", "Environment variable", "Default"];
    let rows = Document::read("docs/configuration.md").rows_of_all(&columns);
    let own = |words: Vec<&str>| -> Vec<String> { words.into_iter().map(str::to_owned).collect() };
    rows.iter()
        .map(|row| Row {
            key: own(inline_code(&row[0])).remove(0),
            variables: own(inline_code(&row[1])),
            default: own(inline_code(&row[2])).pop(),
        })
        .collect()
}

/// Returns what the program goes by if nobody says anything.
fn unconfigured() -> Config {
    let nothing = Config::load(&Flags::default(), &Environment::default());
    nothing.unwrap_or_else(|error| panic!("{error}"))
}

fn by_flag(key: &str, value: &str) -> Result<Config, String> {
    let flags = Flags {
        set: vec![format!("{key}={value}")],
        ..Flags::default()
    };
    Config::load(&flags, &Environment::default()).map_err(|error| error.to_string())
}

/// Returns everything that can be compared of a configuration, without the origin of its values.
/// The debug form hides the URL, so the URL is added.
fn seen(config: &Config) -> String {
    let mut config = config.clone();
    for store in &mut config.stores.0 {
        store.origin.clear();
    }
    format!("{config:?} {}", config.database_url.expose())
}

#[test]
fn every_default_in_the_tables_is_the_program_s() {
    let default = seen(&unconfigured());
    let rows = rows();
    assert!(rows.len() > 30, "vacuous: {} keys", rows.len());
    for row in rows {
        let key = &row.key;
        let Some(value) = row.default else {
            assert!(WITHOUT_DEFAULT.contains(&key.as_str()), "{key}");
            continue;
        };
        let config = by_flag(key, &value).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(seen(&config), default, "{key}");
        assert!(!row.variables.is_empty(), "{key} has no variable");
        for variable in row.variables {
            let environment = Environment::of([(variable.as_str(), value.as_str())]);
            let config = Config::load(&Flags::default(), &environment);
            let config = config.unwrap_or_else(|error| panic!("{variable}: {error}"));
            assert_eq!(seen(&config), default, "{variable}");
        }
    }
}

#[test]
fn the_tables_have_every_key_and_no_other() {
    let mut known = BTreeSet::new();
    for name in known_below("") {
        // A section has keys below it. A key has none.
        let inside = known_below(&format!("{name}."));
        if ["access", "default", "stores"].contains(&name.as_str()) {
            known.insert(format!("{name}.*"));
        } else if inside.is_empty() {
            known.insert(name);
        } else {
            known.extend(inside.iter().map(|key| format!("{name}.{key}")));
        }
    }
    let files = [
        "database_url_file",
        "admin_token_file",
        "resp.password_file",
    ];
    known.extend(files.map(str::to_owned));
    let rows = rows();
    let n_rows = rows.len();
    let shown: BTreeSet<String> = rows.into_iter().map(|row| row.key).collect();
    assert_eq!(shown, known);
    assert_eq!(shown.len(), n_rows, "a key is there twice");
}

/// Returns the names that the refusal of an unknown name lists.
fn known_below(section: &str) -> Vec<String> {
    let refused = by_flag(&format!("{section}nonsense"), "1").expect_err("no such key");
    match refused.split_once("known here are ") {
        Some((_, known)) => known.split(", ").map(str::to_owned).collect(),
        None => Vec::new(),
    }
}

/// A line of the file that `odometer init` writes, with a key that is commented out.
enum Commented<'a> {
    Default(&'a str),
    /// The key has no default.
    Example(&'a str),
}

fn commented_keys(file: &str) -> Vec<Commented<'_>> {
    let lines = file.lines().filter_map(|line| {
        let line = line.strip_prefix('#')?;
        match line.strip_prefix(" Example: ") {
            Some(example) => Some(Commented::Example(example)),
            None => line
                .starts_with(|first: char| first.is_ascii_lowercase())
                .then_some(Commented::Default(line)),
        }
    });
    lines.collect()
}

/// Returns the configuration that a file with this text gives.
fn of_file(text: &str) -> Result<Config, String> {
    let home = directory("commented");
    let file = home.path().join("odometer.toml");
    std::fs::write(&file, text).expect("our directory");
    let flags = Flags {
        config: Some(file),
        ..Flags::default()
    };
    Config::load(&flags, &Environment::default()).map_err(|error| error.to_string())
}

/// Returns the key of a line as the tables have it.
fn key_of(line: &str) -> String {
    let (key, _value) = line.split_once(" = ").expect("KEY = VALUE");
    match key.split_once('.') {
        Some((section @ ("access" | "default" | "stores"), _)) => format!("{section}.*"),
        Some(_) | None => key.to_owned(),
    }
}

#[test]
fn the_file_that_init_writes_has_every_key_in_the_order_of_the_tables() {
    let mut keys: Vec<String> = Vec::new();
    for line in commented_keys(init::TEXT) {
        let (Commented::Default(line) | Commented::Example(line)) = line;
        let key = key_of(line);
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    let rows: Vec<String> = rows().into_iter().map(|row| row.key).collect();
    assert_eq!(keys, rows);
}

#[test]
fn the_file_that_init_writes_has_the_defaults() {
    let default = seen(&unconfigured());
    let as_written = of_file(init::TEXT);
    assert_eq!(as_written.map(|config| seen(&config)), Ok(default.clone()));
    let mut defaults = String::new();
    for line in commented_keys(init::TEXT) {
        match line {
            Commented::Default(line) => {
                defaults.push_str(line);
                defaults.push('\n');
            }
            Commented::Example(line) => {
                let key = key_of(line);
                assert!(WITHOUT_DEFAULT.contains(&key.as_str()), "{key}");
                match of_file(line) {
                    Ok(config) => assert_ne!(seen(&config), default, "{line}"),
                    Err(refused) => {
                        let is_for_another = key.ends_with("_file")
                            && refused.contains("cannot be read")
                            || refused.contains("feature `otlp`")
                            // The keys of `[tls]` need one another.
                            || refused.ends_with("as well");
                        assert!(is_for_another, "{line}: {refused}");
                    }
                }
            }
        }
    }
    assert!(defaults.lines().count() > 30, "vacuous: {defaults}");
    let uncommented = of_file(&defaults);
    assert_eq!(uncommented.map(|config| seen(&config)), Ok(default));
}
