//! Holders race for few ids on replicas whose clocks differ, while a replica is killed and replies
//! are lost.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use super::{LIMIT, Stretch, now_ms, overlaps};
use crate::support::{
    Backend, Client, Lease, Link, Options, Program, Proxy, Server, TestDatabase, dice,
    for_each_backend, for_each_server, settings, wait,
};
use serde_json::json;

const BITS: u32 = 2;
const TTL_MS: i64 = 1000;
const N_HOLDERS: usize = 6;
/// How far ahead the clock of one replica is. This is less than what the program refuses.
const AHEAD_MS: i64 = 20_000;
/// One of this many leases is left without an end, as if its holder was killed.
const LEFT: u32 = 4;

for_each_backend!(no_two_holders_have_an_id_and_no_time_is_given_twice);

async fn no_two_holders_have_an_id_and_no_time_is_given_twice(backend: Backend) {
    let outcome = race(backend, "").await;
    assert_eq!(overlaps(outcome.stamped.clone()), []);
    assert_eq!(overlaps(outcome.held.clone()), []);
    outcome.is_not_vacuous();
    println!("{backend:?}: {} leases", outcome.held.len());
}

for_each_server!(without_its_conditions_two_holders_have_one_id);

async fn without_its_conditions_two_holders_have_one_id(backend: Backend) {
    let outcome = race(backend, "no-lease-conditions,no-went-back-checks").await;
    let n_leases = outcome.held.len();
    let twice = overlaps(outcome.held);
    assert!(!twice.is_empty(), "the check finds nothing in {n_leases}");
}

for_each_server!(without_what_was_reserved_a_time_is_given_twice);

async fn without_what_was_reserved_a_time_is_given_twice(backend: Backend) {
    let outcome = race(backend, "no-reserved-until").await;
    let n_leases = outcome.stamped.len();
    let twice = overlaps(outcome.stamped);
    assert!(!twice.is_empty(), "the check finds nothing in {n_leases}");
}

#[derive(Debug, Default)]
struct Outcome {
    /// Times for which ids may have been made, by the clocks of the leases.
    stamped: Vec<Stretch>,
    /// Times for which ids were certainly held, by the real clock.
    held: Vec<Stretch>,
    n_left: usize,
    n_renewed: usize,
    n_refused: usize,
}

impl Outcome {
    fn is_not_vacuous(&self) {
        let n_given_back = self.held.len() - self.n_left;
        let is_busy = self.n_left >= 8 && n_given_back >= 20 && self.n_renewed >= 5;
        assert!(is_busy && self.n_refused >= 5, "vacuous: {self:?}");
        let n_times = self.stamped.iter().filter(|it| it.from < it.to).count();
        assert!(n_times >= 10, "vacuous: {self:?}");
    }
}

async fn race(backend: Backend, guards: &str) -> Outcome {
    let database = TestDatabase::prepared(backend).await;
    let n_replicas = backend.replicas(2);
    let mut proxy = None;
    let mut url = database.url.clone();
    if backend != Backend::Sqlite {
        let server = Server::shared(backend).await;
        let between = Proxy::to(server.port()).await;
        url = database.url_through(&between, server);
        proxy = Some(between);
    }
    let options = Program::options()
        .database(&url)
        .env("ODOMETER_STORE__TIMEOUT", "500ms")
        .env("ODOMETER_REFILL__DEADLINE", "2s")
        .without_guards(guards);
    let clocks = [options.clone(), options.clock_ahead(AHEAD_MS)];
    let mut programs = Vec::new();
    for options in clocks.iter().rev().take(n_replicas) {
        programs.push(options.start_ready().await);
    }
    let is_over = Arc::new(AtomicBool::new(false));
    let holders: Vec<_> = (0..N_HOLDERS)
        .map(|n| {
            let program = &programs[n % n_replicas];
            let (client, is_over) = (program.client(), Arc::clone(&is_over));
            tokio::spawn(hold(client, format!("holder-{n}"), is_over))
        })
        .collect();
    disturb(&mut programs, proxy.as_ref(), &clocks).await;
    is_over.store(true, Ordering::Relaxed);
    let mut outcome = Outcome::default();
    for holder in holders {
        let part = holder.await.expect("a holder does not panic");
        outcome.stamped.extend(part.stamped);
        outcome.held.extend(part.held);
        outcome.n_left += part.n_left;
        outcome.n_renewed += part.n_renewed;
        outcome.n_refused += part.n_refused;
    }
    outcome
}

