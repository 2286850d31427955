//! Changes by a command, which opens the stores without monitors.

use std::{path::Path, sync::Arc, time::Duration};

use odometer_core::{
    definition::{Definition, DefinitionChange},
    name::SequenceName,
};
use odometer_process::{metrics::Metrics, secret::Secret};
use odometer_store::{
    Act, Altered, ChangeRequest, Condition, Fallback, OpenFor, StartError, StoreError,
    StoreSettings, Stores, StoresSettings,
};
use odometer_tests::{Backend, TestDatabase, run, wait};

use crate::{
    for_each_backend,
    stage::{LIMIT, Stage, settings},
};

/// The rows of `sequence`, claims included.
const ROWS: &str = "SELECT COUNT(*) FROM sequence";
/// The replicas that have shown themselves in a database.
const REPLICAS: &str = "SELECT COUNT(*) FROM replica";

/// Settings of a store with these databases, and of another store `tickets` with those.
fn of_stores(default: &[&TestDatabase], tickets: &[&TestDatabase]) -> StoresSettings {
    let store = |name: &str, databases: &[&TestDatabase]| StoreSettings {
        name: name.to_owned(),
        key: format!("stores.{name}.databases"),
        origin: "the test".to_owned(),
        databases: databases.iter().map(|it| it.url.clone().into()).collect(),
        redis: Vec::new(),
        fallback: Fallback::None,
        durability: None,
    };
    let mut all = settings("sqlite:unused", LIMIT);
    all.stores = vec![store("default", default)];
    if !tickets.is_empty() {
        all.stores.push(store("tickets", tickets));
    }
    all
}

async fn open(settings: &StoresSettings, open_for: OpenFor) -> Result<Arc<Stores>, StartError> {
    // Another process knows nothing of the installations that this one has met.
    let settings = StoresSettings {
        installations: Arc::default(),
        ..settings.clone()
    };
    Stores::open(settings, open_for, Arc::new(Metrics::new())).await
}

fn define(name: &str, store: Option<&str>, dry_run: bool, n_created: u64) -> ChangeRequest {
    ChangeRequest {
        name: SequenceName::parse(name).expect("it is a name"),
        act: Act::Define {
            change: Box::new(DefinitionChange {
                store: store.map(str::to_owned),
                ..DefinitionChange::default()
            }),
            template: Arc::new(Definition::default()),
            dry_run,
        },
        condition: Condition::None,
        last_seen: None,
        n_created,
    }
}

/// Makes one change as a command.
async fn change(
    settings: &StoresSettings,
    open_for: OpenFor,
    change: ChangeRequest,
) -> Result<Altered, StoreError> {
    let stores = open(settings, open_for).await.expect("they are there");
    let altered = stores.alter(change).await;
    stores.close(LIMIT).await;
    altered
}

fn is_file(database: &TestDatabase) -> bool {
    Path::new(database.url.trim_start_matches("sqlite:")).exists()
}

for_each_backend!(a_command_defines_what_a_replica_then_counts);

async fn a_command_defines_what_a_replica_then_counts(backend: Backend) {
    let mut stage = Stage::new(backend).await;
    stage.stop().await;
    let n_replicas = stage.database.number(REPLICAS).await;
    let dry = define("orders", None, true, 0);
    let planned = change(&stage.settings, OpenFor::DryRun, dry).await;
    let planned = planned.expect("it could be created");
    assert!(planned.before.is_none() && !planned.is_written);
    assert_eq!(stage.database.number(ROWS).await, Some(0));
    let wet = define("orders", None, false, 0);
    let created = change(&stage.settings, OpenFor::Command, wet).await;
    assert!(created.expect("it is created").is_written);
    assert_eq!(
        stage.database.number(REPLICAS).await,
        n_replicas,
        "a command is no replica"
    );
    let stores = open(&stage.settings, OpenFor::DryRun).await;
    let stores = stores.expect("it is there");
    let again = stores.alter(define("orders", None, true, 0)).await;
    assert!(again.expect("it is so already").before.is_some());
    assert!(stores.take_last_failure().is_none());
    stores.close(LIMIT).await;
    stage.start().await;
    let block = stage.reserve(10, None).await.expect("a block").block;
    assert_eq!(block.first(), 1);
}

