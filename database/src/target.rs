//! Reads which database a URL means, and how to connect to it.

use std::{
    path::PathBuf,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use sea_orm::{
    ConnectOptions, DbBackend,
    sqlx::{
        mysql::MySqlConnectOptions,
        postgres::PgConnectOptions,
        sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous},
    },
};

use crate::{
    bounds,
    route::{PoolerRoute, RouteOptions},
    settings::StatementBounds,
    start_error::StartError,
    tls,
};

/// Lists the parameters of a URL that every driver of a server knows, and those that one of them
/// knows. Others are not passed on, because the drivers log parameters that they do not know.
const PARAMETERS: [&str; 8] = [
    "sslmode",
    "ssl-mode",
    "ssl-ca",
    "sslcert",
    "ssl-cert",
    "sslkey",
    "ssl-key",
    "statement-cache-capacity",
];
const POSTGRES_PARAMETERS: [&str; 10] = [
    "sslrootcert",
    "ssl-root-cert",
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "password",
    "application_name",
    "options",
];
const MYSQL_PARAMETERS: [&str; 6] = [
    "sslca",
    "charset",
    "collation",
    "socket",
    "timezone",
    "time-zone",
];

/// A database as the configuration names it. The URL in it is secret.
#[derive(Clone)]
pub struct Target {
    pub backend: DbBackend,
    url: String,
    /// The file of a SQLite database.
    pub file: Option<PathBuf>,
    /// The way to the server. All clones share it: what one of them finds out holds for all.
    pub route: PoolerRoute,
    /// Whether a server of this kind has ever answered there. All clones share it.
    pub was_met: Arc<AtomicBool>,
    /// What an operator should know about the URL, each in one sentence.
    pub warnings: Vec<String>,
}

impl Target {
    /// Reads a URL.
    ///
    /// # Errors
    /// The scheme or the form means no database that Odometer knows. The message never holds the
    /// URL.
    pub fn parse(url: &str) -> Result<Self, StartError> {
        let wrong = |what: &str| {
            StartError::Configuration(format!(
                "ODOMETER_DATABASE_URL: {what}; give `sqlite:FILE`, \
                 `postgres://USER:PASSWORD@HOST:PORT/DATABASE` or `mysql://…`"
            ))
        };
        let Some((scheme, rest)) = url.split_once(':') else {
            return Err(wrong("there is no scheme in it"));
        };
        match scheme {
            "sqlite" => {
                let path = rest.strip_prefix("//").unwrap_or(rest);
                let path = path.split('?').next().unwrap_or_default();
                if path.is_empty() || path == ":memory:" || rest.contains("mode=memory") {
                    return Err(wrong(
                        "a SQLite database in memory forgets its numbers at the end",
                    ));
                }
                if rest.contains("mode=ro") {
                    return Err(wrong("a read-only SQLite file cannot count"));
                }
                // Read as the driver reads it, so that the lock is on that file and no other.
                let options: SqliteConnectOptions = url
                    .parse()
                    .map_err(|_| wrong("its SQLite parameters are not known"))?;
                Ok(Self {
                    url: url.to_owned(),
                    file: Some(options.get_filename().to_owned()),
                    ..Self::in_memory()
                })
            }
            "postgres" | "postgresql" => Self::server(DbBackend::Postgres, url, wrong),
            "mysql" => Self::server(DbBackend::MySql, url, wrong),
            "mariadb" => Self::server(DbBackend::MySql, &format!("mysql:{rest}"), wrong),
            other => Err(wrong(&format!("its scheme `{other}` is not known"))),
        }
    }

    /// Returns an empty SQLite database in memory. It stands for a file that does not exist, and is
    /// only for work on one connection: each connection has a database of its own.
    pub fn in_memory() -> Self {
        Self {
            backend: DbBackend::Sqlite,
            url: "sqlite::memory:".to_owned(),
            file: None,
            route: PoolerRoute::straight(),
            was_met: Arc::default(),
            warnings: Vec::new(),
        }
    }

    /// Returns whether this is a database of [`Target::in_memory`].
    pub fn is_in_memory(&self) -> bool {
        self.backend == DbBackend::Sqlite && self.file.is_none()
    }

