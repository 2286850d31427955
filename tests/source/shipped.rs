//! Guards can be taken out of a build made for that alone.

use std::path::Path;

use crate::support::{Program, settings};

/// By these a run says which guards it wants out.
const GUARDS: [&str; 4] = [
    "no-conditions",
    "first-refill-invents",
    "takeover-keeps-block",
    "no-return",
];

/// Those of `GUARDS` that `program` knows.
fn known_to(program: &Path) -> Vec<&'static str> {
    let bytes = std::fs::read(program).expect("the program can be read");
    let contains = |text: &[u8]| bytes.windows(text.len()).any(|window| window == text);
    let mut known = GUARDS.to_vec();
    known.retain(|guard| contains(guard.as_bytes()));
    known
}

#[test]
fn no_guard_can_be_taken_out_of_the_shipped_program() {
    assert_eq!(known_to(&settings::shipped_program()), Vec::<&str>::new());
    // The other build has what is looked for.
    assert_eq!(known_to(&settings::sabotaged_program()), GUARDS);
}

#[test]
fn the_shipped_program_refuses_the_variable_like_any_it_does_not_know() {
    let finished = Program::options()
        .env("ODOMETER_LISTEN", "127.0.0.1:0")
        .env("ODOMETER_SABOTAGE", "no-conditions")
        .run(&["serve"]);
    assert_eq!(finished.code, Some(78), "{finished}");
    assert!(finished.errors.contains("ODOMETER_SABOTAGE"), "{finished}");
}
