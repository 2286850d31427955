//! A program forks, or starts a second process, after it has taken numbers.

use serde_json::json;

use super::{SEQUENCE, options, sole_program};
use crate::{
    clients::{
        driver::{Driver, Given},
        language::{Language, for_each_language},
    },
    support::{Backend, Ledger, Program, TestDatabase, run},
};

/// How many numbers the parent takes after the fork, and the child as well. The buffer of the
/// parent has more at the fork, so a child that has a copy gives the same numbers.
const N_EACH: u64 = 50;

for_each_language!(
    a_fork_repeats_no_number,
    without_its_hook_a_fork_repeats_numbers,
);

/// Rule C8.
async fn a_fork_repeats_no_number(language: Language) {
    let ledger = taken(language, true).await.expect("a second process");
    assert_eq!(ledger.n_numbers(), 1 + 2 * N_EACH);
    assert_eq!(ledger.n_duplicates(), 0);
}

async fn without_its_hook_a_fork_repeats_numbers(language: Language) {
    let Some(ledger) = taken(language, false).await else {
        return;
    };
    let n_numbers = ledger.n_numbers();
    assert!(
        ledger.n_duplicates() > 0,
        "the check finds nothing in {n_numbers} numbers"
    );
}

/// Returns what parent and child got. A language that cannot fork has no hook: its driver must say
/// so if there should be none, and has no numbers.
async fn taken(language: Language, has_hook: bool) -> Option<Ledger> {
    let database = TestDatabase::prepared(Backend::Sqlite).await;
    let program = sole_program(&database).await;
    // A refill of a name that is not known yet may be under way at the fork. Then there is no copy.
    program.client().define(SEQUENCE, &json!({})).await;
    let mut options = options(&[program.url()]);
    // The driver then takes out what protects a forked child.
    options["without_fork_hook"] = (!has_hook).into();
    let mut driver = Driver::start(language, &options).await;
    let mut ledger = Ledger::default();
    let first = driver.take("next 1").await;
    ledger.record(SEQUENCE, &first.ranges);
    let left = driver.left().await;
    assert!(left >= N_EACH, "vacuous: {left} are left");
    let step = format!("fork {N_EACH}");
    let answer = driver.ask(&step).await.expect("an answer");
    if !has_hook && !language.can_fork() {
        assert_eq!(answer, "unsupported");
        return None;
    }
    let given = Given::parse(&answer).unwrap_or_else(|| panic!("{step}: {answer}"));
    assert_eq!((first.error, given.error), (None, None), "{answer}");
    ledger.record(SEQUENCE, &given.ranges);
    driver.exit().await;
    Some(ledger)
}

/// How often a program forks while its threads are busy.
const N_BUSY_FORKS: u64 = 40;

/// Rule C8, for the library for Rust alone: only there can threads take numbers at the fork.
#[test]
fn forks_of_a_busy_program_repeat_no_number_and_wait_for_no_lock() {
    run(async {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let program = Program::options()
            .database(&database.url)
            .without_speed_limit()
            .start_ready()
            .await;
        program.client().define(SEQUENCE, &json!({})).await;
        let options = options(&[program.url()]);
        let mut driver = Driver::start(Language::Rust, &options).await;
        let step = format!("busy_forks {N_BUSY_FORKS} {N_EACH}");
        let given = driver.take(&step).await;
        assert_eq!(given.error, None);
        let mut ledger = Ledger::default();
        ledger.record(SEQUENCE, &given.ranges);
        let of_forks = 2 * N_BUSY_FORKS * N_EACH;
        let n_numbers = ledger.n_numbers();
        assert!(n_numbers > of_forks + 1_000, "vacuous: {n_numbers} numbers");
        assert_eq!(ledger.n_duplicates(), 0);
        driver.exit().await;
    });
}
