//! A fence raises very many counters that were in use.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::fenced::{FENCES, arm};
use super::stage::{N_AFTER, Stage};
use crate::support::{Backend, Program, for_each_server, settings::at_size, wait};

/// How many counters one statement makes: 10 to the power of this.
const N_DIGITS: u32 = 4;

/// How many times that there are.
fn n_batches() -> u64 {
    at_size(1, 100)
}

/// How long a replica may take to fence a database.
const LONGEST_FENCE: Duration = Duration::from_secs(300);
/// How far ahead the counters are paid for: as far as the default burst allows.
const AHEAD: Duration = Duration::from_secs(100);

/// Creates sequences as `orders` is one, with a counter each that was used a moment ago.
async fn fill(stage: &Stage, batch: u64) {
    let digit = (0..10).map(|i| format!("SELECT {i} AS digit"));
    let digit = digit.collect::<Vec<_>>().join(" UNION ALL ");
    let (digits, tables): (Vec<_>, Vec<_>) = (0..N_DIGITS)
        .map(|i| (format!("d{i}.digit"), format!("({digit}) d{i}")))
        .unzip();
    let (digits, tables) = (digits.join(", "), tables.join(", "));
    let copies = format!(
        "INSERT INTO sequence (name, definition, state, periods_removed_through, version, \
         created_at, changed_at) SELECT CONCAT('n{batch}-', {digits}), definition, state, \
         periods_removed_through, version, created_at, changed_at FROM sequence, {tables} \
         WHERE name = 'orders'"
    );
    stage.database.execute(&copies).await;
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let paced_until_us = (now.expect("it is after 1970") + AHEAD).as_micros();
    let window = match stage.database.backend {
        Backend::MariaDb => "`window`",
        Backend::Postgres | Backend::Sqlite => "\"window\"",
    };
    let counters = format!(
        "INSERT INTO counter (sequence, period, next_value, floor, state, rate, stripe_count, \
         {window}, window_open, window_leased_until, revision, version, paced_until_us, \
         must_recover) SELECT name, '', 1, 1, 'live', 0, 1, 0, FALSE, 0, 1, 2, \
         {paced_until_us}, FALSE FROM sequence WHERE name LIKE 'n{batch}-%'"
    );
    stage.database.execute(&counters).await;
}

for_each_server!(a_fence_of_very_many_counters_is_made);

/// Checks that one replica, which lived through nothing, raises all of them.
async fn a_fence_of_very_many_counters_is_made(backend: Backend) {
    let stage = Stage::new(backend, Program::options()).await;
    let mut stage = stage.fencing_by_default();
    let mut old = stage.start().await;
    arm(&stage).await;
    stage.take(&old.client(), 1).await;
    for batch in 0..n_batches() {
        fill(&stage, batch).await;
    }
    stage.lose_commits(&old.client()).await;
    old.kill();
    let n_lost = stage.promote().await;
    assert!(n_lost > 100, "vacuous: {n_lost} numbers lost");
    stage.lead_to_copy();
    let begun = Instant::now();
    let fresh = stage.options.start().await;
    wait::until("the fence is made", LONGEST_FENCE, async || {
        (stage.database.number(FENCES).await == Some(1)).then_some(())
    })
    .await;
    let lasted = begun.elapsed();
    let n_counters = n_batches() * 10_u64.pow(N_DIGITS);
    println!(
        "{}: {n_counters} counters in {} ms",
        stage.copy().product(),
        lasted.as_millis()
    );
    let raised = "SELECT COUNT(*) FROM counter WHERE sequence LIKE 'n%' AND next_value > 1";
    let n_raised = stage.database.number(raised).await;
    assert_eq!(n_raised, Some(i64::try_from(n_counters).expect("a count")));
    stage.is_served_again(&fresh.client()).await;
    stage.take(&fresh.client(), N_AFTER).await;
    assert_eq!(stage.ledger.n_duplicates(), 0);
}
