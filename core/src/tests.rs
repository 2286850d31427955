//! What all tests of this crate share: one seed for those that are random, told where a test fails,
//! and that assertions of debug builds are checked.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    sync::LazyLock,
};

use proptest::test_runner::{Config, RngSeed};

/// Given by who repeats a run; the integration tests read it as well.
const VARIABLE: &str = "ODOMETER_TESTS_SEED";

/// The seed of this run; printed, so that a test that fails shows it.
///
/// # Panics
/// When what was given is not a number.
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

/// Where the generator of one of several threads, or of one of several cases, begins; never 0.
pub(crate) fn seed_for(which: u64) -> u64 {
    let far_apart = which.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (seed() ^ far_apart) | 1
}

/// How properties are tested: as proptest does it by itself, but by the seed of this run.
pub(crate) fn properties() -> Config {
    Config {
        rng_seed: RngSeed::Fixed(seed()),
        ..Config::default()
    }
}

#[test]
fn each_thread_of_a_run_begins_elsewhere() {
    let mut all: Vec<u64> = (0..100).map(seed_for).collect();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 100);
    assert!(all[0] > 0);
}

/// By `profile.test` of the workspace, in unit tests and models.
#[test]
#[should_panic(expected = "it is checked")]
fn debug_assertions_are_on() {
    debug_assert!(std::hint::black_box(false), "it is checked");
}
