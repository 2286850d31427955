//! A fence raises a counter to its line, and hardly further. So each part of the line must be right:
//! the clocks, the time of the loss, and what can be given after the fence.
//!
//! The limits of these sequences are small, and callers use them up. If a line is too low by a few
//! seconds, numbers are given twice.

use std::time::Duration;

use serde_json::{Value, json};

use super::fenced::{FENCES, arm};
use super::known::LIMITED;
use super::stage::Stage;
use super::{LIMIT, is_early};
use crate::support::{Answer, Backend, Options, Product, Program, Server, run, wait};

/// The clock of a PostgreSQL server, and other times (Unix ms).
const NOW: &str = "SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)";
const SINCE: &str = "SELECT since_us / 1000 FROM fence";
const UNTIL: &str = "SELECT until_us / 1000 FROM fence";
const LAST_BEAT: &str = "SELECT MAX(beat_at) FROM replica";
/// When the statement began whose commit waits.
const BEGAN: &str = "SELECT CAST(EXTRACT(EPOCH FROM query_start) * 1000 AS BIGINT) \
                     FROM pg_stat_activity WHERE wait_event = 'advisory'";
/// Takes as many numbers by one statement.
const BLOCK: &str = "/v1/sequences/limited/blocks?size=900";
/// How many numbers must be lost, at least.
const MANY: i64 = 50;
/// How many numbers are taken after the last failover.
const AFTER: u64 = 50;
/// How far the clock of the former primary is ahead of that of its copy, and what replicas allow for
/// that. A failover takes less than that.
const AHEAD: Duration = Duration::from_secs(5);
const MARGIN: Duration = Duration::from_secs(6);
/// A margin in which each call that waits runs out of time.
const LONG_MARGIN: &str = "20s";
/// How long a statement lasts that is slow, and how long it may last.
const SLOW_MS: i64 = 7000;
const TIMEOUT: &str = "12s";

/// A stage with two replicas. Only one of them takes numbers before the failover, and only the other
/// one lives through it. So nobody has seen what was lost.
struct Line {
    stage: Stage,
    user: Program,
    witness: Program,
}

impl Line {
    async fn new(options: Options, limit: Value) -> Self {
        Self::on(equal(options).await, limit).await
    }

    async fn on(stage: Stage, limit: Value) -> Self {
        let user = stage.options.start_ready().await;
        let witness = stage.options.start_ready().await;
        arm(&stage).await;
        let definition = json!({"limit": limit});
        user.client().define(LIMITED, &definition).await;
        Self {
            stage,
            user,
            witness,
        }
    }

    async fn number(&self, query: &str) -> i64 {
        let number = self.stage.database.number(query).await;
        number.expect("it has a row")
    }

    async fn take(&mut self, n: u64) {
        let client = self.user.client();
        self.stage.take_slowly(&client, (LIMITED, n)).await;
    }

    async fn take_after_failover(&mut self, n: u64) {
        let client = self.witness.client();
        self.stage.take_slowly(&client, (LIMITED, n)).await;
    }

    /// Keeps from the copy all that is committed from now on.
    async fn hold(&self) {
        self.stage.catch_up().await;
        self.stage.hold();
    }

    /// Leads the replica that lives from the primary to the copy at once.
    async fn fail_over(&mut self) {
        self.user.kill();
        self.stage.promote().await;
        self.has_lost().await;
        self.stage.lead_to_copy();
        self.stage.lose_primary();
    }

    /// Checks that the copy lacks numbers that were given.
    async fn has_lost(&self) {
        let next_value = self.stage.database.next_value(LIMITED).await;
        let highest = self.stage.ledger.highest(LIMITED);
        let n_lost = highest
            .zip(next_value)
            .map(|(highest, next)| highest + 1 - next);
        assert!(n_lost > Some(MANY), "vacuous: {n_lost:?} numbers lost");
    }
}

/// Starts servers whose clocks are equal, as the replicas know.
async fn equal(options: Options) -> Stage {
    let options = options.env("ODOMETER_FAILOVER__CLOCK_MARGIN", "0s");
    Stage::new(Backend::Postgres, options).await.fencing()
}

