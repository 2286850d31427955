//! The database is away. The library goes on from its buffer and from the memory of its replica.

use std::time::Duration;

use serde_json::{Value, json};

use super::{SEQUENCE, options};
use crate::{
    clients::{
        driver::Driver,
        language::{Language, for_each_language_and_server},
    },
    support::{Backend, Ledger, Link, Program, Proxy, Server, TestDatabase, wait},
};

/// How many numbers the replica has in memory. They outlast the outage.
const IN_MEMORY: u64 = 1_000_000;
const N_STEPS: usize = 10;
/// The time between two steps. At this rate a refill comes from memory, because it is small.
const BETWEEN_STEPS: Duration = Duration::from_millis(200);
const LIMIT: Duration = Duration::from_secs(60);

for_each_language_and_server!(a_library_outlives_the_database_of_its_replica);

/// Rules C1 and C5.
async fn a_library_outlives_the_database_of_its_replica(language: Language, backend: Backend) {
    let server = Server::shared(backend).await;
    let proxy = Proxy::to(server.port()).await;
    let database = TestDatabase::prepared(backend).await;
    let program = Program::options()
        .database(&database.url_through(&proxy, server))
        .start_ready()
        .await;
    let client = program.client();
    let large = json!({"block": {"min": IN_MEMORY}});
    client.define(SEQUENCE, &large).await;
    client.define("cold", &json!({})).await;
    let mut warm = Driver::start(language, &options(&[program.url()])).await;
    let mut cold = Driver::start(language, &cold_options(&program)).await;
    let mut ledger = Ledger::default();
    let given = warm.take("next 10").await;
    assert_eq!((given.n_numbers(), &given.error), (10, &None));
    ledger.record(SEQUENCE, &given.ranges);
    warm.hooks().await;

    proxy.set(Link::Cut);
    let refused = client.post("/v1/sequences/cold/next").await;
    let refused = refused.expect("a reply");
    assert_eq!(
        refused.status, 503,
        "vacuous: the database is not away: {refused:?}"
    );
    for _ in 0..N_STEPS {
        let given = warm.take("next 10").await;
        assert_eq!(
            (given.n_numbers(), &given.error),
            (10, &None),
            "in the outage"
        );
        ledger.record(SEQUENCE, &given.ranges);
        warm.obey("forget").await;
        tokio::time::sleep(BETWEEN_STEPS).await;
    }
    let hooks = warm.hooks().await;
    assert!(
        hooks.n_with(&["ok"]) >= N_STEPS - 1,
        "vacuous: few refills: {hooks:?}"
    );
    let given = cold.take("next 1").await;
    assert_eq!(
        (given.n_numbers(), given.error.as_deref()),
        (0, Some("deadline")),
        "with nothing in memory"
    );

    proxy.set(Link::Whole);
    for driver in [&mut warm, &mut cold] {
        wait::until("the database serves again", LIMIT, async || {
            let given = driver.take("next 1").await;
            given.error.is_none().then_some(())
        })
        .await;
    }
    let given = warm.take("next 3000").await;
    assert_eq!(
        (given.n_numbers(), &given.error),
        (3000, &None),
        "after the outage"
    );
    ledger.record(SEQUENCE, &given.ranges);
    assert_eq!(ledger.n_duplicates(), 0);
    warm.exit().await;
    cold.exit().await;
}

/// Returns options of a driver for a sequence that has no numbers in memory.
fn cold_options(program: &Program) -> Value {
    let mut options = options(&[program.url()]);
    options["sequence"] = Value::from("cold");
    options["kind"] = Value::from("buffered");
    options["deadline_ms"] = Value::from(1500);
    options
}
