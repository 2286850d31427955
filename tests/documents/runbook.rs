//! The statements of the runbook do what its sections are for, on every database.

use super::markdown::Document;
use crate::support::{Backend, Options, Program, TestDatabase, for_each_backend};

/// By how much the runbook raises counters in its example.
const RAISED_BY: i64 = 1_000_000;
/// What its example gives a counter that was lost.
const FIRST_AGAIN: i64 = 5_001;

fn statements(section: &str) -> Vec<String> {
    let fences = Document::read("docs/runbook.md").fences();
    let found: Vec<String> = fences
        .into_iter()
        .filter(|fence| fence.kind == "sql" && fence.section == section)
        .map(|fence| fence.text.trim().to_owned())
        .collect();
    assert!(!found.is_empty(), "no statement below {section}");
    found
}

async fn follow(database: &TestDatabase, section: &str) {
    for statement in statements(section) {
        if statement.starts_with("SELECT") {
            database.query(&statement).await;
        } else {
            database.execute(&statement).await;
        }
    }
}

/// Takes one number and stops, which returns the rest of a block.
async fn take_one(options: &Options) -> i64 {
    let program = options.start_ready().await;
    let number = program.client().next("orders").await;
    program.stop().await;
    number
}

for_each_backend!(the_statements_of_the_runbook_mend_what_they_are_for);

async fn the_statements_of_the_runbook_mend_what_they_are_for(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let options = Program::options()
        .database(&database.url)
        .env("ODOMETER_DEFAULT__BLOCK__MIN", 100);
    assert_eq!(take_one(&options).await, 1);
    // Without the section: the rest that was returned is adopted.
    assert_eq!(take_one(&options).await, 2);

    database
        .execute("DELETE FROM counter WHERE sequence = 'orders'")
        .await;
    let program = options.start_ready().await;
    let path = "/v1/sequences/orders/next";
    let reply = program.client().post(path).await.expect("a reply");
    assert_eq!(reply.status, 500, "{reply:?}");
    program.stop().await;
    follow(&database, "A sequence without its counter").await;
    assert_eq!(take_one(&options).await, FIRST_AGAIN);

    let high_water_mark = database.next_value("orders").await.expect("it was used");
    follow(&database, "Store went back").await;
    assert_eq!(take_one(&options).await, high_water_mark + RAISED_BY);

    for section in ["A gap", "Blocks that overlap", "Too many sequences"] {
        follow(&database, section).await;
    }
}
