//! Tests that a refusal of a size says which size the call could have: a caller who takes it gets
//! its numbers.

use serde_json::{Value, json};

use crate::support::{Backend, Client, Program, Reply, TestDatabase, for_each_backend, run};

async fn on(backend: Backend) -> (TestDatabase, Program) {
    let database = TestDatabase::prepared(backend).await;
    let program = started(&database).await;
    (database, program)
}

async fn started(database: &TestDatabase) -> Program {
    let options = Program::options().database(&database.url);
    options.start_ready().await
}

/// A way to ask a sequence for a number of numbers.
#[derive(Clone, Copy, Debug)]
struct Way {
    call: &'static str,
    more: &'static str,
}

const BATCH: Way = Way {
    call: "next?count",
    more: "&ids=false",
};
const RANGE: Way = Way {
    call: "next?count",
    more: "&contiguous=true&ids=false",
};
const BLOCK: Way = Way {
    call: "blocks?size",
    more: "",
};

/// Ways to take numbers in each order.
const EACH_ORDER: [(&str, Way); 4] = [
    ("strict", BATCH),
    ("relaxed", RANGE),
    ("relaxed", BLOCK),
    ("relaxed", BATCH),
];

impl Way {
    async fn ask(self, client: &Client, name: &str, n: u64) -> Reply {
        let Self { call, more } = self;
        let path = format!("/v1/sequences/{name}/{call}={n}{more}");
        client.post(&path).await.expect("a reply")
    }

    /// Asks for too many numbers. Returns the limit in the refusal.
    async fn refused(self, client: &Client, name: &str, (n, code): (u64, &str)) -> u64 {
        let reply = self.ask(client, name, n).await;
        assert_eq!(reply.code().as_deref(), Some(code), "{self:?}: {reply:?}");
        limit_of(&reply).unwrap_or_else(|| panic!("{self:?}: {reply:?}"))
    }

    /// Asks for as many numbers as a refusal said, and gets them.
    async fn retried(self, client: &Client, name: &str, n: u64) {
        let reply = self.ask(client, name, n).await;
        let given: u64 = reply.numbers().iter().map(|range| range.count).sum();
        assert_eq!(given, n, "{self:?}: {reply:?}");
    }
}

/// Returns the limit in a refusal, which is a string of digits.
fn limit_of(reply: &Reply) -> Option<u64> {
    match reply.json().get("limit") {
        None => None,
        Some(Value::String(limit)) => Some(limit.parse().expect("digits")),
        Some(other) => panic!("{other} is no string"),
    }
}

for_each_backend!(
    a_size_above_a_bound_is_refused_with_the_bound,
    a_size_above_the_speed_limit_is_refused_with_what_it_allows_now,
);

async fn a_size_above_a_bound_is_refused_with_the_bound(backend: Backend) {
    let (_database, program) = on(backend).await;
    let client = program.client();
    let burst = json!({"rate": 10, "burst": 50});
    let cases = [
        (json!({}), BATCH, 20_000, 10_000),
        (json!({"limit": burst}), BATCH, 1_000, 50),
        (json!({"limit": burst}), RANGE, 1_000, 50),
        (json!({"limit": burst, "order": "strict"}), BATCH, 1_000, 50),
        (json!({"max": "409600"}), BLOCK, 1_000, 100),
        (json!({"limit": burst}), BLOCK, 1_000, 50),
        // Of two bounds, the lower one counts.
        (json!({"limit": burst, "max": "409600"}), BLOCK, 1_000, 50),
        (json!({"limit": burst, "max": "40960"}), BLOCK, 1_000, 10),
        // A tick has as many ids.
        (json!({"kind": "snowflake"}), RANGE, 10_000, 4_096),
    ];
    for (at, (definition, way, n, expected)) in cases.into_iter().enumerate() {
        let name = format!("sized-{at}");
        client.define(&name, &definition).await;
        for n in [n, expected + 1] {
            let limit = way.refused(&client, &name, (n, "invalid_count")).await;
            assert_eq!(limit, expected, "{definition} {way:?} {n}");
        }
        way.retried(&client, &name, expected).await;
    }
}

