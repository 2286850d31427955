//! Tests how long the refusal of a size may take.

use std::time::Duration;

use crate::support::{Backend, Program, TestDatabase, for_each_server};

/// How long the program waits for its database. No reply of this test takes so long.
const PATIENCE: &str = "30s";
/// How long a call waits that needs the database, at least.
const WAITS_FOR: Duration = Duration::from_secs(3);
/// How long the refusal may take. It looks for its bounds for a second, and a busy machine is slow.
const REFUSAL_LIMIT: Duration = Duration::from_secs(15);

for_each_server!(a_count_above_that_of_a_call_is_refused_without_the_database);

async fn a_count_above_that_of_a_call_is_refused_without_the_database(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let program = Program::options()
        .database(&database.url)
        .env("ODOMETER_STORE__TIMEOUT", PATIENCE)
        .env("ODOMETER_REFILL__DEADLINE", PATIENCE)
        .start_ready()
        .await;
    let client = program.client();
    let frozen = database.freeze().await;
    let waiting = client.post("/v1/sequences/orders/next");
    let waiting = tokio::time::timeout(WAITS_FOR, waiting).await;
    assert!(waiting.is_err(), "vacuous: the database answers");
    let refused = client.post("/v1/sequences/invoices/next?count=10001");
    let refused = tokio::time::timeout(REFUSAL_LIMIT, refused).await;
    let refused = refused.expect("it waits for the database");
    let refused = refused.expect("a reply");
    assert_eq!(
        refused.code().as_deref(),
        Some("invalid_count"),
        "{refused:?}"
    );
    assert_eq!(refused.json()["limit"], "10000", "{refused:?}");
    frozen.thaw().await;
}
