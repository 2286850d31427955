//! Reads the configuration, which the program gets before it starts.
//!
//! Flags win over the environment, the environment over `odometer.toml`, and the file over the
//! defaults below. Unknown keys are refused. Every refusal is one sentence that names the key.
//! Nothing else in the program reads the environment.

pub mod definitions;
mod fields;
mod layers;
mod log_level;
mod secret;
mod sections;
mod stores;
mod templates;
mod value;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use figment::Figment;
use figment::error::Kind;
use odometer_core::duration::exact;
use odometer_core::templates::Templates;
use odometer_process::host;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use url::Url;

pub use layers::Environment;
pub use secret::Secret;
pub use sections::{
    HttpConfig, IdleConfig, JournalConfig, LimitsConfig, LogConfig, LogFormat, MetricsConfig,
    PoolConfig, RefillConfig, ShutdownConfig, SnowflakeConfig, StoreSection, TelemetryConfig,
    Unknown,
};
pub use stores::{StoreConfig, StoresConfig};

/// What the command line says; the strongest layer.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Flags {
    /// Configuration file; `odometer.toml` in the working directory where none is named.
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Address to listen on; port 0 picks a free one and prints it.
    #[arg(long, global = true, value_name = "ADDRESS:PORT")]
    pub listen: Option<String>,
    /// Database: sqlite:, postgres: or mysql:. Others on this machine can see it here; for a URL
    /// with a password use the environment or --database-url-file.
    #[arg(long, global = true, value_name = "URL")]
    pub database_url: Option<Secret>,
    /// File that holds the database URL.
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        conflicts_with = "database_url"
    )]
    pub database_url_file: Option<String>,
    /// Least level that is logged: error, warn, info, debug or trace, or a filter as in
    /// `info,odometer=debug`.
    #[arg(long, global = true, value_name = "LEVEL")]
    pub log_level: Option<String>,
    /// Form of the log: auto (text on a terminal, JSON otherwise), text or json.
    #[arg(long, global = true, value_name = "FORM")]
    pub log_format: Option<String>,
    /// Bring the schema of PostgreSQL or MySQL up to date at start; for one-node use.
    #[arg(long, global = true)]
    pub migrate: bool,
    /// Any other key of the configuration, as in --set refill.deadline=2s; may be repeated.
    #[arg(long, global = true, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
}

/// A configuration that cannot be used: which key, and what to do about it, in one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    key: String,
    problem: String,
}

impl ConfigError {
    /// Creates an error. `key` says where the problem is. `problem` is a sentence that says what to
    /// give instead.
    pub fn new(key: impl Into<String>, problem: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            problem: problem.into(),
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = format!("configuration: {}: {}", self.key, self.problem);
        let words: Vec<&str> = line.lines().map(str::trim).collect();
        formatter.write_str(&words.join(" "))
    }
}

impl std::error::Error for ConfigError {}

/// Stands for `[default]`, `[[template]]` or `[stores.NAME]`.
///
/// These sections are read field by field elsewhere, so that a wrong field can be named.
#[derive(Clone, Copy, Debug)]
pub struct ReadSeparately;

impl<'de> Deserialize<'de> for ReadSeparately {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        serde::de::IgnoredAny::deserialize(source).map(|_| Self)
    }
}

