//! Shows the values of all keys with the places that they come from, as a TOML file.
//!
//! The keys of a section come from its declaration by `section!`, so a new key is shown without a
//! line here. What other files of this folder read field by field is added to them: the stores, the
//! default definition, the templates, the rules for keys, and `[access]`. A secret is shown as a
//! placeholder, and a URL without its user, password and parameters.

use figment::Figment;
use figment::value::Value as Given;
use odometer_core::definition::Definition;
use odometer_process::secret::Secret;
use odometer_store::{StoreSettings, address};
use serde_json::Value;
use toml_edit::Array;

use super::error::ConfigError;
use super::layers::{DEFAULT_ORIGIN, origin_of};
use super::value::{ConfigValue as _, ListedKey, serialized};
use super::{Config, Environment, Flags};

const HEADER: &str = "\
# The configuration that the program would use now. After each value stands where it comes from.
# Secrets are not shown. URLs are shown without user, password and parameters.
";

/// The key of the only database, which another key may replace.
const DATABASE_URL: &str = "database_url";

/// Returns the configuration as a TOML file, with the origin of each value in a comment.
///
/// `only_given` leaves out what has its default because no layer gives it.
///
/// # Errors
/// The first key that cannot be used.
pub fn effective(
    flags: &Flags,
    environment: &Environment,
    only_given: bool,
) -> Result<String, ConfigError> {
    let (config, layers) = Config::load_layers(flags, environment)?;
    let mut shown = ShownFile {
        layers: &layers,
        only_given,
        sections: Vec::new(),
    };
    shown.keys_of(&config);
    shown.fields("default", config.templates.default_definition());
    for store in &config.stores.0 {
        shown.store(store);
    }
    let mut text = shown.text();
    for key in ["template", "resp.key"] {
        text.push_str(&tables(&layers, key));
    }
    text.push_str(&access(&layers));
    Ok(text)
}

/// The file that is being put together.
struct ShownFile<'a> {
    layers: &'a Figment,
    only_given: bool,
    /// The lines of each section, by the section's name. Keys without a section come first.
    sections: Vec<(String, Vec<String>)>,
}

impl ShownFile<'_> {
    /// Adds the keys that `section!` declares.
    fn keys_of(&mut self, config: &Config) {
        let mut keys = Vec::new();
        config.list("", &mut keys);
        let default_store = config.stores.0.first();
        for mut listed in keys {
            if listed.key == DATABASE_URL {
                // A section of the default store takes its place.
                if default_store.is_none_or(|store| store.key != DATABASE_URL) {
                    continue;
                }
                listed.value = Some(address(config.database_url.expose()).into());
            }
            self.add(&listed);
        }
    }

    /// Adds the fields of a definition. A field of an inner object is named by its path.
    fn fields(&mut self, section: &str, definition: &Definition) {
        let Ok(Value::Object(fields)) = serde_json::to_value(definition) else {
            return;
        };
        let (inner, plain): (Vec<_>, Vec<_>) =
            fields.into_iter().partition(|(_, value)| value.is_object());
        for (field, value) in plain {
            self.field(format!("{section}.{field}"), &value);
        }
        for (field, value) in inner {
            for (name, value) in value.as_object().into_iter().flatten() {
                self.field(format!("{section}.{field}.{name}"), value);
            }
        }
    }

    fn field(&mut self, key: String, value: &Value) {
        let value = serialized(value);
        self.add(&ListedKey { key, value });
    }

    /// Adds the keys of a store, unless it is the one of `database_url`.
    fn store(&mut self, store: &StoreSettings) {
        let Some((section, databases)) = store.key.rsplit_once('.') else {
            return;
        };
        let is_single = databases == "database";
        let databases = match store.databases.first() {
            Some(url) if is_single => Some(address(url.expose()).into()),
            Some(_) | None => Some(addresses(&store.databases)),
        };
        let key = store.key.clone();
        self.add(&ListedKey {
            key,
            value: databases,
        });
        let has_redis = !store.redis.is_empty();
        let others = [
            ("redis", has_redis.then(|| addresses(&store.redis))),
            (
                "fallback",
                serialized(&store.fallback).filter(|_| has_redis),
            ),
            ("durability", store.durability.as_ref().and_then(serialized)),
        ];
        for (name, value) in others {
            if value.is_some() {
                let key = format!("{section}.{name}");
                self.add(&ListedKey { key, value });
            }
        }
    }

    fn add(&mut self, listed: &ListedKey) {
        let origin = origin_in(self.layers, &listed.key);
        if self.only_given && origin == DEFAULT_ORIGIN {
            return;
        }
        let (section, name) = match listed.key.rsplit_once('.') {
            Some((section, name)) => (section, name),
            None => ("", listed.key.as_str()),
        };
        let line = match &listed.value {
            Some(value) => format!("{name} = {value}  # {}", one_line(&origin)),
            None => format!("# {name} is not set"),
        };
        match self.sections.iter_mut().find(|(known, _)| known == section) {
            Some((_, lines)) => lines.push(line),
            None => self.sections.push((section.to_owned(), vec![line])),
        }
    }

    fn text(&self) -> String {
        let mut text = HEADER.to_owned();
        for (section, lines) in &self.sections {
            text.push('\n');
            if !section.is_empty() {
                text.push_str(&format!("[{section}]\n"));
            }
            for line in lines {
                text.push_str(line);
                text.push('\n');
            }
        }
        text
    }
}