#[test]
fn a_file_that_is_not_there_counts_as_an_empty_database_in_a_dry_run() {
    run(async {
        let (one, other) = (database().await, database().await);
        let mut settings = of_stores(&[&one], &[&other]);
        settings.bounds.max_sequences = 2;
        let stores = open(&settings, OpenFor::DryRun).await;
        let stores = stores.expect("no database is needed");
        for store in [None, Some("tickets")] {
            let planned = stores.alter(define("orders", store, true, 1)).await;
            let planned = planned.expect("it could be created");
            assert!(planned.before.is_none() && !planned.is_written);
            let named = planned.after.definition.store.clone();
            assert_eq!(named, store.unwrap_or("default"));
            assert_eq!(planned.after.next_value, 1);
            let full = stores.alter(define("orders", store, true, 2)).await;
            assert!(
                matches!(full, Err(StoreError::TooMany { limit: 2 })),
                "{full:?}"
            );
        }
        stores.close(LIMIT).await;
        assert!(!is_file(&one) && !is_file(&other));
    });
}

#[test]
fn a_dry_run_finds_a_name_in_its_store_and_claims_nothing() {
    run(async {
        let (one, other) = (database().await, database().await);
        let alone = of_stores(&[&other], &[]);
        let created = change(&alone, OpenFor::Command, define("old", None, false, 0)).await;
        assert!(created.expect("it is created").is_written);
        let both = of_stores(&[&one], &[&other]);
        let made = change(&both, OpenFor::Command, define("first", None, false, 0)).await;
        assert!(made.expect("it is created").is_written);
        for store in [None, Some("tickets")] {
            let dry = define("old", store, true, 0);
            let planned = change(&both, OpenFor::DryRun, dry).await;
            let before = planned.expect("it is there").before.expect("it is found");
            assert_eq!(before.definition.store, "tickets");
        }
        assert_eq!(one.number(ROWS).await, Some(1), "only `first`");
        let wet = define("old", None, false, 0);
        let found = change(&both, OpenFor::Command, wet).await;
        assert!(!found.expect("it is so already").is_written);
        let new = define("new", Some("tickets"), false, 0);
        let created = change(&both, OpenFor::Command, new).await;
        assert!(created.expect("it is created").is_written);
        assert_eq!(one.number(ROWS).await, Some(3), "`first` and two claims");
        assert_eq!(other.number(ROWS).await, Some(2));
        assert_eq!(one.number(REPLICAS).await, Some(0));
    });
}

#[test]
fn a_command_changes_all_databases_of_a_striped_store() {
    run(async {
        let (one, other) = (database().await, database().await);
        let settings = of_stores(&[&one, &other], &[]);
        let wet = define("orders", None, false, 0);
        let created = change(&settings, OpenFor::Command, wet).await;
        assert!(created.expect("it is created").is_written);
        assert_eq!(one.number(ROWS).await, Some(1));
        assert_eq!(other.number(ROWS).await, Some(1));
        let strict = |dry_run| {
            let mut change = define("invoices", None, dry_run, 0);
            if let Act::Define { change, .. } = &mut change.act {
                change.order = serde_json::from_str("\"strict\"").expect("it is an order");
            }
            change
        };
        for open_for in [OpenFor::DryRun, OpenFor::Command] {
            let refused = change(&settings, open_for, strict(true)).await;
            assert!(
                matches!(refused, Err(StoreError::Definition(_))),
                "{refused:?}"
            );
        }
        let known = change(&settings, OpenFor::DryRun, define("orders", None, true, 0)).await;
        assert!(known.expect("it is so already").before.is_some());
    });
}

#[test]
fn a_command_names_the_database_that_is_away() {
    run(async {
        let one = database().await;
        let mut settings = of_stores(&[&one], &[&one]);
        settings.stores[1].databases = vec![Secret::new("postgres://nobody:nothing@127.0.0.1:1/d")];
        settings.bounds.statement.acquire = Duration::from_secs(1);
        for open_for in [OpenFor::Command, OpenFor::DryRun] {
            let error = open(&settings, open_for).await.err();
            let error = error.expect("one is away");
            assert!(matches!(error, StartError::Other(_)), "{error:?}");
            let said = error.to_string();
            assert!(said.contains("stores.tickets.databases"), "{said}");
        }
    });
}

/// A SQLite file that is not there yet.
async fn database() -> TestDatabase {
    TestDatabase::empty(Backend::Sqlite).await
}

/// Says whether this process has a file open.
fn is_open(path: &Path) -> bool {
    let open = std::fs::read_dir("/proc/self/fd").expect("this is Linux");
    let mut files = open.flatten().flat_map(|entry| entry.path().read_link());
    files.any(|file| file == path)
}

/// The tasks of a store keep one another alive, and the connection to the database.
#[test]
fn a_store_that_is_dropped_closes_its_file() {
    run(async {
        let mut stage = Stage::new(Backend::Sqlite).await;
        let file = stage.database.url.trim_start_matches("sqlite:").to_owned();
        let file = Path::new(&file).canonicalize().expect("it is there");
        assert!(is_open(&file), "vacuous: its name is not found");
        stage.abandon();
        wait::until("the file is closed", LIMIT, async || {
            (!is_open(&file)).then_some(())
        })
        .await;
    });
}
