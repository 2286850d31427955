//! What the stores are reached and bounded by, and which database of them one is.

use std::{sync::Arc, time::Duration};

use odometer_core::definition::Stripe;
use odometer_database::{label::DatabaseLabel, settings::StatementBounds};
use odometer_process::{
    faults::{self, Fault},
    metrics::Metrics,
};
use serde::Deserialize;
use tokio::sync::mpsc;

use crate::identity::DatabaseIdentity;
use crate::installation_id::Installations;
use crate::outcome::SeenRecovery;

/// All stores.
#[derive(Clone)]
pub struct StoresSettings {
    /// One at least; the first is [`DEFAULT_STORE`](odometer_core::definition::DEFAULT_STORE).
    pub stores: Vec<StoreSettings>,
    pub bounds: StoreLimits,
    pub installations: Arc<Installations>,
}

/// One store.
#[derive(Clone)]
pub struct StoreSettings {
    pub name: String,
    /// The key of the configuration that its databases were given by.
    pub key: String,
    /// Where that key was given: the command line, a variable, a file.
    pub origin: String,
    /// URLs, one at least, of which more share each sequence. Secret: they may hold passwords.
    pub databases: Vec<String>,
    /// URLs of the servers that count where order is strict; none where the database does. Secret.
    pub redis: Vec<String>,
    pub fallback: Fallback,
    /// What it says itself of [`StoreLimits::durability`].
    pub durability: Option<Durability>,
}

/// Whether a database may forget in a crash what it has committed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// One that may is refused at the start.
    #[default]
    Full,
    /// Numbers may be given twice then.
    Weak,
}

/// Who counts where order is strict while Redis is away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fallback {
    /// Nobody: it is waited for.
    #[default]
    None,
    Database,
}

/// What every database of every store is bounded by.
#[derive(Clone)]
pub struct StoreLimits {
    pub statement: StatementBounds,
    /// Tries of one reservation.
    pub attempts: u32,
    /// The time for all of them.
    pub deadline: Duration,
    pub max_sequences: u64,
    /// Keys of one sequence that its callers may give, removed ones included.
    pub keyed_periods: u64,
    /// Rows of the journal that may wait to be written.
    pub journal_queue: usize,
    /// How long a row of the journal is kept once nothing can come of its block any more.
    pub journal_retain: Duration,
    pub durability: Durability,
    /// Whether PostgreSQL and MySQL are migrated at the start; SQLite always is.
    pub migrate: bool,
    /// How old what is known of definitions may be.
    pub definition_refresh: Duration,
}

/// Which database a block is of: the place of its store, and its own place in that store, counted
/// from 0 as the configuration has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Source {
    pub store: u16,
    pub database: u16,
}

/// What all stores of this process have in common.
#[derive(Clone)]
pub(crate) struct Process {
    /// This process, as the journals call it.
    pub(crate) holder: Arc<str>,
    pub(crate) metrics: Arc<Metrics>,
    /// Where a recovery is told as soon as it is seen.
    pub(crate) recoveries: mpsc::UnboundedSender<SeenRecovery>,
}

/// One database of one store.
#[derive(Clone)]
pub(crate) struct DatabaseSettings {
    pub(crate) identity: DatabaseIdentity,
    /// Secret: it may hold a password.
    pub(crate) url: String,
    pub(crate) bounds: StoreLimits,
    pub(crate) redis: RedisSettings,
}

/// The Redis servers before a database.
#[derive(Clone, Default)]
pub(crate) struct RedisSettings {
    /// None where the database counts. Secret: they may hold passwords.
    pub(crate) urls: Vec<String>,
    pub(crate) fallback: Fallback,
}

impl StoresSettings {
    /// The names of all stores.
    pub fn names(&self) -> Vec<&str> {
        let names = self.stores.iter().map(|store| store.name.as_str());
        names.collect()
    }

    /// The settings of all databases of all stores, in the order of the configuration.
    pub(crate) fn all_databases(&self) -> Vec<DatabaseSettings> {
        let stores = 0..self.stores.len();
        stores.flat_map(|store| self.databases(store)).collect()
    }

    /// The settings of one store's databases, in their order; none where there is no such store.
    pub(crate) fn databases(&self, store: usize) -> Vec<DatabaseSettings> {
        let Some(settings) = self.stores.get(store) else {
            return Vec::new();
        };
        let (index, name) = (narrow(store), Arc::<str>::from(settings.name.as_str()));
        let n_databases = narrow(settings.databases.len());
        let is_only = self.stores.len() == 1 && n_databases == 1;
        let identity = |number: usize, url: &str| DatabaseIdentity {
            label: DatabaseLabel {
                store: Arc::clone(&name),
                address: address(url).into(),
                key: if n_databases > 1 {
                    format!("{}[{number}]", settings.key).into()
                } else {
                    settings.key.as_str().into()
                },
                origin: settings.origin.as_str().into(),
            },
            source: Source {
                store: index,
                database: narrow(number),
            },
            // More than can be are refused before one of them is used.
            stripe: Stripe::new(narrow(number), n_databases).unwrap_or(Stripe::WHOLE),
            installation: Arc::clone(&self.installations),
            is_only: is_only && settings.key == "database_url",
        };
        let urls = settings.databases.iter().enumerate();
        urls.map(|(number, url)| DatabaseSettings {
            identity: identity(number, url),
            url: url.clone(),
            bounds: StoreLimits {
                durability: settings.durability.unwrap_or(self.bounds.durability),
                ..self.bounds.clone()
            },
            redis: RedisSettings {
                urls: settings.redis.clone(),
                fallback: settings.fallback,
            },
        })
        .collect()
    }
}

