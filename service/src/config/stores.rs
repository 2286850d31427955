//! Reads `[stores.NAME]`: the databases that sequences live in, and the Redis servers before them.

use std::collections::BTreeMap;
use std::collections::HashMap;

use figment::Figment;
use figment::providers::{Format, Toml};
use figment::value::{Dict, Value};
use figment::{Profile, Provider};
use odometer_core::definition::DEFAULT_STORE;
use odometer_process::secret::Secret;
use odometer_store::{Fallback, StoreSettings};
use serde::de::DeserializeOwned;

use super::database_problem;
use super::error::ConfigError;
use super::layers::{self, name_in, name_of};

/// The most stores, and the most databases or Redis servers of one store.
const MAX: usize = 64;

/// The keys of a store. The first three may also end in `_file`.
const KEYS: [&str; 5] = ["databases", "database", "redis", "fallback", "durability"];

/// The stores. The first one is [`DEFAULT_STORE`].
#[derive(Clone, Debug)]
pub struct StoresConfig(pub Vec<StoreSettings>);

impl StoresConfig {
    /// Returns the default store with this one database.
    pub fn of_database_url(database_url: &Secret) -> Self {
        Self(vec![StoreSettings {
            name: DEFAULT_STORE.to_owned(),
            key: "database_url".to_owned(),
            origin: String::new(),
            databases: vec![database_url.clone()],
            redis: Vec::new(),
            fallback: Fallback::default(),
            durability: None,
        }])
    }

    /// Returns the store with this name, if that store is configured.
    pub fn get(&self, name: &str) -> Option<&StoreSettings> {
        self.0.iter().find(|store| store.name == name)
    }

    /// Returns the names of all stores, as a sentence lists them.
    pub fn names(&self) -> String {
        let names = self.0.iter().map(|store| format!("\"{}\"", store.name));
        names.collect::<Vec<_>>().join(", ")
    }
}

/// Reads the stores from the layers. `database_url` is the value of the key with that name.
///
/// # Errors
/// The first key that cannot be used.
pub(crate) fn read(layers: &Figment, database_url: &Secret) -> Result<StoresConfig, ConfigError> {
    let mut given = sections(layers)?;
    let mut stores = match given.remove(DEFAULT_STORE) {
        Some(section) if layers::gives_database_url(layers) => {
            let key = section.keys().find(|key| key.starts_with("database"));
            let key = key.map_or("stores.default".to_owned(), |key| {
                format!("stores.default.{key}")
            });
            let both = format!(
                "{} is given as well; keep one of the two",
                name_of(layers, "database_url")
            );
            return Err(refused(layers, &key, both));
        }
        Some(section) => vec![store(layers, DEFAULT_STORE, &section)?],
        None => StoresConfig::of_database_url(database_url).0,
    };
    for (name, section) in &given {
        stores.push(store(layers, name, section)?);
    }
    if stores.len() > MAX {
        let problem = format!("there are {}; give at most {MAX}", stores.len());
        return Err(refused(layers, "stores", problem));
    }
    check_apart(layers, &stores)?;
    Ok(StoresConfig(stores))
}

fn sections(layers: &Figment) -> Result<BTreeMap<String, Dict>, ConfigError> {
    let Ok(given) = layers.find_value("stores") else {
        return Ok(BTreeMap::new());
    };
    let Value::Dict(_, stores) = given else {
        let problem = "give sections, as in [stores.tickets]".to_owned();
        return Err(refused(layers, "stores", problem));
    };
    let section = |(name, section): (String, Value)| match section.into_dict() {
        Some(section) => Ok((name, section)),
        None => {
            let problem = "give a section of keys, as in [stores.tickets]".to_owned();
            Err(refused(layers, &format!("stores.{name}"), problem))
        }
    };
    stores.into_iter().map(section).collect()
}

