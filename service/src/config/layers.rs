//! Reads the layers that a value may come from: flags over the environment over a file.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use figment::providers::{Format, Toml};
use figment::value::{Dict, Map, Value};
use figment::{Error, Figment, Metadata, Profile, Provider};

use super::error::ConfigError;
use super::flags::{Flags, split_setting};
use super::guarded_file;
use super::secret_value::{ADMIN_TOKEN, PASSWORD, is_secret};

const PREFIX: &str = "ODOMETER_";

/// The file that is read if no file is named. This file need not exist.
const DEFAULT_FILE: &str = "odometer.toml";

/// Keys whose value may be in a separate file. The key `<key>_file` gives the path of that file.
const SECRETS: [&str; 2] = ["database_url", ADMIN_TOKEN];

/// The section of the listener for clients of Redis, whose password may be in a separate file.
const RESP: &str = "resp";

/// Keys of a store whose value may be in a separate file.
const STORE_SECRETS: [&str; 3] = ["databases", "database", "redis"];

/// The name of the layer of `DATABASE_URL`. Its value gives way to a configured default store.
const PLATFORM: &str = "platform";

/// Variables with the prefix that are not keys.
///
/// `CONFIG` gives the path of the configuration file. `URL`, `TOKEN` and `TOKEN_FILE` are for the
/// commands that call a replica. Kubernetes sets the others in each pod next to a service called
/// `odometer`.
const NON_KEYS: [&str; 5] = ["CONFIG", "PORT", "TOKEN", "TOKEN_FILE", "URL"];
const NO_KEY_PREFIXES: [&str; 2] = ["PORT_", "SERVICE_"];

/// The variables of the environment. They are an argument, so that a test can give its own.
#[derive(Clone, Default)]
pub struct Environment(Vec<(OsString, OsString)>);

impl Environment {
    /// Returns the environment that this process was started with.
    #[expect(
        clippy::disallowed_methods,
        reason = "this is where the environment is read"
    )]
    pub fn of_process() -> Self {
        Self(std::env::vars_os().collect())
    }

    /// Returns an environment of these variables, in place of a process's environment.
    pub fn of<'a>(variables: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        Self(
            variables
                .into_iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
        )
    }

    pub(crate) fn get(&self, wanted: &str) -> Option<&OsString> {
        self.0
            .iter()
            .find(|(name, _)| name == wanted)
            .map(|(_, value)| value)
    }

    fn text(&self, wanted: &str) -> Result<Option<String>, ConfigError> {
        self.get(wanted)
            .map(|value| text(wanted, value))
            .transpose()
    }

    /// Returns the variables that are keys, without the prefix.
    fn keys(&self) -> Result<Vec<(String, String)>, ConfigError> {
        let mut keys = Vec::new();
        for (name, value) in &self.0 {
            let Some(name) = name.to_str() else { continue };
            let Some(key) = name.strip_prefix(PREFIX) else {
                continue;
            };
            if NON_KEYS.contains(&key)
                || NO_KEY_PREFIXES.iter().any(|prefix| key.starts_with(prefix))
                || (cfg!(feature = "sabotage") && matches!(key, "SABOTAGE" | "SABOTAGE_CLOCK_MS"))
            {
                continue;
            }
            keys.push((key.to_owned(), text(name, value)?));
        }
        keys.sort();
        Ok(keys)
    }
}

fn text(name: &str, value: &OsString) -> Result<String, ConfigError> {
    value.to_str().map(str::to_owned).ok_or_else(|| {
        ConfigError::new(
            format!("environment variable {name}"),
            "its value is not UTF-8; set it to a text in UTF-8",
        )
    })
}

/// The source of a layer. The source decides how a sentence names the layer's keys.
#[derive(Clone)]
enum ConfigLayer {
    File(PathBuf),
    DatabaseUrl,
    Environment,
    Flags,
}

