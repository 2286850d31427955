//! Metric names are an interface: every name in the documents exists in a real scrape.

use std::{collections::BTreeSet, time::Duration};

use reqwest::Method;
use serde_json::json;
use tokio::task::JoinSet;

use crate::support::{Answer, Backend, Program, Scrape, TestDatabase, run, settings, wait};

const LIMIT: Duration = Duration::from_secs(30);

/// The metrics that the design promises.
const PROMISED: [&str; 16] = [
    "odometer_numbers_issued_total",
    "odometer_block_size",
    "odometer_block_remaining",
    "odometer_block_utilization_ratio",
    "odometer_reserve_seconds",
    "odometer_reservations_total",
    "odometer_reservation_retries_total",
    "odometer_reservation_duration_seconds_bucket",
    "odometer_abandoned_numbers_total",
    "odometer_waiters",
    "odometer_actors",
    "odometer_http_requests_total",
    "odometer_http_request_duration_seconds_bucket",
    "odometer_build_info",
    "odometer_shortest_reserve_seconds",
    "odometer_store_up",
];

/// Starts and uses a program with a second store that has Redis. Only such a program has the
/// metrics of Redis.
async fn used_program() -> ([TestDatabase; 2], Program) {
    let database = TestDatabase::prepared(Backend::Sqlite).await;
    let other = TestDatabase::prepared(Backend::Sqlite).await;
    let program = Program::options()
        .database(&database.url)
        .env("ODOMETER_STORES__FAST__DATABASE", &other.url)
        // Nothing listens there.
        .env("ODOMETER_STORES__FAST__REDIS", "redis://127.0.0.1:9")
        .start_ready()
        .await;
    let client = program.client();
    for _ in 0..200 {
        client.next("measured").await;
    }
    let blocks = "/v1/sequences/measured/blocks?size=5";
    assert_eq!(client.post(blocks).await.expect("a reply").status, 200);
    ([database, other], program)
}

#[test]
fn every_promised_metric_is_in_a_scrape() {
    run(async {
        let (_databases, program) = used_program().await;
        let client = program.client();
        let reply = client.get("/metrics").await.expect("a reply");
        let kind = reply.header("content-type").unwrap_or_default();
        assert!(kind.starts_with("text/plain; version=0.0.4"), "{kind}");
        wait::until(
            "every metric is there",
            std::time::Duration::from_secs(20),
            async || {
                let scrape = Scrape::of(&client).await;
                PROMISED.iter().all(|name| scrape.has(name)).then_some(())
            },
        )
        .await;
        let scrape = Scrape::of(&client).await;
        let sequence = [("sequence", "measured")];
        let issued = scrape.sum("odometer_numbers_issued_total", &sequence);
        assert!(issued >= 200.0, "{issued}");
        assert!(scrape.n_reservations("reserved") >= 2.0);
        let answered = [("route", "next"), ("status", "200")];
        assert_eq!(scrape.sum("odometer_http_requests_total", &answered), 200.0);
    });
}

#[test]
fn every_metric_that_the_documents_name_is_in_a_scrape() {
    run(async {
        let (_databases, program) = used_program().await;
        let reply = program.client().get("/metrics").await.expect("a reply");
        let exposed = names_in(&reply.body);
        let root = settings::repository();
        let mut documents: Vec<_> = ["README.md", "ARCHITECTURE.md", "GUARANTEES.md"]
            .map(|name| root.join(name))
            .to_vec();
        let docs = std::fs::read_dir(root.join("docs")).into_iter().flatten();
        documents.extend(docs.flatten().map(|entry| entry.path()));
        let mut n_named = 0;
        for document in documents {
            let Ok(text) = std::fs::read_to_string(&document) else {
                continue;
            };
            // The name of the package has the version behind the name of the program.
            let package = format!("odometer_{}", env!("CARGO_PKG_VERSION"));
            for name in names_in(&text.replace(&package, "")) {
                n_named += 1;
                assert!(exposed.contains(&name), "{name} of {}", document.display());
            }
        }
        assert!(n_named > 0, "vacuous: no document names a metric");
    });
}

#[test]
fn weak_durability_is_shown_until_it_is_mended() {
    run(async {
        let database = TestDatabase::prepared(Backend::Postgres).await;
        let alter = |how: &str| {
            format!(
                "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I {how}', current_database()); END $$"
            )
        };
        let own = format!("{}?options=-c%20synchronous_commit%3Doff", database.url);
        for (how, url, expected) in [
            ("SET synchronous_commit = on", &database.url, 0.0),
            // If the URL does not set it, the program's sessions set it.
            ("SET synchronous_commit = off", &database.url, 0.0),
            ("SET synchronous_commit = on", &own, 1.0),
            ("RESET synchronous_commit", &database.url, 0.0),
        ] {
            database.execute(&alter(how)).await;
            let program = Program::options()
                .database(url)
                .env("ODOMETER_STORE__DURABILITY", "weak")
                .start_ready()
                .await;
            let scrape = Scrape::of(&program.client()).await;
            let weak = scrape.sum("odometer_database_durability_weak", &[]);
            assert_eq!(weak, expected, "{how}");
        }
    });
}

#[test]
fn a_replica_says_whether_it_is_ready() {
    run(async {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let program = Program::options()
            .database(&database.url)
            .start_ready()
            .await;
        let scrape = Scrape::of(&program.client()).await;
        assert_eq!(scrape.sum("odometer_ready", &[]), 1.0);
        // Nothing listens there.
        let without = Program::options()
            .database("postgres://nobody@127.0.0.1:9/nothing")
            .start()
            .await;
        let client = without.client();
        let reply = client.get("/readyz").await.expect("a reply");
        assert_eq!(reply.status, 503, "{reply:?}");
        let scrape = Scrape::of(&client).await;
        assert!(scrape.has("odometer_ready"));
        assert_eq!(scrape.sum("odometer_ready", &[]), 0.0);
    });
}

