//! What one replica changes, the others learn of by their poll.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use odometer::{
    application::stores_settings,
    config::{Config, Secret, StoresConfig},
    metrics::Metrics,
    store::{Act, Changed, Condition, News, Stores},
};
use odometer_core::{definition::Definition, name::SequenceName, period::CounterKey};
use tokio::sync::mpsc;

use crate::support::{Backend, TestDatabase, for_each_server};

/// Far longer than two polls take, on a machine that is busy with other things.
const LIMIT: Duration = Duration::from_secs(60);
/// More than two pages of the poll.
const N_AT_ONCE: usize = 2_100;

for_each_server!(a_change_at_one_replica_is_news_at_the_other);

async fn a_change_at_one_replica_is_news_at_the_other(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let here = connect(&database).await;
    define(&here, "before").await;
    let there = connect(&database).await;
    let mut news = there.news().expect("nobody took them yet");

    define(&here, "orders").await;
    let changed = next_changes(&mut news).await;
    let names: Vec<&str> = changed.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(
        names,
        ["orders"],
        "what was there at the first contact is no news"
    );
    let (listed, _) = here
        .look_up(&CounterKey::whole(name("orders")))
        .await
        .expect("it is there");
    assert_eq!(changed[0].version, listed.version);
    assert!(changed[0].is_live);
    assert_eq!(changed[0].floor, 1);

    // Changed at once, so that names alone tell where a page ends.
    let rows: Vec<String> = (0..N_AT_ONCE)
        .map(|n| format!("('many-{n:05}', '{{}}', 'retired', '', 100, 0, 0)"))
        .collect();
    let insert = format!("INSERT INTO sequence VALUES {}", rows.join(","));
    database.execute(&insert).await;
    database
        .execute("UPDATE meta SET definitions_version = 100")
        .await;
    let mut told = BTreeSet::new();
    while told.len() < N_AT_ONCE {
        for one in next_changes(&mut news).await {
            assert!(!one.is_live, "{one:?}");
            assert!(told.insert(one.name.as_str().to_owned()), "told twice");
        }
    }
    for store in [here, there] {
        store.close(Duration::from_secs(5)).await;
    }
}

async fn connect(database: &TestDatabase) -> Arc<Stores> {
    let config = Config {
        stores: StoresConfig::of_database_url(&Secret::new(database.url.clone())),
        definition_refresh: Duration::from_secs(1),
        ..Config::default()
    };
    let store = Stores::connect(stores_settings(&config), Arc::new(Metrics::new()));
    store.await.expect("the store starts")
}

fn name(name: &str) -> SequenceName {
    SequenceName::parse(name).expect("a name")
}

async fn define(store: &Stores, sequence: &str) {
    let act = Act::Define {
        change: Box::default(),
        template: Arc::new(Definition::default()),
        dry_run: false,
    };
    let defined = store
        .alter(&name(sequence), act, Condition::None, None)
        .await;
    defined.expect("it is defined");
}

async fn next_changes(news: &mut mpsc::Receiver<News>) -> Vec<Changed> {
    let received = tokio::time::timeout(LIMIT, news.recv()).await;
    match received.expect("news in time") {
        Some(News::Changed(changed)) => changed,
        other => panic!("not what was changed: {other:?}"),
    }
}