/// All values that can be set, with their defaults.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The address to listen on. Port 0 picks a free port.
    #[serde(deserialize_with = "address")]
    pub listen: SocketAddr,
    /// The database of the default store.
    #[serde(deserialize_with = "secret")]
    pub database_url: Secret,
    /// Whether the start brings the schema of PostgreSQL or MySQL up to date.
    #[serde(deserialize_with = "value::truth")]
    pub migrate: bool,
    /// What happens to a name that was never used.
    pub unknown: Unknown,
    /// The most sequences in the store.
    #[serde(deserialize_with = "value::number")]
    pub max_sequences: u64,
    /// How old this replica's knowledge of definitions may be.
    #[serde(deserialize_with = "value::duration")]
    pub definition_refresh: Duration,
    /// The worker id of all time-ordered sequences on this replica. Without one, any free id is
    /// used.
    #[serde(deserialize_with = "value::some_number")]
    pub worker: Option<u32>,
    /// The token that callers must show to change sequences. Without one, a listener on loopback
    /// asks for none, and another listener refuses every change.
    #[serde(deserialize_with = "some_secret")]
    pub admin_token: Option<Secret>,
    /// The stores that `stores` configures. `database_url` is the default store if `stores` has
    /// none.
    #[serde(skip)]
    pub stores: StoresConfig,
    #[serde(rename = "stores")]
    pub given_stores: ReadSeparately,
    pub default: ReadSeparately,
    pub template: ReadSeparately,
    /// The templates that `default` and `template` configure.
    ///
    /// A template defines a name that was never used, and gives the fields that a `PUT` leaves out.
    #[serde(skip)]
    pub templates: Templates,
    pub limits: LimitsConfig,
    pub http: HttpConfig,
    pub refill: RefillConfig,
    pub pool: PoolConfig,
    pub store: StoreSection,
    pub metrics: MetricsConfig,
    pub shutdown: ShutdownConfig,
    pub idle: IdleConfig,
    pub journal: JournalConfig,
    pub snowflake: SnowflakeConfig,
    pub log: LogConfig,
    pub telemetry: TelemetryConfig,
}

/// The fewest characters of a token without a warning.
const MIN_TOKEN: usize = 16;

/// The highest worker id: a worker id has at most 22 bits.
const MAX_WORKER: u64 = (1 << 22) - 1;

impl Default for Config {
    fn default() -> Self {
        let database_url = Secret::new("sqlite:odometer.db");
        Self {
            listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080),
            database_url: database_url.clone(),
            migrate: false,
            unknown: Unknown::Create,
            max_sequences: 1_000_000,
            definition_refresh: Duration::from_secs(10),
            worker: None,
            admin_token: None,
            stores: StoresConfig::of_database_url(&database_url),
            given_stores: ReadSeparately,
            default: ReadSeparately,
            template: ReadSeparately,
            templates: Templates::default(),
            limits: LimitsConfig::default(),
            http: HttpConfig::default(),
            refill: RefillConfig::default(),
            pool: PoolConfig::default(),
            store: StoreSection::default(),
            metrics: MetricsConfig::default(),
            shutdown: ShutdownConfig::default(),
            idle: IdleConfig::default(),
            journal: JournalConfig::default(),
            snowflake: SnowflakeConfig::default(),
            log: LogConfig::default(),
            telemetry: TelemetryConfig::default(),
        }
    }
}

impl Config {
    /// Reads all layers, and checks their values together.
    ///
    /// # Errors
    /// The first key that cannot be used.
    pub fn load(flags: &Flags, environment: &Environment) -> Result<Self, ConfigError> {
        let layers = layers::read(flags, environment)?;
        let mut config: Self = layers.extract().map_err(|error| refused(&error))?;
        if let Some((key, problem)) = config.problem() {
            return Err(ConfigError::new(name_of(&layers, key), problem));
        }
        config.stores = stores::read(&layers, &config.database_url)?;
        for store in &mut config.stores.0 {
            store.origin = origin_of(&layers, &store.key);
        }
        config.templates = templates::read(&layers, config.unknown, &config.stores)?;
        Ok(config)
    }

    /// Returns a warning for each template that no name gets.
    pub(crate) fn never_used(&self) -> Vec<String> {
        let templates = &self.templates;
        let warning = |(index, by): (usize, usize)| {
            let (glob, earlier) = (templates.glob(index)?, templates.glob(by)?);
            Some(format!(
                "warning: template[{index}] (match \"{glob}\") is never used: template[{by}] \
                 (match \"{earlier}\") stands before it and fits all its names"
            ))
        };
        let never_used = templates.never_used().into_iter();
        never_used.filter_map(warning).collect()
    }

    /// Returns a warning if the token is so short that it can be guessed.
    pub(crate) fn short_token(&self) -> Option<String> {
        let n_characters = self.admin_token.as_ref()?.expose().len();
        (n_characters < MIN_TOKEN).then(|| {
            format!(
                "warning: admin_token has {n_characters} characters and can be guessed; give \
                 {MIN_TOKEN} or more, as `openssl rand -hex 32` does"
            )
        })
    }

