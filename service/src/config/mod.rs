//! Reads the configuration, which the program gets before it starts.
//!
//! Flags win over the environment, the environment over `odometer.toml`, and the file over the
//! defaults below. Unknown keys are refused. Every refusal is one sentence that names the key.
//! Nothing else in the program reads the environment.

mod access;
pub mod definitions;
mod effective;
mod error;
mod fields;
mod flags;
pub(crate) mod guarded_file;
mod layers;
mod log_level;
mod resp;
mod secret_value;
mod sections;
mod stores;
mod templates;
mod tls;
mod value;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use figment::Figment;
use figment::error::Kind;
use odometer_core::templates::Templates;
use odometer_process::{
    faults::{self, Fault},
    host,
};
use odometer_store::FailoverLimits;
use serde::de::IgnoredAny;
use url::Url;

pub use effective::effective;
pub use error::ConfigError;
pub use flags::Flags;
pub use layers::Environment;
pub use odometer_process::secret::Secret;
pub use sections::{
    FailoverConfig, HttpConfig, IdleConfig, JournalConfig, LimitsConfig, LogConfig, LogFormat,
    MetricsConfig, OnExpiry, OperationsConfig, PoolConfig, RefillConfig, RespConfig,
    ShutdownConfig, SnowflakeConfig, StoreSection, TelemetryConfig, Unknown,
};
pub use stores::StoresConfig;
pub use tls::TlsConfig;

use crate::access::settings::AccessSettings;
use layers::{Layers, name_of, origin_of};
use sections::{DAY, SECOND};
use value::{ConfigValue as _, section};

section! {
    /// All values that can be set, with their defaults.
    Config "" {
        /// The address to listen on. Port 0 picks a free port.
        listen: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);
        /// The database of the default store.
        database_url: Secret = Secret::new(DEFAULT_DATABASE);
        /// Whether the start brings the schema of PostgreSQL or MySQL up to date.
        migrate: bool = false;
        /// What happens to a name that was never used. Without a value, `create` if only this
        /// machine reaches `listen` and `resp.listen`, else `reject`.
        unknown: Option<Unknown> = None;
        /// The most sequences in a store, without the retired ones.
        max_sequences: u64 = 1_000_000, 1..=1_000_000_000;
        /// How old this replica's knowledge of definitions may be.
        definition_refresh: Duration = Duration::from_secs(10), SECOND..=DAY;
        /// The worker id of all time-ordered sequences on this replica. Without one, any free id is
        /// used.
        worker: Option<u32> = None, 0..=MAX_WORKER;
        /// The token that callers must show to change sequences. Without one, a listener on
        /// loopback asks for none, and another listener refuses every change.
        admin_token: Option<Secret> = None;
        // These are read field by field elsewhere, so that a wrong field can be named.
        #[serde(rename = "stores")]
        given_stores: IgnoredAny = IgnoredAny;
        default: IgnoredAny = IgnoredAny;
        template: IgnoredAny = IgnoredAny;
        #[serde(rename = "access")]
        given_access: IgnoredAny = IgnoredAny;
        limits: LimitsConfig = LimitsConfig::default();
        http: HttpConfig = HttpConfig::default();
        operations: OperationsConfig = OperationsConfig::default();
        resp: RespConfig = RespConfig::default();
        tls: TlsConfig = TlsConfig::default();
        refill: RefillConfig = RefillConfig::default();
        pool: PoolConfig = PoolConfig::default();
        store: StoreSection = StoreSection::default();
        failover: FailoverConfig = FailoverConfig::default();
        metrics: MetricsConfig = MetricsConfig::default();
        shutdown: ShutdownConfig = ShutdownConfig::default();
        idle: IdleConfig = IdleConfig::default();
        journal: JournalConfig = JournalConfig::default();
        snowflake: SnowflakeConfig = SnowflakeConfig::default();
        log: LogConfig = LogConfig::default();
        telemetry: TelemetryConfig = TelemetryConfig::default();
    }
    computed {
        /// The stores that `stores` configures. `database_url` is the default store if `stores`
        /// has none.
        stores: StoresConfig = StoresConfig::of_database_url(&Secret::new(DEFAULT_DATABASE));
        /// The templates that `default` and `template` configure.
        ///
        /// A template defines a name that was never used, and gives the fields that a `PUT`
        /// leaves out.
        templates: Templates = Templates::default();
        /// The file that `admin_token` was read from, if it was.
        admin_token_file: Option<PathBuf> = None;
        /// Who may do what. Without it, callers need no token, except for changes.
        access: Option<AccessSettings> = None;
        /// A warning for each file that everybody can read or write, and should not.
        exposed_files: Vec<String> = Vec::new();
    }
}

