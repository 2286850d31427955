//! Redis, with the database to fall back on. Redis is cut off from one of two replicas, or the
//! replicas are led to different masters.

use std::time::{Duration, Instant};

use super::{LIMIT, N_CALLERS, Stage, back_after, is_open, n_steps, sum};
use crate::{
    guarantees::order::{self, Call, Outcome, Refusal, SEQUENCE},
    support::{Backend, Link, Options, Program, Proxy, Redis, for_each_server, settings, wait},
};

/// The status that a call may get while Redis and the database take over from each other.
const IN_BETWEEN: u16 = 503;

for_each_server!(a_redis_that_one_of_two_replicas_cannot_reach_keeps_the_order);

async fn a_redis_that_one_of_two_replicas_cannot_reach_keeps_the_order(backend: Backend) {
    let n_rounds = settings::at_size(2, 20);
    let length = settings::at_size(Duration::from_secs(3), Duration::from_secs(10));
    let run = cut_off(backend, Guards::All, n_rounds, length).await;
    assert!(
        run.n_fallbacks >= f64::from(n_rounds),
        "vacuous: {} fallbacks in {n_rounds} rounds",
        run.n_fallbacks
    );
    assert!(run.n_steps >= 20.0, "vacuous: {} steps", run.n_steps);
    let back_limit = settings::at_size(Duration::from_secs(10), Duration::from_secs(5));
    for &moment in &run.moments {
        let back = back_after(&run.calls, moment);
        println!("{backend:?}: served again {back:?} after the cut");
        assert!(back < back_limit, "fell back only after {back:?}");
    }
    let outcome = run.outcome();
    outcome.assert_sound();
    println!("{backend:?}: {outcome}");
}

for_each_server!(without_leases_a_redis_cut_off_from_one_replica_loses_the_order);

async fn without_leases_a_redis_cut_off_from_one_replica_loses_the_order(backend: Backend) {
    let run = cut_off(backend, Guards::NoLease, 2, Duration::from_secs(2)).await;
    let outcome = run.outcome();
    assert_eq!(outcome.ledger.n_duplicates(), 0, "{outcome}");
    assert!(
        outcome.n_violations > 0,
        "the check finds nothing: {outcome}"
    );
}

for_each_server!(an_old_master_that_serves_one_of_two_replicas_keeps_the_order);

async fn an_old_master_that_serves_one_of_two_replicas_keeps_the_order(backend: Backend) {
    let n_rounds = settings::at_size(2, 20);
    let length = settings::at_size(Duration::from_secs(3), Duration::from_secs(10));
    let run = led_apart(backend, Guards::All, n_rounds, length).await;
    assert!(run.n_steps >= 20.0, "vacuous: {} steps", run.n_steps);
    assert!(run.n_fallbacks >= 1.0, "vacuous: nobody fell back");
    let outcome = run.outcome();
    outcome.assert_sound();
    println!("{backend:?}: {outcome}");
}

for_each_server!(without_leases_an_old_master_that_serves_one_replica_loses_the_order);

async fn without_leases_an_old_master_that_serves_one_replica_loses_the_order(backend: Backend) {
    let run = led_apart(backend, Guards::NoLease, 1, Duration::from_secs(2)).await;
    let outcome = run.outcome();
    assert_eq!(outcome.ledger.n_duplicates(), 0, "{outcome}");
    assert!(
        outcome.n_violations > 0,
        "the check finds nothing: {outcome}"
    );
}

/// The guards that are in place.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Guards {
    All,
    NoLease,
}

impl Guards {
    fn options(self) -> Options {
        match self {
            Self::All => Program::options(),
            Self::NoLease => Program::options().without_guards("no-lease"),
        }
    }
}

struct Run {
    calls: Vec<Call>,
    refusals: Vec<Refusal>,
    /// The moments from which on the two replicas saw different things.
    moments: Vec<Instant>,
    n_fallbacks: f64,
    n_steps: f64,
}

impl Run {
    fn outcome(mut self) -> Outcome {
        self.refusals
            .retain(|refusal| refusal.status != Some(IN_BETWEEN));
        Outcome::of(self.calls, self.refusals)
    }

    async fn of(
        programs: &[Program],
        load: &order::Stage,
        callers: order::Callers,
        moments: Vec<Instant>,
    ) -> Self {
        let (calls, refusals) = callers.stop(load).await;
        Self {
            calls,
            refusals,
            moments,
            n_fallbacks: sum(programs, "odometer_redis_fallbacks_total").await,
            n_steps: n_steps(programs).await,
        }
    }
}

