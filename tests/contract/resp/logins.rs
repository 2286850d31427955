//! Tests the password of the listener, and that it is not open to other machines without one.

use std::time::{Duration, Instant};

use super::RespService;
use crate::support::{
    Finished, Options, Program, RespClient, Scrape, TestDatabase, directory, resp_command, run,
};

const PASSWORD: &str = "a-password-of-the-tests";
const ADMIN: &str = "a-token-of-the-administrator";
const NOT_LOGGED_IN: &str = "-NOAUTH Authentication required.";
/// How a reply begins that is any number.
const A_NUMBER: &str = ":";
const WRONG: &str = "-WRONGPASS invalid username-password pair or user is disabled.";

fn with_password() -> Options {
    Program::options().env("ODOMETER_RESP__PASSWORD", PASSWORD)
}

#[test]
fn no_command_is_done_before_the_password_is_shown() {
    run(async {
        let service = RespService::with(with_password()).await;
        let mut client = service.connect().await;
        for (command, reply) in [
            ("INCR orders", NOT_LOGGED_IN),
            ("PING", NOT_LOGGED_IN),
            ("MULTI", NOT_LOGGED_IN),
            ("CLIENT ID", NOT_LOGGED_IN),
            // Redis looks at these first, too.
            ("INCR", "-ERR wrong number of arguments for 'incr' command"),
            (
                "NONE",
                "-ERR unknown command 'NONE', with args beginning with: ",
            ),
            (
                "EXEC",
                "-EXECABORT Transaction discarded because of: NOAUTH Authentication required.",
            ),
            ("AUTH wrong", WRONG),
            ("AUTH other a-password-of-the-tests", WRONG),
            ("AUTH a b c", "-ERR syntax error"),
            ("INCR orders", NOT_LOGGED_IN),
            ("AUTH a-password-of-the-tests", "+OK"),
            ("INCR orders", ":1"),
            ("INCRBY orders 5", A_NUMBER),
            // A wrong password takes nothing away.
            ("AUTH wrong", WRONG),
            ("INCR orders", A_NUMBER),
            ("RESET", "+RESET"),
            ("INCR orders", NOT_LOGGED_IN),
            ("AUTH default a-password-of-the-tests", "+OK"),
            ("INCR orders", A_NUMBER),
        ] {
            let found = client.ask(command).await;
            let is_expected = match reply {
                A_NUMBER => found.starts_with(A_NUMBER),
                _ => found == reply,
            };
            assert!(is_expected, "{command}: {found}");
        }
        let mut greeted = service.connect().await;
        let refused = greeted.ask("HELLO 3").await;
        assert!(
            refused.starts_with("-NOAUTH HELLO must be called "),
            "{refused}"
        );
        let wrong = greeted.ask("HELLO 3 AUTH default wrong").await;
        assert_eq!(wrong, WRONG);
        let login = format!("HELLO 3 AUTH default {PASSWORD} SETNAME web");
        let said = greeted.ask(&login).await;
        assert!(said.starts_with("%[$server, $odometer"), "{said}");
        let found = greeted.ask("INCR orders").await;
        assert!(found.starts_with(A_NUMBER), "{found}");
        assert_eq!(greeted.ask("GET unused").await, "nothing");
    });
}

#[test]
fn a_command_before_the_login_is_short() {
    run(async {
        let service = RespService::with(with_password()).await;
        let login = resp_command(&["AUTH", PASSWORD]);
        let many = resp_command(&["EXISTS", "a", "a", "a", "a", "a", "a", "a", "a", "a", "a"]);
        let long = resp_command(&["ECHO", &"a".repeat(16 * 1024)]);
        for (command, refusal, reply) in [
            (&many, "unauthenticated multibulk length", ":0"),
            (&long, "unauthenticated bulk length", "$aaaa"),
        ] {
            let mut stranger = service.connect().await;
            // The service may end the connection before it has read everything.
            let _sent = stranger.try_send(command).await;
            let refused = format!("-ERR Protocol error: {refusal}");
            assert_eq!(stranger.replies_to_the_end().await, [refused]);
            let mut member = service.connect().await;
            let both = [login.clone(), command.clone()].concat();
            member.send(&both).await;
            assert_eq!(member.reply().await, "+OK");
            let replied = member.reply().await;
            assert!(replied.starts_with(reply), "{replied:.40}");
        }
    });
}

#[test]
fn without_a_password_none_is_taken() {
    run(async {
        let service = RespService::start().await;
        let mut client = service.connect().await;
        let refused = client.ask("AUTH any").await;
        assert!(
            refused.starts_with("-ERR AUTH <password> called without any password configured"),
            "{refused}"
        );
        assert_eq!(client.ask("AUTH default any").await, "+OK");
        assert_eq!(client.ask("AUTH other any").await, WRONG);
        assert_eq!(client.ask("INCR orders").await, ":1");
    });
}

#[test]
fn a_program_that_asks_for_no_password_is_found_out() {
    run(async {
        let options = with_password().without_guards("password-unasked");
        let service = RespService::with(options).await;
        assert_eq!(service.ask("INCR orders").await, ":1");
    });
}

