//! Tests what clients send byte by byte, and clients that send or read too little or too much.

use std::time::Duration;

use super::RespService;
use crate::support::{Program, Scrape, resp_command, run, wait};

/// The limits of these tests, and the time within which a connection is then cut off.
const SHORT: &str = "1s";
const CUT_OFF_LIMIT: Duration = Duration::from_secs(20);
/// The bytes by which memory may grow for one client. Most of them are of the allocator.
const MAX_GROWTH: u64 = 16 * 1024 * 1024;

#[test]
fn a_stream_may_be_cut_anywhere() {
    run(async {
        let service = RespService::start().await;
        let mut client = service.connect().await;
        let stream = [
            resp_command(&["ECHO", "a\r\nb"]),
            b"\r\n".to_vec(),
            b"ECHO \"a b\"\r\n".to_vec(),
            b"*0\r\n".to_vec(),
            resp_command(&["INCR", "orders"]),
        ]
        .concat();
        for n_bytes in 1..stream.len() {
            let (first, second) = stream.split_at(n_bytes);
            client.send(first).await;
            tokio::task::yield_now().await;
            client.send(second).await;
            assert_eq!(client.reply().await, "$a\r\nb", "cut at {n_bytes}");
            assert_eq!(client.reply().await, "$a b", "cut at {n_bytes}");
            let number = i64::try_from(n_bytes).expect("few bytes");
            assert_eq!(client.reply().await, format!(":{number}"));
        }
        for byte in &stream {
            client.send(&[*byte]).await;
        }
        assert_eq!(client.reply().await, "$a\r\nb");
    });
}

#[test]
fn what_is_no_command_ends_the_connection_after_the_replies_before_it() {
    run(async {
        let service = RespService::start().await;
        // One byte more than is read.
        let long = "a".repeat(64 * 1024 + 1);
        for (bytes, refusal) in [
            ("*x\r\n", "invalid multibulk length"),
            ("*1025\r\n", "invalid multibulk length"),
            ("*1\r\n$x\r\n", "invalid bulk length"),
            ("*1\r\n$-5\r\n", "invalid bulk length"),
            ("*1\r\n+PING\r\n", "expected '$', got '+'"),
            ("ECHO \"a\r\n", "unbalanced quotes in request"),
            (long.as_str(), "too big inline request"),
            ("*1\r\n$65530\r\n", "a command has at most 65536 bytes"),
        ] {
            let mut client = service.connect().await;
            client.send(b"PING\r\n").await;
            // The service may end the connection before it has read everything.
            let _sent = client.try_send(bytes.as_bytes()).await;
            let replies = client.replies_to_the_end().await;
            let refused = format!("-ERR Protocol error: {refusal}");
            assert_eq!(replies, ["+PONG", refused.as_str()], "{bytes:.40}");
        }
        let http = service.program.client();
        let n_malformed = Scrape::of(&http)
            .await
            .sum("odometer_resp_malformed_total", &[]);
        assert_eq!(n_malformed, 8.0);
    });
}

#[test]
fn a_command_has_a_bound_of_arguments() {
    run(async {
        let service = RespService::start().await;
        let mut client = service.connect().await;
        let exists = |n: usize| format!("EXISTS{}", " a".repeat(n));
        assert_eq!(client.ask(&exists(15)).await, ":0");
        for n in [16, 1023] {
            let refused = client.ask(&exists(n)).await;
            assert_eq!(refused, "-ERR a command has at most 16 arguments");
        }
        assert_eq!(client.ask("PING").await, "+PONG");
    });
}

#[test]
fn http_ends_its_connection_and_no_command_behind_it_is_done() {
    run(async {
        let service = RespService::start().await;
        for begin in [
            "POST / HTTP/1.1\r\n",
            "post /x HTTP/1.1\r\n",
            "GET / HTTP/1.1\r\nAccept: */*\r\nHost: 127.0.0.1\r\n",
            "PUT /x HTTP/1.1\r\nhost: 127.0.0.1\r\n",
        ] {
            let mut client = service.connect().await;
            let sent = format!("{begin}\r\nINCR orders\r\nINCR orders\r\n");
            // The connection may end before all is sent.
            let _sent = client.try_send(sent.as_bytes()).await;
            let replies = client.replies_to_the_end().await;
            let gives = replies.iter().any(|reply| reply.starts_with(':'));
            assert!(!gives, "{begin:?}: {replies:?}");
        }
        assert_eq!(service.ask("INCR orders").await, ":1");
        let metrics = service.program.client().get("/metrics").await;
        let metrics = metrics.expect("a reply").body;
        assert!(
            metrics.contains("odometer_resp_malformed_total 4"),
            "{metrics}"
        );
    });
}

