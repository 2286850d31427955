//! Reads the rules in `[[resp.key]]`, and checks who may reach the listener for clients of Redis.

use figment::Figment;
use odometer_process::faults::{self, Fault};
use serde_json::{Map, Value};

use super::error::ConfigError;
use super::layers::name_in;
use super::sections::RespConfig;
use crate::resp::key_rules::KeyRule;

/// The tables of the rules.
const TABLES: &str = "resp.key";

/// The keys of a rule.
const KEYS: [&str; 3] = ["match", "sequence", "period"];

/// Reads all tables of `[[resp.key]]` from the layers, in their order.
///
/// # Errors
/// The first key that cannot be used.
pub(crate) fn read(layers: &Figment) -> Result<Vec<KeyRule>, ConfigError> {
    let Ok(given) = layers.find_value(TABLES) else {
        return Ok(Vec::new());
    };
    let tables: Result<Vec<Map<String, Value>>, _> = given.deserialize();
    let tables = tables.map_err(|_| {
        ConfigError::new(
            name_in(layers, TABLES, TABLES),
            "give tables that begin with [[resp.key]], in two brackets, in the configuration file; \
             each has a `match` and a `sequence`, and may have a `period`",
        )
    })?;
    let rules = tables.iter().enumerate().map(|(index, table)| {
        rule(table).map_err(|wrong| {
            let wrong = wrong.below(&format!("{TABLES}[{index}]"));
            wrong.named(|key| name_in(layers, key, TABLES))
        })
    });
    rules.collect()
}

fn rule(table: &Map<String, Value>) -> Result<KeyRule, ConfigError> {
    let mut keys = table.keys();
    if let Some(key) = keys.find(|key| !KEYS.contains(&key.as_str())) {
        let problem = format!("there is no such key; known here are {}", KEYS.join(", "));
        return Err(ConfigError::new(key, problem));
    }
    let rule = KeyRule::parse(
        required(
            table,
            "match",
            "a pattern over keys, as in match = \"order:*\"",
        )?,
        required(
            table,
            "sequence",
            "the name of a sequence, as in sequence = \"order\"",
        )?,
        text(table, "period")?,
    );
    rule.map_err(|wrong| ConfigError::new(wrong.field, wrong.problem))
}

fn required<'a>(
    table: &'a Map<String, Value>,
    key: &str,
    wanted: &str,
) -> Result<&'a str, ConfigError> {
    let missing = || ConfigError::new(key, format!("it is missing; give {wanted}"));
    text(table, key)?.ok_or_else(missing)
}

fn text<'a>(table: &'a Map<String, Value>, key: &str) -> Result<Option<&'a str>, ConfigError> {
    match table.get(key) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(ConfigError::new(key, "give a text in quotation marks")),
    }
}

impl RespConfig {
    /// Returns whether other machines reach this listener.
    pub(crate) fn is_beyond_loopback(&self) -> bool {
        self.listen.is_some_and(|listen| !listen.ip().is_loopback())
    }

