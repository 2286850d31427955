//! Numbers that are in memory before a replica says that it is ready.

use std::time::Duration;

use serde_json::json;

use crate::support::{Backend, Options, Program, TestDatabase, for_each_backend, wait};

const LIMIT: Duration = Duration::from_secs(30);

for_each_backend!(names_in_use_have_numbers_before_their_replica_is_ready);

async fn names_in_use_have_numbers_before_their_replica_is_ready(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let options = Program::options().database(&database.url);
    let (busy, stamped) = use_names(&database, &options).await;

    let program = options.start_ready().await;
    let client = program.client();
    let frozen = database.freeze().await;
    assert_eq!(client.next("busy").await, busy + 1);
    assert!(client.next("stamped").await > stamped);
    // One number in a quarter of an hour is too few for a reserve, so this call asks the store.
    let rare = client.post("/v1/sequences/rare/next").await;
    let rare = rare.expect("a reply");
    assert_eq!(rare.status, 503, "{rare:?}");
    frozen.thaw().await;
    program.stop().await;
}

for_each_backend!(a_replica_that_is_ready_with_empty_hands_is_found_out);

async fn a_replica_that_is_ready_with_empty_hands_is_found_out(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let options = Program::options().database(&database.url);
    use_names(&database, &options).await;

    let program = impatient(&options).without_guards("nothing-loaded");
    let program = program.start_ready().await;
    let frozen = database.freeze().await;
    for name in ["busy", "stamped"] {
        let path = format!("/v1/sequences/{name}/next");
        let reply = program.client().post(&path).await.expect("a reply");
        assert_eq!(reply.status, 503, "{reply:?}");
        assert_eq!(reply.code().as_deref(), Some("refill_timeout"));
    }
    frozen.thaw().await;
}

fn impatient(options: &Options) -> Options {
    options.clone().env("ODOMETER_REFILL__DEADLINE", "1s")
}

/// Uses `rare` and `stamped` once, and `busy` often. Returns the highest issued numbers of `busy`
/// and of `stamped`.
async fn use_names(database: &TestDatabase, options: &Options) -> (i64, i64) {
    let program = options.start_ready().await;
    let client = program.client();
    assert_eq!(client.next("rare").await, 1);
    let time_ordered = json!({"kind": "snowflake"});
    client.define("stamped", &time_ordered).await;
    let stamped = client.next("stamped").await;
    // `busy` is used until a refill has stored its rate.
    let mut highest = 0;
    wait::until("its rate is stored", LIMIT, async || {
        for _call in 0..20 {
            highest = client.next("busy").await;
        }
        let busy = "SELECT COUNT(*) FROM counter WHERE sequence = 'busy' AND rate > 0.1";
        (database.number(busy).await == Some(1)).then_some(())
    })
    .await;
    program.stop().await;
    (highest, stamped)
}
