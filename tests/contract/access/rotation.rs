//! Tests that tokens are replaced and withdrawn while callers go on.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use odometer::access::token::{hash, to_hex};
use reqwest::Method;
use rustix::fs::{CWD, Mode, mkfifoat};
use serde_json::json;

use super::{Roles, TestCaller, post, refused, replace, send};
use crate::support::{Backend, Program, TestDatabase, directory, raw::Connection, run, wait};

const LIMIT: Duration = Duration::from_secs(20);
const ACCESS: &str = "[access.roles.taker]\ntake = [\"*\"]\ncreate = [\"*\"]\n";
const NEXT: &str = "/v1/sequences/orders/next";

async fn start(sections: &str) -> Roles {
    let options = Program::options().env("ODOMETER_DEFINITION_REFRESH", "1s");
    Roles::start(options, ACCESS, sections).await
}

async fn status_becomes(roles: &Roles, token: &str, status: u16) {
    wait::until("the file was read again", LIMIT, async || {
        // On a connection of its own, which remembers no caller.
        let reply = post(&roles.client(), token, NEXT).await;
        (reply.status == status).then_some(())
    })
    .await;
}

#[test]
fn a_token_is_replaced_without_a_refused_call() {
    run(async {
        let (old, new) = (TestCaller::new("a", "taker"), TestCaller::new("a", "taker"));
        let roles = start(&old.section()).await;
        let token = Arc::new(Mutex::new(old.token.clone()));
        let (is_over, n_calls) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicUsize::new(0)),
        );
        let calling = {
            let (client, token) = (roles.client(), Arc::clone(&token));
            let (is_over, n_calls) = (Arc::clone(&is_over), Arc::clone(&n_calls));
            tokio::spawn(async move {
                while !is_over.load(Ordering::Relaxed) {
                    let shown = token.lock().expect("a token").clone();
                    let reply = post(&client, &shown, NEXT).await;
                    assert_eq!(reply.status, 200, "{reply:?}");
                    n_calls.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        let [of_old, of_new] =
            [&old, &new].map(|caller| to_hex(&hash(&caller.token).expect("a token")));
        let both = format!("[a]\nrole = \"taker\"\nsha256 = [\"{of_old}\", \"{of_new}\"]\n");
        replace(&roles.callers_file(), &both);
        status_becomes(&roles, &new.token, 200).await;
        token.lock().expect("a token").clone_from(&new.token);
        // A call with the former token may be under way.
        let n_before = n_calls.load(Ordering::Relaxed);
        wait::until("calls show the new token", LIMIT, async || {
            (n_calls.load(Ordering::Relaxed) > n_before + 1).then_some(())
        })
        .await;
        replace(&roles.callers_file(), &new.section());
        status_becomes(&roles, &old.token, 401).await;
        is_over.store(true, Ordering::Relaxed);
        calling.await.expect("no call was refused");
        assert!(n_calls.load(Ordering::Relaxed) > 50, "vacuous: {n_calls:?}");
    });
}

#[test]
fn a_broken_file_of_callers_changes_nothing_and_is_told() {
    run(async {
        let caller = TestCaller::new("a", "taker");
        let roles = start(&caller.section()).await;
        let stale = || async {
            let metrics = super::get(&roles.client(), super::ADMIN, "/metrics").await;
            let mut lines = metrics.body.lines();
            lines.any(|line| line == "odometer_access_stale 1")
        };
        assert!(!stale().await);
        for broken in [
            Some("[a\n"),
            Some("[a]\nrole = \"none\"\nsha256 = []\n"),
            None,
        ] {
            match broken {
                Some(text) => replace(&roles.callers_file(), text),
                // Nobody writes to the pipe.
                None => make_pipe(&roles.callers_file()),
            }
            wait::until("the metric says so", LIMIT, async || {
                stale().await.then_some(())
            })
            .await;
            assert_eq!(post(&roles.client(), &caller.token, NEXT).await.status, 200);
            replace(&roles.callers_file(), &caller.section());
            wait::until("it is over", LIMIT, async || (!stale().await).then_some(())).await;
        }
        replace(&roles.callers_file(), "");
        status_becomes(&roles, &caller.token, 401).await;
        let log = roles.program.stop().await;
        assert!(log.contains("callers.toml: not a TOML file"), "{log}");
        assert!(log.contains("there is no role"), "{log}");
        assert!(log.contains("callers.toml is a folder, a pipe"), "{log}");
    });
}

/// Puts a pipe in the place of a file, in one step.
fn make_pipe(file: &Path) {
    let made = file.with_extension("pipe");
    mkfifoat(CWD, &made, Mode::RUSR | Mode::WUSR).expect("our directory");
    std::fs::rename(&made, file).expect("our directory");
}

#[test]
fn a_token_that_has_expired_is_wrong() {
    run(async {
        let (past, future) = (
            TestCaller::new("past", "taker"),
            TestCaller::new("future", "taker"),
        );
        let sections = format!(
            "{}expires = 2020-01-01\n{}expires = 2999-01-01T00:00:00Z\n",
            past.section(),
            future.section()
        );
        let roles = start(&sections).await;
        let reply = post(&roles.client(), &future.token, NEXT).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        let expired = post(&roles.client(), &past.token, NEXT).await;
        refused(&expired, 401, "unauthenticated", "it has expired");
        let wrong = post(&roles.client(), "odo_wrong", NEXT).await;
        refused(&wrong, 401, "unauthenticated", "it is wrong");
        assert_eq!(expired.body, wrong.body);
        let bearer = format!("Bearer {}", future.token);
        let long = format!("Bearer {}{}", " ".repeat(5000), future.token);
        let twice: &[_] = &[("authorization", bearer.as_str()); 2];
        for headers in [twice, &[("authorization", long.as_str())]] {
            let client = roles.client();
            let reply = client.send(Method::POST, NEXT, headers, None).await;
            let reply = reply.expect("a reply");
            refused(
                &reply,
                401,
                "unauthenticated",
                "it is right in the wrong form",
            );
            assert_eq!(reply.body, wrong.body);
        }
        let none = post(&roles.client(), "", NEXT).await;
        refused(&none, 401, "unauthenticated", "no token");
    });
}

#[test]
fn the_end_of_a_caller_is_seen_until_the_caller_leaves_the_file() {
    run(async {
        let caller = TestCaller::new("a", "taker");
        let with_end = |end: &str| format!("{}expires = {end}\n", caller.section());
        let roles = start(&with_end("2020-01-01")).await;
        let left = async |name: &str| -> Option<f64> {
            let metrics = super::get(&roles.client(), super::ADMIN, "/metrics").await;
            let series = format!("odometer_token_expires_seconds{{caller=\"{name}\"}} ");
            let mut lines = metrics.body.lines();
            let value = lines.find_map(|line| line.strip_prefix(series.as_str()))?;
            value.parse().ok()
        };
        wait::until("it has expired", LIMIT, async || {
            left("a").await.is_some_and(|left| left < 0.0).then_some(())
        })
        .await;
        assert_eq!(left("_other").await, Some(f64::INFINITY));
        replace(&roles.callers_file(), &with_end("2999-01-01"));
        wait::until("it has time left", LIMIT, async || {
            left("a").await.is_some_and(|left| left > 0.0).then_some(())
        })
        .await;
        for without in [caller.section(), String::new()] {
            replace(&roles.callers_file(), &without);
            wait::until("it is gone", LIMIT, async || {
                left("a").await.is_none().then_some(())
            })
            .await;
            replace(&roles.callers_file(), &with_end("2999-01-01"));
            wait::until("it is back", LIMIT, async || {
                left("a").await.is_some().then_some(())
            })
            .await;
        }
    });
}

#[test]
fn after_many_wrong_tokens_a_caller_s_token_does_not_wait() {
    run(async {
        let caller = TestCaller::new("a", "taker");
        let roles = start(&caller.section()).await;
        let client = roles.client();
        for n in 0..10 {
            let reply = post(&client, &format!("wrong-{n}"), NEXT).await;
            refused(&reply, 401, "unauthenticated", "it is wrong");
        }
        let started = std::time::Instant::now();
        let wrong = post(&client, "wrong", NEXT).await;
        refused(&wrong, 401, "unauthenticated", "it is wrong");
        assert!(
            started.elapsed() >= Duration::from_secs(1),
            "it did not wait"
        );
        // While a wrong token waits, the caller's is answered.
        let waiting = tokio::spawn({
            let client = client.clone();
            async move { post(&client, "wrong", NEXT).await.status }
        });
        let mut n_answered = 0;
        while !waiting.is_finished() {
            let reply = post(&client, &caller.token, NEXT).await;
            assert_eq!(reply.status, 200, "{reply:?}");
            n_answered += 1;
        }
        assert_eq!(waiting.await.expect("a reply"), 401);
        assert!(n_answered >= 5, "vacuous: {n_answered}");
    });
}

/// Withdraws a caller whose connection takes numbers from memory. Returns whether this connection
/// still gets a number when another one does not.
async fn is_answered_after_its_withdrawal(guards: &str) -> bool {
    let (caller, other) = (TestCaller::new("a", "taker"), TestCaller::new("b", "taker"));
    let options = Program::options()
        .env("ODOMETER_DEFINITION_REFRESH", "1s")
        // Memory has numbers to the end.
        .env("ODOMETER_DEFAULT__BLOCK__MIN", 1000);
    let options = match guards {
        "" => options,
        guards => options.without_guards(guards),
    };
    let sections = format!("{}{}", caller.section(), other.section());
    let roles = Roles::start(options, ACCESS, &sections).await;
    let mut connection = Connection::open(roles.program.address()).await;
    let request = format!(
        "POST {NEXT} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\r\n",
        caller.token
    );
    for _ in 0..20 {
        let reply = connection.exchange(request.as_bytes()).await;
        assert_eq!(reply.status, 200, "{reply:?}");
    }
    replace(&roles.callers_file(), &other.section());
    // Another connection asks the routes, so it learns when the file was read.
    status_becomes(&roles, &caller.token, 401).await;
    connection.exchange(request.as_bytes()).await.status == 200
}

#[test]
fn a_withdrawn_token_is_wrong_on_an_open_connection_too() {
    run(async {
        assert!(!is_answered_after_its_withdrawal("").await);
    });
}

#[test]
fn a_connection_that_remembers_its_caller_for_good_is_found_out() {
    run(async {
        assert!(is_answered_after_its_withdrawal("memo-never-stale").await);
    });
}

#[test]
fn the_administrator_s_token_is_replaced_at_a_hangup() {
    run(async {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let folder = directory("token");
        let file = folder.path().join("token");
        replace(&file, "a-first-token-of-the-administrator");
        let program = Program::options()
            .database(&database.url)
            .env("ODOMETER_ADMIN_TOKEN_FILE", file.display())
            .env("ODOMETER_DEFINITION_REFRESH", "1d")
            .start_ready()
            .await;
        let client = program.client();
        let define = async |token: &str| {
            let path = "/v1/sequences/orders";
            let call = (Method::PUT, path, Some(&json!({})));
            send(&client, token, call).await.status
        };
        assert_eq!(define("a-first-token-of-the-administrator").await, 201);
        replace(&file, "a-second-token-of-the-administrator\n");
        assert_eq!(define("a-second-token-of-the-administrator").await, 401);
        program.hang_up();
        wait::until("the file was read again", LIMIT, async || {
            (define("a-second-token-of-the-administrator").await == 200).then_some(())
        })
        .await;
        assert_eq!(define("a-first-token-of-the-administrator").await, 401);
        let log = program.stop().await;
        assert!(log.contains("token has changed"), "{log}");
        assert!(
            !log.contains("token-of-the-administrator"),
            "a token in the log"
        );
    });
}
