//! The databases that every promise holds on, and a database of its own for each test.

use sea_orm::{
    ConnectOptions, ConnectionTrait, Database, DatabaseConnection, DbBackend, QueryResult,
    Statement,
};
use tempfile::TempDir;

use super::{
    Program, Proxy, keeper,
    server::{ACCOUNT, Server},
};

/// A database that Odometer runs on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backend {
    Sqlite,
    Postgres,
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

    /// How many processes may share a database of this kind, of `wanted`.
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
    /// What the program under test is given.
    pub url: String,
    administrator_url: String,
    /// Holds the file of SQLite.
    _directory: Option<TempDir>,
}

impl TestDatabase {
    /// A database with the schema, ready for `serve`.
    pub async fn prepared(backend: Backend) -> Self {
        let database = Self::empty(backend).await;
        database.migrate();
        database
    }

    /// A database without any table.
    pub async fn empty(backend: Backend) -> Self {
        match backend {
            Backend::Sqlite => {
                let directory = keeper::directory("sqlite");
                let url = format!("sqlite:{}", directory.path().join("odometer.db").display());
                Self {
                    backend,
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

    /// A database with the schema on a server of the test's own.
    pub async fn prepared_on(server: &Server) -> Self {
        let database = Self::empty_on(server).await;
        database.migrate();
        database
    }

    /// A database without any table on a server of the test's own.
    pub async fn empty_on(server: &Server) -> Self {
        let name = format!("t_{}", uuid::Uuid::new_v4().simple());
        server
            .administrate(&match server.backend() {
                Backend::Postgres => format!("CREATE DATABASE {name} OWNER {ACCOUNT}"),
                Backend::MariaDb | Backend::Sqlite => format!("CREATE DATABASE {name}"),
            })
            .await;
        Self {
            backend: server.backend(),
            url: server.url(&name),
            administrator_url: server.administrator_url(&name),
            _directory: None,
        }
    }

    /// Brings the schema up with the program's own command; SQLite does that at start.
    pub fn migrate(&self) {
        if self.backend != Backend::Sqlite {
            let finished = Program::options().database(&self.url).run(&["migrate"]);
            assert_eq!(finished.code, Some(0), "migrate: {finished}");
        }
    }

    /// Where the program finds this database behind `proxy`, which leads to `server`.
    pub fn url_through(&self, proxy: &Proxy, server: &Server) -> String {
        let direct = format!(":{}/", server.port());
        let behind = self.url.replace(&direct, &format!(":{}/", proxy.port()));
        assert_ne!(behind, self.url);
        behind
    }

    async fn connect(&self) -> DatabaseConnection {
        let mut options = ConnectOptions::new(self.administrator_url.clone());
        options.max_connections(1).sqlx_logging(false);
        Box::pin(Database::connect(options))
            .await
            .expect("the test's database answers")
    }

    /// The rows of `query`.
    pub async fn query(&self, query: &str) -> Vec<QueryResult> {
        let connection = self.connect().await;
        let rows = connection
            .query_all_raw(Statement::from_string(self.dialect(), query))
            .await
            .unwrap_or_else(|error| panic!("{query}: {error}"));
        connection.close().await.expect("a connection closes");
        rows
    }

    /// The single number of `query`, if it has a row.
    pub async fn number(&self, query: &str) -> Option<i64> {
        let rows = self.query(query).await;
        rows.first()
            .map(|row| row.try_get_by_index(0).expect("one column with a number"))
    }

    /// Runs a statement that changes the database behind the program's back.
    pub async fn execute(&self, statement: &str) {
        let connection = self.connect().await;
        connection
            .execute_unprepared(statement)
            .await
            .unwrap_or_else(|error| panic!("{statement}: {error}"));
        connection.close().await.expect("a connection closes");
    }

    /// Lets no write through until it is thawed.
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

    /// Lets no write of the counters of `sequences`, a pattern, through until they are thawed.
    pub async fn freeze_counters(&self, sequences: &str) -> Frozen {
        let freeze =
            format!("BEGIN; SELECT 1 FROM counter WHERE sequence LIKE '{sequences}' FOR UPDATE");
        self.lock(&freeze, "COMMIT").await
    }

    async fn lock(&self, freeze: &str, thaw: &'static str) -> Frozen {
        let connection = self.connect().await;
        let frozen = connection.execute_unprepared(freeze).await;
        frozen.expect("the tables can be locked");
        Frozen { connection, thaw }
    }

    /// The first number of `sequence` that nobody has reserved; `None` before its birth.
    pub async fn next_value(&self, sequence: &str) -> Option<i64> {
        let query = format!("SELECT next_value FROM counter WHERE sequence = '{sequence}'");
        self.number(&query).await
    }

    /// The journal of `sequence`, in order.
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

/// A database of which tables, or rows, are locked.
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

/// Makes one test for each database out of `async fn name(backend: Backend)`.
#[macro_export]
macro_rules! for_each_backend {
    ($($name:ident),+ $(,)?) => {$(
        mod $name {
            use $crate::{Backend, run};

            #[test]
            fn sqlite() {
                run(super::$name(Backend::Sqlite));
            }

            #[test]
            fn postgres() {
                run(super::$name(Backend::Postgres));
            }

            #[test]
            fn mariadb() {
                run(super::$name(Backend::MariaDb));
            }
        }
    )+};
}

/// As `for_each_backend`, for what needs a server or several replicas.
#[macro_export]
macro_rules! for_each_server {
    ($($name:ident),+ $(,)?) => {$(
        mod $name {
            use $crate::{Backend, run};

            #[test]
            fn postgres() {
                run(super::$name(Backend::Postgres));
            }

            #[test]
            fn mariadb() {
                run(super::$name(Backend::MariaDb));
            }
        }
    )+};
}