    fn server(
        backend: DbBackend,
        url: &str,
        wrong: impl Fn(&str) -> StartError,
    ) -> Result<Self, StartError> {
        if let Some(problem) = unescaped(url) {
            return Err(wrong(problem));
        }
        if names_several_hosts(url) {
            return Err(StartError::Configuration(
                "ODOMETER_DATABASE_URL: it names several hosts: give one, that of a pooler, a \
                 virtual IP or a DNS name that leads to the server which takes writes"
                    .to_owned(),
            ));
        }
        let parsed = url::Url::parse(url).map_err(|error| wrong(&error.to_string()))?;
        if parsed.path().trim_matches('/').is_empty() {
            return Err(wrong("it names no database"));
        }
        if let Some(problem) = tls::unusable_file(&parsed) {
            return Err(StartError::Configuration(format!(
                "ODOMETER_DATABASE_URL: {problem}; give the path of a PEM file"
            )));
        }
        let (parsed, route, mut warnings) = split_parameters(backend, parsed);
        let url = parsed.to_string();
        let unreadable = |_| wrong("the driver cannot read its host, port or parameters");
        warnings.extend(match backend {
            DbBackend::Postgres => {
                tls::postgres_warning(&url.parse::<PgConnectOptions>().map_err(unreadable)?)
            }
            DbBackend::MySql | DbBackend::Sqlite | _ => {
                tls::mysql_warning(&url.parse::<MySqlConnectOptions>().map_err(unreadable)?)
            }
        });
        Ok(Self {
            backend,
            url,
            file: None,
            route,
            was_met: Arc::default(),
            warnings,
        })
    }

    /// Returns the options by which the driver connects to PostgreSQL once, without a limit for
    /// statements.
    ///
    /// # Errors
    /// The driver cannot read the URL.
    pub fn postgres(&self) -> Result<PgConnectOptions, sea_orm::SqlxError> {
        let options: PgConnectOptions = self.url.parse()?;
        Ok(bounds::postgres(options, None, self.route.is_pooled()))
    }

    /// Returns the options by which the driver connects to MySQL.
    ///
    /// # Errors
    /// The driver cannot read the URL.
    pub fn mysql(&self) -> Result<MySqlConnectOptions, sea_orm::SqlxError> {
        Ok(tls::mysql(self.url.parse()?))
    }

    /// Returns host and port of the server. `None` for a file or a socket.
    pub fn host_and_port(&self) -> Option<(String, u16)> {
        match self.backend {
            DbBackend::Postgres => {
                let options: PgConnectOptions = self.url.parse().ok()?;
                let host = options.get_host();
                let is_socket = options.get_socket().is_some() || host.starts_with('/');
                (!is_socket).then(|| (host.to_owned(), options.get_port()))
            }
            DbBackend::MySql => {
                let options: MySqlConnectOptions = self.url.parse().ok()?;
                let is_socket = options.get_socket().is_some();
                (!is_socket).then(|| (options.get_host().to_owned(), options.get_port()))
            }
            DbBackend::Sqlite | _ => None,
        }
    }

    /// Returns the options of the pool that serves.
    pub fn pool(&self, settings: &StatementBounds) -> RouteOptions {
        // SQLite has one writer. More connections starve one another for seconds.
        let n_connections = if self.backend == DbBackend::Sqlite {
            1
        } else {
            settings.pool_max.max(1)
        };
        let open = |is_pooled| {
            let mut options = self.options(settings.acquire, Some(settings.timeout), is_pooled);
            options.max_connections(n_connections);
            options
        };
        RouteOptions::new(open, self.route.clone(), settings.timeout)
    }

    /// Returns the options of the one connection that migrates. Its statements have no time limit.
    pub fn single(&self, acquire: Duration, is_pooled: bool) -> ConnectOptions {
        let mut options = self.options(acquire, None, is_pooled);
        options.max_connections(1);
        options
    }

    /// Returns the options of a connection that only looks.
    pub fn looking(&self, acquire: Duration, is_pooled: bool) -> ConnectOptions {
        let mut options = self.single(acquire, is_pooled);
        // What is in memory has to be made first.
        let is_read_only = !self.is_in_memory();
        options.map_sqlx_sqlite_opts(move |sqlite| sqlite.read_only(is_read_only));
        options
    }

    /// Returns the options of a connection that only looks, for either way to the server.
    pub fn read_only_route_options(&self, settings: &StatementBounds) -> RouteOptions {
        let open = |is_pooled| self.looking(settings.acquire, is_pooled);
        RouteOptions::new(open, self.route.clone(), settings.timeout)
    }

