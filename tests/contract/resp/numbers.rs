//! Tests the numbers that clients of Redis get: next to each other in a range, and never twice.

use serde_json::json;

use super::{RespService, configured};
use crate::support::{
    Backend, Ledger, Program, Range, RespClient, Scrape, TestDatabase, resp_command, resp_number,
    run,
};

/// Callers that take numbers at the same time.
const CALLERS: usize = 6;
/// Rounds of each caller.
const ROUNDS: i64 = 60;
const UNEVEN: &str = "-ERR numbers of this sequence are not next to each other, ";

/// Returns the numbers of a range whose last one is replied.
fn range(reply: &str, n: i64) -> Range {
    let last = resp_number(reply);
    Range::between(last - n + 1, last)
}

#[test]
fn no_number_comes_twice_whether_by_redis_or_by_http() {
    run(async {
        let service = RespService::with(Program::options().without_speed_limit()).await;
        let mut callers = Vec::new();
        for caller in 0..CALLERS {
            let mut client = service.connect().await;
            let http = service.program.client();
            callers.push(tokio::spawn(async move {
                let mut given = Vec::new();
                for round in 1..=ROUNDS {
                    given.push(range(&client.ask("INCR orders").await, 1));
                    let n = round * 7;
                    let reply = client.ask(&format!("INCRBY orders {n}")).await;
                    given.push(range(&reply, n));
                    if caller == 0 {
                        given.push(Range::single(http.next("orders").await));
                    }
                }
                given
            }));
        }
        let mut ledger = Ledger::default();
        for caller in callers {
            let given = caller.await.expect("no caller was refused");
            ledger.record("orders", &given);
        }
        assert_eq!(ledger.n_duplicates(), 0);
        assert!(ledger.n_numbers() > 50_000, "vacuous");
    });
}

/// Whether memory has the numbers of all of them or not.
#[test]
fn equal_commands_in_a_row_get_their_numbers_in_order() {
    run(async {
        let options = Program::options().without_speed_limit();
        let service = RespService::with(options).await;
        let mut client = service.connect().await;
        let mut ledger = Ledger::default();
        let mut highest = 0;
        for round in 1..=40_usize {
            let commands = [("INCR orders", 1, 3 * round), ("INCRBY orders 7", 7, round)];
            let lines = commands.map(|(command, _, times)| format!("{command}\r\n").repeat(times));
            client.send(lines.concat().as_bytes()).await;
            for (_, n, times) in commands {
                for _ in 0..times {
                    let given = range(&client.reply().await, n);
                    ledger.record("orders", &[given]);
                    if n == 1 {
                        assert!(given.first > highest, "{given:?} after {highest}");
                        highest = given.first;
                    }
                }
            }
        }
        let n_numbers: u64 = (1..=40).map(|round| 3 * round + 7 * round).sum();
        assert_eq!((ledger.n_duplicates(), ledger.n_numbers()), (0, n_numbers));
        let scrape = Scrape::of(&service.program.client()).await;
        let answered = scrape.sum("odometer_resp_commands_total", &[("outcome", "answered")]);
        assert!(answered >= 3280.0, "{answered}");
    });
}

/// Also if their numbers are apart, or come from a time.
#[test]
fn equal_commands_in_a_row_get_the_numbers_of_each_kind() {
    run(async {
        let service = RespService::with(Program::options().without_speed_limit()).await;
        let http = service.program.client();
        let odd = json!({"step": 2, "block": {"min": 1000}});
        http.define("odd", &odd).await;
        http.define("flakes", &json!({"kind": "snowflake"})).await;
        let mut client = service.connect().await;
        let (mut ledger, mut last) = (Ledger::default(), [-1, 0]);
        for row in 1..=40 {
            for (name, before) in ["odd", "flakes"].into_iter().zip(&mut last) {
                let commands = format!("INCR {name}\r\n").repeat(row);
                for reply in client.ask_all(commands.as_bytes(), row).await {
                    let number = resp_number(&reply);
                    assert!(number > *before, "{number} after {before}");
                    ledger.record(name, &[Range::single(number)]);
                    *before = number;
                }
            }
            let refused = client.ask_all(b"INCRBY odd 3\r\nINCRBY odd 3\r\n", 2).await;
            assert!(
                refused.iter().all(|line| line.starts_with(UNEVEN)),
                "{refused:?}"
            );
        }
        assert_eq!((ledger.n_duplicates(), ledger.n_numbers()), (0, 2 * 820));
        // The ranges that were refused took no number.
        assert_eq!(last[0], 2 * 820 - 1);
    });
}

