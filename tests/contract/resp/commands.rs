//! Tests each command, in both versions of the protocol.

use std::time::Duration;

use serde_json::json;

use super::RespService;
use crate::support::{
    Backend, Program, Proxy, RespClient, Server, TestDatabase, resp_number, run, wait,
};

const LIMIT: Duration = Duration::from_secs(20);

/// Commands in their order, with their replies in RESP2 and in RESP3. `{v}` is the version.
const COMMANDS: [(&str, &str, &str); 55] = [
    ("PING", "+PONG", "+PONG"),
    ("ping hello", "$hello", "$hello"),
    ("ECHO hello", "$hello", "$hello"),
    ("SELECT 0", "+OK", "+OK"),
    (
        "SELECT 1",
        "-ERR DB index is out of range",
        "-ERR DB index is out of range",
    ),
    ("CLIENT GETNAME", "nothing", "nothing"),
    ("CLIENT SETNAME web-1", "+OK", "+OK"),
    ("CLIENT GETNAME", "$web-1", "$web-1"),
    ("CLIENT SETINFO LIB-NAME some", "+OK", "+OK"),
    ("CLIENT SETINFO lib-ver 1.2", "+OK", "+OK"),
    (
        "CLIENT SETINFO lib-age 5",
        "-ERR Unrecognized option 'lib-age'",
        "-ERR Unrecognized option 'lib-age'",
    ),
    ("CLIENT NO-EVICT ON", "+OK", "+OK"),
    ("CLIENT NO-TOUCH off", "+OK", "+OK"),
    (
        "CLIENT NO-TOUCH maybe",
        "-ERR syntax error",
        "-ERR syntax error",
    ),
    (
        "CLIENT MAINT_NOTIFICATIONS ON",
        "-ERR unknown subcommand 'MAINT_NOTIFICATIONS'. Try CLIENT HELP.",
        "-ERR unknown subcommand 'MAINT_NOTIFICATIONS'. Try CLIENT HELP.",
    ),
    ("COMMAND", "*[]", "*[]"),
    ("COMMAND DOCS incr", "*[]", "%[]"),
    (
        "COMMAND INFO incr get",
        "*[nothing, nothing]",
        "*[nothing, nothing]",
    ),
    ("CONFIG GET save", "*[$save, $]", "%[$save, $]"),
    (
        "config get appendonly",
        "*[$appendonly, $yes]",
        "%[$appendonly, $yes]",
    ),
    ("CONFIG GET maxmemory", "*[]", "%[]"),
    ("EXISTS n{v}", ":0", ":0"),
    ("TYPE n{v}", "+none", "+none"),
    ("TTL n{v}", ":-2", ":-2"),
    ("GET n{v}", "nothing", "nothing"),
    ("SETNX n{v} 41", ":1", ":1"),
    ("INCR n{v}", ":42", ":42"),
    ("SETNX n{v} 7", ":0", ":0"),
    ("SET n{v} 7 NX", "nothing", "nothing"),
    ("SET m{v} 0 NX", "+OK", "+OK"),
    ("INCR m{v}", ":1", ":1"),
    ("SET k{v} -1 NX", "+OK", "+OK"),
    ("INCR k{v}", ":0", ":0"),
    ("EXISTS n{v} m{v} zzz{v} n{v}", ":3", ":3"),
    ("TYPE n{v}", "+string", "+string"),
    ("TTL n{v}", ":-1", ":-1"),
    ("PTTL n{v}", ":-1", ":-1"),
    (
        "DECR n{v}",
        "-ERR a number is never taken back",
        "-ERR a number is never taken back",
    ),
    (
        "DECRBY n{v} 5",
        "-ERR a number is never taken back",
        "-ERR a number is never taken back",
    ),
    (
        "INCRBY n{v} -5",
        "-ERR a number is never taken back",
        "-ERR a number is never taken back",
    ),
    (
        "INCRBY n{v} 0",
        "-ERR a number is never taken back",
        "-ERR a number is never taken back",
    ),
    (
        "INCRBYFLOAT n{v} 0.5",
        "-ERR a number is never taken back",
        "-ERR a number is never taken back",
    ),
    (
        "SET n{v} 100",
        "-ERR a number is never taken back",
        "-ERR a number is never taken back",
    ),
    (
        "SET n{v} 100 XX",
        "-ERR a number is never taken back",
        "-ERR a number is never taken back",
    ),
    (
        "GETSET n{v} 0",
        "-ERR a number is never taken back",
        "-ERR a number is never taken back",
    ),
    (
        "GETDEL n{v}",
        "-ERR a number is never taken back",
        "-ERR a number is never taken back",
    ),
    (
        "DEL n{v} m{v}",
        "-ERR a number is never taken back",
        "-ERR a number is never taken back",
    ),
    (
        "RENAME n{v} o{v}",
        "-ERR a number is never taken back",
        "-ERR a number is never taken back",
    ),
    (
        "EVAL return 0",
        "-ERR unknown command 'EVAL', with args beginning with: 'return' '0' ",
        "-ERR unknown command 'EVAL', with args beginning with: 'return' '0' ",
    ),
    (
        "CLUSTER SLOTS",
        "-ERR unknown command 'CLUSTER', with args beginning with: 'SLOTS' ",
        "-ERR unknown command 'CLUSTER', with args beginning with: 'SLOTS' ",
    ),
    ("INCR n{v}", ":43", ":43"),
    ("RESET", "+RESET", "+RESET"),
    ("CLIENT GETNAME", "nothing", "nothing"),
    ("GET unused", "nothing", "nothing"),
    ("QUIT", "+OK", "+OK"),
];

