//! Ordinary calls at the same time. One call writes while another one looks, and the program must
//! not take this for a database that went back.

use std::time::{Duration, Instant};

use super::{asked, now_ms};
use crate::support::{
    Backend, Client, Lease, Program, Reply, Scrape, TestDatabase, dice, for_each_backend, settings,
};

const BITS: u32 = 3;
const TTL_MS: i64 = 5000;
const N_HOLDERS: usize = 12;
const PATIENCE: Duration = Duration::from_secs(60);

for_each_backend!(calls_at_once_are_no_store_that_went_back);

async fn calls_at_once_are_no_store_that_went_back(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let program = Program::options()
        .database(&database.url)
        .env("ODOMETER_DEFINITION_REFRESH", "1s")
        .start_ready()
        .await;
    let started = Instant::now();
    let at_least = settings::at_size(Duration::from_secs(4), Duration::from_secs(60));
    let (mut n_renewed, mut n_ended) = (0, 0);
    // A slow machine gets more time.
    while started.elapsed() < at_least || n_renewed < 50 || n_ended < 10 {
        assert!(
            started.elapsed() < at_least + PATIENCE,
            "vacuous: {n_renewed} {n_ended}"
        );
        let until = Instant::now() + at_least;
        let holders: Vec<_> = (0..N_HOLDERS)
            .map(|n| tokio::spawn(hold(program.client(), format!("holder-{n}"), until)))
            .collect();
        for holder in holders {
            let (renewed, ended) = holder.await.expect("a holder does not panic");
            n_renewed += renewed;
            n_ended += ended;
        }
    }
    let scrape = Scrape::of(&program.client()).await;
    assert_eq!(scrape.sum("odometer_store_went_back", &[]), 0.0);
    println!("{backend:?}: {n_renewed} renewals, {n_ended} ends");
}

/// Leases, renews three times at once, and ends the lease while it renews once more.
async fn hold(client: Client, name: String, until: Instant) -> (usize, usize) {
    let (mut n_renewed, mut n_ended) = (0, 0);
    while Instant::now() < until {
        let reply = asked(&client, "busy", BITS, TTL_MS, &name).await;
        is_ordinary(&reply);
        if reply.status != 201 {
            tokio::time::sleep(Duration::from_millis(dice::roll(1..20))).await;
            continue;
        }
        let lease = Lease::of(&reply);
        let renew = || client.renew(&lease, None);
        let (one, two, three) = tokio::join!(renew(), renew(), renew());
        for renewed in [one, two, three] {
            let renewed = renewed.expect("a reply");
            is_ordinary(&renewed);
            n_renewed += usize::from(renewed.status == 200);
        }
        let unused = now_ms().clamp(lease.from_ms, lease.until_ms);
        let (ended, late) = tokio::join!(client.give_back(&lease, Some(unused)), renew());
        let (ended, late) = (ended.expect("a reply"), late.expect("a reply"));
        is_ordinary(&ended);
        is_ordinary(&late);
        n_ended += usize::from(ended.status == 204);
        if late.status == 200 {
            // The renewal may have come first. So the lease is ended again, without any unused
            // time.
            let again = client.give_back(&lease, None).await.expect("a reply");
            is_ordinary(&again);
        }
    }
    (n_renewed, n_ended)
}

fn is_ordinary(reply: &Reply) {
    let code = reply.code();
    let may_be = [
        None,
        Some("no_worker_id"),
        Some("clock_behind"),
        Some("refill_timeout"),
        // An answer that does not come in time has this code.
        Some("store_unavailable"),
        Some("lease_lost"),
    ];
    assert!(may_be.contains(&code.as_deref()), "{reply:?}");
}
