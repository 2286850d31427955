//! Configurations that cannot be used. They end the program before it listens, with one line that
//! names the key.

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::support::{Backend, Finished, PASSWORD, Program, TestDatabase, directory, run};

/// Checks that the configuration ended the program: exit code 78, and one line that names `key`.
pub(super) fn refused(finished: &Finished, key: &str, what: &str) {
    assert_eq!(finished.code, Some(78), "{what}: {finished}");
    let lines: Vec<&str> = finished.errors.lines().collect();
    assert_eq!(lines.len(), 1, "{what}: {finished}");
    assert!(finished.errors.contains(key), "{what}: {finished}");
    assert!(!finished.errors.contains("http://"), "it listened: {what}");
}

#[test]
fn a_setting_that_cannot_be_used_is_named() {
    for (variable, value, key) in [
        ("ODOMETER_LISTEN", "nowhere", "listen"),
        ("ODOMETER_LISTEN", "127.0.0.1:99999", "listen"),
        ("ODOMETER_DATABASE_URL", "oracle://db/x", "database_url"),
        ("ODOMETER_DATABASE_URL", "just words", "database_url"),
        ("ODOMETER_DATABASE_URL", "", "database_url"),
        ("ODOMETER_DATABASE_URL_FILE", "/nowhere/url", "database_url"),
        ("ODOMETER_ADMIN_TOKEN_FILE", "/", "/ is a folder, a pipe or"),
        ("ODOMETER_LIMITS__WAITERS", "many", "limits.waiters"),
        ("ODOMETER_LIMITS__WAITERS", "-1", "limits.waiters"),
        ("ODOMETER_REFILL__DEADLINE", "soon", "refill.deadline"),
        ("ODOMETER_UNKNOWN", "perhaps", "unknown"),
        ("ODOMETER_DEFAULT__STEP", "0", "step"),
        ("ODOMETER_DEFAULT__BLOCK__MIN", "0", "min"),
        ("ODOMETER_DEFAULT__ORDER", "random", "order"),
        ("ODOMETER_LOG__FORMAT", "xml", "log.format"),
        ("ODOMETER_LIMTS__WAITERS", "5", "limts"),
        ("ODOMETER_LIMITS__WAITER", "5", "waiter"),
    ] {
        let finished = Program::options()
            .env("ODOMETER_LISTEN", "127.0.0.1:0")
            .env(variable, value)
            .run(&["serve"]);
        refused(&finished, key, &format!("{variable}={value}"));
    }
    // A wrong key or value is a wrong configuration on the command line, too.
    for setting in ["limits.waiter=5", "limits.waiters=many"] {
        let finished = Program::options().run(&["check", "--set", setting]);
        refused(&finished, "limits.waiter", setting);
    }
    for arguments in [
        &["--nonsense"][..],
        &["fly"],
        &["serve", "extra"],
        &["check", "--set", "limits.waiters"],
        &["recover", "--skip", "0", "--yes"],
        &["recover", "orders", "--yes"],
        &["--migrate", "init", "-"],
    ] {
        let finished = Program::options().run(arguments);
        assert_eq!(finished.code, Some(2), "{arguments:?}: {finished}");
    }
}

#[test]
fn a_file_is_read_and_the_environment_is_stronger() {
    run(async {
        let home = directory("configuration");
        let file = "unknown = \"reject\"\n[default.block]\nmin = 7\n";
        std::fs::write(home.path().join("odometer.toml"), file).expect("our directory");
        let options = Program::options().in_directory(home.path());
        let program = options.start_ready().await;
        let client = program.client();
        let reply = client
            .post("/v1/sequences/typo/next")
            .await
            .expect("a reply");
        assert_eq!(reply.status, 404, "{reply:?}");
        client.define("asked-for", &serde_json::json!({})).await;
        let described = client.describe("asked-for").await;
        assert_eq!(described["definition"]["block"]["min"], 7);
        program.stop().await;

        let options = options.env("ODOMETER_UNKNOWN", "create");
        let program = options.start_ready().await;
        assert_eq!(program.client().next("typo").await, 1);
    });
}

#[test]
fn a_file_that_cannot_be_used_is_named() {
    let home = directory("configuration");
    for (text, key) in [
        ("listen = 5\n", "listen"),
        ("surprise = 1\n", "surprise"),
        ("[limits]\nwaiters = \"x\"\n", "waiters"),
        ("this is not toml", "odometer.toml"),
    ] {
        std::fs::write(home.path().join("odometer.toml"), text).expect("our directory");
        let finished = Program::options().in_directory(home.path()).run(&["serve"]);
        refused(&finished, key, text);
    }
    let finished = Program::options().run(&["serve", "--config", "/nowhere/odometer.toml"]);
    refused(&finished, "/nowhere/odometer.toml", "--config");
}

fn set_mode(path: &Path, mode: u32) {
    set_permissions(path, Permissions::from_mode(mode)).expect("our directory");
}

#[test]
fn a_secret_that_everybody_can_read_is_warned_of() {
    run(async {
        const SAID: &str = "token has a secret that everybody on this machine can read";
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let home = directory("exposed");
        set_mode(home.path(), 0o711);
        let file = home.path().join("token");
        std::fs::write(&file, "a-token-of-the-administrator").expect("our directory");
        let options = Program::options()
            .database(&database.url)
            .env("ODOMETER_ADMIN_TOKEN_FILE", file.display());
        for (mode, is_warned_of) in [(0o644, true), (0o640, false)] {
            set_mode(&file, mode);
            let log = options.start_ready().await.stop().await;
            assert_eq!(log.contains(SAID), is_warned_of, "{log}");
            let checked = options.run(&["check"]);
            assert_eq!(checked.code, Some(0), "{checked}");
            let is_told = checked
                .output
                .contains(&format!("{}/{SAID}", home.path().display()));
            assert_eq!(is_told, is_warned_of, "{checked}");
            let named = checked
                .output
                .contains("warning: admin_token_file (environment");
            assert_eq!(named, is_warned_of, "{checked}");
        }
    });
}

#[test]
fn a_secret_may_come_from_a_file_and_stays_secret() {
    run(async {
        let database = TestDatabase::prepared(Backend::Postgres).await;
        let home = directory("secret");
        let file = home.path().join("url");
        std::fs::write(&file, format!("{}\n", database.url)).expect("our directory");
        let program = Program::options()
            .env("ODOMETER_DATABASE_URL_FILE", file.display())
            .env("ODOMETER_LOG__LEVEL", "trace")
            .start_ready()
            .await;
        assert_eq!(program.client().next("secret").await, 1);
        let log = program.stop().await;
        assert!(
            !log.contains(PASSWORD),
            "the password is in the log:\n{log}"
        );
    });
}

#[test]
fn help_and_version_are_there() {
    let finished = Program::options().run(&["--help"]);
    assert_eq!(finished.code, Some(0), "{finished}");
    for command in ["serve", "migrate", "check"] {
        assert!(finished.output.contains(command), "{finished}");
    }
    let finished = Program::options().run(&["--version"]);
    assert_eq!(finished.code, Some(0), "{finished}");
    let version = format!("odometer {}", env!("CARGO_PKG_VERSION"));
    assert!(finished.output.starts_with(&version), "{finished}");
}