fn store(layers: &Figment, name: &str, section: &Dict) -> Result<StoreSettings, ConfigError> {
    let at = |key: &str| format!("stores.{name}.{key}");
    let wrong = |key: &str, problem: String| refused(layers, &at(key), problem);
    if !odometer_core::definition::is_store_name(name) {
        let problem = "a store's name begins with a lower-case letter and has up to 32 lower-case \
                       letters, digits and `_`";
        return Err(refused(
            layers,
            &format!("stores.{name}"),
            problem.to_owned(),
        ));
    }
    if let Some(unknown) = section.keys().find(|key| !KEYS.contains(&key.as_str())) {
        let problem = format!("there is no such key; known here are {}", KEYS.join(", "));
        return Err(wrong(unknown, problem));
    }
    let has = |key: &str| section.contains_key(key);
    let key = match (has("databases"), has("database")) {
        (true, true) => {
            let both = format!("{} is given as well; keep one of the two", at("database"));
            return Err(wrong("databases", both));
        }
        (false, false) => {
            let problem = "it is missing; give the URL of a database, or of several that share \
                           each sequence";
            return Err(wrong("databases", problem.to_owned()));
        }
        (true, false) => "databases",
        (false, true) => "database",
    };
    let databases = urls(section, key).map_err(|problem| wrong(key, problem))?;
    for url in &databases {
        if let Some(problem) = database_problem(url.expose()) {
            return Err(wrong(key, problem));
        }
    }
    let redis = urls(section, "redis").map_err(|problem| wrong("redis", problem))?;
    if !redis.iter().all(|url| is_redis(url.expose())) {
        let problem = "give redis://:PASSWORD@HOST:PORT/NUMBER, or a list of these".to_owned();
        return Err(wrong("redis", problem));
    }
    if databases.len() > 1 && !redis.is_empty() {
        let problem = "several databases that share each sequence have no strict order, which is \
                       what Redis is for; give one database, or leave it out";
        return Err(wrong("redis", problem.to_owned()));
    }
    let fallback = fallback(section, &redis).map_err(|problem| wrong("fallback", problem))?;
    let durability = word(section, "durability", "give \"full\" or \"weak\"");
    let durability = durability.map_err(|problem| wrong("durability", problem))?;
    Ok(StoreSettings {
        name: name.to_owned(),
        key: at(key),
        origin: String::new(),
        databases,
        redis,
        fallback,
        durability,
    })
}

/// Reads the URLs of a key: a list, or text of one or several URLs. An error shows none of them.
fn urls(section: &Dict, key: &str) -> Result<Vec<Secret>, String> {
    let single = key == "database";
    let found = match section.get(key) {
        None => return Ok(Vec::new()),
        Some(Value::String(_, text)) if single => vec![text.trim().to_owned()],
        Some(Value::String(_, text)) => listed(text)?,
        Some(Value::Array(_, _)) if single => {
            return Err("give one URL in quotation marks; several stand in `databases`".to_owned());
        }
        Some(Value::Array(_, values)) => texts(values)?,
        Some(_) => return Err(NOT_URLS.to_owned()),
    };
    if found.is_empty() || found.iter().any(String::is_empty) {
        return Err("a URL in it is empty; give one at least".to_owned());
    }
    if found.len() > MAX {
        return Err(format!("there are {}; give at most {MAX}", found.len()));
    }
    Ok(found.into_iter().map(Secret::new).collect())
}

const NOT_URLS: &str = "give a list of URLs, each in quotation marks";

/// Reads text as the environment and files of secrets have it.
///
/// The text is a list as in the configuration file, or URLs with commas or line ends between them.
fn listed(text: &str) -> Result<Vec<String>, String> {
    let text = text.trim();
    if !text.starts_with('[') {
        let parts = text.split([',', '\n']).map(str::trim);
        return Ok(parts.map(str::to_owned).collect());
    }
    // The parser's own message could show a part of a URL.
    let read = Toml::string(&format!("list = {text}")).data().ok();
    let list = read.and_then(|mut read| read.remove(&Profile::Default)?.remove("list"));
    match list {
        Some(Value::Array(_, values)) => texts(&values),
        Some(_) | None => Err(NOT_URLS.to_owned()),
    }
}

fn texts(values: &[Value]) -> Result<Vec<String>, String> {
    let text = |value: &Value| value.as_str().map(str::trim).map(str::to_owned);
    let texts: Option<Vec<String>> = values.iter().map(text).collect();
    texts.ok_or_else(|| NOT_URLS.to_owned())
}

fn is_redis(url: &str) -> bool {
    let rest = url.strip_prefix("redis://");
    let rest = rest.or_else(|| url.strip_prefix("rediss://"));
    rest.is_some_and(|rest| !rest.is_empty())
}

fn fallback(section: &Dict, redis: &[Secret]) -> Result<Fallback, String> {
    let fallback = word(section, "fallback", "give \"none\" or \"database\"")?;
    if fallback.is_some() && redis.is_empty() {
        return Err("it says who counts while Redis is away, and there is no `redis`".to_owned());
    }
    Ok(fallback.unwrap_or_default())
}