/// Starts a service whose sequence `orders` has blocks of 1,000 numbers.
async fn with_blocks_of_a_thousand() -> RespService {
    let options = Program::options().without_speed_limit();
    let service = RespService::with(options).await;
    let block = json!({"block": {"min": 1000, "max": 1000}});
    let client = service.program.client();
    client.define("orders", &block).await;
    service
}

/// Ranges alone let blocks be fetched ahead. They go on into the next block: the rest of one, 20
/// numbers, is too much of the next one to be passed over.
#[test]
fn ranges_of_a_key_come_from_memory() {
    run(async {
        let service = with_blocks_of_a_thousand().await;
        let mut client = service.connect().await;
        let mut ledger = Ledger::default();
        for _ in 0..2_000 {
            let given = range(&client.ask("INCRBY orders 70").await, 70);
            ledger.record("orders", &[given]);
        }
        assert_eq!((ledger.n_duplicates(), ledger.n_numbers()), (0, 140_000));
        let scrape = Scrape::of(&service.program.client()).await;
        let n_reserved = scrape.n_reservations("reserved");
        assert!((140.0..160.0).contains(&n_reserved), "{n_reserved}");
        assert_eq!(scrape.n_abandoned(), 0.0);
    });
}

/// The blocks that are taken in between keep those in memory apart.
#[test]
fn a_range_passes_over_the_short_end_of_a_block() {
    run(async {
        let service = with_blocks_of_a_thousand().await;
        let mut client = service.connect().await;
        let mut ledger = Ledger::default();
        for call in 0..2_000 {
            let n = if call % 30 == 29 { 10_001 } else { 11 };
            let reply = client.ask(&format!("INCRBY orders {n}")).await;
            ledger.record("orders", &[range(&reply, n)]);
        }
        assert_eq!(ledger.n_duplicates(), 0);
        let scrape = Scrape::of(&service.program.client()).await;
        let n_passed = scrape.n_abandoned();
        // About 22 blocks end, each with a rest of up to 10 numbers.
        assert!((50.0..300.0).contains(&n_passed), "{n_passed}");
        let n_reserved = scrape.n_reservations("reserved");
        assert!(n_reserved < 200.0, "{n_reserved}");
    });
}

#[test]
fn more_than_ten_thousand_come_as_a_block() {
    run(async {
        let service = RespService::with(Program::options().without_speed_limit()).await;
        let mut client = service.connect().await;
        let mut ledger = Ledger::default();
        for (command, n) in [
            ("INCRBY orders 10000", 10_000),
            ("INCRBY orders 10001", 10_001),
            ("INCR orders", 1),
            ("INCRBY orders 250000", 250_000),
        ] {
            let given = range(&client.ask(command).await, n);
            ledger.record("orders", &[given]);
        }
        assert_eq!((ledger.n_duplicates(), ledger.n_numbers()), (0, 270_002));
        let journal = service.database.journal("orders").await;
        assert!(journal.len() >= 2, "{journal:?}");
        let too_many = client.ask("INCRBY orders 9223372036854775807").await;
        assert!(too_many.starts_with("-ERR "), "{too_many}");
    });
}

#[test]
fn a_range_whose_numbers_are_apart_is_refused_before_a_number_is_taken() {
    run(async {
        let service = RespService::start().await;
        let http = service.program.client();
        http.define("odd", &json!({"step": 2})).await;
        let mut client = service.connect().await;
        assert_eq!(client.ask("INCR odd").await, ":1");
        for n in [2, 3, 10_001] {
            let refused = client.ask(&format!("INCRBY odd {n}")).await;
            assert!(refused.starts_with(UNEVEN), "{refused}");
        }
        assert_eq!(client.ask("INCRBY odd 1").await, ":3");
        assert_eq!(client.ask("INCR odd").await, ":5");
        // What is known of another name changes nothing.
        assert!(client.ask("INCRBY even 5").await.starts_with(':'));
        let refused = client.ask("INCRBY odd 2").await;
        assert!(refused.starts_with(UNEVEN), "{refused}");
    });
}

/// The client counts 5, 6 and 7, and 6 is no number of the sequence.
#[test]
fn a_range_whose_numbers_are_apart_is_found_out() {
    run(async {
        let options = Program::options().without_guards("uneven-ranges");
        let service = RespService::with(options).await;
        let http = service.program.client();
        let definition = json!({"step": 2, "block": {"min": 1000}});
        http.define("odd", &definition).await;
        let mut client = service.connect().await;
        assert_eq!(client.ask("INCR odd").await, ":1");
        assert_eq!(client.ask("INCRBY odd 3").await, ":7");
        assert_eq!(client.ask("INCRBY odd 3").await, ":13");
        assert_eq!(client.ask("INCR odd").await, ":15");
    });
}

