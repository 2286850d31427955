//! Tests that names are compared byte by byte on every database.

use crate::support::{Backend, Program, TestDatabase, for_each_backend};

for_each_backend!(names_that_differ_in_case_are_two_sequences);

async fn names_that_differ_in_case_are_two_sequences(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let options = Program::options().database(&database.url);
    let program = options.start_ready().await;
    let client = program.client();
    let longest = "n".repeat(128);
    let names = [
        "orders", "Orders", "ORDERS", "a-b", "a_b", "a.b", "a:b", &longest,
    ];
    for name in names {
        assert_eq!(client.next(name).await, 1, "{name}");
    }
    for name in names {
        assert_eq!(client.next(name).await, 2, "{name}");
    }
    program.stop().await;
    // The names also differ when they are read back from the store.
    let program = options.start_ready().await;
    for name in names {
        assert_eq!(program.client().next(name).await, 3, "{name}");
    }
}