fn addresses(urls: &[Secret]) -> toml_edit::Value {
    let addresses: Array = urls.iter().map(|url| address(url.expose())).collect();
    addresses.into()
}

/// Returns where a value comes from. A value that is given as a whole, such as a preset of a layout,
/// is the origin of the fields in it.
fn origin_in(layers: &Figment, key: &str) -> String {
    let whole = key.rsplit_once('.').map(|(whole, _field)| whole);
    match whole {
        Some(whole)
            if layers.find_value(key).is_err()
                && layers
                    .find_value(whole)
                    .is_ok_and(|given| !matches!(given, Given::Dict(..))) =>
        {
            origin_of(layers, whole)
        }
        Some(_) | None => origin_of(layers, key),
    }
}

/// Returns the tables of a key, such as `[[template]]`, with the fields that they give.
fn tables(layers: &Figment, key: &str) -> String {
    let given = layers.find_value(key).ok();
    let tables: Vec<serde_json::Map<String, Value>> = given
        .and_then(|given| given.deserialize().ok())
        .unwrap_or_default();
    let origin = one_line(&origin_of(layers, key));
    let shown = tables.iter().map(|table| {
        let mut text = format!("\n[[{key}]]  # {origin}\n");
        for (field, value) in table {
            if let Some(value) = serialized(value) {
                text.push_str(&format!("{field} = {value}\n"));
            }
        }
        text
    });
    shown.collect()
}

/// Returns `[access]` as it is given, or nothing if it is not.
fn access(layers: &Figment) -> String {
    let Ok(given) = layers.find_value("access") else {
        return String::new();
    };
    let given: Value = given.deserialize().unwrap_or_default();
    let file = toml_edit::ser::to_string_pretty(&serde_json::json!({ "access": given }));
    let origin = one_line(&origin_of(layers, "access"));
    format!("\n# {origin}\n{}", file.unwrap_or_default())
}