/// Cuts Redis off from the first replica for `length`, again and again.
async fn cut_off(backend: Backend, guards: Guards, n_rounds: u32, length: Duration) -> Run {
    let stage = Stage::new(backend, "database").await;
    let programs = stage.start(guards.options()).await;
    let load = order::Stage::of(&programs);
    let callers = load.start_callers(N_CALLERS);
    let mut moments = Vec::new();
    for n_round in 0..n_rounds {
        let before = n_steps(&programs).await;
        wait::until("Redis gives the numbers", LIMIT, async || {
            let is_open = is_open(&stage.database, SEQUENCE).await;
            (is_open && n_steps(&programs).await > before).then_some(())
        })
        .await;
        load.goes_on().await;
        // The link is closed in one round, and silent in the next.
        let link = if n_round % 2 == 0 {
            Link::Cut
        } else {
            Link::BlackHole
        };
        stage.proxy.set_for(programs[0].id(), link);
        let cut = Instant::now();
        moments.push(cut);
        if guards == Guards::All {
            wait::until("the window is closed", LIMIT, async || {
                (!is_open(&stage.database, SEQUENCE).await).then_some(())
            })
            .await;
        }
        load.goes_on().await;
        tokio::time::sleep_until((cut + length).into()).await;
        stage.proxy.make_no_difference();
        // A swallowed connection stays silent until it ends.
        load.goes_on().await;
    }
    Run::of(&programs, &load, callers, moments).await
}

/// Promotes a follower that lags, which then serves the first replica. The old master still serves
/// the second replica. Later the new master serves both.
async fn led_apart(backend: Backend, guards: Guards, n_rounds: u32, length: Duration) -> Run {
    let mut stage = Stage::new(backend, "database").await;
    let mut other = Redis::start().await;
    let programs = stage.start(guards.options()).await;
    let load = order::Stage::of(&programs);
    let callers = load.start_callers(N_CALLERS);
    let mut moments = Vec::new();
    for _ in 0..n_rounds {
        let before = n_steps(&programs).await;
        wait::until("Redis gives the numbers", LIMIT, async || {
            (n_steps(&programs).await > before + 10.0).then_some(())
        })
        .await;
        let window = stage.window().await;
        let link = Proxy::to(stage.redis.port()).await;
        other.follow(&link, &stage.redis).await;
        load.goes_on().await;
        link.set(Link::RepliesLost);
        load.goes_on().await;
        other.promote();
        let copied = counted(&other);
        stage.proxy.lead_to_for(programs[0].id(), other.port());
        let apart = Instant::now();
        moments.push(apart);
        let n_before = n_steps_of_each(&programs).await;
        wait::until("the new master is noticed", LIMIT, async || {
            let is_open = is_open(&stage.database, SEQUENCE).await;
            (!is_open || stage.window().await > window).then_some(())
        })
        .await;
        tokio::time::sleep_until((apart + length).into()).await;
        both_step(&programs, &load, &n_before).await;
        assert_ne!(counted(&other), copied, "vacuous: one master counted alone");
        // If a replica was called alone, its open window now meets calls at both replicas.
        load.goes_on().await;
        stage.proxy.lead_to(other.port());
        stage.proxy.make_no_difference();
        std::mem::swap(&mut stage.redis, &mut other);
        load.goes_on().await;
    }
    Run::of(&programs, &load, callers, moments).await
}

/// Waits until each replica has made steps since `n_before`. A replica that has none is called
/// alone.
///
/// A replica closes a window that its own Redis does not have. So two replicas on two masters close
/// each other's windows, and the pauses of both double. The replica with the shorter pause opens
/// every window, until both pauses have their longest length. A replica that is called alone opens
/// the next window after its own pause.
async fn both_step(programs: &[Program], load: &order::Stage, n_before: &[f64]) {
    for (replica, before) in n_before.iter().enumerate() {
        wait::until("each master has counted", LIMIT, async || {
            let now = n_steps(&programs[replica..=replica]).await;
            let has_stepped = now > before + 10.0;
            load.call_only((!has_stepped).then_some(replica));
            has_stepped.then_some(())
        })
        .await;
    }
}

/// Returns how many steps Redis made for each program.
async fn n_steps_of_each(programs: &[Program]) -> Vec<f64> {
    let mut n_each = Vec::new();
    for program in programs.chunks(1) {
        n_each.push(n_steps(program).await);
    }
    n_each
}

/// Returns the window of the counter in one Redis, and how far the window is used.
fn counted(redis: &Redis) -> String {
    let keys = redis.keys("odometer:*:strict:*");
    let window = keys
        .first()
        .map(|key| redis.ask(&["HMGET", key, "w", "used"]));
    window.unwrap_or_default()
}