#[test]
fn a_count_above_that_of_a_call_is_refused_with_the_lowest_bound() {
    run(async {
        let (_database, program) = on(Backend::Sqlite).await;
        let client = program.client();
        let definition = json!({"limit": {"rate": 10, "burst": 50}});
        client.define("orders", &definition).await;
        client.next("orders").await;
        let code = "invalid_count";
        let limit = BATCH.refused(&client, "orders", (10_001, code)).await;
        assert_eq!(limit, 50);
        BATCH.retried(&client, "orders", limit).await;
        let definition = json!({"max": "5000"});
        client.define("short", &definition).await;
        client.next("short").await;
        let limit = BATCH.refused(&client, "short", (10_001, code)).await;
        assert_eq!(limit, 4_999);
        BATCH.retried(&client, "short", limit).await;
    });
}

#[test]
fn a_name_that_no_call_has_used_since_the_start_is_looked_up_for_its_bounds() {
    run(async {
        let (database, program) = on(Backend::Sqlite).await;
        let definition = json!({"limit": {"rate": 10, "burst": 50}});
        let client = program.client();
        client.define("orders", &definition).await;
        client.define("short", &json!({"max": "5000"})).await;
        program.stop().await;
        let program = started(&database).await;
        let client = program.client();
        let code = "invalid_count";
        for (name, expected) in [("orders", 50), ("short", 5_000), ("unknown", 10_000)] {
            let limit = BATCH.refused(&client, name, (10_001, code)).await;
            assert_eq!(limit, expected, "{name}");
            BATCH.retried(&client, name, limit).await;
        }
    });
}

async fn a_size_above_the_speed_limit_is_refused_with_what_it_allows_now(backend: Backend) {
    let (_database, program) = on(backend).await;
    let client = program.client();
    // The last call waits until its time is over, and memory has what came for it.
    for (at, (order, way)) in EACH_ORDER.into_iter().enumerate() {
        let name = format!("limited-{at}");
        let definition = json!({"order": order, "limit": {"rate": 1, "burst": 1000}});
        client.define(&name, &definition).await;
        way.retried(&client, &name, 600).await;
        let limit = way.refused(&client, &name, (1000, "rate_limited")).await;
        assert!((400..1000).contains(&limit), "{order} {way:?}: {limit}");
        way.retried(&client, &name, limit).await;
    }
}

#[test]
fn a_refusal_of_something_else_has_no_limit() {
    run(async {
        let (_database, program) = on(Backend::Sqlite).await;
        let client = program.client();
        client.define("short", &json!({"max": "200"})).await;
        client.define("whole", &json!({})).await;
        // More than half of its numbers.
        let body = json!({"floor": "5000000000000000"});
        for path in [
            "short/next?count=0",
            "short/next?count=many",
            "short/next?count=",
            "short/next?count=201",
            "short/blocks",
            "short/blocks?size=0",
            "short/blocks?size=many",
            "short/next?ids=maybe",
        ] {
            let path = format!("/v1/sequences/{path}");
            let reply = client.post(&path).await.expect("a reply");
            assert!(matches!(reply.status, 400 | 409), "{path}: {reply:?}");
            assert_eq!(limit_of(&reply), None, "{path}: {reply:?}");
        }
        let headers = [("content-type", "application/json")];
        let (method, path) = (reqwest::Method::POST, "/v1/sequences/whole/advance");
        let body = Some(body.to_string().into_bytes());
        let reply = client.send(method, path, &headers, body).await;
        let reply = reply.expect("a reply");
        assert_eq!(reply.code().as_deref(), Some("confirm_needed"), "{reply:?}");
        assert_eq!(limit_of(&reply), None, "{reply:?}");
    });
}
