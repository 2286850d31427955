//! A process is stopped for longer than its lease. Another process takes its worker id, and then
//! the first process goes on.

use std::time::Duration;

use super::stage::{Callers, Got, NAME, definition};
use crate::support::{Backend, Options, Program, TestDatabase, for_each_server, settings, wait};

const PATIENCE: Duration = Duration::from_secs(30);

for_each_server!(a_process_that_was_stopped_past_its_lease_repeats_no_id);

async fn a_process_that_was_stopped_past_its_lease_repeats_no_id(backend: Backend) {
    for high in ["time", "worker"] {
        let n_rounds = settings::at_size(2, 20);
        let got = stopped(backend, &Program::options(), high, n_rounds).await;
        assert_eq!(got.ledger.n_duplicates(), 0, "{high}: ids given twice");
        // An answer that the process waits for when it is stopped is late when the process goes on.
        // The database then counts as away until the next look.
        got.check_refusals(&["no_worker_id", "refill_timeout", "store_unavailable"]);
        assert!(
            got.n_refused("no_worker_id") > 0,
            "vacuous: {:?}",
            got.refused
        );
    }
}

for_each_server!(without_lease_check_and_reserved_time_a_stopped_process_repeats_ids);

async fn without_lease_check_and_reserved_time_a_stopped_process_repeats_ids(backend: Backend) {
    let options = Program::options().without_guards("no-lease-check,no-reserved-until");
    // Nothing ends the lease of the stopped process, so there is no second round.
    let got = stopped(backend, &options, "time", 1).await;
    assert!(got.ledger.n_duplicates() > 0, "the check finds nothing");
}

/// Returns the ids that two processes with one worker id issue, while each is stopped in turn.
async fn stopped(backend: Backend, options: &Options, high: &str, n_rounds: u64) -> Got {
    let database = TestDatabase::prepared(backend).await;
    let options = options
        .clone()
        .database(&database.url)
        .env("ODOMETER_WORKER", 1);
    let mut programs = [options.start_ready().await, options.start_ready().await];
    programs[0]
        .client()
        .define(NAME, &definition(high, "2s"))
        .await;
    let mut got = Got::default();
    assert!(got.call(&programs[0].client(), 1).await);
    for _ in 0..n_rounds {
        let (holder, other) = (programs[0].client(), programs[1].client());
        // Each call asks for so many ids that no id of the time is left out.
        let of_holder = Callers::start(&holder, &[10_000, 10_000, 1]);
        wait::until("the other one is refused", PATIENCE, async || {
            (!got.call(&other, 1).await).then_some(())
        })
        .await;
        programs[0].freeze();
        wait::until("the other one has the worker id", PATIENCE, async || {
            got.call(&other, 1).await.then_some(())
        })
        .await;
        let of_other = Callers::start(&other, &[10_000, 10_000]);
        tokio::time::sleep(Duration::from_millis(300)).await;
        programs[0].thaw();
        tokio::time::sleep(Duration::from_millis(700)).await;
        got.merge(of_holder.stop().await);
        got.merge(of_other.stop().await);
        programs.swap(0, 1);
    }
    got
}
