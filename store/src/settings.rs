//! Holds the settings of the stores: how to reach them, how to bound them, and which database is
//! which.

use std::{sync::Arc, time::Duration};

use odometer_core::definition::Stripe;
use odometer_database::{label::DatabaseLabel, settings::StatementBounds};
use odometer_process::{
    faults::{self, Fault},
    metrics::Metrics,
    secret::Secret,
};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::identity::DatabaseIdentity;
use crate::installation_id::Installations;
use crate::outcome::SeenRecovery;

/// The settings of all stores.
#[derive(Clone)]
pub struct StoresSettings {
    /// The stores, at least one. The first is
    /// [`DEFAULT_STORE`](odometer_core::definition::DEFAULT_STORE).
    pub stores: Vec<StoreSettings>,
    pub bounds: StoreLimits,
    pub installations: Arc<Installations>,
}

/// The settings of one store.
#[derive(Clone, Debug)]
pub struct StoreSettings {
    pub name: String,
    /// The key of the configuration that gives the databases.
    pub key: String,
    /// Where the key was given: on the command line, in a variable, or in a file.
    pub origin: String,
    /// The URLs of the databases, at least one. Several databases share each sequence.
    pub databases: Vec<Secret>,
    /// The URLs of the servers that count for strict order. Empty if the database counts.
    pub redis: Vec<Secret>,
    pub fallback: Fallback,
    /// The store's own value of [`StoreLimits::durability`].
    pub durability: Option<Durability>,
}

/// Whether a database may forget in a crash what it has committed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// A database that may forget commits is refused at the start.
    #[default]
    Full,
    /// A database may forget commits. Numbers may then be issued twice.
    Weak,
}

/// What counts for strict order while Redis is away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Fallback {
    /// Nothing counts: callers wait for Redis.
    #[default]
    None,
    Database,
}

/// The limits of every database of every store.
#[derive(Clone)]
pub struct StoreLimits {
    pub statement: StatementBounds,
    /// The most attempts of one reservation.
    pub attempts: u32,
    /// The time for all attempts of one reservation.
    pub deadline: Duration,
    /// The most sequences in a store. None is created beyond ten times as many retired ones.
    pub max_sequences: u64,
    /// The most keys that the callers of one sequence may give. No key is created beyond ten times as
    /// many removed ones.
    pub keyed_periods: u64,
    /// The most rows of the journal that may wait to be written.
    pub journal_queue: usize,
    /// How long after its reservation a row of the journal is kept, if its block can give no number
    /// any more.
    pub journal_retain: Duration,
    pub durability: Durability,
    pub failover: FailoverLimits,
    /// Whether PostgreSQL and MySQL are migrated at the start. SQLite always is.
    pub migrate: bool,
    /// How old the knowledge of definitions may be.
    pub definition_refresh: Duration,
}

/// What is known of a server that takes the place of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailoverLimits {
    /// Whether it has all commits of that one.
    pub is_lossless: bool,
    /// How long ago the oldest commit may be that it lacks, if replicas are to go on by themselves.
    /// Zero if they never are.
    pub within: Duration,
    /// How far the clocks of two servers may be apart.
    pub clock_margin: Duration,
}

/// Identifies the database that a block is of: the index of the store, and the index of the
/// database in that store. Both count from 0, in the order of the configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Source {
    pub store: u16,
    pub database: u16,
}

/// What the stores are opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenFor {
    /// A replica. A database may be away: its monitor waits for it. Chores look after the tables.
    Serving,
    /// One command. Every database must answer now, and has one connection. Nothing but the command
    /// itself uses it.
    Command,
    /// The same for a command that changes nothing: it locks nothing and makes no SQLite file. A
    /// file that does not exist counts as an empty database. Of each store, only the first database
    /// is opened.
    DryRun,
}

/// What all stores of this process share.
#[derive(Clone)]
pub(crate) struct Process {
    pub(crate) open_for: OpenFor,
    /// The name of this process in the journals.
    pub(crate) holder: Arc<str>,
    pub(crate) metrics: Arc<Metrics>,
    /// The channel that gets each recovery as soon as it is seen.
    pub(crate) recoveries: mpsc::UnboundedSender<SeenRecovery>,
}

/// The settings of one database of one store.
#[derive(Clone)]
pub(crate) struct DatabaseSettings {
    pub(crate) identity: DatabaseIdentity,
    /// The URL. Secret: it may hold a password.
    pub(crate) url: String,
    pub(crate) bounds: StoreLimits,
    pub(crate) redis: RedisSettings,
    /// Why replicas do not fence it by themselves. `None` if they do.
    pub(crate) unfenced: Option<&'static str>,
    /// What an operator must know of its failovers, as part of a sentence.
    pub(crate) left_to_operators: Option<String>,
}

/// The settings of the Redis servers that count for a database.
#[derive(Clone, Default)]
pub(crate) struct RedisSettings {
    /// The URLs of the servers. Empty if the database counts.
    pub(crate) urls: Vec<Secret>,
    pub(crate) fallback: Fallback,
}