#[test]
fn each_command_replies_as_documented_in_both_versions() {
    run(async {
        let service = RespService::start().await;
        for version in ["2", "3"] {
            let mut client = service.connect().await;
            let greeted = client.ask(&format!("HELLO {version}")).await;
            assert!(
                greeted.contains(&format!("$proto, :{version}")),
                "{greeted}"
            );
            for (command, resp2, resp3) in COMMANDS {
                let command = command.replace("{v}", version);
                let wanted = if version == "2" { resp2 } else { resp3 };
                assert_eq!(client.ask(&command).await, wanted, "{command}");
            }
            assert_eq!(client.next_reply().await, None);
        }
    });
}

#[test]
fn a_greeting_says_who_answers_and_chooses_the_version() {
    run(async {
        let service = RespService::start().await;
        let mut client = service.connect().await;
        let id = resp_number(&client.ask("CLIENT ID").await);
        let fields = |proto: &str| {
            format!(
                "$server, $odometer, $version, $7.4.0, $proto, {proto}, $id, :{id}, $mode, \
                 $standalone, $role, $master, $modules, *[]"
            )
        };
        assert_eq!(client.ask("HELLO").await, format!("*[{}]", fields(":2")));
        let greeted = client.ask("HELLO 3 SETNAME web-1").await;
        assert_eq!(greeted, format!("%[{}]", fields(":3")));
        assert_eq!(client.ask("CLIENT GETNAME").await, "$web-1");
        assert_eq!(client.ask("HELLO").await, format!("%[{}]", fields(":3")));
        assert_eq!(client.ask("HELLO 2").await, format!("*[{}]", fields(":2")));
        for (command, refused) in [
            ("HELLO 4", "-NOPROTO unsupported protocol version"),
            (
                "HELLO x",
                "-ERR Protocol version is not an integer or out of range",
            ),
            ("HELLO 3 WHY", "-ERR Syntax error in HELLO option 'WHY'"),
        ] {
            assert_eq!(client.ask(command).await, refused, "{command}");
        }
        let other = service.ask("CLIENT ID").await;
        assert_ne!(resp_number(&other), id);
    });
}

#[test]
fn the_server_tells_tools_what_they_look_for() {
    run(async {
        let service = RespService::start().await;
        let mut client = service.connect().await;
        let all = client.ask("INFO").await;
        for line in ["redis_version:7.4.0", "loading:0", "role:master"] {
            assert!(all.contains(&format!("{line}\r\n")), "{all}");
        }
        let one = client.ask("INFO replication").await;
        assert!(
            one.contains("role:master") && !one.contains("loading"),
            "{one}"
        );
        let n_commands = resp_number(&client.ask("COMMAND COUNT").await);
        assert!(n_commands > 20, "{n_commands}");
        client.ask("HELLO 3").await;
        let verbatim = client.ask("INFO server").await;
        assert!(verbatim.starts_with("=txt:# Server"), "{verbatim}");
    });
}

/// Each key is asked for in less than the time of a call, and all together are not.
#[test]
fn the_keys_of_a_command_have_the_time_of_one_call_together() {
    run(async {
        let server = Server::shared(Backend::Postgres).await;
        let proxy = Proxy::to(server.port()).await;
        let database = TestDatabase::prepared_on(server).await;
        let options = Program::options()
            .with_resp()
            .database(&database.url_through(&proxy, server))
            .env("ODOMETER_REFILL__DEADLINE", "1s");
        let program = options.start_ready().await;
        let mut client = RespClient::open(&program.resp_address()).await;
        let names: Vec<String> = (0..15).map(|n| format!("n{n}")).collect();
        let exists = format!("EXISTS {}", names.join(" "));
        proxy.delay_replies(Duration::from_millis(200));
        let late = client.ask(&exists).await;
        assert!(late.starts_with("-TRYAGAIN refill_timeout: "), "{late}");
        proxy.delay_replies(Duration::ZERO);
        wait::until("the database is quick again", LIMIT, async || {
            (client.ask(&exists).await == ":0").then_some(())
        })
        .await;
    });
}

#[test]
fn get_is_an_upper_bound_of_the_numbers_that_were_given() {
    run(async {
        let service = RespService::start().await;
        let mut client = service.connect().await;
        for _ in 0..50 {
            let last = resp_number(&client.ask("INCR orders").await);
            let got = client.ask("GET orders").await;
            let got = got.strip_prefix('$').and_then(|it| it.parse::<i64>().ok());
            assert!(got.is_some_and(|got| got >= last), "{got:?} {last}");
        }
    });
}

#[test]
fn what_the_client_cannot_choose_comes_from_the_definition() {
    run(async {
        let service = RespService::start().await;
        let http = service.program.client();
        let definition = json!({"start": "5", "max": "7", "format": "A-{value:05}"});
        http.define("short", &definition).await;
        let mut client = service.connect().await;
        for wanted in [":5", ":6", ":7"] {
            assert_eq!(client.ask("INCR short").await, wanted);
        }
        let ended = client.ask("INCR short").await;
        assert!(ended.starts_with("-ERR sequence_exhausted: "), "{ended}");
        let name = client.ask("INCR short/name").await;
        assert!(name.starts_with("-ERR invalid_name: "), "{name}");
    });
}