    /// Returns the options of a connection. `longest` is how long a statement is waited for: beyond
    /// it the server ends the statement by itself.
    fn options(
        &self,
        acquire: Duration,
        longest: Option<Duration>,
        is_pooled: bool,
    ) -> ConnectOptions {
        let route = self.route.clone();
        let mut options = ConnectOptions::new(self.url.clone());
        options
            .connect_lazy(true)
            .acquire_timeout(acquire)
            .test_before_acquire(false)
            // The driver looks for old connections in a task that can go round for ever (sqlx issue
            // 3645). Without these two limits it starts no such task. Connections are used in turn,
            // and the monitor looks every few seconds, so none of them is quiet for long.
            .idle_timeout(None::<Duration>)
            .max_lifetime(None::<Duration>)
            .sqlx_logging(false)
            .record_stmt_in_spans(false)
            .map_sqlx_sqlite_opts(|sqlite| {
                sqlite
                    .create_if_missing(true)
                    .journal_mode(SqliteJournalMode::Wal)
                    .synchronous(SqliteSynchronous::Full)
                    .busy_timeout(Duration::from_secs(5))
            })
            .map_sqlx_postgres_opts(move |postgres| bounds::postgres(postgres, longest, is_pooled))
            .map_sqlx_postgres_pool_opts(move |pool| bounds::watch(pool, &route, is_pooled))
            .map_sqlx_mysql_opts(tls::mysql)
            .map_sqlx_mysql_pool_opts(move |pool| bounds::mysql(pool, longest));
        options
    }
}

/// Returns the problem of a URL in which a character ends the user and password too early.
fn unescaped(url: &str) -> Option<&'static str> {
    const PROBLEM: &str = "a character of its user or password is not escaped: write %40 for @, \
                           %2F for /, %3F for ?, %23 for # and %25 for %";
    let (_scheme, rest) = url.split_once("://")?;
    let (authority, after) = match rest.find(['/', '?', '#']) {
        Some(end) => rest.split_at(end),
        None => (rest, ""),
    };
    let path = after.split('?').next().unwrap_or_default();
    let parameters = after
        .split_once('?')
        .map_or("", |(_, parameters)| parameters);
    let has_user = authority.contains('@');
    // Text that begins in a password ends in a host and a database.
    let ends_in_host = |text: &str| {
        text.split_once('@')
            .is_some_and(|(_, host)| host.contains('/'))
    };
    let is_cut = ends_in_host(path)
        || (path.contains('@') && !has_user)
        || parameters.split('&').any(|parameter| {
            let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            let is_account = matches!(key, "user" | "password");
            // The value of a parameter may have an @.
            key.contains('@') || (ends_in_host(value) && !has_user && !is_account)
        })
        || after
            .split_once('#')
            .is_some_and(|(_, fragment)| fragment.contains('@'));
    is_cut.then_some(PROBLEM)
}

fn names_several_hosts(url: &str) -> bool {
    let (_scheme, rest) = url.split_once("://").unwrap_or_default();
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let hosts = authority.rsplit('@').next().unwrap_or_default();
    let mut parameters = rest.split(['?', '&']).skip(1);
    let has_list = |parameter: &str| {
        let is_host = parameter.starts_with("host=") || parameter.starts_with("hostaddr=");
        is_host && (parameter.contains(',') || parameter.to_ascii_uppercase().contains("%2C"))
    };
    hosts.contains(',') || parameters.any(has_list)
}