    /// Returns the first value that is well-formed but of no use, with its key.
    fn problem(&self) -> Option<(&'static str, String)> {
        database_problem(self.database_url.expose())
            .map(|problem| ("database_url", problem))
            .or_else(|| self.bounds_problem())
            .or_else(|| self.durations_problem())
            .or_else(|| self.relation_problem())
            .or_else(|| Some(("http.hosts", self.hosts_problem()?)))
            .or_else(|| log_level::problem(&self.log.level).map(|problem| ("log.level", problem)))
            .or_else(|| {
                let problem = collector_problem(self.telemetry.otlp_endpoint.as_deref()?)?;
                Some(("telemetry.otlp_endpoint", problem))
            })
    }

    /// Returns how long the replica waits for a clock that was set back. Callers wait longer than
    /// that.
    pub fn clock_wait(&self) -> Duration {
        let (wait, deadline) = (self.snowflake.wait, self.refill.deadline);
        // Only a wait up to the default can be too long: `relation_problem` refuses longer ones.
        if wait < deadline { wait } else { deadline / 2 }
    }

    /// Returns what is wrong with the first of `http.hosts` that no `Host` header can have.
    fn hosts_problem(&self) -> Option<String> {
        let mut hosts = self.http.hosts.iter();
        let wrong = hosts.find(|host| !host::is_name(host::without_port(host)))?;
        Some(format!(
            "{wrong:?} is no name of a host; give names as in \"numbers.example\", without scheme \
             and path, and an IPv6 address in brackets"
        ))
    }

    fn bounds_problem(&self) -> Option<(&'static str, String)> {
        let wide = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        [
            ("max_sequences", self.max_sequences, 1, 1_000_000_000),
            ("limits.waiters", wide(self.limits.waiters), 1, 10_000_000),
            (
                "limits.in_flight",
                wide(self.limits.in_flight),
                1,
                10_000_000,
            ),
            (
                "limits.live_sequences",
                wide(self.limits.live_sequences),
                1,
                100_000_000,
            ),
            (
                "limits.live_periods",
                wide(self.limits.live_periods),
                1,
                100_000,
            ),
            (
                "limits.keyed_periods",
                self.limits.keyed_periods,
                1,
                1_000_000_000,
            ),
            (
                "limits.body",
                wide(self.limits.body),
                1024,
                16 * 1024 * 1024,
            ),
            ("worker", self.worker.unwrap_or(0).into(), 0, MAX_WORKER),
            (
                "http.connections",
                wide(self.http.connections),
                16,
                1_000_000,
            ),
            ("http.backlog", self.http.backlog.into(), 1, 65_535),
            ("http.workers", wide(self.http.workers.unwrap_or(1)), 1, 512),
            ("refill.attempts", self.refill.attempts.into(), 1, 100_000),
            ("pool.max", self.pool.max.into(), 1, 10_000),
            (
                "metrics.sequence_labels",
                wide(self.metrics.sequence_labels),
                0,
                100_000,
            ),
            ("journal.queue", wide(self.journal.queue), 1, 10_000_000),
        ]
        .into_iter()
        .find(|(_, value, least, most)| value < least || value > most)
        .map(|(key, value, least, most)| {
            (
                key,
                format!("{value} is out of bounds; give {least} to {most}"),
            )
        })
    }

    fn durations_problem(&self) -> Option<(&'static str, String)> {
        const MS: Duration = Duration::from_millis(1);
        const SECOND: Duration = Duration::from_secs(1);
        const MINUTES: Duration = Duration::from_secs(600);
        const HOUR: Duration = Duration::from_secs(3600);
        const DAY: Duration = Duration::from_secs(86_400);
        const YEAR: Duration = Duration::from_secs(366 * 86_400);
        [
            ("definition_refresh", self.definition_refresh, SECOND, DAY),
            ("http.head", self.http.head, MS, MINUTES),
            ("http.body", self.http.body, MS, MINUTES),
            ("http.write", self.http.write, SECOND, MINUTES),
            ("refill.deadline", self.refill.deadline, MS, MINUTES),
            ("refill.backoff_min", self.refill.backoff_min, MS, MINUTES),
            ("refill.backoff_max", self.refill.backoff_max, MS, MINUTES),
            ("pool.acquire", self.pool.acquire, MS, MINUTES),
            ("store.timeout", self.store.timeout, MS, MINUTES),
            (
                "shutdown.ready_wait",
                self.shutdown.ready_wait,
                Duration::ZERO,
                MINUTES,
            ),
            ("shutdown.deadline", self.shutdown.deadline, SECOND, DAY),
            ("idle.park", self.idle.park, SECOND, YEAR),
            ("idle.unload", self.idle.unload, SECOND, YEAR),
            (
                "snowflake.wait",
                self.snowflake.wait,
                Duration::ZERO,
                MINUTES,
            ),
            ("journal.retain", self.journal.retain, HOUR, 100 * YEAR),
            ("log.slow_refill", self.log.slow_refill, MS, MINUTES),
        ]
        .into_iter()
        .find(|(_, value, least, most)| value < least || value > most)
        .map(|(key, value, least, most)| {
            (
                key,
                format!(
                    "{} is out of bounds; give {} to {}",
                    exact(value),
                    exact(least),
                    exact(most)
                ),
            )
        })
    }

