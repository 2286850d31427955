//! The next block is there before the present one is used up. The database goes away just at the
//! end of a block.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use serde_json::json;

use crate::support::{
    Answer, Backend, Client, Link, Options, Program, Proxy, Range, Reply, Server, TestDatabase,
    for_each_server, wait,
};

/// The time between two calls of the sequence. It bounds the rate, so that the reserve is known to
/// last.
const BETWEEN_CALLS: Duration = Duration::from_millis(10);
/// The size of a block. It lasts ten seconds at that rate, and longer on a busy machine.
const BLOCK: i64 = 1_000;
/// How many numbers are left of a block, at most, when the database goes away.
const NEARLY_NOTHING: i64 = BLOCK / 5;
/// How many numbers are issued in the outage: more than the rest of a block, but fewer than this
/// rest and the next block.
const OUTAGE: u64 = 500;

for_each_server!(a_block_is_there_before_it_is_needed);

async fn a_block_is_there_before_it_is_needed(backend: Backend) {
    let outcome = outage_at_the_end_of_a_block(backend, &Program::options()).await;
    assert_eq!(outcome.refusal.map(|reply| reply.body), None);
    assert!(outcome.n_given >= OUTAGE, "vacuous: {}", outcome.n_given);
}

for_each_server!(blocks_fetched_only_when_needed_are_found_out);

async fn blocks_fetched_only_when_needed_are_found_out(backend: Backend) {
    let options = Program::options().without_guards("no-prefetch");
    let outcome = outage_at_the_end_of_a_block(backend, &options).await;
    let refusal = outcome.refusal.expect("the check finds it");
    assert_eq!(refusal.status, 503, "{refusal:?}");
}

struct Outcome {
    /// How many numbers were issued while the database was away.
    n_given: u64,
    refusal: Option<Reply>,
}

async fn outage_at_the_end_of_a_block(backend: Backend, options: &Options) -> Outcome {
    let server = Server::shared(backend).await;
    let proxy = Proxy::to(server.port()).await;
    let database = TestDatabase::prepared(backend).await;
    let program = options
        .clone()
        .database(&database.url_through(&proxy, server))
        .start_ready()
        .await;
    let client = program.client();
    let definition = json!({"block": {"min": BLOCK, "max": BLOCK}});
    client.define("steady", &definition).await;
    let load = Arc::new(Load::default());
    let caller = tokio::spawn(use_steadily(program.client(), Arc::clone(&load)));

    wait::until(
        "little is left of a block, but the first",
        Duration::from_secs(120),
        async || {
            let state = client.describe("steady").await["state"].take();
            let block = Some(&state["block"]).filter(|block| block.is_object())?;
            let is_first = Range::identifier(&block["first"]) <= BLOCK;
            let is_little = block["remaining"].as_i64()? <= NEARLY_NOTHING;
            (!is_first && is_little).then_some(())
        },
    )
    .await;
    proxy.set(Link::Cut);
    let n_before = load.n_given.load(Ordering::Relaxed);
    wait::until(
        "the outage has been long enough",
        Duration::from_secs(120),
        async || {
            let n_given = load.n_given.load(Ordering::Relaxed) - n_before;
            (n_given >= OUTAGE || caller.is_finished()).then_some(())
        },
    )
    .await;
    let n_given = load.n_given.load(Ordering::Relaxed) - n_before;
    proxy.set(Link::Whole);
    load.over.store(true, Ordering::Relaxed);
    Outcome {
        n_given,
        refusal: caller.await.expect("every call gets a reply"),
    }
}

#[derive(Default)]
struct Load {
    n_given: AtomicU64,
    over: AtomicBool,
}

/// Calls at a steady rate until the load is over, or until the first refusal. Returns this refusal.
async fn use_steadily(client: Client, load: Arc<Load>) -> Option<Reply> {
    let mut ticks = tokio::time::interval(BETWEEN_CALLS);
    while !load.over.load(Ordering::Relaxed) {
        ticks.tick().await;
        match client.ask("/v1/sequences/steady/next").await {
            Answer::Given(_) => load.n_given.fetch_add(1, Ordering::Relaxed),
            Answer::Refused(reply) => return Some(reply),
            Answer::NoReply(error) => panic!("no reply: {error:?}"),
        };
    }
    None
}
