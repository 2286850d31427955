//! The stop of a replica, in order and at once.

use std::time::{Duration, Instant};

use crate::support::{Backend, Program, TestDatabase, for_each_backend, run, wait};

for_each_backend!(a_replica_with_nothing_to_do_stops_at_once);

async fn a_replica_with_nothing_to_do_stops_at_once(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let options = Program::options().database(&database.url);
    for interrupt in [false, true] {
        let mut program = options.start_ready().await;
        let started = Instant::now();
        if interrupt {
            program.interrupt();
        } else {
            program.terminate();
        }
        assert_eq!(program.end().await, Some(0), "{}", program.log());
        // The deadline is 25 s, but nothing may wait for it.
        assert!(started.elapsed() < Duration::from_secs(10));
    }
}

#[test]
fn a_replica_that_waits_to_be_forgotten_still_issues() {
    run(async {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let mut program = Program::options()
            .database(&database.url)
            .env("ODOMETER_SHUTDOWN__READY_WAIT", "8s")
            .start_ready()
            .await;
        let client = program.client();
        assert_eq!(client.next("still").await, 1);
        program.terminate();
        wait::until("it is not ready", Duration::from_secs(5), async || {
            let ready = client.get("/readyz").await.expect("a reply");
            (ready.status == 503).then_some(())
        })
        .await;
        let live = client.get("/livez").await.expect("a reply");
        assert_eq!(live.status, 200);
        assert_eq!(client.next("still").await, 2);
        assert_eq!(program.end().await, Some(0), "{}", program.log());
    });
}

#[test]
fn a_second_signal_ends_it_at_once() {
    run(async {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let mut program = Program::options()
            .database(&database.url)
            .env("ODOMETER_SHUTDOWN__READY_WAIT", "20s")
            .start_ready()
            .await;
        let client = program.client();
        program.terminate();
        wait::until("it is not ready", Duration::from_secs(5), async || {
            let ready = client.get("/readyz").await.expect("a reply");
            (ready.status == 503).then_some(())
        })
        .await;
        let started = Instant::now();
        program.terminate();
        assert_eq!(program.end().await, Some(1), "{}", program.log());
        assert!(started.elapsed() < Duration::from_secs(5));
    });
}

#[test]
fn a_stop_without_its_database_is_bounded() {
    run(async {
        let mut server = crate::support::Server::start(Backend::Postgres).await;
        let database = TestDatabase::prepared_on(&server).await;
        let mut program = Program::options()
            .database(&database.url)
            .env("ODOMETER_SHUTDOWN__DEADLINE", "3s")
            .start_ready()
            .await;
        assert_eq!(program.client().next("bounded").await, 1);
        server.kill();
        let started = Instant::now();
        program.terminate();
        program.end().await;
        assert!(started.elapsed() < Duration::from_secs(10));
    });
}
