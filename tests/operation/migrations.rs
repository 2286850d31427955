//! Bringing the schema up: several at once, as often as one likes.

use crate::support::{Backend, Program, TestDatabase, for_each_server};

for_each_server!(four_migrations_at_once_make_one_schema);

async fn four_migrations_at_once_make_one_schema(backend: Backend) {
    let database = TestDatabase::empty(backend).await;
    let migrations: Vec<_> = (0..4)
        .map(|_| {
            let options = Program::options().database(&database.url);
            std::thread::spawn(move || options.run(&["migrate"]))
        })
        .collect();
    for migration in migrations {
        let finished = migration.join().expect("no panic");
        assert_eq!(finished.code, Some(0), "{finished}");
    }
    let stamps = "SELECT COUNT(*) FROM meta";
    assert_eq!(database.number(stamps).await, Some(1));

    // Once more: nothing changes, nothing is lost.
    let options = Program::options().database(&database.url);
    let program = options.start_ready().await;
    assert_eq!(program.client().next("kept").await, 1);
    database.migrate();
    assert_eq!(program.client().next("kept").await, 2);
    program.stop().await;
    database.migrate();
    let program = options.start_ready().await;
    assert_eq!(program.client().next("kept").await, 3);
    assert_eq!(database.number(stamps).await, Some(1));
}