impl ConfigLayer {
    fn name(&self, key: &[&str]) -> String {
        let dotted = key.join(".");
        match self {
            Self::File(path) => format!("{dotted} in {}", path.display()),
            Self::DatabaseUrl => format!("{dotted} (environment variable DATABASE_URL)"),
            Self::Environment => {
                let variable = key.join("__").to_uppercase();
                format!("{dotted} (environment variable {PREFIX}{variable})")
            }
            Self::Flags => format!("{dotted} (command line)"),
        }
    }
}

/// All values of one source.
struct Layer {
    origin: ConfigLayer,
    values: Dict,
    separate_files: SeparateFiles,
}

/// The files that values were read from, by the keys of these values.
type SeparateFiles = BTreeMap<String, PathBuf>;

impl Layer {
    /// Returns a warning for each secret in a file that everybody can read.
    fn exposed_secrets(&self) -> Vec<String> {
        let secrets = self.secrets().into_iter();
        let secrets = secrets.filter(|(key, value)| {
            let name = key.last().copied().unwrap_or_default();
            is_secret(name, value)
        });
        let exposed = secrets.filter_map(|(key, _)| {
            let sentence = guarded_file::exposure(self.file_of(&key)?)?;
            let name = name_in_layer(&self.origin, &self.separate_files, &key);
            Some(format!("warning: {name}: {sentence}"))
        });
        exposed.collect()
    }

    /// Returns the values that may be secrets, by their keys.
    fn secrets(&self) -> Vec<(Vec<&str>, &Value)> {
        let mut found = Vec::new();
        for key in SECRETS {
            found.extend(self.values.get(key).map(|value| (vec![key], value)));
        }
        let resp = self.values.get(RESP).and_then(Value::as_dict);
        let password = resp.and_then(|resp| resp.get(PASSWORD));
        found.extend(password.map(|value| (vec![RESP, PASSWORD], value)));
        let stores = self.values.get("stores").and_then(Value::as_dict);
        for (name, store) in stores.into_iter().flatten() {
            for key in STORE_SECRETS {
                let value = store.as_dict().and_then(|store| store.get(key));
                let path = vec!["stores", name.as_str(), key];
                found.extend(value.map(|value| (path, value)));
            }
        }
        found
    }

    /// Returns the file that gives the value of a key, if a file does.
    fn file_of(&self, key: &[&str]) -> Option<&Path> {
        let whole = match &self.origin {
            ConfigLayer::File(path) => Some(path),
            ConfigLayer::DatabaseUrl | ConfigLayer::Environment | ConfigLayer::Flags => None,
        };
        let separate = self.separate_files.get(&key.join("."));
        separate.or(whole).map(PathBuf::as_path)
    }
}

/// Returns how a sentence names a key of a layer. If its value was read from a separate file, that is
/// the key that names this file.
fn name_in_layer(origin: &ConfigLayer, separate_files: &SeparateFiles, key: &[&str]) -> String {
    match key {
        [path @ .., last] if separate_files.contains_key(&key.join(".")) => {
            let file_key = format!("{last}_file");
            origin.name(&[path, &[file_key.as_str()]].concat())
        }
        _ => origin.name(key),
    }
}

impl Provider for Layer {
    fn metadata(&self) -> Metadata {
        let (origin, separate_files) = (self.origin.clone(), self.separate_files.clone());
        let name = match self.origin {
            ConfigLayer::DatabaseUrl => PLATFORM,
            ConfigLayer::File(_) | ConfigLayer::Environment | ConfigLayer::Flags => "layer",
        };
        Metadata::named(name).interpolater(move |_: &Profile, key: &[&str]| {
            name_in_layer(&origin, &separate_files, key)
        })
    }

    fn data(&self) -> Result<Map<Profile, Dict>, Error> {
        Ok(Map::from([(Profile::Default, self.values.clone())]))
    }
}

