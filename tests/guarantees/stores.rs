//! Named stores: a name lives in one store, for good.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use serde_json::json;
use tokio::sync::Barrier;

use crate::support::{
    Backend, Client, Ledger, Link, Options, Program, Proxy, Range, Server, TestDatabase, run, wait,
};

const N_NAMES: usize = 40;
/// How long an expected event may take.
const LIMIT: Duration = Duration::from_secs(60);

/// A default store and another one, each behind a proxy.
struct Stage {
    default: TestDatabase,
    other: TestDatabase,
    proxies: [Proxy; 2],
    urls: [String; 2],
}

impl Stage {
    async fn new() -> Self {
        let default = TestDatabase::empty(Backend::Postgres).await;
        let other = TestDatabase::empty(Backend::MariaDb).await;
        let (postgres, mariadb) = (
            Server::shared(Backend::Postgres).await,
            Server::shared(Backend::MariaDb).await,
        );
        let proxies = [
            Proxy::to(postgres.port()).await,
            Proxy::to(mariadb.port()).await,
        ];
        let urls = [
            default.url_through(&proxies[0], postgres),
            other.url_through(&proxies[1], mariadb),
        ];
        let stage = Self {
            default,
            other,
            proxies,
            urls,
        };
        let migrated = stage.options(Program::options()).run(&["migrate"]);
        assert_eq!(migrated.code, Some(0), "migrate: {migrated}");
        stage
    }

    fn options(&self, options: Options) -> Options {
        options
            .database(&self.urls[0])
            .env("ODOMETER_STORES__OTHER__DATABASE", &self.urls[1])
            .env("ODOMETER_DEFAULT__BLOCK__MIN", 5)
            .env("ODOMETER_DEFAULT__BLOCK__MAX", 10)
    }
}

#[test]
fn a_name_lives_in_one_store() {
    run(async {
        let stage = Stage::new().await;
        let ledger = created_with_different_stores(&stage, Program::options()).await;
        assert_eq!(ledger.n_duplicates(), 0);
        let (here, there) = (names(&stage.default).await, names(&stage.other).await);
        let both: Vec<&String> = here.intersection(&there).collect();
        assert_eq!(both, Vec::<&String>::new());
        assert_eq!(here.len() + there.len(), N_NAMES);
        assert!(!here.is_empty() && !there.is_empty(), "vacuous: one store");
        // A replica that starts now finds each name in the store in which it was created.
        let program = stage.options(Program::options()).start_ready().await;
        let client = program.client();
        let mut more = ledger;
        take_all(&client, &mut more).await;
        assert_eq!(more.n_duplicates(), 0);
    });
}

#[test]
fn without_the_row_of_a_claim_a_name_is_created_in_two_stores() {
    run(async {
        let stage = Stage::new().await;
        let options = Program::options().without_guards("no-claim-row");
        let ledger = created_with_different_stores(&stage, options).await;
        assert!(ledger.n_duplicates() > 0, "no name was met at once");
    });
}

#[test]
fn without_claims_a_name_is_created_in_two_stores() {
    run(async {
        let stage = Stage::new().await;
        let options = Program::options().without_guards("no-claims");
        let ledger = created_with_different_stores(&stage, options).await;
        assert!(ledger.n_duplicates() > 0, "the check finds nothing");
    });
}

/// Lets two replicas that would create all names in different stores use the names at once.
async fn created_with_different_stores(stage: &Stage, options: Options) -> Ledger {
    let options = stage.options(options);
    let one = options.start_ready().await;
    let other = options
        .clone()
        .env("ODOMETER_DEFAULT__STORE", "other")
        .start_ready()
        .await;
    let at_once = Arc::new(Barrier::new(2));
    let callers: Vec<_> = [one.client(), other.client()]
        .into_iter()
        .map(|client| {
            let at_once = Arc::clone(&at_once);
            tokio::spawn(async move {
                let mut ledger = Ledger::default();
                for n_name in 0..N_NAMES {
                    at_once.wait().await;
                    take(&client, &name(n_name), &mut ledger).await;
                }
                ledger
            })
        })
        .collect();
    let mut ledger = Ledger::default();
    for caller in callers {
        ledger.merge(caller.await.expect("a caller does not panic"));
    }
    ledger
}

