//! Tests whole calls of threads.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use odometer_core::block::MAX_COUNT;
use serde_json::json;

use super::{
    stub::{Said, Stub, is_post, refusal, refusal_with_limit},
    until,
};
use crate::{
    Client, Error, Kind, Sequence, SequenceOptions,
    hooks::{DropCause, Hooks, RefillReport},
};

/// Keeps the outcomes of refills, and what was dropped.
#[derive(Clone, Default)]
struct Outcomes {
    refills: Arc<Mutex<Vec<String>>>,
    drops: Arc<Mutex<Vec<(u64, DropCause)>>>,
}

impl Hooks for Outcomes {
    fn refill(&self, report: &RefillReport<'_>) {
        let outcome = report.outcome.to_owned();
        self.refills.lock().unwrap().push(outcome);
    }

    fn dropped(&self, _sequence: &str, count: u64, cause: DropCause) {
        self.drops.lock().unwrap().push((count, cause));
    }
}

struct Scene {
    stub: Stub,
    client: Client,
    orders: Sequence,
    outcomes: Outcomes,
}

impl Scene {
    fn new() -> Self {
        let (stub, outcomes) = (Stub::start(), Outcomes::default());
        let client = Client::builder()
            .endpoints([&stub.url])
            .hooks(outcomes.clone())
            .build()
            .unwrap();
        let orders = client.sequence("orders").unwrap();
        Self {
            stub,
            client,
            orders,
            outcomes,
        }
    }

    /// Waits until the refills have had these outcomes. Hooks are told after the callers.
    fn until_outcomes(&self, expected: &[&str]) {
        until("the hooks are told", || {
            let outcomes = self.outcomes.refills.lock().unwrap();
            assert!(outcomes.len() <= expected.len(), "{outcomes:?}");
            *outcomes == expected
        });
    }
}

fn code(error: &Error) -> String {
    error.code().to_owned()
}

#[test]
fn a_program_calls_once_for_many_numbers() {
    let scene = Scene::new();
    let numbers: Vec<i64> = (0..80)
        .map(|_| scene.orders.next_blocking().unwrap())
        .collect();
    assert_eq!(numbers, (1..=80).collect::<Vec<i64>>());
    assert_eq!(
        scene.stub.calls(),
        ["GET orders", "POST next?count=100&ids=false"]
    );
    let text = scene.stub.texts()[1].to_ascii_lowercase();
    assert!(text.contains("traceparent: 00-"), "{text}");
    assert!(text.contains("content-length: 0"), "{text}");
    assert!(!text.contains("idempotency-key"), "{text}");
}

#[test]
fn a_take_never_waits() {
    let scene = Scene::new();
    let error = scene.orders.take().unwrap_err();
    assert!(matches!(error, Error::Empty { .. }), "{error}");
    until("the refill has ended", || scene.orders.left() > 0);
    assert_eq!(scene.orders.take().unwrap(), 1);
    assert_eq!(scene.orders.take_id().unwrap(), "2");
}

#[test]
fn a_refused_size_is_asked_again_with_its_limit() {
    let scene = Scene::new();
    for (status, code) in [(400, "invalid_count"), (409, "confirm_needed"), (429, "x")] {
        let said = refusal_with_limit(status, code, 50);
        scene.stub.answer_once(said, is_post);
        scene.orders.warm_blocking(60).unwrap();
        let posts = scene.stub.take_posts();
        assert_eq!(posts[1], "POST next?count=50&ids=false");
        scene.client.forget();
    }
    scene.until_outcomes(&["resized", "ok"].repeat(3));
}

#[test]
fn a_size_is_asked_again_once() {
    let scene = Scene::new();
    scene.stub.answer(|_, call| {
        if is_post(call) {
            return refusal_with_limit(400, "invalid_count", 7);
        }
        Said::GoOn
    });
    let error = scene.orders.next_blocking().unwrap_err();
    assert_eq!(
        (code(&error).as_str(), scene.stub.n_posts()),
        ("invalid_count", 2)
    );
}

#[test]
fn without_the_right_block_it_stays_with_next() {
    let scene = Scene::new();
    scene.stub.answer(|_, call| {
        if call.contains("blocks") {
            return refusal(403, "forbidden");
        }
        Said::GoOn
    });
    scene.orders.warm_blocking(25_000).unwrap();
    let batch = "POST next?count=10000&ids=false";
    let last = "POST next?count=5000&ids=false";
    let expected = ["POST blocks?size=25000", batch, batch, last];
    assert_eq!(scene.stub.take_posts(), expected);
}

