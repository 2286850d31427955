//! Tests how the configuration is read from flags, environment and file.

#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests may fail loudly"
)]

use std::{fs, path::PathBuf, sync::Arc};

use odometer_core::{definition::Definition, name::SequenceName};

use super::*;

/// A configuration file, and flags that name it.
pub(crate) struct File {
    directory: PathBuf,
    pub(crate) flags: Flags,
}

impl File {
    pub(crate) fn with(content: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("odometer-{}", uuid::Uuid::new_v4()));
        fs::create_dir(&directory).unwrap();
        let path = directory.join("odometer.toml");
        fs::write(&path, content).unwrap();
        let flags = Flags {
            config: Some(path),
            ..Flags::default()
        };
        Self { directory, flags }
    }

    pub(crate) fn beside(&self, name: &str, content: &str) -> String {
        let path = self.directory.join(name);
        fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    }

    pub(crate) fn load(&self) -> Result<Config, ConfigError> {
        Config::load(&self.flags, &Environment::default())
    }

    pub(crate) fn refusal(&self) -> String {
        self.load().unwrap_err().to_string()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn from_environment<const N: usize>(variables: [(&str, &str); N]) -> Result<Config, ConfigError> {
    File::with("").load_with(variables)
}

impl File {
    pub(crate) fn load_with<const N: usize>(
        &self,
        variables: [(&str, &str); N],
    ) -> Result<Config, ConfigError> {
        Config::load(&self.flags, &Environment::of(variables))
    }
}

/// Returns what a name that fits no template is created from.
pub(crate) fn of_default(config: &Config) -> Arc<Definition> {
    let name = SequenceName::parse("other").unwrap();
    config.templates.created_with(&name).unwrap()
}

#[test]
fn with_nothing_said_the_defaults_hold() {
    let config = from_environment([]).unwrap();
    assert_eq!(config.listen.to_string(), "127.0.0.1:8080");
    assert_eq!(config.database_url.expose(), "sqlite:odometer.db");
    assert_eq!(config.unknown, Some(Unknown::Create));
    assert_eq!(*of_default(&config), Definition::default());
    assert_eq!(config.limits.waiters, 16_384);
    assert_eq!(config.limits.body, 16_384);
    assert_eq!(config.refill.deadline, Duration::from_secs(5));
    assert_eq!(config.refill.backoff_max, Duration::from_millis(500));
    assert_eq!(config.shutdown.ready_wait, Duration::ZERO);
    assert_eq!(config.shutdown.deadline, Duration::from_secs(25));
    assert_eq!(config.idle.park, Duration::from_secs(60));
    assert_eq!(config.http.workers, None);
    assert_eq!(config.http.connections, 16_384);
    assert_eq!(config.http.write, Duration::from_secs(10));
    assert!(config.admin_token.is_none());
    assert!(!config.migrate);
}

#[test]
fn unknown_names_are_created_without_a_word_on_loopback_alone() {
    for (listen, said, expected) in [
        ("127.0.0.1:0", None, Unknown::Create),
        ("[::1]:0", None, Unknown::Create),
        ("0.0.0.0:0", None, Unknown::Reject),
        ("192.0.2.7:8080", None, Unknown::Reject),
        ("0.0.0.0:0", Some("create"), Unknown::Create),
        ("127.0.0.1:0", Some("reject"), Unknown::Reject),
    ] {
        let mut given = vec![("ODOMETER_LISTEN", listen)];
        given.extend(said.map(|said| ("ODOMETER_UNKNOWN", said)));
        let config = Config::load(&Flags::default(), &Environment::of(given)).unwrap();
        assert_eq!(config.unknown, Some(expected), "{listen} {said:?}");
        let name = SequenceName::parse("other").unwrap();
        let is_created = config.templates.created_with(&name).is_some();
        assert_eq!(is_created, expected == Unknown::Create, "{listen} {said:?}");
    }
}

#[test]
fn flags_win_over_the_environment_and_that_over_the_file() {
    let mut file = File::with(
        "listen = \"127.0.0.1:1\"\n[limits]\nwaiters = 1\nin_flight = 2\nlive_sequences = 3\n",
    );
    let environment = [
        ("ODOMETER_LISTEN", "127.0.0.1:2"),
        ("ODOMETER_LIMITS__WAITERS", "10"),
        ("ODOMETER_LIMITS__IN_FLIGHT", "20"),
    ];
    let config = file.load_with(environment).unwrap();
    assert_eq!(config.listen.port(), 2);
    file.flags.listen = Some("localhost:3".to_owned());
    file.flags.set = vec!["limits.waiters=100".to_owned()];
    let config = file.load_with(environment).unwrap();
    assert_eq!(config.listen.to_string(), "127.0.0.1:3");
    assert_eq!(config.limits.waiters, 100);
    assert_eq!(config.limits.in_flight, 20);
    assert_eq!(config.limits.live_sequences, 3);
    assert_eq!(config.limits.live_periods, 64);
}

#[test]
fn the_file_may_be_named_by_the_environment_and_must_exist_then() {
    let file = File::with("[journal]\nqueue = 7\n");
    let path = file.flags.config.clone().unwrap();
    let environment = Environment::of([("ODOMETER_CONFIG", path.to_str().unwrap())]);
    let config = Config::load(&Flags::default(), &environment).unwrap();
    assert_eq!(config.journal.queue, 7);
    let missing = Environment::of([("ODOMETER_CONFIG", "/nowhere/odometer.toml")]);
    let sentence = Config::load(&Flags::default(), &missing)
        .unwrap_err()
        .to_string();
    assert!(sentence.contains("/nowhere/odometer.toml"), "{sentence}");
}

#[test]
fn database_url_stands_in_for_the_variable_of_our_own() {
    let file = File::with("database_url = \"sqlite:file.db\"");
    let config = file.load().unwrap();
    assert_eq!(config.database_url.expose(), "sqlite:file.db");
    let config = file.load_with([("DATABASE_URL", "sqlite:a.db")]).unwrap();
    assert_eq!(config.database_url.expose(), "sqlite:a.db");
    let both = [
        ("DATABASE_URL", "sqlite:a.db"),
        ("ODOMETER_DATABASE_URL", "sqlite:b.db"),
    ];
    let config = file.load_with(both).unwrap();
    assert_eq!(config.database_url.expose(), "sqlite:b.db");
}

#[test]
fn a_secret_may_be_in_a_file_of_its_own() {
    let file = File::with("");
    let token = file.beside("token", "0012345\n");
    let url = file.beside("url", "postgres://u:p@h/d\r\n");
    let config = file
        .load_with([
            ("ODOMETER_ADMIN_TOKEN_FILE", &token),
            ("ODOMETER_DATABASE_URL_FILE", &url),
            ("DATABASE_URL", "sqlite:weaker.db"),
        ])
        .unwrap();
    assert_eq!(config.admin_token, Some(Secret::new("0012345")));
    assert_eq!(config.database_url.expose(), "postgres://u:p@h/d");

    let both = [
        ("ODOMETER_ADMIN_TOKEN_FILE", token.as_str()),
        ("ODOMETER_ADMIN_TOKEN", "x"),
    ];
    let sentence = file.load_with(both).unwrap_err().to_string();
    assert!(sentence.contains("ODOMETER_ADMIN_TOKEN_FILE"), "{sentence}");
    let missing = [("ODOMETER_ADMIN_TOKEN_FILE", "/nowhere/token")];
    let sentence = file.load_with(missing).unwrap_err().to_string();
    assert!(sentence.contains("ODOMETER_ADMIN_TOKEN_FILE"), "{sentence}");
    assert!(sentence.contains("/nowhere/token"), "{sentence}");
    let empty = file.beside("empty", "\n");
    let sentence = file
        .load_with([("ODOMETER_DATABASE_URL_FILE", empty.as_str())])
        .unwrap_err()
        .to_string();
    assert!(sentence.contains("is empty"), "{sentence}");
}

#[test]
fn a_token_with_blanks_around_it_is_refused() {
    for token in [" a-token-of-mine", "a-token-of-mine ", "a-token-of-mine\t"] {
        let refused = from_environment([("ODOMETER_ADMIN_TOKEN", token)]).unwrap_err();
        let sentence = refused.to_string();
        assert!(sentence.contains("ADMIN_TOKEN"), "{sentence}");
        assert!(sentence.contains("blank"), "{sentence}");
        assert!(!sentence.contains("mine"), "{sentence}");
    }
    let config = from_environment([("ODOMETER_ADMIN_TOKEN", "a token of mine")]).unwrap();
    assert_eq!(config.admin_token, Some(Secret::new("a token of mine")));
}

#[test]
fn hosts_are_names_with_a_port_or_without() {
    let hosts = |given| from_environment([("ODOMETER_HTTP__HOSTS", given)]);
    let given =
        "numbers.example, other.example:8443, 192.0.2.7:80, [2001:db8::1], [2001:db8::1]:8443";
    assert_eq!(hosts(given).unwrap().http.hosts.len(), 5);
    for wrong in [
        "https://numbers.example",
        "numbers.example/path",
        "numbers.example:https",
        "2001:db8::1",
        "[numbers.example]",
        ":8443",
        "numbers example",
    ] {
        let sentence = hosts(wrong).unwrap_err().to_string();
        assert!(sentence.contains("HTTP__HOSTS"), "{sentence}");
        assert!(sentence.contains("no name of a host"), "{sentence}");
    }
}

#[test]
fn a_token_of_digits_keeps_them_all() {
    let config = from_environment([("ODOMETER_ADMIN_TOKEN", "007")]).unwrap();
    assert_eq!(config.admin_token, Some(Secret::new("007")));
}

#[test]
fn no_secret_is_printed() {
    let config = from_environment([
        ("ODOMETER_ADMIN_TOKEN", "hunter2"),
        ("ODOMETER_DATABASE_URL", "postgres://u:hunter2@h/d"),
    ])
    .unwrap();
    let flags = Flags {
        database_url: Some(Secret::new("postgres://u:hunter2@h/d")),
        ..Flags::default()
    };
    for printed in [
        format!("{config:?}"),
        format!("{config:#?}"),
        format!("{flags:?}"),
    ] {
        assert!(!printed.contains("hunter2"), "{printed}");
        assert!(printed.contains("[redacted]"), "{printed}");
    }
}

#[test]
fn no_refusal_shows_a_secret() {
    let in_the_environment = |name| {
        from_environment([(name, "pg://u:hunter2@h/d")])
            .unwrap_err()
            .to_string()
    };
    let sentences = [
        in_the_environment("ODOMETER_DATABASE_URL"),
        in_the_environment("DATABASE_URL"),
        File::with("database_url = \"postgres://u:hunter2@h/d\nlisten = 1").refusal(),
        File::with("database_url = [\"hunter2\"]").refusal(),
        File::with("admin_token = { hunter2 = \"hunter2\" }").refusal(),
    ];
    for sentence in sentences {
        assert!(!sentence.contains("hunter2"), "{sentence}");
        assert_eq!(sentence.lines().count(), 1, "{sentence}");
    }
}

/// Each case: variable, value, the key that is named, and a part of what the refusal says to do.
const REFUSED: [(&str, &str, &str, &str); 28] = [
    ("ODOMETER_LISTEN", "8080", "listen", "ADDRESS:PORT"),
    ("ODOMETER_LISTEN", "", "listen", "ADDRESS:PORT"),
    ("ODOMETER_UNKNOWN", "maybe", "unknown", "create, reject"),
    (
        "ODOMETER_LIMITS__WAITERS",
        "many",
        "limits.waiters",
        "a whole number",
    ),
    (
        "ODOMETER_LIMITS__WAITERS",
        "-1",
        "limits.waiters",
        "a whole number",
    ),
    (
        "ODOMETER_LIMITS__WAITERS",
        "0",
        "limits.waiters",
        "give 1 to",
    ),
    ("ODOMETER_LIMITS__WATERS", "5", "limits.waters", "waiters"),
    ("ODOMETER_LISTENS", "5", "listens", "listen"),
    ("ODOMETER_SABOTAGED", "x", "sabotaged", "listen"),
    (
        "ODOMETER_REFILL__DEADLINE",
        "5",
        "refill.deadline",
        "its unit",
    ),
    (
        "ODOMETER_REFILL__DEADLINE",
        "0s",
        "refill.deadline",
        "1ms to",
    ),
    (
        "ODOMETER_REFILL__BACKOFF_MIN",
        "1s",
        "refill.backoff_min",
        "backoff_max",
    ),
    (
        "ODOMETER_SHUTDOWN__READY_WAIT",
        "25s",
        "shutdown.ready_wait",
        "shutdown.deadline",
    ),
    ("ODOMETER_IDLE__PARK", "2h", "idle.park", "idle.unload"),
    (
        "ODOMETER_SNOWFLAKE__WAIT",
        "5s",
        "snowflake.wait",
        "refill.deadline",
    ),
    ("ODOMETER_LOG__LEVEL", "loud", "log.level", "debug"),
    ("ODOMETER_LOG__FORMAT", "xml", "log.format", "json"),
    ("ODOMETER_MIGRATE", "yes", "migrate", "true or false"),
    ("ODOMETER_HTTP__WORKERS", "0", "http.workers", "give 1 to"),
    ("ODOMETER_HTTP__WRITE", "0s", "http.write", "give 1s to"),
    (
        "ODOMETER_HTTP__CONNECTIONS",
        "4",
        "http.connections",
        "give 16 to",
    ),
    (
        "ODOMETER_HTTP__BACKLOG",
        "5000000000",
        "http.backlog",
        "too large",
    ),
    ("ODOMETER_DATABASE_URL", "", "database_url", "sqlite:FILE"),
    (
        "ODOMETER_DATABASE_URL",
        "oracle://x",
        "database_url",
        "sqlite:FILE",
    ),
    (
        "ODOMETER_ADMIN_TOKEN",
        "",
        "admin_token",
        "leave the key out",
    ),
    ("ODOMETER_LIMITS", "5", "limits", "a section"),
    ("ODOMETER_DEFAULT__STEP", "0", "default.step", "must be"),
    (
        "ODOMETER_DEFAULT__KIND",
        "dice",
        "default.kind",
        "must be \"block\" or \"snowflake\"",
    ),
];

#[test]
fn a_refusal_names_the_key_and_where_it_was_given() {
    for (variable, value, key, mend) in REFUSED {
        let sentence = from_environment([(variable, value)])
            .unwrap_err()
            .to_string();
        assert!(
            sentence.contains(&format!("{key} (environment variable {variable})")),
            "{variable}={value}: {sentence}"
        );
        assert!(sentence.contains(mend), "{variable}={value}: {sentence}");
        assert_eq!(sentence.lines().count(), 1, "{sentence}");
    }
}

#[test]
fn settings_with_which_nothing_is_ever_fenced_are_refused() {
    let read = |url, key, value| {
        from_environment([
            ("ODOMETER_DATABASE_URL", url),
            ("ODOMETER_STORE__TIMEOUT", "56s"),
            (key, value),
        ])
    };
    let (server, file) = ("postgres://a@h/d", "sqlite:a.db");
    let (within, lossless) = ("ODOMETER_FAILOVER__WITHIN", "ODOMETER_FAILOVER__LOSSLESS");
    let margin = "ODOMETER_FAILOVER__CLOCK_MARGIN";
    let refused = read(server, within, "15m").unwrap_err().to_string();
    assert!(refused.contains("store.timeout (environment"), "{refused}");
    assert!(refused.contains("give at most 58 s"), "{refused}");
    let refused = read(server, margin, "25s").unwrap_err().to_string();
    assert!(refused.contains("store.timeout"), "{refused}");
    let refused = from_environment([("ODOMETER_DATABASE_URL", server), (within, "8s")]);
    let refused = refused.unwrap_err().to_string();
    assert!(
        refused.contains("failover.within (environment"),
        "{refused}"
    );
    // Nobody wants a fence.
    for (url, key, value) in [
        (server, within, "0s"),
        (server, lossless, "true"),
        (file, within, "15m"),
        (server, margin, "1s"),
    ] {
        assert!(read(url, key, value).is_ok(), "{url} {key} {value}");
    }
}

#[test]
fn a_refusal_of_the_file_names_the_file_and_the_key() {
    for (content, key) in [
        ("listens = 1", "listens in "),
        ("[limits]\nwaiters = \"x\"", "limits.waiters in "),
        ("[limits]\nwaiters = 1.5", "limits.waiters in "),
        ("[refill]\ndeadline = 5", "refill.deadline in "),
        ("[pool]\nmax = -1", "pool.max in "),
        ("[store]\ntimeout = \"1y\"", "store.timeout in "),
        ("unknown", "odometer.toml: not a TOML file"),
    ] {
        let sentence = File::with(content).refusal();
        assert!(sentence.contains(key), "{content}: {sentence}");
        assert!(sentence.contains("odometer.toml"), "{content}: {sentence}");
        assert_eq!(sentence.lines().count(), 1, "{sentence}");
    }
}

#[test]
fn a_flag_without_its_value_is_refused() {
    for (setting, wanted) in [
        ("limits.waiters", "KEY=VALUE"),
        ("=5", "names no key"),
        ("limits.waiters=x", "limits.waiters (command line)"),
        ("limit.waiters=1", "limit (command line)"),
    ] {
        let mut file = File::with("");
        file.flags.set = vec![setting.to_owned()];
        let sentence = file.refusal();
        assert!(sentence.contains(wanted), "{setting}: {sentence}");
    }
}

#[test]
fn what_kubernetes_sets_beside_a_service_of_our_name_is_no_key() {
    from_environment([
        ("ODOMETER_PORT", "tcp://10.0.0.1:8080"),
        ("ODOMETER_PORT_8080_TCP_ADDR", "10.0.0.1"),
        ("ODOMETER_SERVICE_HOST", "10.0.0.1"),
        ("ODOMETER_SERVICE_PORT_HTTP", "8080"),
    ])
    .unwrap();
}

#[test]
fn what_the_commands_that_call_a_replica_read_is_no_key() {
    let variables = [
        ("ODOMETER_URL", "http://127.0.0.1:8081"),
        ("ODOMETER_TOKEN", "s3cret"),
        ("ODOMETER_TOKEN_FILE", "/nowhere"),
    ];
    from_environment(variables).unwrap();
}

#[test]
fn the_template_is_checked_like_a_definition() {
    let file = File::with(
        "[default]\nstart = 1000\nmax = \"5000000\"\nstep = 2\n[default.block]\nmin = 10\nmax = 50\n",
    );
    let config = file
        .load_with([
            ("ODOMETER_DEFAULT__BLOCK__MAX", "60"),
            ("ODOMETER_DEFAULT__DESCRIPTION", "2026"),
        ])
        .unwrap();
    let default = of_default(&config);
    assert_eq!(default.start, 1000);
    assert_eq!(default.max, 5_000_000);
    assert_eq!(default.step, 2);
    assert_eq!(default.block.min, 10);
    assert_eq!(default.block.max, 60);
    assert_eq!(default.description, "2026");

    for (content, field) in [
        ("[default]\nstep = 0", "step"),
        ("[default.block]\nmin = 10\nmax = 5", "block.min"),
        ("[default]\nstarts = 5", "starts"),
        ("[default]\norder = \"random\"", "order"),
        ("default = 5", "default"),
    ] {
        let sentence = File::with(content).refusal();
        assert!(sentence.contains("default"), "{content}: {sentence}");
        assert!(sentence.contains(field), "{content}: {sentence}");
    }
}

#[test]
fn a_truth_value_may_be_text() {
    assert!(
        from_environment([("ODOMETER_MIGRATE", "true")])
            .unwrap()
            .migrate
    );
    assert!(File::with("migrate = true").load().unwrap().migrate);
}

#[test]
fn a_refusal_is_one_line_also_with_a_carriage_return_in_a_key() {
    let sentence = File::with("\"a\\rb\" = 5").refusal();
    assert!(sentence.contains("a b in "), "{sentence:?}");
    assert!(!sentence.contains(char::is_control), "{sentence:?}");
}