/// The configuration bounds both far below.
fn narrow(number: usize) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX)
}

/// A URL without what is secret in it, or may be.
pub(crate) fn address(url: &str) -> String {
    if faults::is(Fault::SecretsTold) {
        return url.to_owned();
    }
    let Some((scheme, rest)) = url.split_once(':') else {
        return "a URL without scheme".to_owned();
    };
    if scheme == "sqlite" {
        let path = rest.strip_prefix("//").unwrap_or(rest);
        return format!("sqlite:{}", path.split('?').next().unwrap_or_default());
    }
    let parsed = url::Url::parse(url).ok();
    let parsed = parsed.as_ref().and_then(|url| Some((url.host_str()?, url)));
    let Some((host, parsed)) = parsed else {
        return format!("{scheme}: without a host");
    };
    // A password may have characters that end an authority: the rest of it then comes after that.
    let (_authority, after) = rest
        .trim_start_matches('/')
        .split_once(['/', '?', '#'])
        .unwrap_or((rest, ""));
    if after.contains('@') {
        return format!("{scheme}: without a host");
    }
    // Parameters may say otherwise, as the drivers read them.
    let said = |wanted: &[&str]| {
        let mut pairs = parsed.query_pairs();
        let found = pairs.find(|(key, _)| wanted.contains(&key.as_ref()));
        found.map(|(_, value)| value.into_owned())
    };
    let host = said(&["host", "hostaddr", "socket"]).unwrap_or_else(|| host.to_owned());
    let is_socket = host.starts_with('/') || host.to_ascii_uppercase().starts_with("%2F");
    let port = said(&["port"]).or_else(|| parsed.port().map(|port| port.to_string()));
    let port = match (port, default_port(scheme)) {
        (Some(port), _) => format!(":{port}"),
        (None, Some(port)) if !is_socket => format!(":{port}"),
        (None, _) => String::new(),
    };
    let path = parsed.path().trim_end_matches('/');
    format!("{scheme}://{host}{port}{path}")
}

/// Where a server listens whose URL names no port.
fn default_port(scheme: &str) -> Option<u16> {
    match scheme {
        "postgres" | "postgresql" => Some(5432),
        "mysql" | "mariadb" => Some(3306),
        "redis" | "rediss" => Some(6379),
        _ => None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
pub(crate) mod tests {
    use super::*;

    /// Those of a store `tickets` with so many databases.
    pub(crate) fn places(n: u16) -> Vec<DatabaseIdentity> {
        let installation = Arc::default();
        let identity = |k: u16| DatabaseIdentity {
            label: DatabaseLabel {
                store: "tickets".into(),
                address: address(&format!("mysql://u:tiger@h{k}:3306/d")).into(),
                key: format!("stores.tickets.databases[{k}]").into(),
                origin: "in odometer.toml".into(),
            },
            source: Source {
                store: 1,
                database: k,
            },
            stripe: Stripe::new(k, n).unwrap(),
            installation: Arc::clone(&installation),
            is_only: false,
        };
        (0..n).map(identity).collect()
    }

    #[test]
    fn an_address_has_nothing_secret() {
        for (url, expected) in [
            ("sqlite:odometer.db", "sqlite:odometer.db"),
            ("sqlite:///a/b.db?mode=rwc", "sqlite:/a/b.db"),
            (
                "postgres://u:tiger@h/d?password=tiger",
                "postgres://h:5432/d",
            ),
            ("postgres://u:tiger@h/d?host=h2&port=7", "postgres://h2:7/d"),
            (
                "mysql://u:tiger@h/d?socket=/run/m.sock",
                "mysql:///run/m.sock/d",
            ),
            ("mysql://u:tiger@[::1]:3307/d", "mysql://[::1]:3307/d"),
            ("redis://:tiger@r1:6380/2", "redis://r1:6380/2"),
            ("redis://r1", "redis://r1:6379"),
            ("mysql://u:tiger@h:port/d", "mysql: without a host"),
            ("postgres:u:tiger@h/d", "postgres: without a host"),
            ("postgres://u:12/34@h/d", "postgres: without a host"),
            ("postgres://u:12?x@h/d", "postgres: without a host"),
            ("mysql://u:12#x@h/d", "mysql: without a host"),
            ("tiger", "a URL without scheme"),
        ] {
            assert_eq!(address(url), expected, "{url}");
        }
    }
}