async fn take_all(client: &Client, ledger: &mut Ledger) {
    for n_name in 0..N_NAMES {
        take(client, &name(n_name), ledger).await;
    }
}

async fn take(client: &Client, name: &str, ledger: &mut Ledger) {
    for _ in 0..3 {
        let number = client.next(name).await;
        ledger.record(name, &[Range::single(number)]);
    }
}

fn name(n_name: usize) -> String {
    format!("somewhere-{n_name}")
}

/// Returns the names that have a counter in this database.
async fn names(database: &TestDatabase) -> BTreeSet<String> {
    let rows = database
        .query("SELECT DISTINCT sequence FROM counter ORDER BY sequence")
        .await;
    let names = rows.iter().map(|row| row.try_get("", "sequence"));
    names.collect::<Result<_, _>>().expect("names")
}

#[test]
fn no_name_is_created_while_a_store_that_may_have_it_is_away() {
    run(async {
        let stage = Stage::new().await;
        let program = stage.options(Program::options()).start_ready().await;
        let client = program.client();
        let in_other = json!({"store": "other"});
        client.define("lives-there", &in_other).await;
        client.define("lives-here", &json!({})).await;
        let (mut there, mut here) = (client.next("lives-there").await, 0);
        for (away, known, is_known) in [
            // Each store is enough for a known name that lives in it.
            (1, "lives-here", true),
            (1, "unborn", false),
            (0, "lives-there", true),
            (0, "unborn", false),
        ] {
            stage.proxies[away].set(Link::Cut);
            for _ in 0..30 {
                let path = format!("/v1/sequences/{known}/next");
                let reply = client.post(&path).await.expect("a reply");
                if !is_known {
                    assert_eq!(reply.status, 503, "{known} without {away}: {reply:?}");
                    let code = reply.code();
                    assert_eq!(code.as_deref(), Some("store_unavailable"), "{reply:?}");
                    break;
                }
                let number = reply.number();
                let last = if away == 0 { &mut there } else { &mut here };
                assert!(number > *last, "{number} after {last}");
                *last = number;
            }
            stage.proxies[away].set(Link::Whole);
            // A connection that was cut is noticed only by a call that uses it.
            for name in ["lives-here", "lives-there"] {
                let path = format!("/v1/sequences/{name}/blocks?size=1");
                let mut n_in_turn = 0;
                wait::until("both stores answer", LIMIT, async || {
                    let reply = client.post(&path).await.expect("a reply");
                    n_in_turn = if reply.status == 200 {
                        n_in_turn + 1
                    } else {
                        0
                    };
                    (n_in_turn == 5).then_some(())
                })
                .await;
            }
        }
        let created = [names(&stage.default).await, names(&stage.other).await];
        assert!(
            !created.iter().any(|names| names.contains("unborn")),
            "{created:?}"
        );
    });
}

#[test]
fn a_database_that_joins_keeps_its_names_also_from_replicas_without_it() {
    run(async {
        let stage = Stage::new().await;
        let alone = Program::options().database(&stage.urls[1]);
        let program = alone.start_ready().await;
        let before = program.client().next("joined").await;
        program.stop().await;
        let both = stage.options(Program::options()).start_ready().await;
        let after = both.client().next("joined").await;
        assert!(after > before, "{after} after {before}");
        let without = Program::options().database(&stage.urls[0]);
        let without = without.start_ready().await;
        let path = "/v1/sequences/joined/next";
        let reply = without.client().post(path).await.expect("a reply");
        assert_eq!(
            reply.code().as_deref(),
            Some("store_unavailable"),
            "{reply:?}"
        );
        assert_eq!(names(&stage.default).await, BTreeSet::new());
    });
}

