//! Tests how connections end when the service stops.

use std::time::Duration;

use super::RespService;
use crate::support::{Program, run, wait};

const LIMIT: Duration = Duration::from_secs(30);

#[test]
fn a_replica_that_stops_says_so_and_ends_its_connections() {
    run(async {
        let options = Program::options().env("ODOMETER_SHUTDOWN__READY_WAIT", "5s");
        let mut service = RespService::with(options).await;
        let (mut client, mut idle) = (service.connect().await, service.connect().await);
        let mut other = service.connect().await;
        assert_eq!(client.ask("INCR orders").await, ":1");
        assert_eq!(idle.ask("PING").await, "+PONG");
        service.program.terminate();
        wait::until("the replica says that it stops", LIMIT, async || {
            let reply = client.ask("INCR orders").await;
            reply.starts_with("-LOADING draining: ").then_some(())
        })
        .await;
        // The client has to connect elsewhere.
        assert_eq!(client.next_reply().await, None);
        assert!(other.ask("INFO").await.contains("loading:1\r\n"));
        assert_eq!(other.ask("PING").await, "+PONG");
        for command in ["MULTI", "INCR orders", "INCR orders"] {
            other.send(format!("{command}\r\n").as_bytes()).await;
        }
        other.send(b"EXEC\r\nPING\r\n").await;
        let replies = other.replies_to_the_end().await;
        let last = replies.last().map(String::as_str).unwrap_or_default();
        let refused = last.matches("-LOADING draining: ").count();
        assert_eq!((replies.len(), refused), (4, 2), "{replies:?}");
        assert_eq!(idle.next_reply().await, None);
        assert_eq!(service.program.end().await, Some(0));
        let log = service.program.log();
        assert!(log.contains("All sequences are drained"), "{log}");
    });
}

#[test]
fn numbers_go_on_after_a_restart_and_after_a_kill() {
    run(async {
        let mut service = RespService::start().await;
        let mut last = 0;
        for round in 0..3 {
            let mut client = service.connect().await;
            for _ in 0..5 {
                let number = crate::support::resp_number(&client.ask("INCR orders").await);
                assert!(number > last, "{number} after {last}");
                last = number;
            }
            let database = &service.database.url;
            let options = Program::options().with_resp().database(database);
            if round == 0 {
                service.program.kill();
                service.program = options.start_ready().await;
            } else {
                service.program.terminate();
                assert_eq!(service.program.end().await, Some(0));
                service.program = options.start_ready().await;
            }
        }
    });
}
