//! Tests who may do what by the listener for clients of Redis: by roles, tokens and certificates.

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::json;

use super::certificates::{BILLING, Certified, section};
use super::{ADMIN, Roles, TestCaller, replace, send};
use crate::support::{
    Options, Program, RespClient, Scrape, SignedCertificate, TlsCaller, resp_number, run, wait,
};

const LIMIT: Duration = Duration::from_secs(20);
const NOT_LOGGED_IN: &str = "-NOAUTH Authentication required.";
const WRONG: &str = "-WRONGPASS invalid username-password pair or user is disabled.";

const ACCESS: &str = "\
[access.roles.taker]
take = [\"orders\", \"new-*\"]
create = [\"*\"]
[access.roles.importer]
take = [\"*\"]
block = [\"*\"]
create = [\"*\"]
[access.roles.reader]
look = [\"orders\"]
[access.roles.definer]
take = [\"*\"]
create = [\"*\"]
define = [\"new-*\"]
";

/// Commands, and the roles that may send them. `{role}` makes a name of its own.
const RULES: [(&str, &[&str]); 10] = [
    ("PING", &["taker", "importer", "reader", "definer"]),
    ("INCR orders", &["taker", "importer", "definer"]),
    ("INCRBY orders 5", &["taker", "importer", "definer"]),
    ("INCRBY orders 10001", &["importer"]),
    ("INCR others", &["importer", "definer"]),
    ("GET orders", &["reader"]),
    ("EXISTS orders", &["reader"]),
    ("TTL others", &[]),
    (
        "SETNX new-usual-{role} 0",
        &["taker", "importer", "definer"],
    ),
    ("SETNX new-{role} 41", &["definer"]),
];

async fn start(options: Options, access: &str, sections: &str) -> Roles {
    let options = options
        .with_resp()
        .without_speed_limit()
        .env("ODOMETER_DEFINITION_REFRESH", "1s");
    Roles::start(options, access, sections).await
}

/// Opens a connection, and logs in.
async fn logged_in(roles: &Roles, token: &str) -> RespClient<tokio::net::TcpStream> {
    let mut client = RespClient::open(&roles.program.resp_address()).await;
    assert_eq!(client.ask(&format!("AUTH {token}")).await, "+OK");
    client
}

fn callers() -> Vec<TestCaller> {
    let roles = ["taker", "importer", "reader", "definer"];
    roles.map(|role| TestCaller::new(role, role)).into()
}

#[test]
fn each_role_may_send_what_its_rights_say() {
    run(async {
        let callers = callers();
        let sections: String = callers.iter().map(TestCaller::section).collect();
        let roles = start(Program::options(), ACCESS, &sections).await;
        let mut admin = logged_in(&roles, ADMIN).await;
        for name in ["orders", "others"] {
            assert_eq!(admin.ask(&format!("INCR {name}")).await, ":1");
        }
        for caller in &callers {
            let mut client = logged_in(&roles, &caller.token).await;
            // What a connection remembers of its caller changes nothing.
            for round in ["", "-again"] {
                for (command, may) in RULES {
                    let name = format!("{}{round}", caller.role);
                    let command = command.replace("{role}", &name);
                    let reply = client.ask(&command).await;
                    let is_forbidden = reply.starts_with("-ERR forbidden: ");
                    let may = may.contains(&caller.role);
                    assert_eq!(is_forbidden, !may, "{}: {command}: {reply}", caller.role);
                    let is_refused = reply.starts_with('-');
                    assert_eq!(is_refused, !may, "{}: {command}: {reply}", caller.role);
                }
            }
        }
    });
}

#[test]
fn a_program_that_asks_for_no_rights_is_found_out() {
    run(async {
        let reader = TestCaller::new("reader", "reader");
        let options = Program::options().without_guards("rights-unasked");
        let roles = start(options, ACCESS, &reader.section()).await;
        // The guard of the right to create stays.
        let mut administrator = logged_in(&roles, ADMIN).await;
        assert_eq!(administrator.ask("INCR orders").await, ":1");
        let mut client = logged_in(&roles, &reader.token).await;
        let reply = client.ask("INCR orders").await;
        assert!(reply.starts_with(':'), "{reply}");
    });
}

#[test]
fn who_shows_no_token_is_anonymous_or_gets_nothing() {
    run(async {
        let taker = TestCaller::new("shop", "taker");
        let closed = start(Program::options(), ACCESS, &taker.section()).await;
        let mut client = RespClient::open(&closed.program.resp_address()).await;
        for (command, reply) in [
            ("INCR orders", NOT_LOGGED_IN),
            ("PING", NOT_LOGGED_IN),
            ("AUTH odo_wrong", WRONG),
            ("INCR orders", NOT_LOGGED_IN),
        ] {
            assert_eq!(client.ask(command).await, reply, "{command}");
        }
        // The user is the usual one, or the name of the caller.
        let token = &taker.token;
        assert_eq!(client.ask(&format!("AUTH other {token}")).await, WRONG);
        assert_eq!(client.ask(&format!("AUTH shop {token}")).await, "+OK");
        assert_eq!(client.ask("INCR orders").await, ":1");
        assert_eq!(client.ask(&format!("AUTH default {token}")).await, "+OK");
        let greeting = format!("HELLO 3 AUTH shop {token}");
        assert!(client.ask(&greeting).await.starts_with("%[$server"));

        let open = format!("anonymous = \"taker\"\n{ACCESS}");
        let open = start(Program::options(), &open, &taker.section()).await;
        let mut client = RespClient::open(&open.program.resp_address()).await;
        assert_eq!(client.ask("INCR orders").await, ":1");
        // Without a token, a refusal says that one may help.
        assert_eq!(client.ask("GET orders").await, NOT_LOGGED_IN);
        assert_eq!(client.ask("INCR orders").await, ":2");
        // A caller who shows a wrong one is not anonymous.
        for (command, reply) in [
            ("AUTH odo_wrong", WRONG),
            ("INCR orders", NOT_LOGGED_IN),
            ("PING", NOT_LOGGED_IN),
            ("RESET", "+RESET"),
            ("INCR orders", ":3"),
        ] {
            assert_eq!(client.ask(command).await, reply, "{command}");
        }
        let login = format!("HELLO 3 AUTH other {token}");
        assert_eq!(client.ask(&login).await, WRONG);
        assert_eq!(client.ask("INCR orders").await, NOT_LOGGED_IN);
        let login = format!("HELLO 3 AUTH shop {token}");
        assert!(client.ask(&login).await.starts_with("%[$server"));
        assert_eq!(client.ask("INCR orders").await, ":4");
    });
}

#[test]
fn a_withdrawn_token_gets_nothing_more_on_an_open_connection() {
    run(async {
        let (shop, other) = (
            TestCaller::new("shop", "taker"),
            TestCaller::new("other", "taker"),
        );
        let both = [shop.section(), other.section()].concat();
        // Nobody becomes anonymous because a token is withdrawn.
        let access = format!("anonymous = \"taker\"\n{ACCESS}");
        let roles = start(Program::options(), &access, &both).await;
        let mut client = logged_in(&roles, &shop.token).await;
        let mut remaining = logged_in(&roles, &other.token).await;
        for _ in 0..20 {
            assert!(resp_number(&client.ask("INCR orders").await) > 0);
        }
        replace(&roles.callers_file(), &other.section());
        wait::until("the token is withdrawn", LIMIT, async || {
            let reply = client.ask("INCR orders").await;
            (reply == NOT_LOGGED_IN).then_some(())
        })
        .await;
        for command in ["INCR orders", "PING", "MULTI"] {
            assert_eq!(client.ask(command).await, NOT_LOGGED_IN, "{command}");
        }
        assert_eq!(client.ask(&format!("AUTH {}", shop.token)).await, WRONG);
        assert!(resp_number(&remaining.ask("INCR orders").await) > 0);
        assert_eq!(client.ask(&format!("AUTH {}", other.token)).await, "+OK");
        assert!(resp_number(&client.ask("INCR orders").await) > 0);
    });
}

/// Opens a connection that takes numbers from memory, and has two commands in a transaction if
/// `is_queueing`. Then withdraws its token, and returns what its next command gets.
async fn after_its_withdrawal(options: Options, is_queueing: bool) -> String {
    let (shop, other) = (
        TestCaller::new("shop", "taker"),
        TestCaller::new("other", "taker"),
    );
    let both = [shop.section(), other.section()].concat();
    // Memory has numbers to the end.
    let options = options.env("ODOMETER_DEFAULT__BLOCK__MIN", 1000);
    let roles = start(options, ACCESS, &both).await;
    let mut client = logged_in(&roles, &shop.token).await;
    for number in 1..=20 {
        assert_eq!(client.ask("INCR orders").await, format!(":{number}"));
    }
    if is_queueing {
        assert_eq!(client.ask("MULTI").await, "+OK");
        for _ in 0..2 {
            assert_eq!(client.ask("INCR orders").await, "+QUEUED");
        }
    }
    replace(&roles.callers_file(), &other.section());
    // Another connection learns when the file was read.
    wait::until("the token is withdrawn", LIMIT, async || {
        let mut another = RespClient::open(&roles.program.resp_address()).await;
        let reply = another.ask(&format!("AUTH {}", shop.token)).await;
        (reply == WRONG).then_some(())
    })
    .await;
    match is_queueing {
        true => client.ask("EXEC").await,
        false => client.ask("INCR orders").await,
    }
}

#[test]
fn a_token_that_is_withdrawn_counts_for_no_command_after_that() {
    run(async {
        let reply = after_its_withdrawal(Program::options(), false).await;
        assert_eq!(reply, NOT_LOGGED_IN);
        let replies = after_its_withdrawal(Program::options(), true).await;
        assert_eq!(replies, format!("*[{NOT_LOGGED_IN}, {NOT_LOGGED_IN}]"));
    });
}

#[test]
fn a_client_of_redis_that_is_remembered_for_good_is_found_out() {
    run(async {
        let options = || Program::options().without_guards("memo-never-stale");
        assert_eq!(after_its_withdrawal(options(), false).await, ":21");
        let replies = after_its_withdrawal(options(), true).await;
        assert_eq!(replies, "*[:21, :22]");
    });
}

/// A quota whose burst is 1000 numbers.
const SLOW: &str = "\
[access.roles.slow]
take = [\"*\"]
create = [\"*\"]
numbers = \"100/s\"
";

/// Takes numbers over four connections, in rows of `row` equal commands for mostly `usual` numbers
/// each. Returns how many came, how many the quota had at most in that time, and how many commands
/// were refused.
async fn taken(options: Options, (row, usual): (usize, u64)) -> (u64, u64, u64) {
    let slow = TestCaller::new("slow", "slow");
    let roles = start(options, SLOW, &slow.section()).await;
    let (mut sum, mut n_refused, began) = (0_u64, 0, Instant::now());
    let mut clients = Vec::new();
    for _ in 0..4 {
        clients.push(logged_in(&roles, &slow.token).await);
    }
    for round in 0..100 {
        let n = if round % 10 == 0 { 7 } else { usual };
        let at = round % clients.len();
        let commands = format!("INCRBY orders {n}\r\n").repeat(row);
        for reply in clients[at].ask_all(commands.as_bytes(), row).await {
            if reply.starts_with("-TRYAGAIN quota_exceeded: ") {
                n_refused += 1;
            } else {
                assert!(resp_number(&reply) > 0, "{reply}");
                sum += n;
            }
        }
    }
    let passed_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    let most = 1000 + (100 * passed_ms).div_ceil(1000) + 64;
    (sum, most, n_refused)
}

/// One command at a time, and ten equal ones in a row.
const ROWS: [(usize, u64); 2] = [(1, 100), (10, 10)];

#[test]
fn the_callers_of_a_role_take_no_more_than_its_quota() {
    run(async {
        for row in ROWS {
            let (sum, most, n_refused) = taken(Program::options(), row).await;
            assert!(sum <= most, "{row:?}: {sum} of {most}");
            assert!(n_refused > 0 && sum > 500, "vacuous: {sum}, {n_refused}");
        }
    });
}

#[test]
fn a_quota_that_no_command_is_asked_for_is_found_out() {
    run(async {
        for row in ROWS {
            let options = Program::options().without_guards("quota-uncounted");
            let (sum, most, n_refused) = taken(options, row).await;
            assert_eq!(n_refused, 0, "{row:?}");
            assert!(sum > most, "{row:?}: {sum} within {most}");
        }
    });
}

/// The warm path asks the quota first, and memory has no numbers of a sequence with strict order.
#[test]
fn what_memory_does_not_have_counts_once_in_the_quota() {
    run(async {
        let slow = TestCaller::new("slow", "slow");
        let roles = start(Program::options(), SLOW, &slow.section()).await;
        let strict = json!({"order": "strict"});
        let call = (Method::PUT, "/v1/sequences/orders", Some(&strict));
        let defined = send(&roles.client(), ADMIN, call).await;
        assert_eq!(defined.status, 201, "{defined:?}");
        let mut client = logged_in(&roles, &slow.token).await;
        for n in 1..=11 {
            let last = client.ask("INCRBY orders 90").await;
            assert_eq!(last, format!(":{}", 90 * n));
        }
    });
}

/// A quota of one name.
const SPARING: &str = "\
[access.roles.sparing]
take = [\"*\"]
create = [\"new-*\"]
define = [\"new-*\"]
names = 1
";

#[test]
fn a_name_that_is_created_with_a_start_counts_once_in_the_quota() {
    run(async {
        let sparing = TestCaller::new("sparing", "sparing");
        let roles = start(Program::options(), SPARING, &sparing.section()).await;
        let mut client = logged_in(&roles, &sparing.token).await;
        assert_eq!(client.ask("SETNX new-one 41").await, ":1");
        assert_eq!(client.ask("INCR new-one").await, ":42");
        for command in ["SETNX new-two 41", "SETNX new-two 0", "INCR new-two"] {
            let refused = client.ask(command).await;
            assert!(
                refused.starts_with("-ERR too_many_sequences: "),
                "{command}: {refused}"
            );
        }
    });
}

async fn connected(
    service: &Certified,
    shown: Option<&SignedCertificate>,
    protocols: &[&str],
) -> RespClient<tokio_rustls::client::TlsStream<tokio::net::TcpStream>> {
    let caller = TlsCaller::new(&service.authority, shown).offering(protocols);
    let address = service.roles.program.resp_address();
    let connection = caller.connect(&address).await;
    RespClient::over(connection.expect("the handshake is done").into_stream())
}

#[test]
fn a_certificate_is_a_login_and_a_browser_gets_no_answer() {
    run(async {
        let other = TestCaller::new("by-token", "reader");
        let sections = [section("billing", "taker", BILLING), other.section()];
        let options = Program::options().with_resp();
        let service = Certified::start(options, ACCESS, &sections.concat()).await;
        let billing = service.authority.sign(&[BILLING]);
        let mut client = connected(&service, Some(&billing), &[]).await;
        for number in 1..=20 {
            assert_eq!(client.ask("INCR orders").await, format!(":{number}"));
        }
        // A token beats the certificate.
        let login = format!("AUTH {}", other.token);
        assert_eq!(client.ask(&login).await, "+OK");
        let refused = client.ask("INCR orders").await;
        assert!(refused.starts_with("-ERR forbidden: "), "{refused}");
        assert_eq!(client.ask("RESET").await, "+RESET");
        assert_eq!(client.ask("INCR orders").await, ":21");

        let mut nobody = connected(&service, None, &[]).await;
        assert_eq!(nobody.ask("INCR orders").await, NOT_LOGGED_IN);
        let unknown = service.authority.sign(&["spiffe://corp/unknown"]);
        let mut unknown = connected(&service, Some(&unknown), &[]).await;
        for command in ["PING", "INCR orders", "MULTI"] {
            assert_eq!(unknown.ask(command).await, NOT_LOGGED_IN, "{command}");
        }
        // It may still show a token.
        assert_eq!(unknown.ask(&login).await, "+OK");
        assert_eq!(unknown.ask("PING").await, "+PONG");

        // A browser agrees on HTTP, which no client of Redis does.
        let mut browser = connected(&service, Some(&billing), &["http/1.1"]).await;
        let _sent = browser.try_send(b"INCR orders\r\n").await;
        assert_eq!(browser.next_reply().await, None);
        // Nothing but TLS is spoken here.
        let mut plain = RespClient::open(&service.roles.program.resp_address()).await;
        let _sent = plain.try_send(b"INCR orders\r\n").await;
        let ended = plain.next_reply().await;
        assert_eq!(ended, None);
        assert_eq!(client.ask("INCR orders").await, ":22");
        let operations = crate::support::operations(&service.roles.program);
        let scrape = Scrape::of(&operations).await;
        assert_eq!(scrape.sum("odometer_tls_handshakes_failed_total", &[]), 1.0);
    });
}