#[test]
fn while_the_database_is_away_it_takes_batches() {
    let scene = Scene::new();
    scene.stub.answer(|_, call| {
        if call.contains("blocks") {
            return refusal(503, "store_unavailable");
        }
        Said::GoOn
    });
    scene.orders.warm_blocking(11_000).unwrap();
    let expected = [
        "POST blocks?size=11000",
        "POST next?count=10000&ids=false",
        "POST next?count=1000&ids=false",
    ];
    assert_eq!(scene.stub.take_posts(), expected);
}

#[test]
fn a_lost_reply_is_a_gap_and_never_repeats() {
    let scene = Scene::new();
    let mut is_lost = false;
    scene.stub.answer(move |state, call| {
        if is_post(call) && !is_lost {
            is_lost = true;
            state.lose(100);
            return Said::Cut;
        }
        Said::GoOn
    });
    assert_eq!(scene.orders.next_blocking().unwrap(), 101);
    scene.until_outcomes(&["connection", "ok"]);
}

#[test]
fn other_refusals_are_final() {
    let scene = Scene::new();
    scene
        .stub
        .answer_once(refusal(410, "sequence_retired"), is_post);
    let error = scene.orders.next_blocking().unwrap_err();
    assert_eq!(error.refusal().unwrap().status, 410);
    assert_eq!(code(&error), "sequence_retired");
    assert_eq!(scene.orders.next_blocking().unwrap(), 1);
}

#[test]
fn a_deadline_ends_the_wait_and_not_the_refill() {
    let scene = Scene::new();
    let (gate, held) = std::sync::mpsc::channel::<()>();
    scene.stub.answer(move |_, _| {
        let _released = held.recv_timeout(Duration::from_secs(10));
        Said::GoOn
    });
    let client = Client::builder()
        .endpoints([&scene.stub.url])
        .deadline(Duration::from_millis(50))
        .build()
        .unwrap();
    let orders = client.sequence("orders").unwrap();
    let error = orders.next_blocking().unwrap_err();
    assert!(matches!(error, Error::DeadlinePassed { .. }), "{error}");
    drop(gate);
    until("the refill has ended", || orders.left() == 100);
    assert_eq!(
        (orders.next_blocking().unwrap(), scene.stub.n_posts()),
        (1, 1)
    );
}

#[test]
fn a_caller_has_one_deadline_although_it_waits_twice() {
    let scene = Scene::new();
    scene.stub.define("order", "strict");
    let (_gate, held) = std::sync::mpsc::channel::<()>();
    scene.stub.answer(move |_, call| {
        let limit = if is_post(call) { 10_000 } else { 1_800 };
        let _released = held.recv_timeout(Duration::from_millis(limit));
        Said::GoOn
    });
    let began = Instant::now();
    let error = scene.orders.next_blocking().unwrap_err();
    assert!(matches!(error, Error::DeadlinePassed { .. }), "{error}");
    assert_eq!(scene.stub.n_posts(), 1, "vacuous: it waited once");
    assert!(began.elapsed() < Duration::from_millis(3_500));
}

#[test]
fn another_endpoint_is_called_if_one_fails() {
    let (scene, dead) = (Scene::new(), Stub::dead());
    for _ in 0..5 {
        let client = Client::builder()
            .endpoints([&dead.url, &scene.stub.url])
            .build()
            .unwrap();
        assert!(client.sequence("orders").unwrap().next_blocking().is_ok());
    }
}

#[test]
fn an_unknown_name_is_created_by_taking_its_first_number() {
    let scene = Scene::new();
    let unknown = refusal(404, "sequence_not_found");
    scene.stub.answer_once(unknown, |call| call == "GET orders");
    let numbers: Vec<i64> = (0..3)
        .map(|_| scene.orders.next_blocking().unwrap())
        .collect();
    assert_eq!(numbers, [1, 2, 3]);
    assert_eq!(scene.stub.take_posts()[0], "POST next?count=1");
    scene.until_outcomes(&["ok", "ok"]);
}

#[test]
fn sequences_that_must_not_be_buffered_make_a_call_each() {
    for (field, value) in [
        ("order", "strict"),
        ("period", "day"),
        ("kind", "snowflake"),
    ] {
        let scene = Scene::new();
        scene.stub.define(field, value);
        scene.orders.next_blocking().unwrap();
        scene.orders.take().unwrap();
        scene.orders.local().take().unwrap();
        assert_eq!(scene.stub.take_posts(), ["POST next"; 3], "{field}");
        assert_eq!(scene.orders.left(), 0, "{field}");
    }
}