/// Returns a text that fits into a comment, even if the name of a file has line ends.
fn one_line(text: &str) -> String {
    text.replace(char::is_control, "?")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::super::tests::File;
    use super::*;

    fn shown<const N: usize>(file: &File, variables: [(&str, &str); N], only: bool) -> String {
        effective(&file.flags, &Environment::of(variables), only).unwrap()
    }

    /// Returns everything of a configuration that can be compared, without the origins.
    fn seen(config: &Config) -> String {
        let mut config = config.clone();
        for store in &mut config.stores.0 {
            store.origin.clear();
        }
        format!("{config:?} {}", config.database_url.expose())
    }

    #[test]
    fn what_is_shown_is_a_file_that_gives_the_same_configuration() {
        let file = File::with(
            "unknown = \"reject\"\nhttp.hosts = [\"a.example\", \"b.example\"]\nworker = 5\n\
             [limits]\nwaiters = 5\n[shutdown]\nready_wait = \"500ms\"\n\
             [default]\nkind = \"snowflake\"\nlayout = \"53-bit\"\n\
             [stores.tickets]\ndatabase = \"sqlite:tickets.db\"\ndurability = \"weak\"\n\
             [[template]]\nmatch = \"inv-*\"\nkind = \"block\"\nblock = { min = 5, hold = \"1h\" }\n\
             [[template]]\nmatch = \"*-small\"\nshare = \"misc\"\n\
             [[resp.key]]\nmatch = \"a:*\"\nsequence = \"a\"\nperiod = \"$1\"\n\
             [access]\nanonymous = \"guest\"\ncallers_file = \"callers.toml\"\n\
             [access.roles.guest]\ntake = [\"orders\", \"a-*\"]\n\
             [[access.issuers]]\nissuer = \"https://a\"\naudience = \"o\"\njwks_file = \"a.json\"\n",
        );
        let text = shown(
            &file,
            [("ODOMETER_LOG__LEVEL", "warn,odometer=debug")],
            false,
        );
        let again = File::with(&text).load().unwrap();
        let config = file.load_with([("ODOMETER_LOG__LEVEL", "warn,odometer=debug")]);
        assert_eq!(seen(&again), seen(&config.unwrap()), "{text}");
        for (line, origin) in [
            ("log.level", "environment variable ODOMETER_LOG__LEVEL"),
            ("default.layout.time", "in "),
            ("limits.waiters", "in "),
            ("limits.body", DEFAULT_ORIGIN),
        ] {
            let (section, name) = line.rsplit_once('.').unwrap();
            let (_, below) = text.split_once(&format!("[{section}]\n")).unwrap();
            let mut lines = below.lines();
            let line = lines.find(|it| it.starts_with(&format!("{name} = ")));
            let line = line.unwrap_or_default();
            let is_named = line.contains(&format!("  # {origin}"));
            assert!(is_named, "{name} of {section}: {line:?} in {text}");
        }
    }

    #[test]
    fn the_defaults_alone_are_shown_too_and_left_out_if_asked_for() {
        let file = File::with("");
        let text = shown(&file, [], false);
        let again = File::with(&text).load().unwrap();
        assert_eq!(seen(&again), seen(&file.load().unwrap()), "{text}");
        assert!(text.contains("# admin_token is not set\n"), "{text}");
        assert_eq!(shown(&file, [], true), HEADER);

        let given = [("ODOMETER_REFILL__DEADLINE", "2s")];
        let changed = shown(&file, given, true);
        let line =
            "[refill]\ndeadline = \"2s\"  # environment variable ODOMETER_REFILL__DEADLINE\n";
        assert_eq!(changed, format!("{HEADER}\n{line}"));
    }

    #[test]
    fn no_secret_is_shown() {
        let file = File::with(
            "[stores.fast]\ndatabases = [\"postgres://u:tiger@c/d?password=tiger\"]\n\
             redis = [\"redis://:tiger@r1\", \"redis://r2\"]\n",
        );
        let url = file.beside("url", "mysql://u:tiger@h/d?ssl-mode=REQUIRED\n");
        let text = shown(
            &file,
            [
                ("ODOMETER_DATABASE_URL_FILE", url.as_str()),
                ("ODOMETER_ADMIN_TOKEN", "tiger-tiger-tiger"),
                ("ODOMETER_RESP__PASSWORD", "tiger-and-more"),
            ],
            true,
        );
        assert!(!text.contains("tiger"), "{text}");
        for line in [
            "database_url = \"mysql://h:3306/d\"  # environment variable ODOMETER_DATABASE_URL_FILE",
            "admin_token = \"…\"  # environment variable ODOMETER_ADMIN_TOKEN",
            "password = \"…\"  # environment variable ODOMETER_RESP__PASSWORD",
            "databases = [\"postgres://c:5432/d\"]  # in ",
            "redis = [\"redis://r1:6379\", \"redis://r2:6379\"]  # in ",
        ] {
            assert!(text.contains(line), "no {line}: {text}");
        }
        let read: Result<toml_edit::DocumentMut, _> = text.parse();
        assert!(read.is_ok(), "{text}");
    }
}