impl StoreSettings {
    /// Returns whether the databases share each sequence, so that there is no strict order.
    pub fn is_striped(&self) -> bool {
        self.databases.len() > 1
    }

    /// Returns whether the store is a SQLite file, or several. Nobody fails over to a file.
    pub fn is_file(&self) -> bool {
        let mut urls = self.databases.iter();
        urls.any(|url| url.expose().starts_with("sqlite:"))
    }

    /// Returns why replicas do not fence a database of this store by themselves. `None` if they do
    /// as soon as it is armed.
    pub fn unfenced(&self, failover: &FailoverLimits) -> Option<&'static str> {
        if self.is_file() {
            Some("nobody fails over to a SQLite file: it is restored")
        } else if failover.within.is_zero() {
            Some("`failover.within` is 0")
        } else {
            None
        }
    }

    /// Returns what an operator must know of failovers of this store, as part of a sentence. `None`
    /// if replicas go on by themselves, and for SQLite.
    fn left_to_operators(&self, failover: &FailoverLimits) -> Option<String> {
        if self.is_file() {
            None
        } else if failover.is_lossless {
            Some(
                "a server that takes its place, or is started again, counts as whole: \
                 `failover.lossless` is set"
                    .to_owned(),
            )
        } else {
            let why = self.unfenced(failover)?;
            Some(format!(
                "after a failover that lost commits it waits for `odometer recover`: {why}"
            ))
        }
    }
}

impl StoresSettings {
    /// Returns the names of all stores.
    pub fn names(&self) -> Vec<&str> {
        let names = self.stores.iter().map(|store| store.name.as_str());
        names.collect()
    }

    /// Returns the settings of all databases of all stores, in the order of the configuration.
    pub(crate) fn all_databases(&self) -> Vec<DatabaseSettings> {
        let stores = 0..self.stores.len();
        stores.flat_map(|store| self.databases(store)).collect()
    }

    /// Returns the settings of one store's databases, in their order. Empty if there is no such
    /// store.
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
            // A store with too many databases is refused before one of them is used.
            stripe: Stripe::new(narrow(number), n_databases).unwrap_or(Stripe::WHOLE),
            installation: Arc::clone(&self.installations),
            is_only: is_only && settings.key == "database_url",
        };
        let urls = settings.databases.iter().enumerate();
        urls.map(|(number, url)| DatabaseSettings {
            identity: identity(number, url.expose()),
            url: url.expose().to_owned(),
            bounds: StoreLimits {
                durability: settings.durability.unwrap_or(self.bounds.durability),
                ..self.bounds.clone()
            },
            redis: RedisSettings {
                urls: settings.redis.clone(),
                fallback: settings.fallback,
            },
            unfenced: settings.unfenced(&self.bounds.failover),
            left_to_operators: settings.left_to_operators(&self.bounds.failover),
        })
        .collect()
    }
}

/// Narrows a number that the configuration keeps far below the limit.
fn narrow(number: usize) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX)
}

/// Returns the URL of a database or of a Redis server without the parts that are secret, or may be.
pub fn address(url: &str) -> String {
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
    // A password may have characters that end the authority. The rest of the password comes after
    // it.
    let (_authority, after) = rest
        .trim_start_matches('/')
        .split_once(['/', '?', '#'])
        .unwrap_or((rest, ""));
    if after.contains('@') {
        return format!("{scheme}: without a host");
    }
    // Parameters may say otherwise, and the drivers read them.
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

/// Returns the port at which a server listens if its URL names none.
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

    /// Returns the identities of `n` databases of a store `tickets`.
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
    fn a_store_that_is_never_fenced_says_why() {
        let failover = |within, is_lossless| FailoverLimits {
            is_lossless,
            within: Duration::from_secs(within),
            clock_margin: Duration::ZERO,
        };
        let store = |databases: &[&str], redis: &[&str]| StoreSettings {
            name: "tickets".to_owned(),
            key: String::new(),
            origin: String::new(),
            databases: databases.iter().map(|url| Secret::new(*url)).collect(),
            redis: redis.iter().map(|url| Secret::new(*url)).collect(),
            fallback: Fallback::None,
            durability: None,
        };
        let (one, two) = ("postgres://a/d", "mysql://b/d");
        let said = |of: &StoreSettings, limits| of.left_to_operators(&limits);
        for of in [
            store(&[one], &[]),
            store(&[one, two], &[]),
            store(&[one], &["redis://r"]),
        ] {
            assert_eq!(of.unfenced(&failover(9, false)), None, "{of:?}");
        }
        assert_eq!(said(&store(&[one], &[]), failover(9, false)), None);
        assert!(store(&[one], &[]).unfenced(&failover(0, false)).is_some());
        let never = said(&store(&[one], &[]), failover(0, false)).unwrap();
        assert!(never.contains("odometer recover"), "{never}");
        let file = store(&["sqlite:a.db"], &[]);
        assert!(file.unfenced(&failover(9, false)).is_some());
        assert_eq!(said(&file, failover(9, false)), None);
        let lossless = said(&store(&[one], &[]), failover(9, true)).unwrap();
        assert!(lossless.contains("failover.lossless"), "{lossless}");
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
