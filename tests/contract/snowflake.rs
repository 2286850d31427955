//! Tests time-ordered ids while the store is away: they are issued until their lease ends.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{
    Backend, Client, Options, Program, Reply, Server, TestDatabase, for_each_server, wait,
};

const LIMIT: Duration = Duration::from_secs(30);
async fn next(client: &Client, name_and_query: &str) -> Reply {
    let path = format!("/v1/sequences/{name_and_query}");
    client.post(&path).await.expect("a reply")
}

for_each_server!(time_ordered_ids_are_issued_until_their_lease_ends_while_the_store_is_away);

async fn time_ordered_ids_are_issued_until_their_lease_ends_while_the_store_is_away(
    backend: Backend,
) {
    let mut away = Away::begin(backend, &Program::options()).await;
    // If the renewal was almost due, two thirds of the lease are left: 4 s. The limits are wider,
    // because a busy machine notices late.
    let served = away.served.as_millis();
    assert!((3_000..=10_000).contains(&served), "{served} ms");
    let described = away.client.describe("flakes").await;
    assert_eq!(described["state"]["lease"], Value::Null, "{described}");
    away.server.start_again().await;
    wait::until("it goes on by itself", LIMIT, async || {
        let reply = next(&away.client, "flakes/next").await;
        (reply.status == 200).then(|| away.ids.push(reply.number()))
    })
    .await;
    assert!(away.ids.is_sorted_by(|one, other| one < other));
    assert!(away.ids.len() > 100, "vacuous: {}", away.ids.len());
}

for_each_server!(a_lease_that_serves_only_until_its_renewal_is_found_out);

async fn a_lease_that_serves_only_until_its_renewal_is_found_out(backend: Backend) {
    let options = Program::options().without_guards("no-lease-reserve");
    let away = Away::begin(backend, &options).await;
    // One id was issued before the database was killed.
    assert!(away.ids.len() > 1, "vacuous: nothing came of its lease");
    // Ids were issued for a third of the lease at most.
    assert!(away.served < Duration::from_secs(3), "{:?}", away.served);
}

/// A sequence with a lease of six seconds and a killed database, at the time when the lease has
/// ended.
struct Away {
    server: Server,
    client: Client,
    /// All ids that were issued, before and after the database was killed.
    ids: Vec<i64>,
    /// The time from the kill to the last id before the first refusal.
    served: Duration,
    _program: Program,
}

impl Away {
    async fn begin(backend: Backend, options: &Options) -> Self {
        let mut server = Server::start(backend).await;
        let database = TestDatabase::prepared_on(&server).await;
        let options = options.clone().database(&database.url);
        let program = options.start_ready().await;
        let client = program.client();
        let definition = json!({"kind": "snowflake", "block": {"hold": "6s"}});
        client.define("flakes", &definition).await;
        let mut ids = vec![client.next("flakes").await];
        let away = std::time::Instant::now();
        let mut served = Duration::ZERO;
        server.kill();
        loop {
            let reply = next(&client, "flakes/next").await;
            if reply.status != 200 {
                assert_eq!(reply.status, 503, "{reply:?}");
                assert!(reply.header("retry-after").is_some(), "{reply:?}");
                break;
            }
            ids.push(reply.number());
            served = away.elapsed();
            assert!(served < LIMIT, "it never ends");
        }
        Self {
            served,
            server,
            client,
            ids,
            _program: program,
        }
    }
}