/// Fails over from a server whose clock is ahead. Returns how many numbers were given twice. The
/// fence allows for clocks that are so far apart as `margin`.
async fn clocks_are_apart(options: Options, margin: Duration) -> u64 {
    let primary = Server::start_ahead(Product::drawn(Backend::Postgres), AHEAD).await;
    let allowed = format!("{}s", MARGIN.as_secs());
    let options = options.env("ODOMETER_FAILOVER__CLOCK_MARGIN", allowed);
    let stage = Stage::of(primary, options).await.fencing();
    let mut line = Line::on(stage, json!({"rate": 100, "burst": 100})).await;
    line.take(100).await;
    line.hold().await;
    // The limit gives these numbers in seven seconds.
    line.take(700).await;
    let last_ms = line.number(NOW).await;
    line.fail_over().await;
    line.take_after_failover(AFTER).await;
    let fenced_ms = line.number(UNTIL).await - millis(margin);
    assert!(
        fenced_ms < last_ms,
        "vacuous: the clock of the copy is ahead"
    );
    line.stage.ledger.n_duplicates()
}

#[test]
fn a_copy_whose_clock_is_behind_repeats_nothing() {
    run(async {
        let n_twice = clocks_are_apart(Program::options(), MARGIN).await;
        assert_eq!(n_twice, 0);
    });
}

#[test]
fn without_a_margin_a_copy_whose_clock_is_behind_repeats_numbers() {
    run(async {
        let options = Program::options().without_guards("no-clock-margin");
        let n_twice = clocks_are_apart(options, Duration::ZERO).await;
        assert!(n_twice > 0, "nothing is found");
    });
}

/// Fails over to a copy, takes numbers, and fails over to an older copy. Nobody lives through both.
/// Returns how many numbers were given twice.
async fn an_older_copy_follows(options: Options, n_between: u64) -> u64 {
    let mut line = Line::new(options, json!({"rate": 10, "burst": 1000})).await;
    let older = line.stage.second().await;
    line.take(50).await;
    line.stage.hold_second(&older).await;
    line.take(50).await;
    line.hold().await;
    line.take(100).await;
    let first = line.stage.ledger.given(LIMITED).len();
    line.fail_over().await;
    line.take_after_failover(n_between).await;
    assert_eq!(line.number(FENCES).await, 1);
    line.witness.kill();
    line.stage.fail_over_to(&older).await;
    assert_eq!(line.number(FENCES).await, 0, "vacuous");
    line.has_lost().await;
    let second = line.stage.ledger.given(LIMITED).len();
    line.witness = line.stage.options.start_ready().await;
    line.take_after_failover(AFTER).await;
    let given = line.stage.ledger.given(LIMITED);
    let landed = [first, second].map(|at| given[at].first);
    assert!(landed.is_sorted(), "the fences landed at {landed:?}");
    line.stage.ledger.n_duplicates()
}

#[test]
fn an_older_copy_that_follows_on_a_copy_repeats_nothing() {
    run(async {
        let n_twice = an_older_copy_follows(Program::options(), 30).await;
        assert_eq!(n_twice, 0);
    });
}

#[test]
fn a_fence_that_leaves_limits_unused_repeats_numbers_of_an_older_copy() {
    run(async {
        let options = Program::options().without_guards("full-bucket");
        let n_twice = an_older_copy_follows(options, 500).await;
        assert!(n_twice > 0, "nothing is found");
    });
}

/// Fails over, and ends a replica that has not met the copy yet. The last heartbeat of the replica
/// reaches the copy if it `is_written`. Returns how many numbers were given twice.
async fn a_beat_reaches_a_copy(options: Options, is_written: bool) -> u64 {
    let mut line = Line::new(options, json!({"rate": 100, "burst": 100})).await;
    let seldom = line.stage.options.clone();
    let seldom = seldom.env("ODOMETER_DEFINITION_REFRESH", "1h");
    let ending = seldom
        .env("ODOMETER_LOG__LEVEL", "debug")
        .start_ready()
        .await;
    line.take(10).await;
    line.hold().await;
    let held_ms = line.number(NOW).await;
    // The limit gives these numbers in nine seconds.
    line.take(1000).await;
    line.witness.freeze();
    line.fail_over().await;
    wait::until("its connections lead to the copy", LIMIT, async || {
        let log = ending.log();
        log.contains("connections to the database are replaced")
            .then_some(())
    })
    .await;
    let log = ending.stop().await;
    assert_eq!(line.number(LAST_BEAT).await > held_ms, is_written, "{log}");
    let is_refused = log.contains("does not know that this replica has ended");
    assert_eq!(is_refused, !is_written, "{log}");
    line.witness.thaw();
    line.take_after_failover(AFTER).await;
    assert_eq!(line.number(SINCE).await > held_ms, is_written);
    line.stage.ledger.n_duplicates()
}

#[test]
fn a_heartbeat_does_not_reach_a_copy_before_its_fence() {
    run(async {
        let n_twice = a_beat_reaches_a_copy(Program::options(), false).await;
        assert_eq!(n_twice, 0);
    });
}

