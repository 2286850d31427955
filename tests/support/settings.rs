//! The environment variables of a run. Only this file reads them.

use std::{path::PathBuf, sync::LazyLock, time::Duration};

/// Returns whether tests run at the size of their guarantee, instead of the size of each commit.
pub fn full() -> bool {
    std::env::var_os("ODOMETER_TESTS_FULL").is_some_and(|value| value == "1")
}

/// Returns `small` for each commit, and `large` at full size.
pub fn at_size<T>(small: T, large: T) -> T {
    if full() { large } else { small }
}

/// Returns the seed of all draws of a run. If no seed is given, each run has another one.
pub fn seed() -> u64 {
    static SEED: LazyLock<u64> = LazyLock::new(|| match std::env::var("ODOMETER_TESTS_SEED") {
        Ok(given) => given
            .parse()
            .unwrap_or_else(|_| panic!("ODOMETER_TESTS_SEED is not a number: {given}")),
        Err(_) => u64::from(std::process::id()),
    });
    *SEED
}

/// Returns the settings of property tests: proptest's own, but with the seed of the run. Prints the
/// seed, so that the output of a failed test shows it.
pub fn properties() -> proptest::test_runner::Config {
    println!("ODOMETER_TESTS_SEED={}", seed());
    proptest::test_runner::Config {
        rng_seed: proptest::test_runner::RngSeed::Fixed(seed()),
        // The seed repeats a failure, so no file is left in the sources.
        failure_persistence: None,
        ..proptest::test_runner::Config::default()
    }
}

/// Returns whether each test uses the servers that it does not draw.
pub fn meets_the_other_servers() -> bool {
    std::env::var_os("ODOMETER_TESTS_SERVERS").is_some_and(|value| value == "others")
}

/// Returns the folder to which `tests/install-servers` unpacks servers. This machine has no package
/// of these servers.
pub fn unpacked_servers() -> PathBuf {
    let place = repository().join("target/servers");
    assert!(
        place.is_dir(),
        "{} is missing: run tests/install-servers",
        place.display()
    );
    place
}

/// Returns the seed of Schemathesis, if one is given.
pub fn schemathesis_seed() -> Option<u64> {
    let given = std::env::var("ODOMETER_TESTS_SCHEMATHESIS_SEED").ok()?;
    let seed = given.parse();
    Some(seed.unwrap_or_else(|_| panic!("the seed is not a number: {given}")))
}

/// Returns how long one test may take before it counts as hung.
pub fn test_limit() -> Duration {
    at_size(Duration::from_secs(300), Duration::from_secs(4 * 3600))
}

/// Returns the directory given by `tests/run`, which also checks that no process of the run is
/// left.
pub fn run_directory() -> Option<PathBuf> {
    std::env::var_os("TESTS_RUN_DIRECTORY").map(PathBuf::from)
}

/// Returns the root of the repository.
pub fn repository() -> PathBuf {
    let tests = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    tests
        .parent()
        .expect("the tests lie in the repository")
        .to_path_buf()
}

/// Returns the path of the shipped program.
pub fn shipped_program() -> PathBuf {
    program("ODOMETER_BIN", "target/release/odometer")
}

/// Returns the path of the program whose guards can be taken out.
pub fn sabotaged_program() -> PathBuf {
    program("ODOMETER_SABOTAGE_BIN", "target/sabotage/odometer")
}

/// Returns the path of a program of an earlier revision. It is the shipped one if none is given.
pub fn earlier_program() -> PathBuf {
    std::env::var_os("ODOMETER_EARLIER_BIN").map_or_else(shipped_program, PathBuf::from)
}

/// Returns the path of the program that takes numbers from a cursor. A test counts the cost of one
/// number with it.
pub fn takes() -> PathBuf {
    program("ODOMETER_TAKES_BIN", "target/release/examples/takes")
}

/// Returns the path of the program that takes numbers with the client library for Rust. Guards of
/// the library can be taken out of it.
pub fn client_driver() -> PathBuf {
    program(
        "ODOMETER_CLIENT_DRIVER_BIN",
        "target/release/examples/driver",
    )
}

/// Returns whether the present cost of a number is to be accepted.
pub fn renews_costs() -> bool {
    std::env::var_os("ODOMETER_TESTS_RENEW_COSTS").is_some_and(|value| value == "1")
}

/// Returns whether the generated parts of the documents are to be written again.
pub fn renews_documents() -> bool {
    std::env::var_os("ODOMETER_TESTS_RENEW_DOCUMENTS").is_some_and(|value| value == "1")
}

/// Returns whether the pictures of the documents are to be drawn again.
pub fn renews_pictures() -> bool {
    std::env::var_os("ODOMETER_TESTS_RENEW_PICTURES").is_some_and(|value| value == "1")
}

fn program(variable: &str, built: &str) -> PathBuf {
    let path = std::env::var_os(variable).map_or_else(|| repository().join(built), PathBuf::from);
    assert!(
        path.is_file(),
        "{} is missing: run tests/run, which builds it",
        path.display()
    );
    path
}