/// All layers, merged.
pub(crate) struct Layers {
    pub(crate) values: Figment,
    /// The file that the administrator's token was read from, if it was.
    pub(crate) admin_token_file: Option<PathBuf>,
    /// A warning for each file that everybody can read or write, and should not.
    pub(crate) exposed_files: Vec<String>,
}

/// Reads every layer, the weakest first.
pub(crate) fn read(flags: &Flags, environment: &Environment) -> Result<Layers, ConfigError> {
    let layers = [
        file_layer(flags, environment)?,
        database_url_layer(environment)?,
        environment_layer(environment)?,
        flags_layer(flags)?,
    ];
    let mut merged = Figment::new();
    let mut admin_token_file = None;
    let mut exposed_files = Vec::new();
    for (origin, values) in layers {
        if let Some(file) = values.get("admin_token_file") {
            admin_token_file = file.as_str().map(PathBuf::from);
        } else if values.contains_key("admin_token") {
            admin_token_file = None;
        }
        if let ConfigLayer::File(path) = &origin {
            let sentence = guarded_file::openness(path);
            let named = sentence.map(|text| format!("warning: the configuration file: {text}"));
            exposed_files.extend(named);
        }
        let layer = with_secrets(origin, values)?;
        exposed_files.extend(layer.exposed_secrets());
        merged = merged.merge(layer);
    }
    Ok(Layers {
        values: merged,
        admin_token_file,
        exposed_files,
    })
}

fn file_layer(
    flags: &Flags,
    environment: &Environment,
) -> Result<(ConfigLayer, Dict), ConfigError> {
    let named = match &flags.config {
        Some(path) => Some(path.clone()),
        None => environment.get("ODOMETER_CONFIG").map(PathBuf::from),
    };
    let path = named.clone().unwrap_or_else(|| DEFAULT_FILE.into());
    let refused = |problem: String| ConfigError::new(path.display().to_string(), problem);
    let is_absent = named.is_none() && matches!(path.try_exists(), Ok(false));
    let content = match is_absent {
        true => String::new(),
        false => fs::read_to_string(&path).map_err(|error| {
            let problem = guarded_file::unread(&path, &error);
            let remedy = "correct its permissions, or the path in --config or ODOMETER_CONFIG";
            ConfigError::new("the configuration file", format!("{problem}; {remedy}"))
        })?,
    };
    let values = Toml::string(&content)
        .data()
        .map_err(|error| refused(without_excerpt(&error.to_string())))?
        .remove(&Profile::Default)
        .unwrap_or_default();
    Ok((ConfigLayer::File(path), values))
}

/// Returns what is wrong with a TOML file, without the line in question. That line may hold a
/// secret.
fn without_excerpt(message: &str) -> String {
    let is_excerpt = |line: &&str| {
        line.trim_start()
            .trim_start_matches(|first: char| first.is_ascii_digit())
            .trim_start()
            .starts_with('|')
    };
    let kept: Vec<&str> = message
        .lines()
        .filter(|line| !is_excerpt(line))
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    format!("not a TOML file: {}", kept.join(": "))
}

fn database_url_layer(environment: &Environment) -> Result<(ConfigLayer, Dict), ConfigError> {
    let mut values = Dict::new();
    if let Some(url) = environment.text("DATABASE_URL")? {
        values.insert("database_url".into(), Value::from(url));
    }
    Ok((ConfigLayer::DatabaseUrl, values))
}

fn environment_layer(environment: &Environment) -> Result<(ConfigLayer, Dict), ConfigError> {
    let mut values = Dict::new();
    for (variable, value) in environment.keys()? {
        let key = variable.to_lowercase();
        let path: Vec<&str> = key.split("__").collect();
        insert(&mut values, &path, value).map_err(|problem| {
            ConfigError::new(format!("environment variable {PREFIX}{variable}"), problem)
        })?;
    }
    Ok((ConfigLayer::Environment, values))
}