/// The database of the default store, unless another one is configured.
const DEFAULT_DATABASE: &str = "sqlite:odometer.db";

/// The fewest characters of a token without a warning.
pub(crate) const MIN_TOKEN: usize = 16;

/// The highest worker id: a worker id has at most 22 bits.
const MAX_WORKER: u32 = (1 << 22) - 1;

impl Config {
    /// Reads all layers, and checks their values together.
    ///
    /// # Errors
    /// The first key that cannot be used.
    pub fn load(flags: &Flags, environment: &Environment) -> Result<Self, ConfigError> {
        Ok(Self::load_layers(flags, environment)?.0)
    }

    /// Does the same, and returns the layers, too.
    fn load_layers(
        flags: &Flags,
        environment: &Environment,
    ) -> Result<(Self, Figment), ConfigError> {
        let Layers {
            values: layers,
            admin_token_file,
            exposed_files,
        } = layers::read(flags, environment)?;
        let mut config: Self = layers.extract().map_err(|error| refused(&error))?;
        if let Some(error) = config.first_problem() {
            return Err(error.named(|key| name_of(&layers, key)));
        }
        config.stores = stores::read(&layers, &config.database_url)?;
        for store in &mut config.stores.0 {
            store.origin = origin_of(&layers, &store.key);
        }
        if let Some(error) = config.fence_problem() {
            return Err(error.named(|key| name_of(&layers, key)));
        }
        let is_loopback = config.listen.ip().is_loopback() && !config.resp.is_beyond_loopback();
        let unknown = config.unknown.get_or_insert(match is_loopback {
            true => Unknown::Create,
            false => Unknown::Reject,
        });
        config.templates = templates::read(&layers, *unknown, &config.stores)?;
        config.admin_token_file = admin_token_file;
        config.access = access::read(&layers)?;
        let access = config.access.as_ref();
        let has_callers = access.is_some_and(|access| access.callers_file.is_some());
        let has_operations = config.operations.listen.is_some();
        if let Some(error) = config.tls.missing(has_callers, has_operations) {
            return Err(error.named(|key| name_of(&layers, key)));
        }
        config.resp.rules = resp::read(&layers)?;
        if let Some(error) = config.resp.misfit(config.access.is_some()) {
            return Err(error.named(|key| name_of(&layers, key)));
        }
        config.exposed_files = exposed_files;
        let key_file = config.tls.key_file.as_deref();
        if let Some(sentence) = key_file.and_then(guarded_file::exposure) {
            let name = name_of(&layers, "tls.key_file");
            let warning = format!("warning: {name}: {sentence}");
            config.exposed_files.push(warning);
        }
        Ok((config, layers))
    }

    /// Returns a warning for each template that no name gets.
    pub(crate) fn never_used(&self) -> Vec<String> {
        let never_used = self.templates.never_used().into_iter();
        let warnings = never_used.map(|[(index, rule), (by, earlier)]| {
            format!(
                "warning: template[{index}] (match \"{}\") is never used: template[{by}] \
                 (match \"{}\") stands before it and fits all its names",
                rule.glob, earlier.glob
            )
        });
        warnings.collect()
    }

    /// Returns the warnings about tokens and other secrets that people may learn.
    pub(crate) fn security_warnings(&self) -> Vec<String> {
        let short = self.short_secrets().into_iter();
        let others = self.tokens_in_clear().into_iter();
        let exposed = self.exposed_files.iter().cloned();
        short.chain(others).chain(exposed).collect()
    }

    /// Returns a warning for the token and for the password, if it is so short that it can be
    /// guessed.
    fn short_secrets(&self) -> Vec<String> {
        let secrets = [
            ("admin_token", &self.admin_token),
            ("resp.password", &self.resp.password),
        ];
        let warnings = secrets.into_iter().filter_map(|(key, secret)| {
            let n_characters = secret.as_ref()?.expose().len();
            (n_characters < MIN_TOKEN).then(|| {
                format!(
                    "warning: {key} has {n_characters} characters and can be guessed; give \
                     {MIN_TOKEN} or more, as `openssl rand -hex 32` does"
                )
            })
        });
        warnings.collect()
    }

