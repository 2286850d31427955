//! Rows of replicas that seem to have ended long ago, but have not.

use std::time::Duration;

use crate::support::{
    Answer, Backend, Client, Options, Program, Scrape, TestDatabase, for_each_server, wait,
};

const LIMIT: Duration = Duration::from_secs(20);
const DAY_MS: i64 = 86_400_000;

for_each_server!(
    a_replica_that_was_stopped_for_a_month_goes_on,
    a_row_set_aside_hides_no_store_that_went_back,
    without_its_checks_a_row_set_aside_hides_it,
    rows_set_aside_are_deleted_after_a_year,
);

async fn a_replica_that_was_stopped_for_a_month_goes_on(backend: Backend) {
    let stage = Stage::with_row_set_aside(backend, Program::options()).await;
    // Each call needs blocks of its own, so the program checks whether the store went back.
    assert_eq!(stage.take().await, None);
    assert_eq!(stage.take().await, None);
    wait::until("the row is taken back", LIMIT, async || {
        let own = stage.database.number(OWN_ROW).await;
        own.is_some_and(|beat| beat > 0).then_some(())
    })
    .await;
    let went_back = Scrape::of(&stage.client).await;
    assert!(went_back.sum("odometer_store_went_back", &[]) < 1.0);
    assert_eq!(stage.take().await, None);
}

async fn a_row_set_aside_hides_no_store_that_went_back(backend: Backend) {
    let stage = Stage::with_older_row_set_aside(backend, Program::options()).await;
    assert_eq!(stage.take().await.as_deref(), Some("store_went_back"));
}

async fn without_its_checks_a_row_set_aside_hides_it(backend: Backend) {
    let options = Program::options().without_guards("no-went-back-checks");
    let stage = Stage::with_older_row_set_aside(backend, options).await;
    assert_eq!(stage.take().await, None);
}

async fn rows_set_aside_are_deleted_after_a_year(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let now_ms = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .expect("it is later than 1970");
    let now_ms = i64::try_from(now_ms.as_millis()).expect("it fits");
    for (holder, beat, beat_at) in [
        ("ended", 7, now_ms - 31 * DAY_MS),
        ("silent", 7, now_ms - 29 * DAY_MS),
        ("aside", -8, -(now_ms - 364 * DAY_MS)),
        ("over", -8, -(now_ms - 366 * DAY_MS)),
    ] {
        let row = format!(
            "INSERT INTO replica (holder, beat, beat_at) VALUES ('{holder}', {beat}, {beat_at})"
        );
        database.execute(&row).await;
    }
    let program = options(Program::options(), &database).start_ready().await;
    let beat_of = async |holder: &str| {
        let beat = format!("SELECT beat FROM replica WHERE holder = '{holder}'");
        database.number(&beat).await
    };
    wait::until("the last one is deleted", LIMIT, async || {
        beat_of("over").await.is_none().then_some(())
    })
    .await;
    assert_eq!(beat_of("ended").await, Some(-8));
    assert_eq!(beat_of("silent").await, Some(7));
    assert_eq!(beat_of("aside").await, Some(-8));
    program.stop().await;
}

/// A query for the heartbeat of the stopped replica, which used the sequence first.
const OWN_ROW: &str = "SELECT beat FROM replica WHERE holder = \
                       (SELECT holder FROM block WHERE sequence = 'orders' ORDER BY first LIMIT 1)";

fn options(options: Options, database: &TestDatabase) -> Options {
    options
        .database(&database.url)
        .env("ODOMETER_DEFINITION_REFRESH", "1s")
        .env("ODOMETER_DEFAULT__BLOCK__MIN", 10)
        .env("ODOMETER_DEFAULT__BLOCK__MAX", 20)
}

/// A replica that was stopped while another replica set its row aside.
struct Stage {
    database: TestDatabase,
    client: Client,
    stopped: Program,
    _other: Program,
}

impl Stage {
    async fn with_row_set_aside(backend: Backend, chosen: Options) -> Self {
        let stage = Self::stopped(backend, chosen).await;
        stage.stopped.thaw();
        stage
    }

    /// Makes the stage of a restore that lost the last heartbeats of the stopped replica.
    async fn with_older_row_set_aside(backend: Backend, chosen: Options) -> Self {
        let stage = Self::stopped(backend, chosen).await;
        // The first heartbeat of a replica is 1.
        let older = "UPDATE replica SET beat = -1 WHERE beat < 0";
        stage.database.execute(older).await;
        stage.stopped.thaw();
        stage
    }

    async fn stopped(backend: Backend, chosen: Options) -> Self {
        let database = TestDatabase::prepared(backend).await;
        let stopped = options(chosen, &database).start_ready().await;
        let client = stopped.client();
        client.next("orders").await;
        wait::until(
            "its block is on record, and it has beaten",
            LIMIT,
            async || {
                let own = database.number(OWN_ROW).await;
                own.is_some_and(|beat| beat > 2).then_some(())
            },
        )
        .await;
        database.stop(&stopped).await;
        let old = format!("UPDATE replica SET beat_at = beat_at - {}", 40 * DAY_MS);
        database.execute(&old).await;
        let other = options(Program::options(), &database).start_ready().await;
        wait::until("its row is set aside", LIMIT, async || {
            let own = database.number(OWN_ROW).await;
            own.is_some_and(|beat| beat < 0).then_some(())
        })
        .await;
        Self {
            database,
            client,
            stopped,
            _other: other,
        }
    }

    /// Takes more numbers than memory has. Returns the reason if the call was refused.
    ///
    /// A statement that is under way when the process is stopped is late when the process goes on.
    /// The database then counts as away until the next look.
    async fn take(&self) -> Option<String> {
        wait::until("the database answers", LIMIT, async || {
            let answer = self.client.ask("/v1/sequences/orders/next?count=100").await;
            let refused = match answer {
                Answer::Given(_) => None,
                Answer::Refused(reply) => Some(reply.code().unwrap_or(reply.body)),
                Answer::NoReply(error) => panic!("no reply: {error}"),
            };
            (refused.as_deref() != Some("store_unavailable")).then_some(refused)
        })
        .await
    }
}
