//! Redis is killed, restored from an older dump, emptied, robbed of its keys, and replaced by a
//! follower that lags. All this happens under strict load from two replicas.

use std::time::{Duration, Instant};

use super::{LIMIT, N_CALLERS, Stage, back_after, n_steps};
use crate::{
    guarantees::order::{self, Call, Outcome, Refusal},
    support::{Backend, Link, Options, Program, Proxy, Redis, for_each_server, settings, wait},
};

for_each_server!(a_redis_that_is_replaced_repeats_no_number_and_keeps_the_order);

async fn a_redis_that_is_replaced_repeats_no_number_and_keeps_the_order(backend: Backend) {
    let n_rounds = settings::at_size(20, 200);
    let back_limit = settings::at_size(Duration::from_secs(5), Duration::from_secs(1));
    let faults: Vec<Fault> = Fault::ALL.into_iter().cycle().take(n_rounds).collect();
    let run = replaced(backend, Program::options(), &faults).await;
    let mut late = Vec::new();
    assert_eq!(run.needless(back_limit), Vec::<&String>::new());
    for met in &run.met {
        let back = back_after(&run.calls, met.back);
        let fault = met.fault;
        println!(
            "{backend:?}: {fault:?}: {back:?}, {} windows",
            met.n_windows
        );
        assert!(met.n_windows > 0, "vacuous: {fault:?} went by unnoticed");
        if back > back_limit {
            late.push((fault, back));
        }
    }
    assert!(late.is_empty(), "not back within {back_limit:?}: {late:?}");
    let n_steps = run.n_steps;
    let outcome = run.outcome();
    outcome.assert_sound();
    // Callers who come at the same time share a step.
    assert!(
        n_steps >= 100.0,
        "vacuous: {n_steps} steps for {} calls",
        outcome.n_calls
    );
    println!("{backend:?}: {outcome}, {n_rounds} rounds, {n_steps} steps");
}

for_each_server!(without_its_identity_a_restored_redis_repeats_numbers);

async fn without_its_identity_a_restored_redis_repeats_numbers(backend: Backend) {
    let options = Program::options().without_guards("no-identity");
    let run = replaced(backend, options, &[Fault::Restored; 3]).await;
    let outcome = run.outcome();
    assert!(
        outcome.ledger.n_duplicates() > 0,
        "the check finds nothing: {outcome}"
    );
    assert!(
        outcome.n_violations > 0,
        "the check finds nothing: {outcome}"
    );
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    /// Redis is killed, and starts again without data.
    Killed,
    /// Redis is killed, and starts again with data from an earlier time.
    Restored,
    Flushed,
    /// One key is gone.
    Deleted,
    /// A follower that lags takes the place of the master, which is cut off.
    Promoted,
    /// The former master follows, lags, and takes its place again.
    PromotedBack,
}

impl Fault {
    const ALL: [Self; 6] = [
        Self::Restored,
        Self::Promoted,
        Self::PromotedBack,
        Self::Flushed,
        Self::Deleted,
        Self::Killed,
    ];
}

/// One fault, and its outcome.
struct Met {
    fault: Fault,
    began: Instant,
    /// When Redis, or the server in its place, could be reached again.
    back: Instant,
    /// How many windows were opened because of the fault.
    n_windows: i64,
}

struct Run {
    calls: Vec<Call>,
    refusals: Vec<Refusal>,
    met: Vec<Met>,
    n_steps: f64,
}

impl Run {
    /// Returns the refusals while no fault was under way, at most ten.
    fn needless(&self, back_limit: Duration) -> Vec<&String> {
        let is_over = |refusal: &&Refusal| {
            let mut met = self.met.iter();
            !met.any(|met| refusal.answered >= met.began && refusal.sent <= met.back + back_limit)
        };
        let needless = self.refusals.iter().filter(is_over);
        needless.map(|refusal| &refusal.said).take(10).collect()
    }

    fn outcome(mut self) -> Outcome {
        // A refusal with 503 is right while Redis is away.
        let is_told = |refusal: &Refusal| refusal.status == Some(503);
        self.refusals.retain(|refusal| !is_told(refusal));
        Outcome::of(self.calls, self.refusals)
    }
}

async fn replaced(backend: Backend, options: Options, faults: &[Fault]) -> Run {
    let checked = !faults.iter().all(|fault| *fault == Fault::Restored);
    let mut stage = Stage::new(backend, "none").await;
    let mut other = Redis::start().await;
    let programs = stage.start(options).await;
    let load = order::Stage::of(&programs);
    let callers = load.start_callers(N_CALLERS);
    let mut met = Vec::new();
    load.goes_on().await;
    for &fault in faults {
        let before = stage.window().await;
        let began = Instant::now();
        let back = trouble(&mut stage, &mut other, &load, fault).await;
        load.goes_on().await;
        if checked {
            wait::until("a window is opened for it", LIMIT, async || {
                (stage.window().await > before).then_some(())
            })
            .await;
        }
        met.push(Met {
            fault,
            began,
            back,
            n_windows: stage.window().await - before,
        });
    }
    let (calls, refusals) = callers.stop(&load).await;
    Run {
        calls,
        refusals,
        met,
        n_steps: n_steps(&programs).await,
    }
}

/// Causes a fault, and returns the moment when it was over. `other` is the server that does not
/// serve. The two servers may change places.
async fn trouble(
    stage: &mut Stage,
    other: &mut Redis,
    load: &order::Stage,
    fault: Fault,
) -> Instant {
    let serving = &mut stage.redis;
    match fault {
        Fault::Killed => {
            serving.kill();
            serving.start_again().await;
        }
        Fault::Restored => {
            let dump = serving.dump();
            load.goes_on().await;
            serving.kill();
            serving.put_back(&dump);
            serving.start_again().await;
            serving.forget();
        }
        Fault::Flushed => assert_eq!(serving.ask(&["FLUSHALL"]), "OK"),
        Fault::Deleted => {
            let keys = serving.keys("odometer:*:strict:*");
            assert_eq!(keys.len(), 1, "one counter, one key: {keys:?}");
            assert_eq!(serving.ask(&["DEL", &keys[0]]), "1");
        }
        Fault::Promoted | Fault::PromotedBack => {
            let link = Proxy::to(serving.port()).await;
            other.follow(&link, serving).await;
            load.goes_on().await;
            link.set(Link::RepliesLost);
            load.goes_on().await;
            stage.proxy.set(Link::Cut);
            other.promote();
            stage.proxy.lead_to(other.port());
            stage.proxy.set(Link::Whole);
            std::mem::swap(serving, other);
        }
    }
    Instant::now()
}