/// Reads a key with one of a few words, if it is given. `known` says what to give.
fn word<T: DeserializeOwned>(section: &Dict, key: &str, known: &str) -> Result<Option<T>, String> {
    let word = section.get(key).map(Value::deserialize).transpose();
    word.map_err(|_| known.to_owned())
}

/// Checks that no database belongs to two stores, or to one store twice.
fn check_apart(layers: &Figment, stores: &[StoreSettings]) -> Result<(), ConfigError> {
    let mut met: HashMap<&str, (&str, usize)> = HashMap::new();
    for store in stores {
        for (index, url) in store.databases.iter().enumerate() {
            if let Some((key, earlier)) = met.insert(url.expose(), (&store.key, index)) {
                let problem = format!(
                    "its URL at place {index} is the one of {key} at place {earlier}; each \
                     database belongs to one store, and to that once"
                );
                return Err(refused(layers, &store.key, problem));
            }
        }
    }
    Ok(())
}

/// Returns an error that names a key of a store and the layer that gave the key.
///
/// If the key is missing, the error names the layer that gave the store's section.
fn refused(layers: &Figment, key: &str, problem: String) -> ConfigError {
    let given = match key.rsplit_once('.') {
        Some((section, _missing)) if layers.find_metadata(key).is_none() => section,
        Some(_) | None => key,
    };
    ConfigError::new(name_in(layers, key, given), problem)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use odometer_store::Durability;

    use super::super::tests::File;
    use super::*;

    fn exposed(urls: &[Secret]) -> Vec<&str> {
        urls.iter().map(Secret::expose).collect()
    }

    #[test]
    fn without_stores_there_is_the_default_of_the_database_url() {
        let stores = File::with("database_url = \"postgres://h/d\"")
            .load()
            .unwrap()
            .stores;
        assert_eq!(stores.names(), "\"default\"");
        let default = stores.get(DEFAULT_STORE).unwrap();
        assert_eq!(exposed(&default.databases), ["postgres://h/d"]);
        assert_eq!(default.key, "database_url");
        assert!(!default.is_striped() && default.redis.is_empty());
    }

    #[test]
    fn stores_are_read_in_both_forms() {
        let file = File::with(
            "[stores.tickets]\ndatabases = [\"mysql://a/d\", \"postgres://b/d\"]\n\
             [stores.fast]\ndatabase = \"postgres://c/d\"\nredis = [\"redis://r1\", \"redis://r2\"]\n\
             fallback = \"database\"\ndurability = \"weak\"\n\
             [stores.default]\ndatabases = [\"sqlite:x.db\"]\n",
        );
        // The variable of a platform gives way to what is configured for Odometer.
        let stores = file
            .load_with([("DATABASE_URL", "postgres://p/d")])
            .unwrap()
            .stores;
        assert_eq!(stores.names(), "\"default\", \"fast\", \"tickets\"");
        let tickets = stores.get("tickets").unwrap();
        assert!(tickets.is_striped());
        assert_eq!(
            exposed(&tickets.databases),
            ["mysql://a/d", "postgres://b/d"]
        );
        let fast = stores.get("fast").unwrap();
        assert_eq!(exposed(&fast.redis), ["redis://r1", "redis://r2"]);
        assert_eq!(
            (fast.fallback, fast.key.as_str()),
            (Fallback::Database, "stores.fast.database")
        );
        assert_eq!(fast.durability, Some(Durability::Weak));
        assert_eq!(tickets.durability, None);
        assert_eq!(
            exposed(&stores.get(DEFAULT_STORE).unwrap().databases),
            ["sqlite:x.db"]
        );
    }

    #[test]
    fn the_environment_gives_lists_as_text() {
        for text in [
            "mysql://a/d,mysql://b/d",
            " mysql://a/d , mysql://b/d ",
            "[\"mysql://a/d\", \"mysql://b/d\"]",
            "['mysql://a/d', 'mysql://b/d',]",
        ] {
            let file = File::with("[stores.tickets]\ndatabases = [\"mysql://c/d\"]\n");
            let config = file.load_with([("ODOMETER_STORES__TICKETS__DATABASES", text)]);
            let stores = config.unwrap().stores;
            let databases = &stores.get("tickets").unwrap().databases;
            assert_eq!(exposed(databases), ["mysql://a/d", "mysql://b/d"], "{text}");
        }
    }

    #[test]
    fn urls_may_be_in_files() {
        let file = File::with("");
        let databases = file.beside("databases", "mysql://u:tiger@a/d\nmysql://u:tiger@b/d\n");
        let redis = file.beside("redis", "redis://:tiger@r1\n");
        let database = file.beside("database", "postgres://u:tiger@c/d\n");
        let config = file.load_with([
            (
                "ODOMETER_STORES__TICKETS__DATABASES_FILE",
                databases.as_str(),
            ),
            ("ODOMETER_STORES__FAST__DATABASE_FILE", &database),
            ("ODOMETER_STORES__FAST__REDIS_FILE", &redis),
        ]);
        let config = config.unwrap();
        assert_eq!(config.stores.get("tickets").unwrap().databases.len(), 2);
        assert_eq!(
            exposed(&config.stores.get("fast").unwrap().redis),
            ["redis://:tiger@r1"]
        );
        assert!(!format!("{config:?}").contains("tiger"), "{config:?}");
    }

    /// Each case: what the file says, the key that is named, and a part of the refusal.
    ///
    /// `TWO` is a store `x` of two databases.
    const REFUSED: [(&str, &str, &str); 20] = [
        ("stores = 5", "stores", "as in [stores.tickets]"),
        ("[stores]\nx = 5", "stores.x", "as in [stores.tickets]"),
        (
            "[stores.X]\ndatabase = \"mysql://a/d\"",
            "stores.X",
            "lower-case",
        ),
        ("[stores.x]\n", "stores.x.databases", "is missing"),
        (
            "[stores.x]\nurl = 5",
            "stores.x.url",
            "known here are databases",
        ),
        ("[stores.x]\ndatabases = 5", "stores.x.databases", "a list"),
        (
            "[stores.x]\ndatabases = []",
            "stores.x.databases",
            "one at least",
        ),
        (
            "[stores.x]\ndatabases = [5]",
            "stores.x.databases",
            "quotation",
        ),
        (
            "[stores.x]\ndatabase = [\"mysql://a/d\"]",
            "stores.x.database",
            "one URL",
        ),
        (
            "[stores.x]\ndatabase = \"oracle://tiger\"",
            "stores.x.database",
            "sqlite:",
        ),
        (
            "TWO\ndatabase = \"mysql://c/d\"",
            "stores.x.databases",
            "keep one",
        ),
        (
            "TWO\nredis = [\"redis://r\"]",
            "stores.x.redis",
            "no strict order",
        ),
        (
            "TWO\nredis = [\"http://tiger\"]",
            "stores.x.redis",
            "redis://",
        ),
        (
            "TWO\nfallback = \"none\"",
            "stores.x.fallback",
            "there is no `redis`",
        ),
        (
            "TWO\ndurability = \"strong\"",
            "stores.x.durability",
            "\"weak\"",
        ),
        (
            "TWO\n[stores.y]\ndatabase = \"mysql://b/d\"",
            "stores.y.database",
            "place 1",
        ),
        (
            "database_url = \"mysql://a/d\"\n[stores.default]\ndatabase = \"mysql://a/d\"",
            "stores.default.database",
            "database_url in ",
        ),
        (
            "[default]\nstore = \"x\"",
            "default.store",
            "one of \"default\"",
        ),
        (
            "TWO\n[[template]]\nmatch = \"a*\"\nstore = \"y\"",
            "template[0].store",
            "one of \"default\", \"x\"",
        ),
        (
            "TWO\n[[template]]\nmatch = \"a*\"\nstore = \"x\"\norder = \"strict\"",
            "template[0].order",
            "share",
        ),
    ];

    #[test]
    fn a_store_that_cannot_be_used_is_named_with_the_mend() {
        let two = "[stores.x]\ndatabases = [\"mysql://a/d\", \"mysql://b/d\"]";
        for (content, key, mend) in REFUSED {
            let sentence = File::with(&content.replace("TWO", two)).refusal();
            let named = format!("configuration: {key} in ");
            assert!(sentence.starts_with(&named), "{content}: {sentence}");
            assert!(sentence.contains(mend), "{content}: {sentence}");
            assert!(!sentence.contains("tiger"), "{content}: {sentence}");
            assert_eq!(sentence.lines().count(), 1, "{sentence}");
        }
    }
}