/// Starts a program with short limits for slow clients.
async fn impatient() -> RespService {
    let options = Program::options()
        .env("ODOMETER_HTTP__HEAD", SHORT)
        .env("ODOMETER_HTTP__BODY", SHORT)
        .env("ODOMETER_HTTP__WRITE", SHORT)
        .without_speed_limit();
    RespService::with(options).await
}

async fn n_cut(service: &RespService, cause: &str) -> f64 {
    let scrape = Scrape::of(&service.program.client()).await;
    scrape.sum("odometer_resp_connections_cut_total", &[("cause", cause)])
}

#[test]
fn a_silent_connection_stays_and_half_a_command_does_not() {
    run(async {
        let service = impatient().await;
        let (mut silent, mut half) = (service.connect().await, service.connect().await);
        half.send(b"*2\r\n$4\r\nIN").await;
        let cut = tokio::time::timeout(CUT_OFF_LIMIT, half.next_reply()).await;
        assert_eq!(cut.expect("it is cut off"), None);
        assert_eq!(n_cut(&service, "request").await, 1.0);
        // As long as the other one was open, this one said nothing.
        assert_eq!(silent.ask("INCR orders").await, ":1");
    });
}

#[test]
fn a_client_that_does_not_read_is_not_read_from_and_is_cut_off() {
    run(async {
        let service = impatient().await;
        let mut client = service.connect().await;
        let before = service.program.peak_memory();
        let commands = resp_command(&["ECHO", &"a".repeat(1000)]).repeat(100);
        let sending = async {
            let mut n_sent = 0_usize;
            while client.try_send(&commands).await.is_ok() {
                n_sent += commands.len();
            }
            n_sent
        };
        let sent = tokio::time::timeout(CUT_OFF_LIMIT, sending).await;
        let n_sent = sent.expect("it is cut off");
        // What the kernel keeps for both directions, and no more.
        assert!(n_sent < 64 * 1024 * 1024, "{n_sent} bytes were read");
        wait::until("it is counted", CUT_OFF_LIMIT, async || {
            (n_cut(&service, "reply").await == 1.0).then_some(())
        })
        .await;
        let growth = service.program.peak_memory() - before;
        assert!(growth < MAX_GROWTH, "{growth} bytes of memory");
        assert_eq!(service.ask("INCR orders").await, ":1");
    });
}

#[test]
fn replies_do_not_wait_for_a_command_that_does() {
    run(async {
        // The first block is larger than one number.
        let options = Program::options().env("ODOMETER_DEFAULT__BLOCK__MIN", 100);
        let service = RespService::with(options).await;
        let mut client = service.connect().await;
        assert_eq!(client.ask("INCR used").await, ":1");
        let frozen = service.database.freeze().await;
        client
            .send(b"PING\r\nINCR used\r\nINCR new\r\nPING\r\n")
            .await;
        assert_eq!(client.reply().await, "+PONG");
        assert_eq!(client.reply().await, ":2");
        // The store cannot create the sequence.
        let waited = tokio::time::timeout(Duration::from_millis(300), client.next_reply()).await;
        assert!(waited.is_err(), "{waited:?}");
        frozen.thaw().await;
        assert_eq!(client.reply().await, ":1");
        assert_eq!(client.reply().await, "+PONG");
    });
}

#[test]
fn a_command_whose_client_hangs_up_takes_nothing() {
    run(async {
        let service = RespService::start().await;
        let definition = serde_json::json!({"block": {"min": 1, "max": 1}});
        let http = service.program.client();
        http.define("orders", &definition).await;
        assert_eq!(service.ask("INCR orders").await, ":1");
        let frozen = service.database.freeze().await;
        let n_waiting = async || {
            let scrape = Scrape::of(&http).await;
            scrape.sum("odometer_resp_in_flight_commands", &[])
        };
        let mut client = service.connect().await;
        client.send(b"INCRBY orders 1000\r\n").await;
        wait::until("the command waits", CUT_OFF_LIMIT, async || {
            (n_waiting().await == 1.0).then_some(())
        })
        .await;
        drop(client);
        wait::until("the command is given up", CUT_OFF_LIMIT, async || {
            (n_waiting().await == 0.0).then_some(())
        })
        .await;
        frozen.thaw().await;
        assert_eq!(service.ask("INCR orders").await, ":2");
    });
}
