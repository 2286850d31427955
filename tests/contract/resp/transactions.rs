//! Tests transactions: commands that are queued, answered together, and given up together.

use std::time::Duration;

use super::RespService;
use crate::support::{Program, Scrape, resp_command, resp_number, run};

#[test]
fn queued_commands_are_answered_together() {
    run(async {
        let service = RespService::start().await;
        let mut client = service.connect().await;
        for (command, reply) in [
            ("MULTI", "+OK"),
            ("INCR orders", "+QUEUED"),
            ("PING", "+QUEUED"),
            ("DECR orders", "+QUEUED"),
            ("GET unused", "+QUEUED"),
            ("INCR orders", "+QUEUED"),
            (
                "EXEC",
                "*[:1, +PONG, -ERR a number is never taken back, nothing, :2]",
            ),
            ("MULTI", "+OK"),
            ("EXEC", "*[]"),
            ("MULTI", "+OK"),
            ("INCR orders", "+QUEUED"),
            ("DISCARD", "+OK"),
            ("INCR orders", ":3"),
            ("INCR orders", ":4"),
            // Also a command that is remembered is queued.
            ("MULTI", "+OK"),
            ("INCR orders", "+QUEUED"),
            ("HELLO 3", "+QUEUED"),
            ("GET unused", "+QUEUED"),
        ] {
            assert_eq!(client.ask(command).await, reply, "{command}");
        }
        let greeted = client.ask("EXEC").await;
        assert!(greeted.starts_with("*[:5, %[$server"), "{greeted}");
        assert!(greeted.ends_with(", nothing]"), "{greeted}");
    });
}

#[test]
fn a_command_that_is_not_queued_gives_the_transaction_up() {
    run(async {
        const ABORTED: &str = "-EXECABORT Transaction discarded because of previous errors.";
        let service = RespService::start().await;
        let mut client = service.connect().await;
        for (wrong, refusal) in [
            ("INCR", "-ERR wrong number of arguments for 'incr' command"),
            (
                "NONE a",
                "-ERR unknown command 'NONE', with args beginning with: 'a' ",
            ),
        ] {
            assert_eq!(client.ask("MULTI").await, "+OK");
            assert_eq!(client.ask("INCR orders").await, "+QUEUED");
            assert_eq!(client.ask(wrong).await, refusal);
            assert_eq!(client.ask("INCR orders").await, "+QUEUED");
            assert_eq!(client.ask("EXEC").await, ABORTED);
        }
        // These are refused, and give nothing up.
        for (command, reply) in [
            ("EXEC", "-ERR EXEC without MULTI"),
            ("DISCARD", "-ERR DISCARD without MULTI"),
            ("MULTI", "+OK"),
            ("MULTI", "-ERR MULTI calls can not be nested"),
            ("WATCH orders", "-ERR WATCH inside MULTI is not allowed"),
            ("INCR orders", "+QUEUED"),
            ("EXEC", "*[:1]"),
        ] {
            assert_eq!(client.ask(command).await, reply, "{command}");
        }
        let watched = client.ask("WATCH orders").await;
        assert!(watched.starts_with("-ERR WATCH is refused: "), "{watched}");
        client.ask("MULTI").await;
        assert_eq!(client.ask("RESET").await, "+RESET");
        assert_eq!(client.ask("EXEC").await, "-ERR EXEC without MULTI");
    });
}

#[test]
fn commands_of_a_transaction_count_when_they_are_answered() {
    run(async {
        let service = RespService::start().await;
        let http = service.program.client();
        let n_commands = async || {
            let scrape = Scrape::of(&http).await;
            let of = |outcome| scrape.sum("odometer_resp_commands_total", &[("outcome", outcome)]);
            (of("answered"), of("refused"))
        };
        let mut client = service.connect().await;
        for command in ["MULTI", "DECR a", "INCR orders", "DECR a"] {
            client.ask(command).await;
        }
        assert_eq!(n_commands().await, (1.0, 0.0));
        client.ask("EXEC").await;
        assert_eq!(n_commands().await, (3.0, 2.0));
        client.send(b"PING\r\n*x\r\n").await;
        assert_eq!(client.replies_to_the_end().await.len(), 2);
        assert_eq!(n_commands().await, (4.0, 3.0));
    });
}

/// The time for which others are kept that are idle, with a tick and a busy machine.
const IDLE_LIMIT: Duration = Duration::from_secs(90);

#[test]
fn a_connection_whose_transaction_is_left_open_is_closed() {
    run(async {
        let service = RespService::start().await;
        let (mut left, mut idle) = (service.connect().await, service.connect().await);
        assert_eq!(idle.ask("MULTI").await, "+OK");
        assert_eq!(idle.ask("EXEC").await, "*[]");
        assert_eq!(left.ask("MULTI").await, "+OK");
        assert_eq!(left.ask("INCR orders").await, "+QUEUED");
        left.end_within(IDLE_LIMIT).await;
        // For as long as the other one was open, this one said nothing.
        assert_eq!(idle.ask("INCR orders").await, ":1");
    });
}

#[test]
fn a_transaction_has_a_bound() {
    run(async {
        const MOST: usize = 1000;
        const FULL: &str = "-ERR too many commands, or too long ones, are queued; send EXEC sooner";
        let service = RespService::with(Program::options().without_speed_limit()).await;
        let mut client = service.connect().await;
        let incr = resp_command(&["INCR", "a"]);
        let multi = resp_command(&["MULTI"]);
        let whole = [multi.clone(), incr.repeat(MOST), resp_command(&["EXEC"])].concat();
        let replies = client.ask_all(&whole, MOST + 2).await;
        let numbers = replies.last().map(String::as_str).unwrap_or_default();
        let numbers = numbers.trim_matches(['*', '[', ']']).split(", ");
        let numbers: Vec<i64> = numbers.map(resp_number).collect();
        assert_eq!(numbers.len(), MOST);
        assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");

        let too_many = [multi.clone(), incr.repeat(MOST + 1)].concat();
        let replies = client.ask_all(&too_many, MOST + 2).await;
        assert_eq!(replies.last().map(String::as_str), Some(FULL));
        assert!(client.ask("EXEC").await.starts_with("-EXECABORT "));
        let long = resp_command(&["ECHO", &"a".repeat(40_000)]);
        let replies = client.ask_all(&[multi, long.repeat(2)].concat(), 3).await;
        assert_eq!(replies, ["+OK", "+QUEUED", FULL]);
        assert!(client.ask("EXEC").await.starts_with("-EXECABORT "));
        assert_eq!(client.ask("PING").await, "+PONG");
    });
}