#[test]
fn a_heartbeat_that_reaches_a_copy_before_its_fence_repeats_numbers() {
    run(async {
        let options = Program::options().without_guards("unguarded-beats");
        let n_twice = a_beat_reaches_a_copy(options, true).await;
        assert!(n_twice > 0, "nothing is found");
    });
}

/// Fails over to a copy that ends with a heartbeat. The first commit that it lacks is that of a
/// statement which began long before. Returns how many numbers were given twice. The fence counts
/// from before that statement if it `is_counted`.
async fn a_commit_is_slow(options: Options, is_counted: bool) -> u64 {
    let mut stage = equal(options).await;
    let options = stage.options.env("ODOMETER_STORE__TIMEOUT", TIMEOUT);
    stage.options = options.env("ODOMETER_REFILL__DEADLINE", "30s");
    let mut line = Line::on(stage, json!({"rate": 100, "burst": 1000})).await;
    line.take(10).await;
    let frozen = line.stage.database.freeze_commits(900).await;
    let client = line.user.client();
    let slow = tokio::spawn(async move { client.ask(BLOCK).await });
    let began_ms = wait::until("the commit waits", LIMIT, async || {
        line.stage.database.number(BEGAN).await
    })
    .await;
    wait::until("a heartbeat is later", LIMIT, async || {
        (line.number(LAST_BEAT).await >= began_ms + SLOW_MS).then_some(())
    })
    .await;
    line.hold().await;
    frozen.thaw().await;
    let slow = slow.await.expect("the call ends");
    // A second later the limit gives as many numbers again.
    for answer in [slow, line.user.client().ask(BLOCK).await] {
        let Answer::Given(ranges) = answer else {
            panic!("no block: {answer:?}");
        };
        line.stage.ledger.record(LIMITED, &ranges);
    }
    line.fail_over().await;
    assert!(
        line.number(LAST_BEAT).await >= began_ms + SLOW_MS,
        "vacuous"
    );
    line.take_after_failover(AFTER).await;
    assert_eq!(line.number(SINCE).await < began_ms, is_counted);
    line.stage.ledger.n_duplicates()
}

#[test]
fn a_commit_that_comes_long_after_its_statement_repeats_nothing() {
    run(async {
        let n_twice = a_commit_is_slow(Program::options(), true).await;
        assert_eq!(n_twice, 0);
    });
}

#[test]
fn a_commit_that_counts_as_made_when_its_statement_began_repeats_numbers() {
    run(async {
        let options = Program::options().without_guards("instant-statements");
        let n_twice = a_commit_is_slow(options, false).await;
        assert!(n_twice > 0, "nothing is found");
    });
}

/// Fails over. Returns the first answer that says anything else than that the copy is not ready.
async fn first_answer(options: Options) -> (Line, Answer) {
    let options = options.env("ODOMETER_FAILOVER__CLOCK_MARGIN", LONG_MARGIN);
    let stage = Stage::new(Backend::Postgres, options).await.fencing();
    let mut line = Line::on(stage, json!({"rate": 100, "burst": 100})).await;
    line.take(10).await;
    line.hold().await;
    line.take(500).await;
    line.fail_over().await;
    let client = line.witness.client();
    let answer = wait::until("an answer", LIMIT, async || {
        let answer = client.ask(&format!("/v1/sequences/{LIMITED}/next")).await;
        let is_early = matches!(
            &answer,
            Answer::Refused(reply) if reply.code().is_some_and(|code| is_early(&code))
        );
        (!is_early).then_some(answer)
    });
    let answer = answer.await;
    (line, answer)
}

#[test]
fn a_call_without_time_for_the_margin_is_told_when_to_come_again() {
    run(async {
        let (mut line, answer) = first_answer(Program::options()).await;
        let Answer::Refused(reply) = answer else {
            panic!("within the margin: {answer:?}");
        };
        assert_eq!(reply.status, 429, "{reply:?}");
        assert_eq!(reply.code().as_deref(), Some("rate_limited"));
        let wait = reply.header("retry-after").and_then(|it| it.parse().ok());
        let wait: u32 = wait.expect("seconds");
        // The margin, and the time in which the limit gives a number.
        assert!((1..=21).contains(&wait), "{reply:?}");
        line.take_after_failover(AFTER).await;
        assert_eq!(line.stage.ledger.n_duplicates(), 0);
    });
}

#[test]
fn without_a_margin_the_first_call_after_a_fence_gets_a_number() {
    run(async {
        let options = Program::options().without_guards("no-clock-margin");
        let (_line, answer) = first_answer(options).await;
        assert!(matches!(answer, Answer::Given(_)), "{answer:?}");
    });
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).expect("it is short")
}
