//! Measures a conditional update of a counter, as reservations make it. SeaORM builds the
//! statement. The reference is its driver sqlx with a statement that is written by hand.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use entity::counter;
use odometer_tests::{Backend, Program, Server, TestDatabase, directory};
use sea_orm::{
    ActiveModelTrait, ColumnTrait, ConnectOptions, Database, DatabaseConnection, DbBackend, DbErr,
    EntityTrait, IntoActiveModel, QueryFilter,
    sea_query::{Expr, ExprTrait},
    sqlx::{
        self,
        sqlite::{SqliteJournalMode, SqliteSynchronous},
    },
};

use crate::{
    cores::{Cores, Side},
    pace::{Contender, Pace},
    reading::{Busy, Latency, Reading},
    row::{Row, Unit},
    stage::Stage,
    usage,
};

/// The numbers that an update reserves.
const BLOCK: i64 = 1000;
const ANSWERS: &str = "the database of the row answers";
const STRIPE_COUNT: i32 = 1;
const WITH_NUMBERED_PLACES: &str = "UPDATE counter \
    SET next_value = $1, version = version + $2, rate = $3 \
    WHERE sequence = $4 AND period = $5 AND stripe_count = $6 AND next_value = $7 AND version = $8";
const WITH_PLACES: &str = "UPDATE counter \
    SET next_value = ?, version = version + ?, rate = ? \
    WHERE sequence = ? AND period = ? AND stripe_count = ? AND next_value = ? AND version = ?";

/// Measures one connection of this process to each database. No database waits for its disk.
pub(crate) async fn drivers(stage: &Stage, pace: Pace) -> Vec<Row> {
    let start = |backend: Backend, arguments: &[&str]| {
        let arguments = arguments.iter().map(|&argument| argument.into()).collect();
        let server = Server::start_with(backend, directory(backend.name()), arguments);
        stage.cores.start(Side::Server, server)
    };
    let postgres = start(Backend::Postgres, &["-c", "synchronous_commit=off"]).await;
    let mariadb = start(Backend::MariaDb, &["--innodb-flush-log-at-trx-commit=0"]).await;
    let on_postgres = TestDatabase::prepared_on(&postgres).await;
    let on_mariadb = TestDatabase::prepared_on(&mariadb).await;
    vec![
        on(stage, pace, "PostgreSQL", on_postgres, Some(&postgres)).await,
        on(stage, pace, "MariaDB", on_mariadb, Some(&mariadb)).await,
        on(stage, pace, "SQLite", empty_file().await, None).await,
    ]
}

async fn empty_file() -> TestDatabase {
    let database = TestDatabase::empty(Backend::Sqlite).await;
    let migrated = Program::options().database(&database.url).run(&["migrate"]);
    assert_eq!(migrated.code, Some(0), "migrate: {migrated}");
    database
}

async fn on(
    stage: &Stage,
    pace: Pace,
    title: &str,
    database: TestDatabase,
    server: Option<&Server>,
) -> Row {
    let cores = &stage.cores;
    // SQLite's driver has a thread of its own for each connection, which runs on the load's core.
    let connection = cores.start(Side::Load, connect(&database.url)).await;
    let mut by_sea_orm = Updates::new("SeaORM", cores, &connection, Driver::SeaOrm).await;
    let mut by_sqlx = Updates::new("sqlx, text by hand", cores, &connection, Driver::Sqlx).await;
    let server = server.map(Server::id);
    (by_sea_orm.server, by_sqlx.server) = (server, server);
    let series = pace.alternate(&mut [&mut by_sea_orm, &mut by_sqlx]).await;
    connection.close().await.expect("a connection closes");
    let name = format!("drivers-{}", database.backend.name());
    let title = format!("the conditional update of a counter on {title}, one connection");
    let row = Row::new(&name, &title, Unit::RequestsPerSecond).series(series);
    row.note(
        "Both use the same pool. The processor time is that of the process that asks: its core is \
         the first of the two shares, the core of the database the second. Here no database waits \
         for its disk, which would hide what a driver takes. The update that reserves a block has \
         one more condition: the replica's own row did not go back.",
    )
}

/// Opens a pool of one connection with Odometer's settings. SQLite does not wait for the disk here.
async fn connect(url: &str) -> DatabaseConnection {
    let mut options = ConnectOptions::new(url);
    options
        .min_connections(1)
        .max_connections(1)
        .test_before_acquire(false)
        .sqlx_logging(false)
        .record_stmt_in_spans(false)
        .map_sqlx_sqlite_opts(|sqlite| {
            sqlite
                .journal_mode(SqliteJournalMode::Wal)
                .synchronous(SqliteSynchronous::Off)
        });
    let connected = Box::pin(Database::connect(options)).await;
    connected.expect(ANSWERS)
}