    /// Returns a warning for each listener to which tokens travel where others can read them.
    pub(crate) fn tokens_in_clear(&self) -> Vec<String> {
        let has_tokens = self.access.is_some() || self.admin_token.is_some();
        let is_secured = self.tls.certificate_file.is_some();
        let operations_are = is_secured && self.tls.operations;
        let operations = self.operations.listen.map(|listen| {
            let remedy = "configure [tls] with tls.operations";
            ("operations.listen", listen, operations_are, remedy)
        });
        let callers = ("listen", self.listen, is_secured, "configure [tls]");
        let resp =
            (self.resp.listen).map(|listen| ("resp.listen", listen, is_secured, "configure [tls]"));
        let listeners = [Some(callers), operations, resp].into_iter().flatten();
        let in_clear = listeners.filter(|(key, listen, is_secured, _)| {
            let has_password = *key == "resp.listen" && self.resp.password.is_some();
            (has_tokens || has_password) && !is_secured && !listen.ip().is_loopback()
        });
        in_clear
            .map(|(key, _, _, remedy)| {
                format!(
                    "warning: tokens travel in clear text to `{key}`; {remedy}, or let only a proxy \
                     with TLS reach it"
                )
            })
            .collect()
    }

    /// Says which value is the first that is well-formed but of no use.
    fn first_problem(&self) -> Option<ConfigError> {
        let token = self.admin_token.as_ref().map(Secret::expose);
        let endpoint = self.telemetry.otlp_endpoint.as_deref();
        let of_key = |key: &'static str| move |problem: String| ConfigError::new(key, problem);
        database_problem(self.database_url.expose())
            .map(of_key("database_url"))
            .or_else(|| token.and_then(token_problem).map(of_key("admin_token")))
            .or_else(|| self.problem())
            .or_else(|| self.relation_problem())
            .or_else(|| self.hosts_problem().map(of_key("http.hosts")))
            .or_else(|| log_level::problem(&self.log.level).map(of_key("log.level")))
            .or_else(|| {
                endpoint
                    .and_then(collector_problem)
                    .map(of_key("telemetry.otlp_endpoint"))
            })
    }

    /// Returns what is known of a server that takes the place of another one.
    pub(crate) fn failover_limits(&self) -> FailoverLimits {
        FailoverLimits {
            is_lossless: self.failover.lossless,
            within: self.failover.within,
            clock_margin: self.failover.clock_margin,
        }
    }

    /// Says which value keeps replicas from ever fencing a database that they are to fence.
    fn fence_problem(&self) -> Option<ConfigError> {
        let failover = self.failover_limits();
        let mut stores = self.stores.0.iter();
        let is_wanted = stores.any(|store| store.unfenced(&failover).is_none());
        if failover.is_lossless || !is_wanted {
            return None;
        }
        let (key, problem) = odometer_store::unfit_for_fences(&failover, self.store.timeout)?;
        Some(ConfigError::new(key, problem))
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

    fn relation_problem(&self) -> Option<ConfigError> {
        let (refill, shutdown, idle) = (&self.refill, &self.shutdown, &self.idle);
        let (key, problem) = if refill.backoff_min > refill.backoff_max {
            let problem = "it is above refill.backoff_max; give at most that";
            ("refill.backoff_min", problem)
        } else if shutdown.ready_wait >= shutdown.deadline {
            let problem = "it leaves no time before shutdown.deadline; give less than that";
            ("shutdown.ready_wait", problem)
        } else if idle.park > idle.unload {
            let problem = "it is above idle.unload; give at most that";
            ("idle.park", problem)
        } else if self.snowflake.wait > SnowflakeConfig::default().wait
            && self.snowflake.wait >= refill.deadline
        {
            let problem = "callers have gone by then, after refill.deadline; give less than that";
            ("snowflake.wait", problem)
        } else {
            return None;
        };
        Some(ConfigError::new(key, problem))
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

/// Returns the bound `limit`, or the highest `u16` if a test took the bounds out.
pub(crate) fn bound<T: From<u16>>(limit: T) -> T {
    match faults::is(Fault::NoBounds) {
        true => T::from(u16::MAX),
        false => limit,
    }
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

/// Reads the administrator's token from its file.
///
/// # Errors
/// A sentence: the file cannot be read, or what it has is no token.
pub(crate) fn read_token(file: &Path) -> Result<Secret, String> {
    let token = layers::read_secret(file)?;
    let refused = |problem| Err(format!("{}: {problem}", file.display()));
    token_problem(&token).map_or(Ok(Secret::new(token)), refused)
}

/// Returns what is wrong with a token that no header of HTTP can carry.
fn token_problem(token: &str) -> Option<String> {
    let is_sendable = |byte: u8| byte == b' ' || byte.is_ascii_graphic();
    let problem = if token.trim().is_empty() {
        "it is empty; give a token, or leave the key out"
    } else if token.trim() != token {
        "it begins or ends with a blank, which a header of HTTP cannot carry; give the token \
         without blanks around it"
    } else if !token.bytes().all(is_sendable) {
        "it has characters that a header of HTTP cannot carry; give letters, digits and signs of \
         ASCII, as `openssl rand -hex 32` does"
    } else {
        return None;
    };
    Some(problem.to_owned())
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

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
