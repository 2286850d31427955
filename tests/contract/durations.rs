//! Tests that durations have one form, in the configuration and in definitions, and that replies
//! tell durations in words.

use serde_json::json;

use crate::support::{Backend, Program, TestDatabase, run};

/// The form that a refusal of a wrong duration asks for.
const GRAMMAR: &str = "a whole number and its unit, ms, s, m, h, d or w, as in ";

#[test]
fn a_duration_is_the_same_in_the_configuration_and_in_a_definition() {
    run(async {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let options = Program::options().database(&database.url);
        let program = options.start_ready().await;
        let client = program.client();
        for (text, is_one) in [
            ("120000ms", true),
            ("120s", true),
            ("2m", true),
            ("1h", true),
            ("2d", true),
            ("1w", true),
            ("5", false),
            ("5 s", false),
            ("1.5h", false),
            ("1h5m", false),
            ("2y", false),
        ] {
            let setting = format!("idle.unload={text}");
            // The database does not exist. `check` reads nothing but the configuration.
            let checked = Program::options().run(&["check", "--set", &setting]);
            let is_taken = checked.code == Some(0);
            assert_eq!(is_taken, is_one, "{text}: {checked}");
            let body = json!({"block": {"hold": text, "refill": "1w"}});
            let reply = client.put("/v1/sequences/x", &body).await;
            let reply = reply.expect("a reply");
            assert_eq!(reply.status < 300, is_one, "{text}: {reply:?}");
            if !is_one {
                assert!(checked.errors.contains(GRAMMAR), "{checked}");
                let detail = reply.json()["detail"].to_string();
                assert!(detail.contains(GRAMMAR), "{detail}");
            }
        }
        program.stop().await;
    });
}

#[test]
fn how_long_numbers_last_is_told_in_words() {
    run(async {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let program = Program::options()
            .database(&database.url)
            .start_ready()
            .await;
        let body = json!({"max": 2_000_000, "declared_rate": 1000});
        let reply = program.client().put("/v1/sequences/x", &body).await;
        let warnings = reply.expect("a reply").json()["warnings"].to_string();
        assert!(warnings.contains("last for 33 minutes."), "{warnings}");
        program.stop().await;
    });
}