#[test]
fn connections_in_use_and_waited_for_are_counted() {
    run(async {
        let database = TestDatabase::prepared(Backend::Postgres).await;
        let program = Program::options()
            .database(&database.url)
            .env("ODOMETER_POOL__MAX", 2)
            .env("ODOMETER_STORE__TIMEOUT", "50s")
            .env("ODOMETER_REFILL__DEADLINE", "60s")
            .start_ready()
            .await;
        let client = program.client();
        let connections = async || {
            let scrape = Scrape::of(&program.client()).await;
            ["max", "active", "pending"].map(|state| {
                let name = format!("odometer_database_connections_{state}");
                scrape.sum(&name, &[])
            })
        };
        assert_eq!(connections().await[0], 2.0);
        let frozen = database.freeze().await;
        let mut calls = JoinSet::new();
        for n in 0..8 {
            let client = client.clone();
            let path = format!("/v1/sequences/waiting-{n}/next");
            calls.spawn(async move { client.post(&path).await });
        }
        wait::until("some wait for a connection", LIMIT, async || {
            let [_, active, pending] = connections().await;
            (active >= 2.0 && pending >= 1.0).then_some(())
        })
        .await;
        frozen.thaw().await;
        calls.join_all().await;
        wait::until("nobody has one", LIMIT, async || {
            (connections().await[1..] == [0.0, 0.0]).then_some(())
        })
        .await;
    });
}

#[test]
fn numbers_left_are_shown_where_a_rate_uses_them_up() {
    run(async {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let program = Program::options()
            .database(&database.url)
            .start_ready()
            .await;
        let client = program.client();
        let short = json!({"max": "1000", "block": {"min": 10, "max": 10}});
        client.define("short", &short).await;
        client.define("stamps", &json!({"kind": "snowflake"})).await;
        for name in ["short", "stamps"] {
            client.next(name).await;
        }
        // Each till has numbers of its own, and a day ends before a million calls for one number.
        let tills = json!({"period": "keyed", "max": "1000", "block": {"min": 1}});
        client.define("tills", &tills).await;
        let days = json!({"period": "day", "max": "1000000", "block": {"min": 1}});
        client.define("days", &days).await;
        for call in ["tills/next?period=north", "days/next"] {
            let answer = client.ask(&format!("/v1/sequences/{call}")).await;
            assert!(matches!(answer, Answer::Given(_)), "{call}: {answer:?}");
        }
        let left =
            |scrape: &Scrape, name| scrape.sum("odometer_runway_numbers", &[("sequence", name)]);
        // The next block may be on its way, so the test waits.
        wait::until("both say how many are left", LIMIT, async || {
            let scrape = Scrape::of(&client).await;
            let described = client.describe("short").await;
            let described = described["state"]["runway"]["numbers_left"].as_f64();
            let described = described.unwrap_or_else(|| panic!("no runway"));
            assert!((900.0..1000.0).contains(&described), "{described}");
            (left(&scrape, "short") == described).then_some(())
        })
        .await;
        let scrape = Scrape::of(&client).await;
        for name in ["stamps", "tills", "days"] {
            assert_eq!(left(&scrape, name), f64::INFINITY, "{name}");
        }
    });
}

/// Returns the words that begin as a metric does, except for the names of crates.
fn names_in(text: &str) -> BTreeSet<String> {
    const CRATES: [&str; 5] = ["core", "tests", "bench", "client", "migrations"];
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .filter(|word| {
            word.strip_prefix("odometer_")
                .is_some_and(|rest| !rest.is_empty() && !CRATES.contains(&rest))
        })
        .map(str::to_owned)
        .collect()
}

#[test]
fn a_reserve_is_short_where_its_sequence_could_have_more() {
    run(async {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let program = Program::options()
            .database(&database.url)
            .start_ready()
            .await;
        let client = program.client();
        let until = async |name: &str, is_so: fn(f64, f64) -> bool| {
            wait::until("the reserve is so", LIMIT, async || {
                for _call in 0..10 {
                    client.next(name).await;
                }
                let scrape = Scrape::of(&client).await;
                let [seconds, ratio] = ["seconds", "ratio"]
                    .map(|unit| scrape.sum(&format!("odometer_shortest_reserve_{unit}"), &[]));
                let described = client.describe(name).await;
                let is_in_use = described["state"]["rate"].as_f64() >= Some(0.2);
                (is_in_use && is_so(seconds, ratio)).then_some(())
            })
            .await;
        };
        // A block has at most 1/4096 of the numbers that are left.
        let printed = json!({"format": "P-{value:05}"});
        client.define("printed", &printed).await;
        until("printed", |seconds, ratio| {
            seconds < 60.0 && ratio.is_infinite()
        })
        .await;
        client.define("short", &json!({"max": 40_000})).await;
        until("short", |seconds, ratio| {
            seconds < 60.0 && ratio.is_infinite()
        })
        .await;
        let few = json!({"block": {"max": 2}});
        client.define("few", &few).await;
        until("few", |_, ratio| ratio < 1.0).await;
        let runway = async || {
            let of_few = [("sequence", "few")];
            let scrape = Scrape::of(&client).await;
            scrape.sum("odometer_runway_numbers", &of_few)
        };
        assert!(runway().await.is_finite());
        // A retired sequence returns its blocks and no longer counts as short.
        let retired = client.send(Method::DELETE, "/v1/sequences/few", &[], None);
        assert_eq!(retired.await.expect("a reply").status, 204);
        until("short", |_, ratio| ratio.is_infinite()).await;
        assert!(runway().await.is_infinite());
    });
}
