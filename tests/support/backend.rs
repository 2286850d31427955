//! The kinds of database on which every guarantee holds, and a database of its own for each test.

use std::{collections::BTreeSet, time::Duration};

use sea_orm::{
    ConnectOptions, ConnectionTrait, Database, DatabaseConnection, DbBackend, QueryResult,
    Statement,
};
use tempfile::TempDir;

use super::{
    Product, Program, Proxy, keeper,
    server::{ACCOUNT, Server},
    wait,
};

/// Bounds how long a server takes to end sessions.
const SESSIONS_END: Duration = Duration::from_secs(60);

/// Returns the options of one connection of a test, without the driver's task that looks for old ones
/// and can go round for ever (sqlx issue 3645).
pub fn one_connection(url: impl Into<String>) -> ConnectOptions {
    let mut options = ConnectOptions::new(url);
    options
        .max_connections(1)
        .idle_timeout(None::<Duration>)
        .max_lifetime(None::<Duration>)
        .sqlx_logging(false);
    options
}

/// A kind of database that Odometer runs on. [`Product`] says which server of this kind a test
/// uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backend {
    Sqlite,
    Postgres,
    /// MariaDB or MySQL.
    MariaDb,
}

impl Backend {
    pub fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
            Self::MariaDb => "mariadb",
        }
    }

    pub fn scheme(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
            Self::MariaDb => "mysql",
        }
    }

    /// Returns how many of `wanted` processes may share a database of this kind. SQLite allows one.
    pub fn replicas(self, wanted: usize) -> usize {
        match self {
            Self::Sqlite => 1,
            Self::Postgres | Self::MariaDb => wanted,
        }
    }
}

/// An empty database, or one with Odometer's schema.
pub struct TestDatabase {
    pub backend: Backend,
    /// The server that the database is on.
    pub(super) product: Option<Product>,
    /// The URL that the program under test gets.
    pub url: String,
    administrator_url: String,
    /// Keeps the directory with the SQLite file until the drop.
    _directory: Option<TempDir>,
}

impl TestDatabase {
    /// Creates a database with the schema, ready for `serve`.
    pub async fn prepared(backend: Backend) -> Self {
        let database = Self::empty(backend).await;
        database.migrate();
        database
    }

    /// Creates a database without any table.
    pub async fn empty(backend: Backend) -> Self {
        match backend {
            Backend::Sqlite => {
                let directory = keeper::directory("sqlite");
                let url = format!("sqlite:{}", directory.path().join("odometer.db").display());
                Self {
                    backend,
                    product: None,
                    administrator_url: url.clone(),
                    url,
                    _directory: Some(directory),
                }
            }
            Backend::Postgres | Backend::MariaDb => {
                Self::empty_on(Server::shared(backend).await).await
            }
        }
    }

    /// Creates a database with the schema on `server`.
    pub async fn prepared_on(server: &Server) -> Self {
        let database = Self::empty_on(server).await;
        database.migrate();
        database
    }

    /// Creates a database without any table on `server`.
    pub async fn empty_on(server: &Server) -> Self {
        let name = format!("t_{}", uuid::Uuid::new_v4().simple());
        server
            .administrate(&match server.backend() {
                Backend::Postgres => format!("CREATE DATABASE {name} OWNER {ACCOUNT}"),
                Backend::MariaDb | Backend::Sqlite => format!("CREATE DATABASE {name}"),
            })
            .await;
        Self::on(server, &name)
    }

    /// Returns the database `name`, which is on `server` already.
    pub fn on(server: &Server, name: &str) -> Self {
        Self {
            backend: server.backend(),
            product: Some(server.product()),
            url: server.url(name),
            administrator_url: server.administrator_url(name),
            _directory: None,
        }
    }

    /// Migrates the schema with the program's own command. SQLite needs no command: the program
    /// migrates it at start.
    pub fn migrate(&self) {
        if self.backend != Backend::Sqlite {
            // The tests are not about this command, and on a busy machine a connection may take
            // long.
            let options = Program::options().env("ODOMETER_POOL__ACQUIRE", "60s");
            let finished = options.database(&self.url).run(&["migrate"]);
            assert_eq!(finished.code, Some(0), "migrate: {finished}");
        }
    }

    /// Returns the URL by which the program reaches this database through `proxy`, which forwards
    /// to
    /// `server`.
    pub fn url_through(&self, proxy: &Proxy, server: &Server) -> String {
        let direct = format!(":{}/", server.port());
        let behind = self.url.replace(&direct, &format!(":{}/", proxy.port()));
        assert_ne!(behind, self.url);
        behind
    }

    async fn connect(&self) -> DatabaseConnection {
        Box::pin(Database::connect(one_connection(&self.administrator_url)))
            .await
            .expect("the test's database answers")
    }

