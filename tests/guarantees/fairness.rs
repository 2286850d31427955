//! A name that is used very often leaves connections to the database for other names.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use serde_json::json;

use crate::support::{
    Answer, Backend, Client, Program, Proxy, Scrape, Server, TestDatabase, for_each_server,
};

/// The callers of the busy name. Each number of this name costs a reservation.
const N_HAMMERING: usize = 32;
const N_COLD: usize = 500;
/// `pool.max` of the configuration, and one connection for looks at the database.
const MAX_CONNECTIONS: usize = 9;
/// With fewer numbers of the busy name, nothing was in the way of the others.
const MIN_HAMMERED: u64 = 20;

for_each_server!(a_name_that_is_hammered_starves_no_other);

async fn a_name_that_is_hammered_starves_no_other(backend: Backend) {
    let server = Server::shared(backend).await;
    let proxy = Proxy::to(server.port()).await;
    let database = TestDatabase::prepared(backend).await;
    let program = Program::options()
        .database(&database.url_through(&proxy, server))
        // This deadline suits a slow disk. A name that is starved waits for as long as the busy
        // name is used.
        .env("ODOMETER_REFILL__DEADLINE", "25s")
        .start_ready()
        .await;
    let client = program.client();
    let smallest = json!({"block": {"min": 1, "max": 1}});
    client.define("hammered", &smallest).await;

    let over = Arc::new(AtomicBool::new(false));
    let hammering: Vec<_> = (0..N_HAMMERING)
        .map(|_| tokio::spawn(hammer(program.client(), Arc::clone(&over))))
        .collect();
    let calls: Vec<_> = (0..N_COLD)
        .map(|number| {
            let client = client.clone();
            let path = format!("/v1/sequences/cold-{number}/next");
            tokio::spawn(async move { client.ask(&path).await })
        })
        .collect();
    let mut most_connections = 0;
    for call in calls {
        // A caller who meets the deadline is refused.
        let answer = call.await.expect("no panic");
        assert!(matches!(answer, Answer::Given(_)), "{answer:?}");
        most_connections = most_connections.max(proxy.n_open());
    }
    over.store(true, Ordering::Relaxed);
    let mut n_hammered = 0;
    for caller in hammering {
        n_hammered += caller.await.expect("no panic");
    }
    assert!(n_hammered >= MIN_HAMMERED, "vacuous: {n_hammered}");
    assert!(most_connections <= MAX_CONNECTIONS, "{most_connections}");
    let scrape = Scrape::of(&client).await;
    assert_eq!(scrape.n_abandoned(), 0.0);
    program.stop().await;
}

/// Calls for the busy name until `over` is set, and returns how many calls got a number.
async fn hammer(client: Client, over: Arc<AtomicBool>) -> u64 {
    let mut n_given = 0;
    while !over.load(Ordering::Relaxed) {
        match client.ask("/v1/sequences/hammered/next").await {
            Answer::Given(_) => n_given += 1,
            Answer::Refused(reply) => assert_eq!(reply.status, 503, "{reply:?}"),
            Answer::NoReply(error) => panic!("no reply: {error:?}"),
        }
    }
    n_given
}
