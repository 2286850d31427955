//! Tests what a replica reports about its memory without a call to the database.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Backend, Client, Link, Program, Proxy, Server, TestDatabase, run, wait};

const LIMIT: Duration = Duration::from_secs(20);

async fn read(client: &Client, path: &str) -> Value {
    let reply = client.get(path).await.expect("a reply");
    assert_eq!(reply.status, 200, "{path}: {reply:?}");
    assert_eq!(reply.header("cache-control"), Some("no-store"), "{path}");
    reply.json()
}

fn names(page: &Value) -> Vec<&str> {
    let sequences = page["sequences"].as_array().expect("a list");
    sequences
        .iter()
        .map(|one| one["sequence"].as_str().expect("a name"))
        .collect()
}

/// Returns the first page when it lists `n` names. Waits, because the order of names is updated a
/// moment later.
async fn listed(client: &Client, n: usize) -> Value {
    wait::until("all names are listed", LIMIT, async || {
        let page = read(client, "/v1/replica/sequences").await;
        (names(&page).len() == n).then_some(page)
    })
    .await
}

#[test]
fn names_in_memory_come_in_pages_in_their_order() {
    run(async {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let program = Program::options()
            .database(&database.url)
            .start_ready()
            .await;
        let client = program.client();
        let mut all: Vec<String> = (0..25).map(|n| format!("n-{n}")).collect();
        all.push("N-1".to_owned());
        for name in &all {
            client.next(name).await;
        }
        // Memory knows nothing of a sequence that was only defined.
        client.define("resting", &json!({})).await;
        all.sort();
        assert_eq!(names(&listed(&client, all.len()).await), all);

        let mut seen = Vec::new();
        let mut path = "/v1/replica/sequences?limit=7".to_owned();
        loop {
            let page = read(&client, &path).await;
            assert!(names(&page).len() <= 7);
            seen.extend(names(&page).into_iter().map(str::to_owned));
            let Some(next) = page["next"].as_str() else {
                break;
            };
            path = format!("/v1/replica/sequences?limit=7&after={next}");
        }
        assert_eq!(seen, all);
        let some = read(&client, "/v1/replica/sequences?contains=-1").await;
        assert!(names(&some).iter().all(|name| name.contains("-1")));
        assert_eq!(names(&some).len(), 12);
        for (query, status) in [("limit=1001", 400), ("contains=a%20b", 400), ("x=1", 400)] {
            let path = format!("/v1/replica/sequences?{query}");
            let reply = client.get(&path).await.expect("a reply");
            assert_eq!(reply.status, status, "{query}");
        }
        for path in ["/v1/replica", "/v1/replica/sequences"] {
            let reply = client.post(path).await.expect("a reply");
            assert_eq!(
                (reply.status, reply.header("allow")),
                (405, Some("GET, HEAD"))
            );
            let head = client.send(Method::HEAD, path, &[], None).await;
            assert_eq!(head.expect("a reply").status, 200);
            let foreign = [("sec-fetch-site", "cross-site")];
            let reply = client.send(Method::GET, path, &foreign, None).await;
            assert_eq!(reply.expect("a reply").status, 403);
        }
    });
}

#[test]
fn names_in_memory_come_by_the_time_that_is_left() {
    run(async {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let program = Program::options()
            .database(&database.url)
            .start_ready()
            .await;
        let client = program.client();
        // Each has ten times the rate of the one before, the same block and the same end.
        let same = json!({"max": "1000000000", "block": {"min": 10_000, "max": 10_000}});
        for (name, count) in [("c", 2), ("b", 20), ("a", 200)] {
            client.define(name, &same).await;
            let path = format!("/v1/sequences/{name}/next?count={count}");
            assert_eq!(client.post(&path).await.expect("a reply").status, 200);
        }
        // Nothing is reserved of it, so no time is known.
        client.define("0-strict", &json!({"order": "strict"})).await;
        client.next("0-strict").await;
        listed(&client, 4).await;
        for sort in ["reserve", "runway"] {
            let path = format!("/v1/replica/sequences?sort={sort}");
            wait::until(sort, LIMIT, async || {
                let page = read(&client, &path).await;
                let of_one = &page["sequences"][0];
                assert_eq!(of_one["warming_up"], false, "its blocks cannot grow");
                let is_sorted = names(&page)[..3] == ["a", "b", "c"];
                (is_sorted && page["next"].is_null()).then_some(())
            })
            .await;
            let two = read(&client, &format!("{path}&limit=2")).await;
            assert_eq!(names(&two), ["a", "b"]);
        }
        let by_name = read(&client, "/v1/replica/sequences?sort=name&limit=2").await;
        assert_eq!(names(&by_name), ["0-strict", "a"]);
        let reply = client.get("/v1/replica/sequences?sort=rate").await;
        assert_eq!(reply.expect("a reply").status, 400);
    });
}