#[test]
fn a_period_in_a_reply_ends_the_buffer_whatever_the_program_says() {
    let scene = Scene::new();
    scene.stub.answer(|state, call| {
        if call.starts_with("POST next?count") {
            state.lose(100);
            let range = json!({"first": "1", "last": "100", "count": 100, "step": 1});
            let body = json!({"sequence": "orders", "period": "2026", "ranges": [range]});
            return Said::Reply(200, body);
        }
        Said::GoOn
    });
    assert_eq!(scene.orders.next_blocking().unwrap(), 1);
    assert_eq!(scene.orders.next_blocking().unwrap(), 101);
    assert_eq!(scene.orders.take().unwrap(), 102);
    let expected = ["POST next?count=100&ids=false", "POST next", "POST next"];
    assert_eq!(scene.stub.take_posts(), expected);
    until("the hooks are told", || {
        *scene.outcomes.drops.lock().unwrap() == [(99, DropCause::Late)]
    });
}

#[test]
fn without_the_right_look_the_program_says_the_kind() {
    let scene = Scene::new();
    scene.stub.answer(|_, call| {
        if is_post(call) {
            return Said::GoOn;
        }
        refusal(403, "forbidden")
    });
    let error = scene.orders.next_blocking().unwrap_err();
    assert!(error.to_string().contains("Kind::Buffered"), "{error}");
    let sequence = |name: &str, kind| {
        let options = SequenceOptions {
            kind: Some(kind),
            ..SequenceOptions::default()
        };
        scene.client.sequence_with(name, options).unwrap()
    };
    assert_eq!(
        sequence("a", Kind::Buffered).next_id_blocking().unwrap(),
        "#1"
    );
    sequence("b", Kind::Unbuffered).next_blocking().unwrap();
    let expected = ["POST next?count=100", "POST next"];
    assert_eq!(scene.stub.take_posts(), expected);
    sequence("orders", Kind::Buffered);
    assert!(scene.orders.next_blocking().is_ok(), "it is said later");
}

#[test]
fn a_kind_is_said_once() {
    let scene = Scene::new();
    let say = |kind| {
        let options = SequenceOptions {
            kind,
            ..SequenceOptions::default()
        };
        let said = scene.client.sequence_with("orders", options);
        said.map(drop).map_err(|error| code(&error))
    };
    assert_eq!(say(Some(Kind::Buffered)), Ok(()));
    assert_eq!(say(None), Ok(()));
    assert_eq!(say(Some(Kind::Buffered)), Ok(()));
    assert_eq!(say(Some(Kind::Unbuffered)), Err("client".to_owned()));
}

#[test]
fn printed_ids_come_from_the_service() {
    let scene = Scene::new();
    scene.stub.define("format", "#{value}");
    assert_eq!(scene.orders.next_id_blocking().unwrap(), "#1");
    assert_eq!(scene.orders.next_blocking().unwrap(), 2);
    assert_eq!(scene.orders.take_id().unwrap(), "#3");
    assert_eq!(scene.stub.take_posts(), ["POST next?count=100"]);
}

#[test]
fn the_numbers_of_a_named_period_are_calls_and_nothing_is_looked_up() {
    let scene = Scene::new();
    let options = SequenceOptions {
        period: Some("a b&c".to_owned()),
        ..SequenceOptions::default()
    };
    let keyed = scene.client.sequence_with("orders", options).unwrap();
    keyed.warm_blocking(10).unwrap();
    assert_eq!(keyed.next_blocking().unwrap(), 1);
    assert_eq!(keyed.take().unwrap(), 2);
    assert_eq!(keyed.local().take().unwrap(), 3);
    assert_eq!(keyed.range_blocking(5).unwrap().first(), 4);
    assert_eq!(keyed.left(), 0);
    let one = "POST next?period=a%20b%26c";
    let range = "POST next?count=5&contiguous=true&ids=false&period=a%20b%26c";
    assert_eq!(scene.stub.calls(), [one, one, one, range]);
    // The sequence of the same name shares nothing with it.
    assert_eq!(scene.orders.next_blocking().unwrap(), 9);
}

