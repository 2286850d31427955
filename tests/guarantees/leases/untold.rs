//! Leases whose outcome the database did not report. Nobody has these leases, so the program takes
//! them back.

use std::time::Duration;

use super::{LIMIT, asked};
use crate::support::{
    Backend, Client, Lease, Link, Program, Proxy, Server, TestDatabase, dice, for_each_server,
    settled, wait,
};

const BITS: u32 = 6;
/// A time far longer than the test takes, so that no lease ends by itself.
const TTL_MS: i64 = 3_600_000;
const N_ASKERS: usize = 24;
const MAX_ROUNDS: usize = 30;

for_each_server!(what_was_leased_without_a_word_is_taken_back);

async fn what_was_leased_without_a_word_is_taken_back(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let server = Server::shared(backend).await;
    let proxy = Proxy::to(server.port()).await;
    let program = Program::options()
        .database(&database.url_through(&proxy, server))
        .env("ODOMETER_STORE__TIMEOUT", "500ms")
        .env("ODOMETER_REFILL__DEADLINE", "2s")
        .start_ready()
        .await;
    let client = program.client();
    // A holder that was here before is served without a read.
    for n in 0..N_ASKERS {
        let leased =
            settled(|| async { Ok(asked(&client, "untold", BITS, TTL_MS, &name(n)).await) }).await;
        take_back(&client, &Lease::of(&leased)).await;
    }
    let mut n_untold = 0;
    for _ in 0..MAX_ROUNDS {
        n_untold += round(&client, &proxy).await;
        if n_untold >= 2 {
            break;
        }
    }
    assert!(n_untold >= 2, "vacuous: every outcome was told");
    let held = "SELECT COUNT(*) FROM worker_lease WHERE NOT ended";
    wait::until("nobody holds what nobody has", LIMIT, async || {
        (database.number(held).await == Some(0)).then_some(())
    })
    .await;
    // All the time of these leases is free again, too.
    let now_ms = super::now_ms();
    let later = format!("SELECT COUNT(*) FROM worker_lease WHERE reserved_until > {now_ms}");
    assert_eq!(database.number(&later).await, Some(0));
}

/// Lets many callers ask while replies are lost, and ends the leases that they got. Returns how
/// many callers learned that their lease may have happened.
async fn round(client: &Client, proxy: &Proxy) -> usize {
    let start = |n: usize| tokio::spawn(ask(client.clone(), name(n)));
    let mut askers: Vec<_> = (0..N_ASKERS / 2).map(start).collect();
    tokio::time::sleep(Duration::from_millis(dice::roll(1..25))).await;
    proxy.set(Link::RepliesLost);
    // These callers certainly meet the loss, and the callers before them may meet it.
    askers.extend((N_ASKERS / 2..N_ASKERS).map(start));
    tokio::time::sleep(Duration::from_millis(700)).await;
    proxy.set(Link::Cut);
    proxy.set(Link::Whole);
    let (mut n_untold, mut leases) = (0, Vec::new());
    for asker in askers {
        let (lease, is_untold) = asker.await.expect("an asker does not panic");
        n_untold += usize::from(is_untold);
        leases.extend(lease);
    }
    for lease in leases {
        take_back(client, &lease).await;
    }
    n_untold
}

async fn take_back(client: &Client, lease: &Lease) {
    wait::until("it is given back", LIMIT, async || {
        let given = client.give_back(lease, Some(lease.from_ms)).await;
        (given.expect("a reply").status == 204).then_some(())
    })
    .await;
}

fn name(n: usize) -> String {
    format!("asker-{n}")
}

async fn ask(client: Client, name: String) -> (Option<Lease>, bool) {
    let reply = asked(&client, "untold", BITS, TTL_MS, &name).await;
    if reply.status == 201 {
        return (Some(Lease::of(&reply)), false);
    }
    assert_eq!(reply.status, 503, "{reply:?}");
    (None, reply.body.contains("may have been"))
}
