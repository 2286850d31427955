//! Tests two users of a database. One owns the schema and migrates, the other only reads and writes
//! rows.

use sea_orm::{ConnectionTrait, Database};

use crate::support::{
    Backend, Ledger, Options, PASSWORD, Program, Range, Server, for_each_server, one_connection,
    settings,
};

/// The document with the statements for administrators.
const DOCUMENT: &str = "docs/databases.md";
const OWNER: &str = "owner_of_numbers";
const NAME: &str = "odometer";

/// Statements that only the owner of the schema may run.
const CHANGES: [&str; 3] = [
    "ALTER TABLE counter ADD COLUMN surplus INTEGER",
    "CREATE INDEX surplus ON counter (rate)",
    "DROP TABLE block",
];

/// A database with its two users, made by the statements of the document.
pub(super) struct Roles {
    /// The URL of the user who migrates.
    pub(super) migrate: String,
    /// The URL of the user who serves.
    pub(super) serve: String,
}

impl Roles {
    pub(super) async fn make(backend: Backend) -> Self {
        let server = Server::shared(backend).await;
        let mut number = uuid::Uuid::new_v4().simple().to_string();
        // MySQL allows user names of at most 32 characters.
        number.truncate(30);
        let (owner, name) = (format!("o_{number}"), format!("s_{number}"));
        let statements = statements(backend)
            .replace(OWNER, &owner)
            .replace(NAME, &name)
            .replace("'PASSWORD'", &format!("'{PASSWORD}'"));
        let mut database = server.first_database();
        for statement in statements.split(';').map(str::trim) {
            let inside = format!("-- In the database {name}");
            if statement.starts_with(&inside) {
                database = &name;
            }
            let statement = statement.trim_start_matches(&inside).trim();
            if !statement.is_empty() {
                server.administrate_in(database, statement).await;
            }
        }
        let url = |account: &str| server.url_as(account, PASSWORD, server.port(), &name);
        Self {
            migrate: url(&owner),
            serve: url(&name),
        }
    }
}

/// Returns the statements that the document tells an administrator to run.
fn statements(backend: Backend) -> String {
    let document = std::fs::read_to_string(settings::repository().join(DOCUMENT));
    let document = document.expect("the document is there");
    let section = document.split("\n## ").find(|of| of.starts_with("Users"));
    let section = section.expect("the section is there");
    let blocks = section.split("```sql\n").skip(1);
    let blocks = blocks.map(|block| block.split("```").next().unwrap_or_default());
    let is_of = |block: &&str| (block.contains('@')) == (backend == Backend::MariaDb);
    let found: Vec<&str> = blocks.filter(is_of).collect();
    assert!(!found.is_empty(), "vacuous: no statements");
    found.join("\n")
}

/// Returns whether a user may run a statement.
async fn may(url: &str, statement: &str) -> bool {
    let connection = Box::pin(Database::connect(one_connection(url))).await;
    let connection = connection.expect("the user may connect");
    let done = connection.execute_unprepared(statement).await;
    connection.close().await.expect("a connection closes");
    done.is_ok()
}

/// Returns options of a version that is one step of the schema ahead.
fn newer() -> Options {
    Program::options().without_guards("next-schema")
}

for_each_server!(
    the_role_that_serves_cannot_alter_the_schema_and_the_other_can,
    a_new_image_migrates_under_replicas_that_may_not,
);

async fn the_role_that_serves_cannot_alter_the_schema_and_the_other_can(backend: Backend) {
    let roles = Roles::make(backend).await;
    let serve = Program::options().database(&roles.serve);
    let refused = serve.run(&["migrate"]);
    assert_eq!(refused.code, Some(78), "{refused}");
    let migrated = Program::options()
        .database(&roles.migrate)
        .run(&["migrate"]);
    assert_eq!(migrated.code, Some(0), "{migrated}");

    let program = serve.start_ready().await;
    assert_eq!(program.client().next("orders").await, 1);
    for change in CHANGES {
        assert!(!may(&roles.serve, change).await, "may: {change}");
    }
    assert_eq!(program.client().next("orders").await, 2);
    program.stop().await;
    // Negative control: with the right, the same statements succeed.
    for change in CHANGES {
        assert!(may(&roles.migrate, change).await, "may not: {change}");
    }
}

async fn a_new_image_migrates_under_replicas_that_may_not(backend: Backend) {
    let roles = Roles::make(backend).await;
    let first = Program::options();
    let migrated = first.clone().database(&roles.migrate).run(&["migrate"]);
    assert_eq!(migrated.code, Some(0), "{migrated}");
    let mut ledger = Ledger::default();
    let old = first.database(&roles.serve).start_ready().await;
    ask(&old, &mut ledger).await;

    // The init containers of two new pods migrate at the same time.
    let migrations = [0, 1].map(|_| {
        let newer = newer().database(&roles.migrate);
        std::thread::spawn(move || newer.run(&["migrate"]))
    });
    for migration in migrations {
        let migrated = migration.join().expect("no panic");
        assert_eq!(migrated.code, Some(0), "{migrated}");
    }
    ask(&old, &mut ledger).await;
    let new = newer().database(&roles.serve).start_ready().await;
    ask(&new, &mut ledger).await;
    ask(&old, &mut ledger).await;
    old.stop().await;
    ask(&new, &mut ledger).await;
    new.stop().await;
    assert_eq!(ledger.n_duplicates(), 0, "{ledger:?}");
}

async fn ask(program: &Program, ledger: &mut Ledger) {
    for _ in 0..100 {
        let number = program.client().next("orders").await;
        ledger.record("orders", &[Range::single(number)]);
    }
}