#[test]
fn a_range_is_unbroken_and_loses_nothing() {
    let scene = Scene::new();
    scene.stub.set_step(7);
    scene.orders.warm_blocking(100).unwrap();
    let near = scene.orders.range_blocking(3).unwrap();
    assert_eq!(near.values().collect::<Vec<i64>>(), [1, 8, 15]);
    let far = scene.orders.range_blocking(500).unwrap();
    assert_eq!((far.first(), far.count(), far.step()), (701, 500, 7));
    let posts = scene.stub.take_posts();
    let last = posts.last().map(String::as_str);
    assert_eq!(last, Some("POST next?count=500&contiguous=true&ids=false"));
    assert_eq!(scene.orders.next_blocking().unwrap(), 22);
    for count in [0, MAX_COUNT + 1] {
        let refused = scene.orders.range_blocking(count);
        assert_eq!(refused.unwrap_err().code(), "client");
    }
    let refused = scene.orders.warm_blocking(MAX_COUNT + 1);
    assert_eq!(refused.unwrap_err().code(), "client");
}

#[test]
fn threads_never_get_a_number_twice() {
    let scene = Scene::new();
    let take = || {
        let mut given = Vec::new();
        let mut slice = scene.orders.local();
        for at in 0..500 {
            given.push(scene.orders.next_blocking().unwrap());
            given.extend(slice.take());
            if at % 100 == 0 {
                given.extend(scene.orders.range_blocking(5).unwrap().values());
                scene.orders.forget();
            }
        }
        given
    };
    let all: Vec<i64> = thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(take)).collect();
        threads
            .into_iter()
            .flat_map(|it| it.join().unwrap())
            .collect()
    });
    let distinct: BTreeSet<i64> = all.iter().copied().collect();
    assert!(all.len() >= 8 * 525);
    assert_eq!(distinct.len(), all.len());
}

#[test]
fn the_same_name_gives_the_same_sequence_also_after_its_handles_are_gone() {
    let scene = Scene::new();
    assert_eq!(scene.orders.next_blocking().unwrap(), 1);
    let again = scene.client.sequence("orders").unwrap();
    drop(scene.orders);
    assert_eq!(again.next_blocking().unwrap(), 2);
    drop(again);
    let last = scene.client.sequence("orders").unwrap();
    drop(scene.client);
    assert_eq!(
        (last.next_blocking().unwrap(), scene.stub.n_posts()),
        (3, 1)
    );
}

#[test]
fn an_address_that_is_refused_is_not_printed() {
    let refused = Client::builder().endpoints(["http://a", "http://me:hidden@b"]);
    let error = refused.build().unwrap_err().to_string();
    assert!(error.contains("endpoint 2"), "{error}");
    assert!(!error.contains("hidden"), "{error}");
}

#[test]
fn a_deadline_without_end_is_no_deadline_that_has_passed() {
    let stub = Stub::start();
    let builder = Client::builder().endpoints([&stub.url]);
    let builder = builder
        .deadline(Duration::MAX)
        .refill_timeout(Duration::MAX);
    let orders = builder.build().unwrap().sequence("orders").unwrap();
    assert_eq!(orders.next_blocking().unwrap(), 1);
}

#[test]
fn what_cannot_be_a_client_is_refused() {
    let refused = |endpoint: &str| {
        let built = Client::builder().endpoints([endpoint]).build();
        built.is_err_and(|error| error.code() == "client")
    };
    for bad in [
        "",
        "host",
        "host:8080",
        "ftp://host",
        "http://",
        "http://host:0",
        "http://a@host",
        "http://host?x=1",
        "http://host#x",
        "http://ho st",
    ] {
        assert!(refused(bad), "{bad}");
    }
    for good in [
        "http://host",
        "HTTP://host",
        "http://host:8080/",
        "http://[::1]:8080",
        "http://host/odometer",
    ] {
        assert!(!refused(good), "{good}");
    }
    let builder = || Client::builder().endpoints(["http://host"]);
    assert!(Client::builder().build().is_err());
    assert!(builder().initial_size(0).build().is_err());
    assert!(builder().refill_timeout(Duration::ZERO).build().is_err());
    assert!(
        builder()
            .lease_ttl(Duration::from_millis(999))
            .build()
            .is_err()
    );
    assert!(builder().ca_file("/no/such/file").build().is_err());
    assert!(builder().token_file("/no/such/file").build().is_err());
    let client = builder().build().unwrap();
    assert!(client.sequence("no name").is_err());
}

#[test]
fn the_version_is_that_of_the_workspace() {
    let stub = Stub::start();
    let client = Client::builder().endpoints([&stub.url]).build().unwrap();
    client.sequence("orders").unwrap().next_blocking().unwrap();
    let agent = concat!(
        "user-agent: odometer-client-rust/",
        env!("CARGO_PKG_VERSION")
    );
    assert!(stub.texts()[0].to_ascii_lowercase().contains(agent));
}