/// Loses replies, kills a replica if there is another one, and lets all go on.
async fn disturb(programs: &mut [Program], proxy: Option<&Proxy>, clocks: &[Options]) {
    let calm = settings::at_size(Duration::from_secs(3), Duration::from_secs(60));
    tokio::time::sleep(calm).await;
    if let Some(proxy) = proxy {
        for _ in 0..settings::at_size(3, 30) {
            proxy.set(Link::RepliesLost);
            tokio::time::sleep(Duration::from_millis(150)).await;
            proxy.set(Link::Cut);
            proxy.set(Link::Whole);
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }
    if let [first, _, ..] = programs {
        first.kill();
        let listen = first.address().to_owned();
        let again = clocks.last().expect("one").clone();
        *first = again.env("ODOMETER_LISTEN", listen).start_ready().await;
    }
    tokio::time::sleep(calm).await;
    let client = programs[0].client();
    wait::until("worker ids are leased again", LIMIT, async || {
        let asked = super::asked(&client, "after", 10, TTL_MS, "last").await;
        (asked.status == 201).then_some(())
    })
    .await;
}

/// Leases as one program, uses the id for a moment, and then ends the lease or leaves it.
async fn hold(client: Client, name: String, is_over: Arc<AtomicBool>) -> Outcome {
    let mut outcome = Outcome::default();
    let started = Instant::now();
    let body = json!({"pool": "raced", "bits": BITS, "ttl_ms": TTL_MS, "holder": name});
    while !is_over.load(Ordering::Relaxed) {
        let sent = now_ms();
        let Ok(reply) = client.ask_for_worker(&body).await else {
            // The replica is being killed.
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        if reply.status != 201 {
            assert_eq!(reply.status, 503, "{reply:?} after {:?}", started.elapsed());
            outcome.n_refused += 1;
            tokio::time::sleep(Duration::from_millis(dice::roll(5..30))).await;
            continue;
        }
        // The lease lasts at least until `TTL_MS` after the moment before the call.
        use_it(&client, Lease::of(&reply), sent, &mut outcome).await;
    }
    outcome
}

async fn use_it(client: &Client, lease: Lease, sent: i64, outcome: &mut Outcome) {
    let since = now_ms();
    let (mut until_ms, mut ends) = (lease.until_ms, sent + TTL_MS);
    tokio::time::sleep(Duration::from_millis(dice::roll(5..40))).await;
    if dice::roll(0..3) == 0 {
        let sent = now_ms();
        match client.renew(&lease, None).await {
            Ok(reply) if reply.status == 200 => {
                let renewed = Lease::of(&reply);
                assert_eq!(renewed.from_ms, lease.from_ms);
                assert!(renewed.until_ms >= until_ms, "{lease:?} {renewed:?}");
                (until_ms, ends) = (renewed.until_ms, sent + TTL_MS);
                outcome.n_renewed += 1;
            }
            // The renewal was refused or lost, so the holder has only what it had before.
            Ok(_) | Err(_) => {}
        }
    }
    let stamped = |to: i64| Stretch {
        worker: lease.worker,
        from: lease.from_ms,
        to,
    };
    let held = |to: i64| Stretch {
        worker: lease.worker,
        from: since,
        to,
    };
    if dice::roll(0..LEFT) == 0 {
        outcome.n_left += 1;
        outcome.stamped.push(stamped(until_ms));
        outcome.held.push(held(ends));
        return;
    }
    // An end a moment ago lets others lease the id without a wait, and without a read if the row is
    // known.
    let ends_in_ms = if dice::roll(0..2) == 0 { 1 } else { -100 };
    let unused = (now_ms() + ends_in_ms).max(lease.from_ms).min(until_ms);
    outcome.stamped.push(stamped(unused));
    outcome.held.push(held(now_ms().min(ends)));
    // If no reply comes, the end may have happened or not. If not, the lease ends by itself.
    let _told = client.give_back(&lease, Some(unused)).await;
}
