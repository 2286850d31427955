//! Replicas are killed or drained while four threads take numbers, and start again.

use super::{Replicas, load::Load, options};
use crate::{
    clients::language::{Language, for_each_language_and_server},
    support::{Backend, TestDatabase, settings},
};

const N_REPLICAS: usize = 2;

for_each_language_and_server!(
    killed_replicas_repeat_no_number_and_fail_no_caller,
    drained_replicas_fail_no_caller_and_no_refill_waits_for_them,
);

/// Rules C5, C6 and C7.
async fn killed_replicas_repeat_no_number_and_fail_no_caller(language: Language, backend: Backend) {
    let n_kills = settings::at_size(6, 60);
    let database = TestDatabase::prepared(backend).await;
    let mut replicas = Replicas::start(&database, N_REPLICAS).await;
    let load = Load::start(language, &options(&replicas.endpoints())).await;
    for kill in 0..n_kills {
        load.goes_on().await;
        replicas.kill(kill % N_REPLICAS);
        load.goes_on().await;
        replicas.start_again(kill % N_REPLICAS).await;
    }
    load.goes_on().await;
    let outcome = load.end().await;
    outcome.check();
    // The library may have begun at the replica that is not killed first.
    let n_met = outcome.hooks.n_unanswered();
    assert!(
        n_met >= n_kills / 2,
        "vacuous: {n_met} refills met {n_kills} kills"
    );
}

/// Rule C6: a replica that is drained closes each connection with its reply.
async fn drained_replicas_fail_no_caller_and_no_refill_waits_for_them(
    language: Language,
    backend: Backend,
) {
    let n_drains = settings::at_size(4, 40);
    let database = TestDatabase::prepared(backend).await;
    let mut replicas = Replicas::start(&database, N_REPLICAS).await;
    let load = Load::start(language, &options(&replicas.endpoints())).await;
    for drain in 0..n_drains {
        load.goes_on().await;
        replicas.drain(drain % N_REPLICAS).await;
        load.goes_on().await;
        replicas.start_again(drain % N_REPLICAS).await;
    }
    load.goes_on().await;
    let outcome = load.end().await;
    outcome.check();
    let n_moves = outcome.n_moves();
    assert!(
        n_moves >= n_drains - 1,
        "vacuous: left {n_moves} of {n_drains} drained replicas"
    );
    assert_eq!(outcome.hooks.n_with(&["timeout"]), 0, "refills that waited");
}
