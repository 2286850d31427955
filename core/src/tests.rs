//! Gives the tests of this crate one seed and a reader of tables, and checks that debug assertions
//! are on.
//!
//! A test prints the seed. So the output of a failed test shows which seed repeats the run.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    sync::LazyLock,
};

use proptest::test_runner::{Config, RngSeed};

/// Names the environment variable that repeats a run with its seed. The integration tests read it,
/// too.
const VARIABLE: &str = "ODOMETER_TESTS_SEED";

/// Returns the seed of this run, and prints it, so that the output of a failed test shows it.
///
/// # Panics
/// If the variable is set to something that is not a number.
#[expect(
    clippy::disallowed_methods,
    reason = "by what is tested is no configuration of the program"
)]
pub(crate) fn seed() -> u64 {
    static SEED: LazyLock<u64> = LazyLock::new(|| match std::env::var(VARIABLE) {
        Ok(given) => given
            .parse()
            .unwrap_or_else(|error| panic!("{VARIABLE}={given}: {error}")),
        Err(_) => RandomState::new().build_hasher().finish() >> 32,
    });
    println!("{VARIABLE}={}", *SEED);
    *SEED
}

/// Returns the start of a generator for one of several threads or cases; never 0.
pub(crate) fn seed_for(which: u64) -> u64 {
    let far_apart = which.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (seed() ^ far_apart) | 1
}

/// Returns the settings of property tests: proptest's own, but with the seed of this run.
pub(crate) fn properties() -> Config {
    Config {
        rng_seed: RngSeed::Fixed(seed()),
        // The seed repeats a failure, so no file is left in the sources.
        failure_persistence: None,
        ..Config::default()
    }
}

/// Splits a table into its rows. The cells of a row are divided by ` | `.
pub(crate) fn table<const N: usize>(rows: &'static str) -> impl Iterator<Item = [&'static str; N]> {
    let rows = rows.lines().filter(|row| !row.trim().is_empty());
    rows.map(|row| {
        let cells: Vec<_> = row.split(" | ").map(str::trim).collect();
        let cells = <[_; N]>::try_from(cells);
        cells.unwrap_or_else(|cells| panic!("{cells:?} are not {N} cells"))
    })
}

#[test]
fn each_thread_of_a_run_begins_elsewhere() {
    let mut all: Vec<u64> = (0..100).map(seed_for).collect();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 100);
    assert!(all[0] > 0);
}

/// Checks that debug assertions are on in unit tests and models, as `profile.test` of the workspace
/// sets it.
#[test]
#[should_panic(expected = "it is checked")]
fn debug_assertions_are_on() {
    debug_assert!(std::hint::black_box(false), "it is checked");
}