#[test]
fn each_kind_is_told_by_what_it_has() {
    run(async {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let program = Program::options()
            .database(&database.url)
            .start_ready()
            .await;
        let client = program.client();
        for (name, definition) in [
            ("block", json!({})),
            ("daily", json!({"period": "day"})),
            ("keyed", json!({"period": "keyed"})),
            ("stamped", json!({"kind": "snowflake"})),
            ("strict", json!({"order": "strict"})),
        ] {
            client.define(name, &definition).await;
        }
        for path in ["block/next", "daily/next", "stamped/next", "strict/next"] {
            let reply = client.post(&format!("/v1/sequences/{path}")).await;
            assert_eq!(reply.expect("a reply").status, 200, "{path}");
        }
        for key in ["a", "b", "c"] {
            let path = format!("/v1/sequences/keyed/next?period={key}");
            assert_eq!(client.post(&path).await.expect("a reply").status, 200);
        }
        let page = wait::until("the first block is in memory", LIMIT, async || {
            let page = listed(&client, 5).await;
            let utilization = &page["sequences"][0]["utilization"];
            utilization.is_number().then_some(page)
        })
        .await;
        let of = |n: usize| &page["sequences"][n];
        let (block, daily, keyed, stamped, strict) = (of(0), of(1), of(2), of(3), of(4));
        assert!(block["period"].is_null());
        assert_eq!(block["hold_seconds"], 900);
        assert_eq!(daily["counts_by"], "day");
        assert_eq!(daily["period"].as_str().map(str::len), Some(8));
        assert_eq!(daily["period_ends"].as_str().map(str::len), Some(24));
        assert_eq!(
            (&keyed["periods"], &keyed["period"]),
            (&json!(3), &Value::Null)
        );
        assert_eq!(
            (&stamped["kind"], &stamped["block"]),
            (&json!("snowflake"), &Value::Null)
        );
        assert!(stamped["lease"]["worker"].is_number());
        assert_eq!(
            (&strict["order"], &strict["remaining"]),
            (&json!("strict"), &json!(0))
        );

        let of_key = read(&client, "/v1/replica/sequences/keyed?period=b").await;
        assert_eq!(of_key["live"]["period"], "b");
        let unknown = read(&client, "/v1/replica/sequences/unknown").await;
        assert_eq!(
            unknown,
            json!({"sequence": "unknown", "live": null, "history": []})
        );
        for path in ["block?period=x", "daily?period=x", "%20"] {
            let reply = client.get(&format!("/v1/replica/sequences/{path}")).await;
            assert_eq!(reply.expect("a reply").status, 400, "{path}");
        }
    });
}

#[test]
fn memory_tells_also_while_the_database_is_away() {
    run(async {
        let mut server = Server::start(Backend::Postgres).await;
        let database = TestDatabase::prepared_on(&server).await;
        let program = Program::options()
            .database(&database.url)
            .start_ready()
            .await;
        let client = program.client();
        let replica = read(&client, "/v1/replica").await;
        assert_eq!(
            (&replica["ready"], &replica["why"]),
            (&json!(true), &Value::Null)
        );
        assert_eq!(replica["stores"][0]["databases"][0]["up"], true);
        assert!(!replica.to_string().contains(crate::support::PASSWORD));
        // The block is larger than what the test takes, so nothing is reserved while the database
        // is away.
        let many = json!({"block": {"min": 100_000}});
        client.define("orders", &many).await;
        for _ in 0..20 {
            client.next("orders").await;
        }
        let before = listed(&client, 1).await;
        server.kill();
        wait::until("it is known", LIMIT, async || {
            let replica = read(&client, "/v1/replica").await;
            (replica["stores"][0]["databases"][0]["up"] == false).then_some(())
        })
        .await;
        let after = listed(&client, 1).await;
        assert_eq!(names(&before), names(&after));
        assert!(after["sequences"][0]["remaining"].as_u64() > Some(0));
        wait::until("there is a history", LIMIT, async || {
            client.next("orders").await;
            let watched = read(&client, "/v1/replica/sequences/orders").await;
            let history = watched["history"].as_array().expect("a list");
            let rates = history.iter().filter_map(|second| second["rate"].as_f64());
            (rates.filter(|rate| *rate > 0.0).count() >= 2).then_some(())
        })
        .await;
    });
}

#[test]
fn what_has_just_become_busy_warms_up_unless_its_database_is_away() {
    run(async {
        let server = Server::shared(Backend::Postgres).await;
        let proxy = Proxy::to(server.port()).await;
        let database = TestDatabase::prepared(Backend::Postgres).await;
        let program = Program::options()
            .database(&database.url_through(&proxy, server))
            .start_ready()
            .await;
        let client = program.client();
        client.next("busy").await;
        // Its average takes minutes to catch up, so its blocks are too short all the while.
        let taking = tokio::spawn({
            let client = program.client();
            async move {
                loop {
                    let path = "/v1/sequences/busy/next?count=2";
                    assert_eq!(client.post(path).await.expect("a reply").status, 200);
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        });
        for (link, warms_up) in [(Link::Whole, true), (Link::Cut, false), (Link::Whole, true)] {
            proxy.set(link);
            let when = format!("{link:?}");
            wait::until(&when, LIMIT, async || {
                let replica = read(&client, "/v1/replica").await;
                let is_up = &replica["stores"][0]["databases"][0]["up"];
                let live = read(&client, "/v1/replica/sequences/busy").await["live"].take();
                let is_short = live["reserve_seconds"].as_f64()? < live["hold_seconds"].as_f64()?;
                let is_as_expected = *is_up == warms_up && live["warming_up"] == warms_up;
                (is_short && is_as_expected).then_some(())
            })
            .await;
        }
        assert!(!taking.is_finished(), "busy is at rest");
        taking.abort();
    });
}
