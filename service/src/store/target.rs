//! Which database a URL means, and how to connect to it.

use std::{path::PathBuf, time::Duration};

use sea_orm::{
    ConnectOptions, DbBackend,
    sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous},
};

use super::{StoreSettings, error::StartError};

/// A database as the configuration names it; the URL in it is secret.
#[derive(Clone)]
pub(super) struct Target {
    pub(super) backend: DbBackend,
    url: String,
    /// The file of a SQLite database.
    pub(super) file: Option<PathBuf>,
}

impl Target {
    /// # Errors
    /// A scheme or a form that means no database Odometer knows. The message never holds the URL.
    pub(super) fn parse(url: &str) -> Result<Self, StartError> {
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
                // As the driver reads it, so that the lock is that file's and no other's.
                let options: SqliteConnectOptions = url
                    .parse()
                    .map_err(|_| wrong("its SQLite parameters are not known"))?;
                Ok(Self {
                    backend: DbBackend::Sqlite,
                    url: url.to_owned(),
                    file: Some(options.get_filename().to_owned()),
                })
            }
            "postgres" | "postgresql" => Self::server(DbBackend::Postgres, url, wrong),
            "mysql" => Self::server(DbBackend::MySql, url, wrong),
            "mariadb" => Self::server(DbBackend::MySql, &format!("mysql:{rest}"), wrong),
            other => Err(wrong(&format!("its scheme `{other}` is not known"))),
        }
    }

    fn server(
        backend: DbBackend,
        url: &str,
        wrong: impl Fn(&str) -> StartError,
    ) -> Result<Self, StartError> {
        let parsed = url::Url::parse(url).map_err(|error| wrong(&error.to_string()))?;
        if parsed.path().trim_matches('/').is_empty() {
            return Err(wrong("it names no database"));
        }
        Ok(Self {
            backend,
            url: url.to_owned(),
            file: None,
        })
    }

    /// Options of the pool that serves.
    pub(super) fn pool(&self, settings: &StoreSettings) -> ConnectOptions {
        // SQLite has one writer; more connections starve one another for seconds.
        let n_connections = if self.backend == DbBackend::Sqlite {
            1
        } else {
            settings.pool_max.max(1)
        };
        let mut options = self.options(settings.acquire);
        options.max_connections(n_connections);
        options
    }

    /// Options of the one connection that migrates or checks.
    pub(super) fn single(&self, acquire: Duration) -> ConnectOptions {
        let mut options = self.options(acquire);
        options
            .max_connections(1)
            .idle_timeout(None::<Duration>)
            .max_lifetime(None::<Duration>);
        options
    }

    /// Options of the connection that only looks.
    pub(super) fn looking(&self, acquire: Duration) -> ConnectOptions {
        let mut options = self.single(acquire);
        options.map_sqlx_sqlite_opts(|sqlite| sqlite.read_only(true));
        options
    }

    fn options(&self, acquire: Duration) -> ConnectOptions {
        let mut options = ConnectOptions::new(self.url.clone());
        options
            .connect_lazy(true)
            .acquire_timeout(acquire)
            .test_before_acquire(false)
            .sqlx_logging(false)
            .record_stmt_in_spans(false)
            .map_sqlx_sqlite_opts(|sqlite| {
                sqlite
                    .create_if_missing(true)
                    .journal_mode(SqliteJournalMode::Wal)
                    .synchronous(SqliteSynchronous::Full)
                    .busy_timeout(Duration::from_secs(5))
            })
            .map_sqlx_postgres_opts(|postgres| postgres.application_name("odometer"));
        options
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;

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
