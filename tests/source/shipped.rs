//! Guards can be taken out of a build made for that alone.

use crate::support::{Backend, Program, TestDatabase, run, settings};

const VARIABLE: &[u8] = b"ODOMETER_SABOTAGE";

fn contains(program: &std::path::Path, text: &[u8]) -> bool {
    let bytes = std::fs::read(program).expect("the program can be read");
    bytes.windows(text.len()).any(|window| window == text)
}

#[test]
fn no_guard_can_be_taken_out_of_the_shipped_program() {
    assert!(!contains(&settings::shipped_program(), VARIABLE));
    // The other build has what is looked for.
    assert!(contains(&settings::sabotaged_program(), VARIABLE));
}

#[test]
fn the_shipped_program_does_not_care_about_the_variable() {
    run(async {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let program = Program::options()
            .database(&database.url)
            .env("ODOMETER_DEFAULT__BLOCK__MIN", 100);
        let sabotaged = program
            .clone()
            .env("ODOMETER_SABOTAGE", "no-return,no-conditions");
        let first = sabotaged.start_ready().await;
        assert_eq!(first.client().next("kept").await, 1);
        first.stop().await;
        // The rest was returned all the same.
        let second = program.start_ready().await;
        assert_eq!(second.client().next("kept").await, 2);
    });
}