    fn relation_problem(&self) -> Option<(&'static str, String)> {
        let (refill, shutdown, idle) = (&self.refill, &self.shutdown, &self.idle);
        if refill.backoff_min > refill.backoff_max {
            let problem = "it is above refill.backoff_max; give at most that";
            Some(("refill.backoff_min", problem.to_owned()))
        } else if shutdown.ready_wait >= shutdown.deadline {
            let problem = "it leaves no time before shutdown.deadline; give less than that";
            Some(("shutdown.ready_wait", problem.to_owned()))
        } else if idle.park > idle.unload {
            let problem = "it is above idle.unload; give at most that";
            Some(("idle.park", problem.to_owned()))
        } else if self.snowflake.wait > SnowflakeConfig::default().wait
            && self.snowflake.wait >= refill.deadline
        {
            let problem = "callers have gone by then, after refill.deadline; give less than that";
            Some(("snowflake.wait", problem.to_owned()))
        } else {
            None
        }
    }
}

/// Returns the faults that a test asked for, and the error of this process's clock in milliseconds.
///
/// `ODOMETER_SABOTAGE` lists the faults, separated by commas. `ODOMETER_SABOTAGE_CLOCK_MS` gives
/// the error of the clock.
#[cfg(feature = "sabotage")]
pub fn faults(environment: &Environment) -> (Vec<String>, i64) {
    let given = |key| environment.get(key).and_then(|value| value.to_str());
    let words = given("ODOMETER_SABOTAGE").unwrap_or_default().split(',');
    let words = words.map(str::trim).filter(|word| !word.is_empty());
    let shift = given("ODOMETER_SABOTAGE_CLOCK_MS").and_then(|shift| shift.parse().ok());
    (words.map(str::to_owned).collect(), shift.unwrap_or(0))
}

/// Returns what is wrong with the URL that spans are sent to.
fn collector_problem(endpoint: &str) -> Option<String> {
    if !cfg!(feature = "otlp") {
        let problem = "this program sends no spans; leave it out, or build with the feature `otlp`";
        return Some(problem.to_owned());
    }
    let is_usable = Url::parse(endpoint).is_ok_and(|url| {
        // A person who can read the log could read a password in the URL.
        let has_login = !url.username().is_empty() || url.password().is_some();
        url.scheme() == "http"
            && url.has_host()
            && !has_login
            && url.query().is_none()
            && url.fragment().is_none()
    });
    (!is_usable).then(|| {
        "it is not the URL of a collector; give http://HOST:PORT, as in \"http://127.0.0.1:4318\""
            .to_owned()
    })
}

/// Returns what is wrong with the scheme of a database URL, and never shows the URL itself.
fn database_problem(url: &str) -> Option<String> {
    const SCHEMES: [&str; 5] = ["sqlite", "postgres", "postgresql", "mysql", "mariadb"];
    const URL_FORMS: &str = "give sqlite:FILE, postgres://USER:PASSWORD@HOST/DATABASE or \
        mysql://USER:PASSWORD@HOST/DATABASE";
    if url.is_empty() {
        return Some(format!("it is empty; {URL_FORMS}"));
    }
    match url.split_once(':') {
        Some((scheme, _)) if SCHEMES.contains(&scheme) => None,
        Some(_) | None => Some(format!(
            "it begins with no scheme that is known; {URL_FORMS}"
        )),
    }
}

