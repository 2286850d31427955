//! Tests which endpoint gets a call, over which connection, and with which token.

use std::{sync::mpsc, time::Duration};

use serde_json::json;
use ureq::http::Method;

use super::{
    lowest,
    stub::{Said, Stub, refusal},
};
use crate::{Client, Error, service::Service, settings::Settings, transport::Call};

/// Returns the settings of a client that begins at the first of two replicas.
fn settings(first: &Stub, second: &Stub) -> Settings {
    let builder = Client::builder().endpoints([&first.url, &second.url]);
    let (mut settings, _hooks) = builder.settings().unwrap();
    settings.uniform = lowest;
    settings
}

/// Reads a definition within this time. Returns who failed, if it failed.
fn read_by(service: &Service, timeout_ms: u64) -> Result<(), String> {
    let timeout = Duration::from_millis(timeout_ms);
    let call = Call::new(Method::GET, "/v1/sequences/orders", timeout);
    let read = service.ask(&call, |answer| match answer.body.get("definition") {
        Some(_) => Ok(()),
        None => Err(Error::invalid_reply(&answer.endpoint, "no definition")),
    });
    read.map_err(|error| error.endpoint().unwrap_or("nobody").to_owned())
}

#[test]
fn what_is_no_replica_is_left_after_one_call() {
    let (wrong, right) = (Stub::start(), Stub::start());
    let no_replica = [
        (200, json!([])),
        (200, json!({"it": "is no definition"})),
        (
            404,
            json!({"code": "route_not_found", "detail": "No such route."}),
        ),
        (403, json!({})),
    ];
    for (status, body) in no_replica {
        wrong.answer(move |_, _| Said::Reply(status, body.clone()));
        let service = Service::new(&settings(&wrong, &right));
        assert_eq!(read_by(&service, 5_000), Err(wrong.url.clone()), "{status}");
        assert_eq!(read_by(&service, 5_000), Ok(()), "{status}");
    }
}

#[test]
fn what_a_replica_refuses_is_no_reason_to_leave_it() {
    let (first, second) = (Stub::start(), Stub::start());
    first.answer(|_, _| refusal(404, "sequence_not_found"));
    let service = Service::new(&settings(&first, &second));
    for _ in 0..3 {
        assert_eq!(read_by(&service, 5_000), Err(first.url.clone()));
    }
}

#[test]
fn a_call_that_had_little_time_says_nothing_about_a_replica() {
    let (silent, other) = (Stub::start(), Stub::start());
    let (gate, held) = mpsc::channel::<()>();
    silent.answer(move |_, _| {
        let _released = held.recv_timeout(Duration::from_secs(10));
        Said::Cut
    });
    let mut settings = settings(&silent, &other);
    settings.refill_timeout = Duration::from_millis(200);
    let service = Service::new(&settings);
    for timeout_ms in [100, 100, 200] {
        assert_eq!(read_by(&service, timeout_ms), Err(silent.url.clone()));
    }
    assert_eq!(read_by(&service, 5_000), Ok(()), "it is left now");
    drop(gate);
}

#[test]
fn a_client_that_forgets_uses_no_connection_of_before() {
    let stub = Stub::start();
    // So there are no refills, which have connections of their own.
    stub.define("order", "strict");
    let client = Client::builder().endpoints([&stub.url]).build().unwrap();
    let orders = client.sequence("orders").unwrap();
    orders.next_blocking().unwrap();
    orders.forget();
    orders.next_blocking().unwrap();
    assert_eq!(stub.n_connections(), 1, "a connection is kept");
    client.forget();
    orders.next_blocking().unwrap();
    assert_eq!(stub.n_connections(), 2);
}

#[test]
fn a_token_goes_with_every_call_and_is_read_anew_from_its_file() {
    let stub = Stub::start();
    let file = std::env::temp_dir().join(format!("odometer-client-{}", std::process::id()));
    std::fs::write(&file, "one\n").unwrap();
    let client = Client::builder()
        .endpoints([&stub.url])
        .token_file(&file)
        .build()
        .unwrap();
    let orders = client.sequence("orders").unwrap();
    orders.next_blocking().unwrap();
    std::fs::write(&file, "two").unwrap();
    client.forget();
    orders.next_blocking().unwrap();
    // What the file has while it is written, or if it was written wrongly.
    let broken: [&[u8]; 4] = [b"", b"\n", b"\xff\xfe", b"a\nb"];
    for content in broken {
        std::fs::write(&file, content).unwrap();
        client.forget();
        orders.next_blocking().unwrap();
    }
    std::fs::remove_file(&file).unwrap();
    client.forget();
    orders.next_blocking().unwrap();
    let texts = stub.texts();
    let has = |text: &String, token: &str| {
        let header = format!("authorization: bearer {token}\n");
        text.to_ascii_lowercase().contains(&header)
    };
    let (with_first, with_second) = texts.split_at(2);
    assert!(with_first.iter().all(|text| has(text, "one")), "{texts:?}");
    assert!(with_second.len() >= 6, "vacuous: {texts:?}");
    assert!(with_second.iter().all(|text| has(text, "two")), "{texts:?}");
}

#[test]
fn a_token_is_trimmed_and_what_is_none_is_refused_unseen() {
    let stub = Stub::start();
    let builder = || Client::builder().endpoints([&stub.url]);
    let client = builder().token(" a-token\n").build().unwrap();
    client.sequence("orders").unwrap().next_blocking().unwrap();
    let header = "authorization: bearer a-token\n";
    assert!(stub.texts()[0].to_ascii_lowercase().contains(header));
    for bad in ["", " ", "hidden\nhidden", "hid\u{e9}den", "hidden hidden"] {
        let error = builder().token(bad).build().unwrap_err();
        assert_eq!(error.code(), "client", "{bad:?}");
        assert!(!error.to_string().contains("hid"), "{error}");
    }
    let empty = std::env::temp_dir().join(format!("odometer-empty-{}", std::process::id()));
    std::fs::write(&empty, "\n").unwrap();
    assert!(builder().token_file(&empty).build().is_err());
    std::fs::remove_file(&empty).unwrap();
}
