//! A server fails, and a copy of its database takes its place: a standby or replica that lags behind,
//! a backup, a dump, or an earlier state of a file.

mod dumps;
mod fenced;
mod files;
mod ids;
mod known;
mod line;
mod load;
mod many;
mod mixed;
mod redis_windows;
mod replicas;
mod restarts;
mod restores;
mod rolling;
mod stage;
mod standbys;
mod starts;
mod statements;
mod upgrades;

use std::time::Duration;

pub(super) use self::fenced::{ARM, FENCES};
use self::stage::{N_AFTER, Stage};
use crate::support::{Client, Options, Program, wait};

/// The limit for what takes a few polls.
const LIMIT: Duration = Duration::from_secs(60);
/// More steps than any name ever reserved.
const SKIP: &str = "1000000";
const WENT_BACK: &str = "store_went_back";
/// Takes a block of one number from the database itself.
const ONE: &str = "/v1/sequences/orders/blocks?size=1";

/// Returns whether a refusal says that the database is away for a moment.
fn is_passing(code: &str) -> bool {
    matches!(code, "store_unavailable" | "refill_timeout")
}

/// Returns whether a refusal says that a copy of the database is not in use yet.
fn is_early(code: &str) -> bool {
    is_passing(code) || code == WENT_BACK
}

/// Asks for a block of one number until the answer is another one than that the database is away.
async fn one(client: &Client) -> Result<i64, String> {
    block(client, ONE).await
}

/// Asks for a block in the same way, and returns its first number.
async fn block(client: &Client, path: &str) -> Result<i64, String> {
    wait::until("an answer", LIMIT, async || {
        let reply = client.post(path).await.expect("a reply");
        match reply.code() {
            None => Some(Ok(reply.numbers()[0].first)),
            Some(code) => (!is_passing(&code)).then_some(Err(code)),
        }
    })
    .await
}

/// Asks for a block of one number until the replica gives one, and so has seen a recovery.
async fn one_after_recovery(client: &Client) -> i64 {
    wait::until("it is served", LIMIT, async || one(client).await.ok()).await
}

fn recover(options: &Options, loss: &[&str]) {
    let arguments = [&["recover", "--yes"], loss].concat();
    let finished = options.run(&arguments);
    assert_eq!(finished.code, Some(0), "{finished}");
}

fn lossless() -> Options {
    Program::options().env("ODOMETER_FAILOVER__LOSSLESS", "true")
}

/// Fails over without a stamp. A replica that starts afterwards has seen nothing that could be
/// missing.
async fn repeats_numbers(mut stage: Stage) {
    let mut old = stage.start().await;
    stage.fail_over(&old.client()).await;
    old.kill();
    let fresh = stage.options.start_ready().await;
    stage.take(&fresh.client(), N_AFTER).await;
    assert!(stage.ledger.n_duplicates() > 0, "nothing is found");
}

/// Fails over to a copy that counts as whole. `stamp` reads a hash of what the stamp says of the
/// server.
async fn costs_nothing(mut stage: Stage, stamp: &str) {
    let old = stage.start().await;
    let before = stage.database.number(stamp).await;
    stage.switch_over(&old).await;
    stage.take(&old.client(), N_AFTER).await;
    let fresh = stage.options.start_ready().await;
    stage.take(&fresh.client(), N_AFTER).await;
    assert_ne!(stage.database.number(stamp).await, before, "vacuous");
    assert_eq!(stage.ledger.n_duplicates(), 0);
    assert!(!old.log().contains("went back"), "{}", old.log());
}