/// Returns the URL as the driver gets it, the way to the server that it names, and warnings about
/// the rest.
fn split_parameters(backend: DbBackend, mut url: url::Url) -> (url::Url, PoolerRoute, Vec<String>) {
    let known: &[&str] = if backend == DbBackend::Postgres {
        &POSTGRES_PARAMETERS
    } else {
        &MYSQL_PARAMETERS
    };
    let route = PoolerRoute::straight();
    let mut kept = Vec::new();
    let mut warnings = Vec::new();
    for (key, value) in url.query_pairs().into_owned() {
        let is_about_statements = (key == "pgbouncer" && value == "true")
            || (key == "statement-cache-capacity" && value == "0");
        if backend == DbBackend::Postgres && is_about_statements {
            route.set_pooled();
        } else if key != "pgbouncer"
            && (known.contains(&key.as_str())
                || PARAMETERS.contains(&key.as_str())
                || key.starts_with("options["))
        {
            kept.push((key, value));
        } else if key.len() <= 40
            && key
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
        {
            warnings.push(format!(
                "ODOMETER_DATABASE_URL: its parameter `{key}` is not known and has no effect"
            ));
        } else {
            warnings.push(
                "ODOMETER_DATABASE_URL: one of its parameters is not known and has no effect"
                    .to_owned(),
            );
        }
    }
    if kept.is_empty() {
        url.set_query(None);
    } else {
        url.query_pairs_mut().clear().extend_pairs(kept);
    }
    (url, route, warnings)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn no_pool_has_a_task_that_looks_for_old_connections() {
        for url in ["sqlite:a.db", "postgres://u@h/d", "mysql://u@h/d"] {
            let target = Target::parse(url).unwrap();
            let limit = Duration::from_secs(5);
            for options in [
                target.options(limit, Some(limit), false),
                target.options(limit, Some(limit), true),
                target.single(limit, false),
            ] {
                // `Some(None)` is no limit, and `None` is that of the driver.
                assert_eq!(options.get_idle_timeout(), Some(None), "{url}");
                assert_eq!(options.get_max_lifetime(), Some(None), "{url}");
            }
        }
    }

    #[test]
    fn every_scheme_of_the_contract_is_known() {
        for url in [
            "sqlite:odometer.db",
            "sqlite:///var/lib/odometer.db",
            "postgres://u:p@h/d",
            "postgresql://u:p@h:5432/d",
            "mysql://u:p@h/d",
            "mariadb://u:p@h/d",
        ] {
            assert!(Target::parse(url).is_ok(), "{url}");
        }
    }

    #[test]
    fn what_the_driver_does_not_know_is_kept_from_it() {
        let target = Target::parse("postgres://u:p@localhost/d?pasword=tiger&sslmode=require");
        let target = target.unwrap();
        assert_eq!(target.url, "postgres://u:p@localhost/d?sslmode=require");
        assert_eq!(target.warnings.len(), 1);
        assert!(
            target.warnings[0].contains("`pasword`"),
            "{:?}",
            target.warnings
        );
        assert!(!target.route.is_pooled());
        let odd = Target::parse("mysql://u:p@localhost/d?x%20tiger=1").unwrap();
        assert!(!odd.warnings[0].contains("tiger"), "{:?}", odd.warnings);
    }

    #[test]
    fn a_url_may_say_that_there_is_a_pooler() {
        for said in ["pgbouncer=true", "statement-cache-capacity=0"] {
            let target = Target::parse(&format!("postgres://u:p@localhost:6432/d?{said}"));
            let target = target.unwrap();
            assert!(target.route.is_pooled(), "{said}");
            assert!(target.warnings.is_empty(), "{:?}", target.warnings);
        }
    }

    #[test]
    fn a_list_of_hosts_and_an_unescaped_password_have_their_sentences() {
        let said = |url: &str| Target::parse(url).map(|_| ()).unwrap_err().to_string();
        for url in [
            "postgres://u:tiger@h1,h2/d",
            "postgres://u:tiger@h1:5432,h2:5433/d",
            "mysql://u:tiger@h1:3306,h2:3306/d",
            "postgres://u:tiger@/d?host=h1,h2",
        ] {
            let said = said(url);
            assert!(said.contains("several hosts"), "{url}: {said}");
            assert!(!said.contains("tiger"), "{said}");
        }
        for url in [
            "postgres://u:ti@ger/x@h/d",
            "postgres://u:tiger/x@h/d",
            "postgres://u:tiger?x@h/d",
            "mysql://u:tiger#x@h/d",
            "mysql://u:tiger?x=y@h/d",
        ] {
            let said = said(url);
            assert!(said.contains("%40 for @"), "{url}: {said}");
            assert!(!said.contains("tiger"), "{said}");
        }
        // These URLs are not ambiguous.
        for url in [
            "postgres://u:ti@ger@h/d",
            "postgres://u:ti,ger@h/d",
            "postgres://u:tiger@h/d?user=a@b",
            "postgres://h/d?user=u&password=a@b/c",
            "mysql://u:tiger@h/d@e",
        ] {
            assert!(Target::parse(url).is_ok(), "{url}");
        }
    }

    #[test]
    fn a_wrong_url_is_refused_without_being_repeated() {
        for url in [
            "",
            "odometer",
            "oracle://scott:tiger@h/d",
            "postgres://scott:tiger@h",
            "mysql://scott:tiger@h:port/d",
            "sqlite::memory:",
        ] {
            let said = Target::parse(url).map(|_| ()).unwrap_err().to_string();
            assert!(said.starts_with("ODOMETER_DATABASE_URL: "), "{said}");
            assert!(!said.contains("tiger"), "{said}");
        }
    }
}
