//! Tests that guards can be taken out only in a build that is made for this.

use std::path::Path;

use crate::support::{Program, settings};

/// Words by which a run names the guards that it takes out.
const GUARDS: [&str; 4] = [
    "no-conditions",
    "first-refill-invents",
    "takeover-keeps-block",
    "no-return",
];

/// Returns the words of [`GUARDS`] that `program` contains.
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
    // Negative control: the other build contains all of these words.
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
