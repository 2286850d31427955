//! Redis or the database is away, while the other one is there.

use std::time::{Duration, Instant};

use super::{LIMIT, N_CALLERS, N_REPLICAS, SEQUENCE, Stage, refusal};
use crate::{
    guarantees::order::{self, Outcome},
    support::{Backend, Client, Link, Program, Scrape, Server, for_each_server, settings, wait},
};

/// The time between two calls of each caller. It bounds the rate, so that the numbers of Redis are
/// known to last.
const PACE: Duration = Duration::from_millis(5);
/// A call that takes this long waited for a dead server, which takes half a second at least.
const SLOW: Duration = Duration::from_millis(450);
/// How many calls of one sequential caller may find out that a server is dead.
const MAX_SLOW: usize = 5;
const N_CALLS: usize = 300;

for_each_server!(a_strict_sequence_outlives_its_database_in_redis);

async fn a_strict_sequence_outlives_its_database_in_redis(backend: Backend) {
    let outage = settings::at_size(Duration::from_secs(6), Duration::from_secs(60));
    let mut server = Server::start(backend).await;
    let stage = Stage::on_server(&server, "none").await;
    let programs = stage.start(Program::options()).await;
    let load = order::Stage::at_pace(&programs, PACE);
    let callers = load.start_callers(N_CALLERS / 2);
    for program in &programs {
        wait_until_it_lasts(&program.client(), outage * 2).await;
    }
    server.kill();
    let killed = Instant::now();
    tokio::time::sleep_until((killed + outage).into()).await;
    // The callers stop before the database is back.
    let (calls, refusals) = callers.stop(&load).await;
    for replica in 0..N_REPLICAS {
        let own = calls.iter().filter(|call| call.replica == replica);
        let n_meanwhile = own.filter(|call| call.sent > killed).count();
        assert!(n_meanwhile >= 100, "vacuous: {n_meanwhile} calls meanwhile");
    }
    let outcome = Outcome::of(calls, refusals);
    outcome.assert_sound();
    server.start_again().await;
    let (first, second) = (programs[0].client(), programs[1].client());
    wait::until("the ceiling rises again", LIMIT, async || {
        let path = format!("/v1/sequences/{SEQUENCE}/blocks?size=100000");
        let reply = first.post(&path).await.expect("a reply");
        (reply.status == 200).then_some(())
    })
    .await;
    assert!(second.next(SEQUENCE).await > 100_000);
    println!("{backend:?}: {outcome}");
}

/// Waits until the numbers that Redis may issue last for `time`, as the program itself reports.
async fn wait_until_it_lasts(client: &Client, time: Duration) {
    wait::until("the ceiling is high enough", LIMIT, async || {
        let metric = "odometer_redis_ceiling_seconds";
        let seconds = Scrape::of(client).await.sum(metric, &[]);
        // The metric is infinite as long as nothing is used.
        (seconds.is_finite() && seconds >= time.as_secs_f64()).then_some(())
    })
    .await;
}

for_each_server!(a_dead_redis_costs_no_timeout_a_call);

async fn a_dead_redis_costs_no_timeout_a_call(backend: Backend) {
    let mut stage = Stage::new(backend, "none").await;
    let programs = stage.start(Program::options()).await;
    let client = programs[0].client();
    for is_silent in [false, true] {
        client.next(SEQUENCE).await;
        if is_silent {
            stage.proxy.set(Link::BlackHole);
        } else {
            stage.redis.kill();
        }
        let mut n_slow = 0;
        for _ in 0..N_CALLS {
            let sent = Instant::now();
            let code = refusal(&client, SEQUENCE).await;
            let is_told = matches!(
                code.as_deref(),
                Some("store_unavailable" | "refill_timeout")
            );
            assert!(is_told, "{code:?}");
            n_slow += usize::from(sent.elapsed() > SLOW);
        }
        assert!(n_slow <= MAX_SLOW, "{n_slow} of {N_CALLS} calls waited");
        if is_silent {
            // A connection in a black hole stays silent until it is cut.
            stage.proxy.set(Link::Cut);
            stage.proxy.set(Link::Whole);
        } else {
            stage.redis.start_again().await;
        }
        for program in &programs {
            let client = program.client();
            wait::until("it serves again", LIMIT, async || {
                refusal(&client, SEQUENCE).await.is_none().then_some(())
            })
            .await;
        }
    }
}

for_each_server!(the_database_serves_while_redis_is_dead);

async fn the_database_serves_while_redis_is_dead(backend: Backend) {
    let mut stage = Stage::new(backend, "database").await;
    let programs = stage.start(Program::options()).await;
    let load = order::Stage::of(&programs);
    let callers = load.start_callers(N_CALLERS);
    load.goes_on().await;
    stage.redis.kill();
    let killed = Instant::now();
    load.goes_on().await;
    stage.redis.start_again().await;
    wait::until("Redis gives numbers again", LIMIT, async || {
        super::is_open(&stage.database, SEQUENCE)
            .await
            .then_some(())
    })
    .await;
    load.goes_on().await;
    let (calls, mut refusals) = callers.stop(&load).await;
    let limit = settings::at_size(Duration::from_secs(10), Duration::from_secs(5));
    let back = super::back_after(&calls, killed);
    assert!(back < limit, "the database served only after {back:?}");
    refusals.retain(|refusal| refusal.status != Some(503));
    let outcome = Outcome::of(calls, refusals);
    outcome.assert_sound();
    println!("{backend:?}: {outcome}, served again after {back:?}");
}