#[test]
fn another_database_under_the_name_of_a_store_gives_no_number_of_its_names() {
    run(async {
        let stage = Stage::new().await;
        let program = stage.options(Program::options()).start_ready().await;
        let in_other = json!({"store": "other"});
        program.client().define("lives-there", &in_other).await;
        assert_eq!(program.client().next("lives-there").await, 1);
        program.stop().await;
        let stranger = TestDatabase::empty(Backend::Postgres).await;
        let options = Program::options()
            .database(&stage.urls[0])
            .env("ODOMETER_STORES__OTHER__DATABASE", &stranger.url);
        let migrated = options.run(&["migrate"]);
        assert_eq!(migrated.code, Some(0), "migrate: {migrated}");
        let program = options.start_ready().await;
        let path = "/v1/sequences/lives-there/next";
        let reply = program.client().post(path).await.expect("a reply");
        assert_eq!(
            reply.code().as_deref(),
            Some("store_unavailable"),
            "{reply:?}"
        );
        assert_eq!(names(&stranger).await, BTreeSet::new());
    });
}

#[test]
fn one_database_is_not_two_stores_whatever_its_url_says() {
    run(async {
        let stage = Stage::new().await;
        let server = Server::shared(Backend::Postgres).await;
        let other_way = stage.default.url_through(&stage.proxies[0], server);
        let refused = Program::options()
            .database(&stage.default.url)
            .env("ODOMETER_STORES__OTHER__DATABASE", &other_way)
            .run(&["check"]);
        assert_eq!(refused.code, Some(78), "{refused}");
        assert!(refused.errors.contains("another store"), "{refused}");
    });
}

#[test]
fn sequences_of_all_stores_are_listed_together() {
    run(async {
        let stage = Stage::new().await;
        let options = stage.options(Program::options());
        let programs = [options.start_ready().await, options.start_ready().await];
        let client = programs[0].client();
        for n_name in 0..6 {
            let store = if n_name % 2 == 0 { "default" } else { "other" };
            let definition = json!({"store": store});
            client.define(&name(n_name), &definition).await;
        }
        for program in &programs {
            let client = program.client();
            let reply = client.get("/v1/sequences").await.expect("a reply");
            assert_eq!(reply.status, 200, "{reply:?}");
            for n_name in 0..6 {
                let n_listed = reply.body.matches(&format!("\"{}\"", name(n_name))).count();
                assert_eq!(n_listed, 1, "{}: {}", name(n_name), reply.body);
                let store = if n_name % 2 == 0 { "default" } else { "other" };
                let described = client.describe(&name(n_name)).await;
                assert_eq!(described["definition"]["store"], store, "{described}");
            }
            let moved = json!({"store": "other"});
            let path = format!("/v1/sequences/{}", name(0));
            let reply = client.put(&path, &moved).await.expect("a reply");
            assert_eq!(
                reply.code().as_deref(),
                Some("immutable_field"),
                "{reply:?}"
            );
        }
    });
}

#[test]
fn a_store_that_is_not_configured_is_named() {
    run(async {
        let stage = Stage::new().await;
        let options = stage.options(Program::options());
        for (variable, value, key) in [
            ("ODOMETER_DEFAULT__STORE", "nowhere", "nowhere"),
            ("ODOMETER_STORES__OTHER__FALLBACK", "perhaps", "fallback"),
            ("ODOMETER_STORES__OTHER__DATABSE", "sqlite:x", "databse"),
            (
                "ODOMETER_STORES__DEFAULT__DATABASE",
                "sqlite:x",
                "database_url",
            ),
        ] {
            let refused = options
                .clone()
                .env("ODOMETER_LISTEN", "127.0.0.1:0")
                .env(variable, value)
                .run(&["serve"]);
            assert_eq!(refused.code, Some(78), "{variable}: {refused}");
            assert!(refused.errors.contains(key), "{variable}: {refused}");
        }
        let program = options.start_ready().await;
        let definition = json!({"store": "nowhere"});
        let path = "/v1/sequences/lost";
        let reply = program.client().put(path, &definition).await;
        let reply = reply.expect("a reply");
        assert_eq!(
            reply.code().as_deref(),
            Some("invalid_definition"),
            "{reply:?}"
        );
    });
}
