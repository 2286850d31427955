//! Wrong clocks: a clock that is far ahead of the database's clock reserves no time.

use super::{asked, now_ms};
use crate::support::{
    Backend, Client, Lease, Program, Scrape, TestDatabase, for_each_backend, for_each_server, run,
    wait,
};

const TTL_MS: i64 = 10_000;
const FIVE_MINUTES_MS: i64 = 300_000;

for_each_backend!(a_clock_that_is_far_ahead_reserves_nothing);

async fn a_clock_that_is_far_ahead_reserves_nothing(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let far = Program::options()
        .database(&database.url)
        .clock_ahead(FIVE_MINUTES_MS + 60_000);
    let program = far.start_ready().await;
    let refused = asked(&program.client(), "billing", 10, TTL_MS, "far").await;
    assert_eq!(refused.status, 503, "{refused:?}");
    assert_eq!(refused.code().as_deref(), Some("clock_ahead"));
    let n_rows = database.number("SELECT COUNT(*) FROM worker_lease").await;
    assert_eq!(n_rows, Some(0));
    assert!(skew(&program.client()).await < -350.0);
    program.stop().await;

    // A clock that is less far ahead is accepted. Its lease reserves time that lies as far ahead.
    // The next lease of this id begins after that time, if it is long enough to reach it.
    let near = Program::options()
        .database(&database.url)
        .clock_ahead(FIVE_MINUTES_MS - 60_000);
    let program = near.start_ready().await;
    let ahead = program.client().lease("billing", 1, 1000, "near").await;
    assert!(ahead.until_ms > now_ms() + 200_000, "{ahead:?}");
    program
        .client()
        .give_back(&ahead, None)
        .await
        .expect("a reply");
    program.stop().await;
    let right = Program::options()
        .database(&database.url)
        .start_ready()
        .await;
    let client = right.client();
    let other = client.lease("billing", 1, 60_000, "near").await;
    assert_ne!(other.worker, ahead.worker, "that has no time before then");
    let next = client.lease("billing", 1, 600_000, "far").await;
    assert_eq!((next.worker, next.from_ms), (ahead.worker, ahead.until_ms));
}

for_each_backend!(time_reserved_by_a_clock_far_ahead_is_found_out);

async fn time_reserved_by_a_clock_far_ahead_is_found_out(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let far = Program::options()
        .database(&database.url)
        .clock_ahead(2 * FIVE_MINUTES_MS)
        .without_guards("any-clock");
    let program = far.start_ready().await;
    let lease = program.client().lease("billing", 10, TTL_MS, "far").await;
    assert!(lease.until_ms > now_ms() + FIVE_MINUTES_MS, "{lease:?}");
    program.stop().await;
    if backend != Backend::Sqlite {
        let finished = far.run(&["recover", "--skip", "10", "--yes"]);
        assert_eq!(finished.code, Some(0), "{finished}");
        let recovered = "SELECT COUNT(*) FROM meta WHERE last_recovery_at IS NOT NULL";
        assert_eq!(database.number(recovered).await, Some(1));
    }
}

for_each_backend!(a_database_clock_that_is_far_ahead_holds_ids_back_little);

async fn a_database_clock_that_is_far_ahead_holds_ids_back_little(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let options = Program::options()
        .database(&database.url)
        .clock_ahead(-2 * FIVE_MINUTES_MS);
    let program = options.start_ready().await;
    let client = program.client();
    let before = now_ms();
    let lease = client.lease("billing", 10, TTL_MS, "behind").await;
    let renewed = client.renew(&lease, None).await.expect("a reply");
    assert_eq!(renewed.status, 200, "{renewed:?}");
    // The end follows the replica's clock plus five minutes, not the database's clock.
    for lease in [lease, Lease::of(&renewed)] {
        let until = lease.until_ms - before - TTL_MS + FIVE_MINUTES_MS;
        assert!((0..10_000).contains(&until), "{lease:?} {until}");
    }
    assert!(skew(&client).await > 590.0);
    let log = program.stop().await;
    assert_eq!(log.matches("Clocks apart").count(), 1, "{log}");
}

/// Returns the database's clock minus the program's clock, in seconds, after the first comparison.
async fn skew(client: &Client) -> f64 {
    wait::until("the clocks are compared", super::LIMIT, async || {
        let scrape = Scrape::of(client).await;
        let name = "odometer_clock_skew_seconds";
        scrape.has(name).then(|| scrape.sum(name, &[]))
    })
    .await
}

for_each_server!(a_time_zone_in_the_url_makes_no_difference);

async fn a_time_zone_in_the_url_makes_no_difference(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let zone = match backend {
        Backend::MariaDb => "?timezone=-11:00",
        Backend::Postgres | Backend::Sqlite => "?options=-c%20TimeZone%3DPacific/Kiritimati",
    };
    let url = format!("{}{zone}", database.url);
    let program = Program::options().database(&url).start_ready().await;
    let client = program.client();
    let lease = client.lease("billing", 10, TTL_MS, "far-away").await;
    assert!(
        (lease.until_ms - now_ms() - TTL_MS).abs() < 5000,
        "{lease:?}"
    );
    let skew = skew(&client).await;
    assert!(skew.abs() < 5.0, "{skew}");
    let refused = database
        .number("SELECT expires_at FROM worker_lease")
        .await
        .expect("a row");
    assert!((refused - now_ms() - TTL_MS).abs() < 5000, "{refused}");
}

#[test]
fn a_recovery_by_a_wrong_clock_is_refused() {
    run(async {
        let database = TestDatabase::prepared(Backend::Postgres).await;
        for shift_ms in [FIVE_MINUTES_MS + 60_000, -FIVE_MINUTES_MS - 60_000] {
            let options = Program::options()
                .database(&database.url)
                .clock_ahead(shift_ms);
            let finished = options.run(&["recover", "--yes", "--skip", "10"]);
            assert_eq!(finished.code, Some(1), "{finished}");
            assert!(finished.errors.contains("5 minutes"), "{finished}");
        }
        let recovered = "SELECT COUNT(*) FROM meta WHERE last_recovery_at IS NOT NULL";
        assert_eq!(database.number(recovered).await, Some(0));
    });
}