fn flags_layer(flags: &Flags) -> Result<(ConfigLayer, Dict), ConfigError> {
    let mut values = Dict::new();
    for setting in &flags.set {
        let (key, value) =
            split_setting(setting).map_err(|problem| ConfigError::new("--set", problem))?;
        let path: Vec<&str> = key.split('.').collect();
        insert(&mut values, &path, value.to_owned())
            .map_err(|problem| ConfigError::new(format!("--set {key}"), problem))?;
    }
    let database_url = flags.database_url.as_ref();
    let named = [
        (["listen"].as_slice(), flags.listen.clone()),
        (
            &["database_url"],
            database_url.map(|url| url.expose().to_owned()),
        ),
        (&["database_url_file"], flags.database_url_file.clone()),
        (&["migrate"], flags.migrate.then(|| "true".to_owned())),
        (&["log", "level"], flags.log_level.clone()),
        (&["log", "format"], flags.log_format.clone()),
    ];
    for (path, value) in named {
        if let Some(value) = value {
            insert(&mut values, path, value)
                .map_err(|problem| ConfigError::new(format!("--{}", path.join("-")), problem))?;
        }
    }
    Ok((ConfigLayer::Flags, values))
}

/// Puts `value` at `path`, and creates the sections on the way.
fn insert(values: &mut Dict, path: &[&str], value: String) -> Result<(), String> {
    let refused = || "it is a section and a value at once; give the keys of the section".to_owned();
    match path {
        [] | [""] | ["", ..] => Err("it names no key".to_owned()),
        [key] => {
            if matches!(values.get(*key), Some(Value::Dict(..))) {
                return Err(refused());
            }
            values.insert((*key).to_owned(), Value::from(value));
            Ok(())
        }
        [section, rest @ ..] => {
            let section = values
                .entry((*section).to_owned())
                .or_insert_with(|| Value::from(Dict::new()));
            if let Value::Dict(_, section) = section {
                insert(section, rest, value)
            } else {
                Err(refused())
            }
        }
    }
}

/// Returns whether a layer gives `database_url`. `DATABASE_URL` does not count, because platforms
/// set that variable for any program.
pub(crate) fn gives_database_url(layers: &Figment) -> bool {
    let given_by = layers.find_metadata("database_url");
    given_by.is_some_and(|layer| layer.name != PLATFORM)
}

/// Returns a layer in which each `<secret>_file` is replaced by the content of that file.
fn with_secrets(origin: ConfigLayer, mut values: Dict) -> Result<Layer, ConfigError> {
    let mut separate_files = SeparateFiles::new();
    let of_layer = read_secrets_of(&mut values, &SECRETS, |key| origin.name(&[key]))?;
    separate_files.extend(of_layer);
    if let Some(Value::Dict(_, resp)) = values.get_mut(RESP) {
        let named = |key: &str| origin.name(&[RESP, key]);
        let of_resp = read_secrets_of(resp, &[PASSWORD], named)?.into_iter();
        separate_files.extend(of_resp.map(|(key, file)| (format!("{RESP}.{key}"), file)));
    }
    if let Some(Value::Dict(_, stores)) = values.get_mut("stores") {
        for (name, store) in stores {
            if let Value::Dict(_, store) = store {
                let named = |key: &str| origin.name(&["stores", name, key]);
                let of_store = read_secrets_of(store, &STORE_SECRETS, named)?.into_iter();
                let of_store = of_store.map(|(key, file)| (format!("stores.{name}.{key}"), file));
                separate_files.extend(of_store);
            }
        }
    }
    Ok(Layer {
        origin,
        values,
        separate_files,
    })
}

