//! What the environment says about a run; read here and nowhere else.

use std::{path::PathBuf, sync::LazyLock, time::Duration};

/// Whether tests run at the size their guarantee asks for instead of the size of each commit.
pub fn full() -> bool {
    std::env::var_os("ODOMETER_TESTS_FULL").is_some_and(|value| value == "1")
}

/// `small` for each commit, `large` at full size.
pub fn at_size<T>(small: T, large: T) -> T {
    if full() { large } else { small }
}

/// By what a test draws its servers, and whatever else it draws: given, or another in each run.
pub fn seed() -> u64 {
    static SEED: LazyLock<u64> = LazyLock::new(|| match std::env::var("ODOMETER_TESTS_SEED") {
        Ok(given) => given
            .parse()
            .unwrap_or_else(|_| panic!("ODOMETER_TESTS_SEED is not a number: {given}")),
        Err(_) => u64::from(std::process::id()),
    });
    *SEED
}

/// Whether each test meets the servers that it does not draw.
pub fn meets_the_other_servers() -> bool {
    std::env::var_os("ODOMETER_TESTS_SERVERS").is_some_and(|value| value == "others")
}

/// Where `tests/install-servers` put the servers that this machine has no package of.
pub fn unpacked_servers() -> PathBuf {
    let place = repository().join("target/servers");
    assert!(
        place.is_dir(),
        "{} is missing: run tests/install-servers",
        place.display()
    );
    place
}

/// By what Schemathesis draws its calls, if it is given.
pub fn schemathesis_seed() -> Option<u64> {
    let given = std::env::var("ODOMETER_TESTS_SCHEMATHESIS_SEED").ok()?;
    let seed = given.parse();
    Some(seed.unwrap_or_else(|_| panic!("the seed is not a number: {given}")))
}

/// How long one test may take before it counts as hung.
pub fn test_limit() -> Duration {
    at_size(Duration::from_secs(300), Duration::from_secs(4 * 3600))
}

/// The directory given by `tests/run`, which also looks that nothing of it is left.
pub fn run_directory() -> Option<PathBuf> {
    std::env::var_os("TESTS_RUN_DIRECTORY").map(PathBuf::from)
}

/// The root of the repository.
pub fn repository() -> PathBuf {
    let tests = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    tests
        .parent()
        .expect("the tests lie in the repository")
        .to_path_buf()
}

/// The program as it is shipped.
pub fn shipped_program() -> PathBuf {
    program("ODOMETER_BIN", "target/release/odometer")
}

/// The program with guards that can be taken out.
pub fn sabotaged_program() -> PathBuf {
    program("ODOMETER_SABOTAGE_BIN", "target/sabotage/odometer")
}

/// The program that takes numbers from a cursor, for who counts what one costs.
pub fn takes() -> PathBuf {
    program("ODOMETER_TAKES_BIN", "target/release/examples/takes")
}

/// Whether what a number costs now is to be accepted.
pub fn renews_costs() -> bool {
    std::env::var_os("ODOMETER_TESTS_RENEW_COSTS").is_some_and(|value| value == "1")
}

/// Whether the pictures of the documents are to be drawn anew.
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