    /// Returns the rows of `query`.
    pub async fn query(&self, query: &str) -> Vec<QueryResult> {
        let connection = self.connect().await;
        let rows = connection
            .query_all_raw(Statement::from_string(self.dialect(), query))
            .await
            .unwrap_or_else(|error| panic!("{query}: {error}"));
        connection.close().await.expect("a connection closes");
        rows
    }

    /// Returns the single number of `query`, if the query has a row.
    pub async fn number(&self, query: &str) -> Option<i64> {
        let rows = self.query(query).await;
        rows.first()
            .map(|row| row.try_get_by_index(0).expect("one column with a number"))
    }

    /// Returns whether the server answers `query` without an error.
    pub async fn answers(&self, query: &str) -> bool {
        let connection = self.connect().await;
        let statement = Statement::from_string(self.dialect(), query);
        let answered = connection.query_all_raw(statement).await.is_ok();
        connection.close().await.expect("a connection closes");
        answered
    }

    /// Runs a statement that changes the database without the program's knowledge.
    pub async fn execute(&self, statement: &str) {
        let connection = self.connect().await;
        connection
            .execute_unprepared(statement)
            .await
            .unwrap_or_else(|error| panic!("{statement}: {error}"));
        connection.close().await.expect("a connection closes");
    }

    /// Stops `program` with a signal until [`Program::thaw`], ends its sessions in this database, and
    /// waits until they are gone. An open transaction of the program would otherwise hold its locks
    /// for the whole time. A session that is told to end still commits what it was committing. Works
    /// on servers only.
    pub async fn stop(&self, program: &Program) {
        program.freeze();
        let (server, name) = (self.server(), self.name());
        let (sessions, end) = match self.backend {
            Backend::Postgres => (
                format!(
                    "SELECT pid::bigint FROM pg_stat_activity \
                     WHERE usename = '{ACCOUNT}' AND datname = '{name}'"
                ),
                "SELECT pg_terminate_backend",
            ),
            Backend::MariaDb => (
                format!(
                    "SELECT CAST(id AS SIGNED) FROM {} WHERE user = '{ACCOUNT}' AND db = '{name}'",
                    server.sessions(),
                ),
                "KILL ",
            ),
            Backend::Sqlite => panic!("SQLite has no sessions"),
        };
        let begun = self.sessions(&sessions).await;
        for session in &begun {
            // It may have ended by itself.
            let _ended = self.answers(&format!("{end}({session})")).await;
        }
        wait::until("the sessions end", SESSIONS_END, async || {
            let left = self.sessions(&sessions).await;
            begun.is_disjoint(&left).then_some(())
        })
        .await;
    }

    /// Returns the numbers of the sessions that a query finds.
    async fn sessions(&self, query: &str) -> BTreeSet<i64> {
        let rows = self.query(query).await;
        let number = |row: &QueryResult| row.try_get_by_index(0).expect("a number");
        rows.iter().map(number).collect()
    }

    /// Locks the tables `sequence` and `counter` until `Frozen::thaw`. On SQLite this locks the
    /// whole file against writes.
    pub async fn freeze(&self) -> Frozen {
        let (freeze, thaw) = match self.backend {
            Backend::Sqlite => ("BEGIN IMMEDIATE", "COMMIT"),
            Backend::Postgres => (
                "BEGIN; LOCK TABLE sequence, counter IN ACCESS EXCLUSIVE MODE",
                "COMMIT",
            ),
            Backend::MariaDb => ("LOCK TABLES sequence WRITE, counter WRITE", "UNLOCK TABLES"),
        };
        self.lock(freeze, thaw).await
    }

    /// Locks the counters of all sequences that match the SQL pattern `sequences`, until
    /// `Frozen::thaw`.
    pub async fn freeze_counters(&self, sequences: &str) -> Frozen {
        let freeze =
            format!("BEGIN; SELECT 1 FROM counter WHERE sequence LIKE '{sequences}' FOR UPDATE");
        self.lock(&freeze, "COMMIT").await
    }

    /// Locks the journal against new rows until `Frozen::thaw`. Reservations go on.
    pub async fn freeze_journal(&self) -> Frozen {
        let (freeze, thaw) = match self.backend {
            Backend::Postgres => ("BEGIN; LOCK TABLE block IN EXCLUSIVE MODE", "COMMIT"),
            Backend::MariaDb => ("LOCK TABLES block WRITE", "UNLOCK TABLES"),
            Backend::Sqlite => panic!("SQLite locks its whole file"),
        };
        self.lock(freeze, thaw).await
    }