/// Updates of one counter, one after the other.
struct Updates {
    name: String,
    cores: Cores,
    connection: DatabaseConnection,
    /// The process of the database, if it is another process than this one.
    server: Option<u32>,
    driver: Driver,
    seen: CounterValues,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Driver {
    SeaOrm,
    Sqlx,
}

/// The values that the counter has.
#[derive(Clone, Copy, Debug)]
struct CounterValues {
    next_value: i64,
    version: i64,
}

impl Updates {
    async fn new(
        name: &str,
        cores: &Cores,
        connection: &DatabaseConnection,
        driver: Driver,
    ) -> Self {
        let seen = CounterValues {
            next_value: 1,
            version: 1,
        };
        let row = counter::Model {
            sequence: name.to_owned(),
            period: String::new(),
            next_value: seen.next_value,
            floor: 1,
            state: "live".to_owned(),
            rate: 0.0,
            stripe_count: STRIPE_COUNT,
            window: 0,
            window_open: false,
            window_leased_until: 0,
            revision: 1,
            version: seen.version,
            paced_until_us: 0,
            must_recover: false,
        };
        let row = row.into_active_model().reset_all();
        let inserted = counter::Entity::insert(row).exec_without_returning(connection);
        inserted
            .await
            .expect("the table is there and has no such row");
        Self {
            name: name.to_owned(),
            cores: *cores,
            connection: connection.clone(),
            server: None,
            driver,
            seen,
        }
    }

    /// Makes one update. Returns whether one row was changed.
    async fn update(&self, next_value: i64, rate: f64) -> bool {
        let n_changed = match self.driver {
            Driver::SeaOrm => self.by_sea_orm(next_value, rate).await.expect(ANSWERS),
            Driver::Sqlx => self.by_sqlx(next_value, rate).await.expect(ANSWERS),
        };
        n_changed == 1
    }

    async fn by_sea_orm(&self, next_value: i64, rate: f64) -> Result<u64, DbErr> {
        let update = counter::Entity::update_many()
            .col_expr(counter::Column::NextValue, Expr::val(next_value))
            .col_expr(
                counter::Column::Version,
                Expr::col(counter::Column::Version).add(1),
            )
            .col_expr(counter::Column::Rate, Expr::val(rate))
            .filter(counter::Column::Sequence.eq(self.name.as_str()))
            .filter(counter::Column::Period.eq(""))
            .filter(counter::Column::StripeCount.eq(STRIPE_COUNT))
            .filter(counter::Column::NextValue.eq(self.seen.next_value))
            .filter(counter::Column::Version.eq(self.seen.version));
        Ok(update.exec(&self.connection).await?.rows_affected)
    }

    async fn by_sqlx(&self, next_value: i64, rate: f64) -> Result<u64, sqlx::Error> {
        macro_rules! run {
            ($text:expr, $pool:expr) => {
                sqlx::query($text)
                    .bind(next_value)
                    .bind(1_i32)
                    .bind(rate)
                    .bind(self.name.as_str())
                    .bind("")
                    .bind(STRIPE_COUNT)
                    .bind(self.seen.next_value)
                    .bind(self.seen.version)
                    .execute($pool)
                    .await?
                    .rows_affected()
            };
        }
        let connection = &self.connection;
        Ok(match connection.get_database_backend() {
            DbBackend::Postgres => {
                run!(
                    WITH_NUMBERED_PLACES,
                    connection.get_postgres_connection_pool()
                )
            }
            DbBackend::MySql => run!(WITH_PLACES, connection.get_mysql_connection_pool()),
            DbBackend::Sqlite | _ => run!(WITH_PLACES, connection.get_sqlite_connection_pool()),
        })
    }

    /// Makes updates for `length`. Returns how long each update took in microseconds, and how many
    /// updates changed nothing.
    async fn run(&mut self, length: Duration) -> (Vec<f64>, u64) {
        let started = Instant::now();
        let (mut micros, mut n_failed) = (Vec::new(), 0);
        while started.elapsed() < length {
            let asked = Instant::now();
            let next_value = self.seen.next_value + BLOCK;
            if self.update(next_value, micros.len() as f64).await {
                self.seen.next_value = next_value;
                self.seen.version += 1;
            } else {
                n_failed += 1;
            }
            micros.push(asked.elapsed().as_secs_f64() * 1e6);
        }
        (micros, n_failed)
    }
}

#[async_trait(?Send)]
impl Contender for Updates {
    fn name(&self) -> &str {
        &self.name
    }

    async fn measure(&mut self, length: Duration) -> Reading {
        let cores = self.cores;
        let server = self.server;
        let of_database = || server.map_or(Duration::ZERO, usage::processor_time);
        let (before, database_before) = (usage::own_processor_time(), of_database());
        let started = Instant::now();
        let (micros, n_failed) = cores.start(Side::Load, self.run(length)).await;
        let took = started.elapsed().as_secs_f64();
        let used = usage::own_processor_time().saturating_sub(before);
        let database = of_database().saturating_sub(database_before);
        assert_eq!(n_failed, 0, "nobody else changes the counter");
        let n_requests = micros.len().max(1) as f64;
        Reading {
            value: n_requests / took,
            cpu_us: Some(used.as_secs_f64() * 1e6 / n_requests),
            busy: Some(Busy {
                server: used.as_secs_f64() / took,
                client: server.map(|_| database.as_secs_f64() / took),
            }),
            n_requests: micros.len() as u64,
            n_failed,
            latency: Some(Latency::of(micros)),
            ..Reading::default()
        }
    }
}