    /// Says which key keeps the listener from being used. `has_roles` says whether `access` is
    /// given.
    pub(crate) fn misfit(&self, has_roles: bool) -> Option<ConfigError> {
        let (key, problem) = match &self.password {
            Some(password) if password.expose().is_empty() => {
                let problem = "it is empty; give a password, or leave the key out";
                ("resp.password", problem)
            }
            Some(_) if has_roles => {
                let problem = "callers show their own tokens, because [access] has roles; leave the \
                               password out";
                ("resp.password", problem)
            }
            None if !has_roles && self.is_beyond_loopback() && !faults::is(Fault::OpenToAll) => {
                let problem = "everybody who reaches it could take numbers; give resp.password, or \
                               roles in [access], or an address on loopback";
                ("resp.listen", problem)
            }
            Some(_) | None => return None,
        };
        Some(ConfigError::new(key, problem))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::super::OnExpiry;
    use super::super::tests::File;

    const ROLES: &str = "[access.roles.reader]\nlook = [\"*\"]\n";
    const OPEN: &str = "resp.listen = \"0.0.0.0:6379\"\n";
    const PASSWORD: &str = "resp.password = \"a-long-enough-password\"\n";

    #[test]
    fn without_the_section_there_is_no_listener() {
        let resp = File::with("").load().unwrap().resp;
        assert!(resp.listen.is_none() && resp.password.is_none() && resp.rules.is_empty());
        assert_eq!(resp.expire, OnExpiry::Refuse);
    }

    #[test]
    fn rules_are_read_in_their_order() {
        let file = File::with(
            "[[resp.key]]\nmatch = \"order:????????\"\nsequence = \"order\"\nperiod = \"$1\"\n\
             [[resp.key]]\nmatch = \":1:*\"\nsequence = \"$1\"\n",
        );
        let given = [
            ("ODOMETER_RESP__LISTEN", "127.0.0.1:0"),
            ("ODOMETER_RESP__EXPIRE", "ignore"),
        ];
        let resp = file.load_with(given).unwrap().resp;
        assert_eq!(resp.expire, OnExpiry::Ignore);
        assert_eq!(resp.rules.len(), 2);
        assert_ne!(resp.rules.first(), resp.rules.last());
    }

    #[test]
    fn a_rule_that_cannot_be_used_is_named_with_the_mend() {
        for (content, key, mend) in [
            ("sequence = \"a\"", "[0].match", "is missing"),
            ("match = \"a\"", "[0].sequence", "is missing"),
            (
                "match = 5\nsequence = \"a\"",
                "[0].match",
                "quotation marks",
            ),
            ("match = \"*a*\"\nsequence = \"a\"", "[0].match", "twice"),
            (
                "match = \"a\"\nsequence = \"$1\"",
                "[0].sequence",
                "a group",
            ),
            (
                "match = \"a*\"\nsequence = \"a\"\nperiod = \"{$1}\"",
                "[0].period",
                "in no name",
            ),
            (
                "match = \"a\"\nsequence = \"a\"\n[[resp.key]]\nmach = \"b\"",
                "[1].mach",
                "known here are match, sequence, period",
            ),
        ] {
            let sentence = File::with(&format!("[[resp.key]]\n{content}\n")).refusal();
            let named = format!("configuration: resp.key{key} in ");
            assert!(sentence.starts_with(&named), "{content}: {sentence}");
            assert!(sentence.contains(mend), "{content}: {sentence}");
        }
        for content in [
            "[resp.key]\nmatch = \"a\"",
            "resp.key = 5",
            "resp.key = [5]",
        ] {
            let sentence = File::with(content).refusal();
            assert!(sentence.contains("[[resp.key]]"), "{content}: {sentence}");
        }
        let refused = File::with("").load_with([("ODOMETER_RESP__KEY__0__MATCH", "a")]);
        let sentence = refused.unwrap_err().to_string();
        assert!(sentence.contains("[[resp.key]]"), "{sentence}");
    }

    #[test]
    fn a_listener_beyond_loopback_needs_a_password_or_roles() {
        let sentence = File::with(OPEN).refusal();
        assert!(
            sentence.starts_with("configuration: resp.listen in "),
            "{sentence}"
        );
        for (content, is_taken) in [
            (format!("{OPEN}{PASSWORD}"), true),
            (format!("{OPEN}{ROLES}"), true),
            ("resp.listen = \"[::1]:0\"\n".to_owned(), true),
            (PASSWORD.to_owned(), true),
            (format!("{OPEN}{PASSWORD}{ROLES}"), false),
            (format!("{PASSWORD}{ROLES}"), false),
            ("resp.password = \"\"\n".to_owned(), false),
        ] {
            let loaded = File::with(&content).load();
            assert_eq!(loaded.is_ok(), is_taken, "{content}: {loaded:?}");
            if let Err(error) = loaded {
                let said = error.to_string();
                assert!(
                    said.starts_with("configuration: resp.password in "),
                    "{said}"
                );
            }
        }
    }

    #[test]
    fn a_password_that_can_be_guessed_or_heard_is_warned_of() {
        let load = |content: &str| File::with(content).load().unwrap();
        assert_eq!(load(PASSWORD).short_secrets(), [""; 0]);
        assert_eq!(load(PASSWORD).tokens_in_clear(), [""; 0]);
        let short = load("resp.password = \"tiger\"\n")
            .short_secrets()
            .join("\n");
        assert!(short.contains("resp.password has 5 characters"), "{short}");
        assert!(!short.contains("tiger"), "{short}");
        let heard = load(&format!("{OPEN}{PASSWORD}")).tokens_in_clear();
        let [heard] = heard.as_slice() else {
            unreachable!("{heard:?}")
        };
        assert!(heard.contains("in clear text to `resp.listen`"), "{heard}");
    }

    #[test]
    fn the_password_may_be_in_a_file() {
        let file = File::with("");
        let path = file.beside("password", "a-long-enough-password\n");
        let given = [("ODOMETER_RESP__PASSWORD_FILE", path.as_str())];
        let password = file.load_with(given).unwrap().resp.password.unwrap();
        assert_eq!(password.expose(), "a-long-enough-password");
        let both = File::with(PASSWORD);
        let path = both.beside("password", "another-password\n");
        let text = format!("{PASSWORD}resp.password_file = {path:?}\n");
        let sentence = File::with(&text).refusal();
        assert!(sentence.contains("resp.password_file in "), "{sentence}");
    }

    #[test]
    fn names_are_created_without_a_word_on_loopback_alone() {
        let created = |content: &str| {
            let config = File::with(content).load().unwrap();
            config.unknown == Some(super::super::Unknown::Create)
        };
        assert!(created("resp.listen = \"127.0.0.1:0\"\n"));
        assert!(!created(&format!("{OPEN}{PASSWORD}")));
    }
}
