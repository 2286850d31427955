//! Tests how keys lead to sequences and periods, and what happens to keys that would expire.

use serde_json::json;

use super::{RespService, configured};
use crate::support::{Program, run};

const RULES: &str = "\
[[resp.key]]
match = \"order:????????\"
sequence = \"order\"
period = \"$1\"

[[resp.key]]
match = \":1:*\"
sequence = \"$1\"

[[resp.key]]
match = \"cosid:{*}.adder\"
sequence = \"cosid-$1\"
";
const EXPIRES: &str = "-ERR a number never expires; ";

#[test]
fn rules_lead_keys_to_sequences_and_periods() {
    run(async {
        let (_folder, options) = configured(RULES);
        let service = RespService::with(options).await;
        let http = service.program.client();
        http.define("order", &json!({"period": "keyed", "block": {"min": 1000}}))
            .await;
        let mut client = service.connect().await;
        for (command, reply) in [
            ("INCR order:20261129", ":1"),
            ("INCR order:20261129", ":2"),
            ("INCR order:20261129", ":3"),
            ("INCR order:20261130", ":1"),
            ("INCR order:20261130", ":2"),
            ("INCR order:20261130", ":3"),
            ("INCR order:20261129", ":4"),
            ("INCR :1:hits", ":1"),
            ("INCR hits", ":2"),
            ("INCR cosid:{a}.adder", ":1"),
            ("INCR cosid-a", ":2"),
            ("EXISTS order:20261129 order:20261231 :1:hits", ":2"),
            ("TTL order:20261129", ":-1"),
            // No rule fits these, and they are names.
            ("INCR order:2026112", ":1"),
            ("INCR Hits", ":1"),
        ] {
            assert_eq!(client.ask(command).await, reply, "{command}");
        }
        let reply = http.post("/v1/sequences/order/next?period=20261129").await;
        assert_eq!(reply.expect("a reply").number(), 5);
        for (command, refusal) in [
            ("INCR order", "-ERR invalid_period: "),
            ("INCR :1:", "-ERR invalid_name: "),
            ("INCR :2:hits", "-ERR invalid_name: "),
            ("INCR caf\u{e9}", "-ERR invalid_name: "),
            ("INCR order:2026+129", "-ERR invalid_period: "),
            (
                "SETNX order:20270101 5",
                "-ERR a period is created by its first INCR",
            ),
        ] {
            let refused = client.ask(command).await;
            assert!(refused.starts_with(refusal), "{command}: {refused}");
        }
    });
}

#[test]
fn a_key_never_expires_and_the_operator_says_what_is_replied() {
    run(async {
        let refusing = RespService::start().await;
        let ignoring = Program::options().env("ODOMETER_RESP__EXPIRE", "ignore");
        let ignoring = RespService::with(ignoring).await;
        let (mut refusing, mut ignoring) = (refusing.connect().await, ignoring.connect().await);
        for client in [&mut refusing, &mut ignoring] {
            assert_eq!(client.ask("INCR hits").await, ":1");
        }
        for (command, ignored) in [
            ("EXPIRE hits 1", ":1"),
            ("PEXPIRE hits 1", ":1"),
            ("EXPIREAT hits 1", ":1"),
            ("PEXPIREAT hits 1 NX", ":1"),
            ("EXPIRE unknown 1", ":0"),
            ("SET new 0 EX 1 NX", "+OK"),
            ("SET newer 0 NX PX 1", "+OK"),
        ] {
            let refused = refusing.ask(command).await;
            assert!(refused.starts_with(EXPIRES), "{command}: {refused}");
            assert_eq!(ignoring.ask(command).await, ignored, "{command}");
        }
        for (command, said) in [
            (
                "EXPIRE hits x",
                "-ERR value is not an integer or out of range",
            ),
            ("EXPIRE hits 1 WHY", "-ERR Unsupported option WHY"),
            (
                "SET other 0 NX EX 0",
                "-ERR invalid expire time in 'set' command",
            ),
        ] {
            assert_eq!(refusing.ask(command).await, said, "{command}");
            assert_eq!(ignoring.ask(command).await, said, "{command}");
        }
        assert_eq!(ignoring.ask("INCR hits").await, ":2");
        assert_eq!(ignoring.ask("TTL hits").await, ":-1");
        assert_eq!(ignoring.ask("INCR new").await, ":1");
    });
}