    /// Locks the rows of the journal against changes until `Frozen::thaw`. They can be read. On
    /// SQLite this locks the whole file against writes.
    pub async fn freeze_blocks(&self) -> Frozen {
        let (freeze, thaw) = match self.backend {
            Backend::Sqlite => ("BEGIN IMMEDIATE", "COMMIT"),
            Backend::Postgres | Backend::MariaDb => {
                ("BEGIN; SELECT 1 FROM block FOR UPDATE", "COMMIT")
            }
        };
        self.lock(freeze, thaw).await
    }

    /// Locks the worker ids until `Frozen::thaw`. On SQLite this locks the whole file against
    /// writes.
    pub async fn freeze_leases(&self) -> Frozen {
        let (freeze, thaw) = match self.backend {
            Backend::Sqlite => ("BEGIN IMMEDIATE", "COMMIT"),
            Backend::Postgres => (
                "BEGIN; LOCK TABLE worker_lease IN ACCESS EXCLUSIVE MODE",
                "COMMIT",
            ),
            Backend::MariaDb => ("LOCK TABLES worker_lease WRITE", "UNLOCK TABLES"),
        };
        self.lock(freeze, thaw).await
    }

    /// Makes the journal refuse every new row, as if the disk were full. Works on servers only.
    pub async fn refuse_journal_rows(&self) {
        let statement = match self.backend {
            Backend::Postgres => {
                "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS \
                 $$ BEGIN RAISE EXCEPTION 'no room' USING ERRCODE = '53100'; END $$; \
                 CREATE TRIGGER refuse BEFORE INSERT ON block \
                 FOR EACH ROW EXECUTE FUNCTION refuse()"
            }
            Backend::MariaDb => {
                "CREATE TRIGGER refuse BEFORE INSERT ON block FOR EACH ROW \
                 SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1021"
            }
            Backend::Sqlite => panic!("SQLite has no such errors"),
        };
        self.execute(statement).await;
    }

    /// Ends the effect of [`Self::refuse_journal_rows`].
    pub async fn take_journal_rows_again(&self) {
        let statement = match self.backend {
            Backend::Postgres => "DROP TRIGGER refuse ON block",
            Backend::MariaDb => "DROP TRIGGER refuse",
            Backend::Sqlite => panic!("SQLite has no such errors"),
        };
        self.execute(statement).await;
    }

    /// Stops the creation of every counter whose sequence matches the SQL pattern `sequences`,
    /// until `Frozen::thaw`. Each creation stops in the middle of its transaction. Works for one
    /// pattern at a time, and on servers only.
    pub async fn freeze_creations(&self, sequences: &str) -> Frozen {
        match self.backend {
            Backend::Postgres => {
                let wait = format!(
                    "CREATE OR REPLACE FUNCTION wait() RETURNS trigger AS $$ BEGIN \
                     IF NEW.sequence LIKE '{sequences}' THEN \
                     PERFORM pg_advisory_xact_lock_shared(1); END IF; \
                     RETURN NEW; END $$ LANGUAGE plpgsql"
                );
                self.execute(&wait).await;
                let each = "CREATE OR REPLACE TRIGGER wait BEFORE INSERT ON counter \
                            FOR EACH ROW EXECUTE FUNCTION wait()";
                self.execute(each).await;
                let (freeze, thaw) = ("SELECT pg_advisory_lock(1)", "SELECT pg_advisory_unlock(1)");
                self.lock(freeze, thaw).await
            }
            Backend::MariaDb => {
                // The names of such locks belong to the whole server, not to one database.
                let lock = "CONCAT(DATABASE(), '.creations')";
                let wait = format!(
                    "CREATE TRIGGER wait BEFORE INSERT ON counter FOR EACH ROW \
                     SET @waited = IF(NEW.sequence LIKE '{sequences}', \
                     GET_LOCK({lock}, 60) + RELEASE_LOCK({lock}), 0)"
                );
                // MySQL has no statement that replaces a trigger.
                self.execute("DROP TRIGGER IF EXISTS wait").await;
                self.execute(&wait).await;
                let freeze = format!("DO GET_LOCK({lock}, 60)");
                self.lock(&freeze, "DO RELEASE_ALL_LOCKS()").await
            }
            Backend::Sqlite => panic!("SQLite has one writer"),
        }
    }