#[test]
fn a_connection_stays_idle_only_after_its_login() {
    run(async {
        let options = with_password().env("ODOMETER_HTTP__HEAD", "2s");
        let service = RespService::with(options).await;
        let (mut member, mut stranger) = (service.connect().await, service.connect().await);
        let (mut silent, mut reset) = (service.connect().await, service.connect().await);
        let login = format!("AUTH {PASSWORD}");
        for client in [&mut member, &mut reset] {
            assert_eq!(client.ask(&login).await, "+OK");
        }
        assert_eq!(reset.ask("RESET").await, "+RESET");
        assert_eq!(stranger.ask("PING").await, NOT_LOGGED_IN);
        for client in [&mut stranger, &mut silent, &mut reset] {
            assert_eq!(client.next_reply().await, None);
        }
        // For as long as the others were open, this one said nothing.
        assert_eq!(member.ask("INCR orders").await, ":1");
    });
}

/// Only the administrator chooses where a sequence starts.
#[test]
fn a_start_of_ones_own_needs_the_token_of_the_administrator() {
    run(async {
        let options = with_password().env("ODOMETER_ADMIN_TOKEN", ADMIN);
        let service = RespService::with(options).await;
        let mut client = service.connect().await;
        assert_eq!(client.ask(&format!("AUTH {PASSWORD}")).await, "+OK");
        // The sequence would start there anyway.
        assert_eq!(client.ask("SETNX usual 0").await, ":1");
        for command in ["SETNX orders 41", "SET orders 41 NX"] {
            let refused = client.ask(command).await;
            assert!(
                refused.starts_with("-ERR only the administrator"),
                "{refused}"
            );
        }
        assert_eq!(client.ask("EXISTS orders").await, ":0");
        assert_eq!(client.ask(&format!("AUTH {ADMIN}")).await, "+OK");
        assert_eq!(client.ask("SETNX orders 41").await, ":1");
        assert_eq!(client.ask("INCR orders").await, ":42");
    });
}

#[test]
fn after_many_wrong_passwords_the_next_one_waits() {
    run(async {
        // A longer one would not wait.
        const SHORT: &str = "tiger";
        let options = Program::options().env("ODOMETER_RESP__PASSWORD", SHORT);
        let service = RespService::with(options).await;
        let mut client = service.connect().await;
        let started = Instant::now();
        for _ in 0..10 {
            assert_eq!(client.ask("AUTH wrong").await, WRONG);
        }
        let of_ten = started.elapsed();
        let started = Instant::now();
        assert_eq!(client.ask("AUTH wrong").await, WRONG);
        let of_one = started.elapsed();
        assert!(of_one >= Duration::from_secs(1), "{of_ten:?} {of_one:?}");
        // The right one waits, too. Its commands do not, although each is asked for its caller.
        assert_eq!(client.ask(&format!("AUTH {SHORT}")).await, "+OK");
        let started = Instant::now();
        for _ in 0..20 {
            assert_eq!(client.ask("EXISTS orders").await, ":0");
        }
        assert!(started.elapsed() < Duration::from_secs(10), "each waited");
        let scrape = Scrape::of(&service.program.client()).await;
        assert_eq!(scrape.sum("odometer_tokens_refused_total", &[]), 11.0);
    });
}

/// Starts a program whose listener other machines reach, and that ends by itself.
fn refusal(options: Options) -> Finished {
    let options = options
        .env("ODOMETER_LISTEN", "127.0.0.1:0")
        .env("ODOMETER_RESP__LISTEN", "0.0.0.0:0");
    options.run(&["serve"])
}

#[test]
fn a_listener_for_other_machines_asks_who_calls() {
    run(async {
        let finished = refusal(Program::options());
        assert_eq!(finished.code, Some(78), "{finished}");
        let said = "configuration: resp.listen (environment variable ODOMETER_RESP__LISTEN): \
                    everybody who reaches it could take numbers; give resp.password";
        assert!(finished.errors.contains(said), "{finished}");

        let folder = directory("resp");
        let config = folder.path().join("odometer.toml");
        std::fs::write(&config, "[access.roles.reader]\nlook = [\"*\"]\n").expect("our directory");
        let both = with_password().env("ODOMETER_CONFIG", config.display());
        let finished = refusal(both);
        assert_eq!(finished.code, Some(78), "{finished}");
        assert!(finished.errors.contains("resp.password"), "{finished}");
        assert!(!finished.errors.contains(PASSWORD), "{finished}");
    });
}

#[test]
fn a_program_that_is_open_to_other_machines_is_found_out() {
    run(async {
        let database = TestDatabase::prepared(crate::support::Backend::Sqlite).await;
        let program = Program::options()
            .without_guards("open-to-all")
            .database(&database.url)
            .env("ODOMETER_RESP__LISTEN", "0.0.0.0:0")
            .env("ODOMETER_UNKNOWN", "create")
            .start_ready()
            .await;
        let mut client = RespClient::open(&program.resp_address()).await;
        assert_eq!(client.ask("INCR orders").await, ":1");
    });
}