/// The sequence behind the name decides, also if the name is not known yet.
#[test]
fn a_name_that_shares_numbers_gives_the_ranges_of_its_sequence() {
    run(async {
        let (_folder, options) = configured("[[template]]\nmatch = \"*-small\"\nshare = \"odd\"\n");
        let service = RespService::with(options).await;
        let http = service.program.client();
        http.define("odd", &json!({"step": 2})).await;
        let mut client = service.connect().await;
        for n in [5, 10_001, 5] {
            let refused = client.ask(&format!("INCRBY a-small {n}")).await;
            assert!(refused.starts_with(UNEVEN), "{refused}");
        }
        assert_eq!(client.ask("INCR odd").await, ":1");
        assert_eq!(client.ask("INCR a-small").await, ":3");
        let refused = client.ask("INCRBY a-small 5").await;
        assert!(refused.starts_with(UNEVEN), "{refused}");
        assert_eq!(client.ask("INCR odd").await, ":5");
    });
}

/// The first range of the new sequence is a gap. Then it is known that its numbers are apart.
#[test]
fn a_name_that_gets_numbers_apart_gives_up_one_range_at_most() {
    run(async {
        let (_folder, options) = configured("[[template]]\nmatch = \"*-small\"\nshare = \"all\"\n");
        let service = RespService::with(options).await;
        let http = service.program.client();
        let mut client = service.connect().await;
        for last in [":5", ":10"] {
            assert_eq!(client.ask("INCRBY a-small 5").await, last);
        }
        let definition = json!({"step": 2, "block": {"min": 1000}});
        http.define("a-small", &definition).await;
        assert_eq!(client.ask("INCR a-small").await, ":1");
        for _ in 0..5 {
            let refused = client.ask("INCRBY a-small 5").await;
            assert!(refused.starts_with(UNEVEN), "{refused}");
        }
        // Only the numbers 3, 5, 7, 9 and 11 are gone.
        assert_eq!(client.ask("INCR a-small").await, ":13");
    });
}

#[test]
fn a_sequence_that_databases_share_gives_no_ranges() {
    run(async {
        let mut databases = Vec::new();
        for _ in 0..2 {
            databases.push(TestDatabase::empty(Backend::Postgres).await);
        }
        let urls: Vec<&str> = databases.iter().map(|it| it.url.as_str()).collect();
        let options = Program::options()
            .with_resp()
            .env("ODOMETER_STORES__DEFAULT__DATABASES", urls.join(","));
        let migrated = options.run(&["migrate"]);
        assert_eq!(migrated.code, Some(0), "migrate: {migrated}");
        let program = options.start_ready().await;
        let mut client = RespClient::open(&program.resp_address()).await;
        let mut ledger = Ledger::default();
        for _ in 0..20 {
            let given = Range::single(resp_number(&client.ask("INCR orders").await));
            ledger.record("orders", &[given]);
        }
        assert_eq!(ledger.n_duplicates(), 0);
        let refused = client.ask("INCRBY orders 2").await;
        assert!(refused.starts_with(UNEVEN), "{refused}");
        let refused = client.ask("INCRBY unused 2").await;
        assert!(refused.starts_with(UNEVEN), "{refused}");
    });
}

#[test]
fn time_ordered_ids_come_by_the_same_commands() {
    run(async {
        let service = RespService::start().await;
        let http = service.program.client();
        http.define("flakes", &json!({"kind": "snowflake"})).await;
        let mut client = service.connect().await;
        let mut ledger = Ledger::default();
        for _ in 0..20 {
            let given = [
                range(&client.ask("INCR flakes").await, 1),
                range(&client.ask("INCRBY flakes 8").await, 8),
            ];
            ledger.record("flakes", &given);
        }
        assert_eq!((ledger.n_duplicates(), ledger.n_numbers()), (0, 180));
        let block = client.ask("INCRBY flakes 10001").await;
        assert!(block.starts_with("-ERR "), "{block}");
    });
}

#[test]
fn a_stream_of_commands_is_answered_in_its_order() {
    run(async {
        const COMMANDS: usize = 20_000;
        let service = RespService::with(Program::options().without_speed_limit()).await;
        let mut client = service.connect().await;
        let commands = resp_command(&["INCR", "orders"]).repeat(COMMANDS);
        let replies = client.ask_all(&commands, COMMANDS).await;
        let mut before = 0;
        for number in replies.iter().map(|reply| resp_number(reply)) {
            assert!(number > before, "{number} after {before}");
            before = number;
        }
        assert_eq!(client.ask("PING").await, "+PONG");
    });
}