    /// Stops the commit of each reservation of at least `n_least` numbers until `Frozen::thaw`. The
    /// statement has read the clock by then. Works on PostgreSQL only, and once.
    pub async fn freeze_commits(&self, n_least: u64) -> Frozen {
        let wait = "CREATE FUNCTION wait_to_commit() RETURNS trigger AS $$ BEGIN \
                    PERFORM pg_advisory_xact_lock_shared(2); RETURN NULL; END $$ \
                    LANGUAGE plpgsql";
        self.execute(wait).await;
        let each = format!(
            "CREATE CONSTRAINT TRIGGER wait_to_commit AFTER UPDATE ON counter \
             DEFERRABLE INITIALLY DEFERRED FOR EACH ROW \
             WHEN (NEW.next_value >= OLD.next_value + {n_least}) \
             EXECUTE FUNCTION wait_to_commit()"
        );
        self.execute(&each).await;
        let (freeze, thaw) = ("SELECT pg_advisory_lock(2)", "SELECT pg_advisory_unlock(2)");
        self.lock(freeze, thaw).await
    }

    async fn lock(&self, freeze: &str, thaw: &'static str) -> Frozen {
        let connection = self.connect().await;
        let frozen = connection.execute_unprepared(freeze).await;
        frozen.expect("the tables can be locked");
        Frozen { connection, thaw }
    }

    /// Reads the high-water mark of `sequence`; `None` if it has no counter yet.
    pub async fn next_value(&self, sequence: &str) -> Option<i64> {
        let query = format!("SELECT next_value FROM counter WHERE sequence = '{sequence}'");
        self.number(&query).await
    }

    /// Reads the journal of `sequence`, in the order of the numbers.
    pub async fn journal(&self, sequence: &str) -> Vec<JournalRow> {
        let query = format!(
            "SELECT first, last, fate, next_unissued FROM block \
             WHERE sequence = '{sequence}' ORDER BY first, next_unissued"
        );
        let rows = self.query(&query).await;
        rows.iter()
            .map(|row| JournalRow {
                first: row.try_get("", "first").expect("a number"),
                last: row.try_get("", "last").expect("a number"),
                fate: row.try_get("", "fate").expect("a text"),
                next_unissued: row.try_get("", "next_unissued").expect("a number"),
            })
            .collect()
    }

    fn dialect(&self) -> DbBackend {
        match self.backend {
            Backend::Sqlite => DbBackend::Sqlite,
            Backend::Postgres => DbBackend::Postgres,
            Backend::MariaDb => DbBackend::MySql,
        }
    }
}

/// A database in which tables or rows are locked.
pub struct Frozen {
    connection: DatabaseConnection,
    thaw: &'static str,
}

impl Frozen {
    pub async fn thaw(self) {
        let thawed = self.connection.execute_unprepared(self.thaw).await;
        thawed.expect("the tables can be unlocked");
        self.connection.close().await.expect("a connection closes");
    }
}

/// One row of the journal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JournalRow {
    pub first: i64,
    pub last: i64,
    pub fate: String,
    pub next_unissued: i64,
}

/// Makes one test for each kind of database out of `async fn name(backend: Backend)`.
#[macro_export]
macro_rules! for_each_backend {
    ($($name:ident),+ $(,)?) => {$(
        $crate::for_the_backends!($name: sqlite = Sqlite, postgres = Postgres, mariadb = MariaDb);
    )+};
}

/// Makes one test for each kind of server, like `for_each_backend` without SQLite. Use it for tests
/// that need a server or several replicas.
#[macro_export]
macro_rules! for_each_server {
    ($($name:ident),+ $(,)?) => {$(
        $crate::for_the_backends!($name: postgres = Postgres, mariadb = MariaDb);
    )+};
}

/// Makes the same tests as `for_each_backend` for a program that runs in the process of the tests.
/// SQLite needs no server, and the tests on servers are ignored unless `tests/run` asks for them.
#[macro_export]
macro_rules! for_each_backend_in_process {
    ($($name:ident),+ $(,)?) => {$(
        $crate::for_the_backends!(
            $name:
            sqlite = Sqlite,
            postgres = Postgres #[ignore = "needs a server: tests/run starts one"],
            mariadb = MariaDb #[ignore = "needs a server: tests/run starts one"]
        );
    )+};
}

/// Makes the same tests without SQLite.
#[macro_export]
macro_rules! for_each_server_in_process {
    ($($name:ident),+ $(,)?) => {$(
        $crate::for_the_backends!(
            $name:
            postgres = Postgres #[ignore = "needs a server: tests/run starts one"],
            mariadb = MariaDb #[ignore = "needs a server: tests/run starts one"]
        );
    )+};
}

/// Makes the module of the tests of one function: a test for each backend that is named.
#[macro_export]
macro_rules! for_the_backends {
    ($name:ident: $($test:ident = $backend:ident $(#[$attribute:meta])?),+) => {
        mod $name {
            use $crate::{Backend, run};

            $(
                #[test]
                $(#[$attribute])?
                fn $test() {
                    run(super::$name(Backend::$backend));
                }
            )+
        }
    };
}