fn address<'de, D: Deserializer<'de>>(source: D) -> Result<SocketAddr, D::Error> {
    let text = String::deserialize(source)?;
    let numeric = match text.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}"),
        None => text.clone(),
    };
    numeric.parse().map_err(|_| {
        D::Error::custom(format!(
            "{text:?} is no address; give ADDRESS:PORT, as in \"127.0.0.1:8080\" or \"[::]:8080\""
        ))
    })
}

fn secret<'de, D: Deserializer<'de>>(source: D) -> Result<Secret, D::Error> {
    // The sentence of a failed conversion would show the value.
    Secret::deserialize(source).map_err(|_| D::Error::custom("it must be text in quotation marks"))
}

fn some_secret<'de, D: Deserializer<'de>>(source: D) -> Result<Option<Secret>, D::Error> {
    let token = secret(source)?;
    if token.expose().trim().is_empty() {
        return Err(D::Error::custom(
            "it is empty; give a token, or leave the key out",
        ));
    }
    if token.expose().trim() != token.expose() {
        return Err(D::Error::custom(
            "it begins or ends with a blank, which a header of HTTP cannot carry; give the token \
             without blanks around it",
        ));
    }
    let is_sendable = |byte: u8| byte == b' ' || byte.is_ascii_graphic();
    if !token.expose().bytes().all(is_sendable) {
        return Err(D::Error::custom(
            "it has characters that a header of HTTP cannot carry; give letters, digits and signs \
             of ASCII, as `openssl rand -hex 32` does",
        ));
    }
    Ok(Some(token))
}

/// Returns an error that names the key and the problem, without the value if that is a secret.
fn refused(error: &figment::Error) -> ConfigError {
    let mut path: Vec<&str> = error.path.iter().map(String::as_str).collect();
    let problem = match &error.kind {
        Kind::Message(message) => message.clone(),
        Kind::InvalidType(found, expected) | Kind::InvalidValue(found, expected) => {
            // Only sections are structures, and an operator does not know the names of their types.
            let is_section = expected.starts_with("struct ");
            let wanted = if is_section {
                "a section of keys"
            } else {
                expected
            };
            format!("found {found}; give {wanted}")
        }
        Kind::UnknownVariant(found, known) => {
            format!("{found:?} is not known; give one of {}", known.join(", "))
        }
        Kind::UnknownField(key, known) => {
            if path.last() != Some(&key.as_str()) {
                path.push(key);
            }
            let known = known.join(", ");
            if path.first() == Some(&"store") {
                format!(
                    "there is no such key; give databases in [stores.NAME], as in \
                     [stores.tickets]; known here are {known}"
                )
            } else {
                format!("there is no such key; known here are {known}")
            }
        }
        Kind::InvalidLength(..)
        | Kind::MissingField(_)
        | Kind::DuplicateField(_)
        | Kind::ISizeOutOfRange(_)
        | Kind::USizeOutOfRange(_)
        | Kind::Unsupported(_)
        | Kind::UnsupportedKey(..) => error.kind.to_string(),
    };
    let name = match &error.metadata {
        Some(metadata) => metadata.interpolate(&figment::Profile::Default, &path),
        None => path.join("."),
    };
    ConfigError::new(name, problem)
}

/// Returns how a sentence names `key`: with the place where its value was given. A default has no
/// place, so its key is named alone.
fn name_of(layers: &Figment, key: &str) -> String {
    let path: Vec<&str> = key.split('.').collect();
    match layers.find_metadata(key) {
        Some(metadata) => metadata.interpolate(&figment::Profile::Default, &path),
        None => key.to_owned(),
    }
}

/// Returns where the value of `key` was given, as a sentence says it in parentheses.
fn origin_of(layers: &Figment, key: &str) -> String {
    if layers.find_metadata(key).is_none() {
        return "the default".to_owned();
    }
    let named = name_of(layers, key);
    let origin = named.strip_prefix(key).unwrap_or(&named).trim();
    origin
        .strip_prefix('(')
        .and_then(|origin| origin.strip_suffix(')'))
        .unwrap_or(origin)
        .to_owned()
}

#[cfg(test)]
mod tests;