/// Replaces the `_file` keys of one section, and returns the keys that were read with their files.
fn read_secrets_of(
    values: &mut Dict,
    secrets: &[&str],
    name_of: impl Fn(&str) -> String,
) -> Result<Vec<(String, PathBuf)>, ConfigError> {
    let mut read = Vec::new();
    for key in secrets {
        let file_key = format!("{key}_file");
        let Some(path) = values.remove(&file_key) else {
            continue;
        };
        let name = name_of(&file_key);
        if values.contains_key(*key) {
            let problem = format!("{key} is given as well; keep one of the two");
            return Err(ConfigError::new(name, problem));
        }
        let reader = match *key {
            ADMIN_TOKEN => read_secret,
            _ => read_secret_once,
        };
        let secret = path
            .as_str()
            .ok_or_else(|| "it must be the path of a file".to_owned())
            .and_then(|path| Ok((PathBuf::from(path), reader(Path::new(path))?)));
        let (file, secret) = secret.map_err(|problem| ConfigError::new(name, problem))?;
        values.insert((*key).to_owned(), Value::from(secret));
        read.push(((*key).to_owned(), file));
    }
    Ok(read)
}

/// Reads a secret from a file that is read again while the service runs.
pub(crate) fn read_secret(path: &Path) -> Result<String, String> {
    secret_of(path, &guarded_file::read(path)?)
}

fn read_secret_once(path: &Path) -> Result<String, String> {
    secret_of(path, &guarded_file::read_once(path)?)
}

fn secret_of(path: &Path, content: &str) -> Result<String, String> {
    let secret = content.trim_end_matches(['\r', '\n']);
    if secret.is_empty() {
        return Err(format!("{} is empty", path.display()));
    }
    Ok(secret.to_owned())
}

/// Returns how a sentence names `key`: with the place where its value was given. A default has no
/// place, so its key is named alone.
pub(crate) fn name_of(layers: &Figment, key: &str) -> String {
    name_in(layers, key, key)
}

/// Returns how a sentence names `key`: with the place where its section was given.
pub(crate) fn name_in(layers: &Figment, key: &str, section: &str) -> String {
    let path: Vec<&str> = key.split('.').collect();
    match layers.find_metadata(section) {
        Some(metadata) => metadata.interpolate(&Profile::Default, &path),
        None => key.to_owned(),
    }
}

/// Names the origin of a value that no layer gives.
pub(crate) const DEFAULT_ORIGIN: &str = "the default";

/// Returns where the value of `key` was given, as a sentence says it in parentheses.
pub(crate) fn origin_of(layers: &Figment, key: &str) -> String {
    if layers.find_metadata(key).is_none() {
        return DEFAULT_ORIGIN.to_owned();
    }
    let named = name_of(layers, key);
    let origin = named.strip_prefix(key).unwrap_or(&named);
    // The value may have been read from a file that `<key>_file` names.
    let origin = origin.strip_prefix("_file").unwrap_or(origin).trim();
    origin
        .strip_prefix('(')
        .and_then(|origin| origin.strip_suffix(')'))
        .unwrap_or(origin)
        .to_owned()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use super::super::tests::File;
    use super::*;

    /// Some mounts show each file as if everybody could write to it, and have no way to say otherwise.
    #[test]
    fn a_configuration_that_everybody_can_write_is_warned_of() {
        let file = File::with("worker = 5\n");
        let config = file.flags.config.clone().unwrap();
        for (mode, is_warned_of) in [(0o664, false), (0o646, true)] {
            set_permissions(&config, Permissions::from_mode(mode)).unwrap();
            let warnings = file.load().unwrap().security_warnings().join("\n");
            let said = "odometer.toml can be written by everybody";
            assert_eq!(
                warnings.contains(said),
                is_warned_of,
                "{mode:o}: {warnings}"
            );
        }
    }

    #[test]
    fn a_broken_file_is_named_without_the_line_that_may_hold_a_secret() {
        let message = "TOML parse error at line 3, column 5\n  |\n3 | database_url = \"postgres://u:hunter2@h\n  |     ^\ninvalid basic string\n";
        assert_eq!(
            without_excerpt(message),
            "not a TOML file: TOML parse error at line 3, column 5: invalid basic string"
        );
    }
}
