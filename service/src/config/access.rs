//! Reads `[access]`: the roles with their rights, the role of callers without a token, the file of
//! callers, and the issuers of their JSON Web Tokens.

use std::path::PathBuf;
use std::sync::Arc;

use figment::Figment;
use odometer_core::{glob::Glob, name::SequenceName};
use serde_json::{Map, Value};

use super::error::ConfigError;
use super::layers::name_in;
use crate::access::{
    issuers::issuer::{IssuerSettings, MAX_ISSUERS},
    quotas::{
        Quota, Quotas,
        names::NamesQuota,
        numbers::{MAX_RATE, NumbersQuota},
        share::Share,
        worker_ids::WorkerIdsQuota,
    },
    right::Right,
    role::{MAX_ROLES, Role},
    settings::AccessSettings,
};

/// The section, and the first part of its keys.
const SECTION: &str = "access";

/// The highest quota of names and of worker ids, because they are counted.
const MAX_COUNTED: u64 = 100_000;

/// The keys of the section.
const KEYS: [&str; 4] = ["anonymous", "callers_file", "roles", "issuers"];

/// The keys of an issuer. Each issuer has all of them.
const ISSUER_KEYS: [&str; 3] = ["issuer", "audience", "jwks_file"];

/// Reads `[access]` from the layers; `None` if no layer has it.
///
/// # Errors
/// The first key that cannot be used. The files of callers and keys are not read here: not every
/// command needs them.
pub(crate) fn read(layers: &Figment) -> Result<Option<AccessSettings>, ConfigError> {
    let Ok(given) = layers.find_value(SECTION) else {
        return Ok(None);
    };
    let given: Result<Value, _> = given.deserialize();
    let read = match &given {
        Ok(Value::Object(section)) => settings(section),
        Ok(_) | Err(_) => Err(ConfigError::new("", "give a section with `roles`")),
    };
    let settings = read.map_err(|wrong| {
        wrong
            .below(SECTION)
            .named(|key| name_in(layers, key, SECTION))
    })?;
    Ok(Some(settings))
}

fn settings(section: &Map<String, Value>) -> Result<AccessSettings, ConfigError> {
    let mut keys = section.keys();
    if let Some(key) = keys.find(|key| !KEYS.contains(&key.as_str())) {
        let problem = format!("there is no such key; known here are {}", KEYS.join(", "));
        return Err(ConfigError::new(key, problem));
    }
    let mut settings = AccessSettings::default();
    let Some(Value::Object(roles)) = section.get("roles") else {
        let problem = "give at least one section [access.roles.NAME], as in [access.roles.reader]";
        return Err(ConfigError::new("roles", problem));
    };
    if roles.len() > MAX_ROLES {
        let problem = format!("there are {}; give {MAX_ROLES} at most", roles.len());
        return Err(ConfigError::new("roles", problem));
    }
    for (name, rights) in roles {
        let role = role(name, rights).map_err(|wrong| wrong.below(&format!("roles.{name}")))?;
        settings.roles.add(role);
    }
    if let Some(name) = text(section, "anonymous", "the name of a role")? {
        let Some(role) = settings.roles.get(name) else {
            let known = settings.roles.names();
            let problem = format!("there is no role {name:?}; give one of {known}");
            return Err(ConfigError::new("anonymous", problem));
        };
        settings.anonymous = Some(Arc::clone(role));
    }
    if let Some(path) = text(section, "callers_file", "the path of a file")? {
        settings.callers_file = Some(PathBuf::from(path));
    }
    if let Some(given) = section.get("issuers") {
        settings.issuers = issuers(given)?;
    }
    if !settings.issuers.is_empty() && settings.callers_file.is_none() {
        // Nothing else says whose a token is, so all of them would be wrong.
        let problem = "their tokens are nobody's without a file of callers, where `subject` says \
                       whose each token is; give access.callers_file as well";
        return Err(ConfigError::new("issuers", problem));
    }
    Ok(settings)
}

/// Reads the tables of `[[access.issuers]]`.
fn issuers(given: &Value) -> Result<Vec<IssuerSettings>, ConfigError> {
    let wrong = |problem: String| ConfigError::new("issuers", problem);
    let tables = given.as_array().into_iter().flatten();
    let tables: Option<Vec<_>> = tables.map(Value::as_object).collect();
    let Some(tables) = tables.filter(|_| given.is_array()) else {
        let keys = ISSUER_KEYS.map(|key| format!("`{key}`")).join(", ");
        return Err(wrong(format!(
            "give tables that begin with [[access.issuers]], in two brackets, in the configuration \
             file; each has {keys}"
        )));
    };
    if tables.len() > MAX_ISSUERS {
        let n = tables.len();
        return Err(wrong(format!("there are {n}; give {MAX_ISSUERS} at most")));
    }
    let mut issuers: Vec<IssuerSettings> = Vec::new();
    for (index, table) in tables.into_iter().enumerate() {
        let named = |wrong: ConfigError| wrong.below(&format!("issuers[{index}]"));
        let issuer = issuer(table).map_err(named)?;
        if let Some(earlier) = issuers.iter().position(|it| it.issuer == issuer.issuer) {
            let problem = format!("issuers[{earlier}] has the same one; give each issuer once");
            return Err(named(ConfigError::new("issuer", problem)));
        }
        issuers.push(issuer);
    }
    Ok(issuers)
}

fn issuer(table: &Map<String, Value>) -> Result<IssuerSettings, ConfigError> {
    let mut keys = table.keys();
    if let Some(key) = keys.find(|key| !ISSUER_KEYS.contains(&key.as_str())) {
        let known = ISSUER_KEYS.join(", ");
        let problem = format!("there is no such key; known here are {known}");
        return Err(ConfigError::new(key, problem));
    }
    let required = |key: &str, wanted: &str| {
        let given = text(table, key, wanted)?.filter(|text| !text.is_empty());
        given
            .map(str::to_owned)
            .ok_or_else(|| ConfigError::new(key, format!("it is missing or empty; give {wanted}")))
    };
    Ok(IssuerSettings {
        issuer: required("issuer", "the exact `iss` of the issuer's tokens")?,
        audience: required(
            "audience",
            "what `aud` of the tokens must have, as in \"odometer\"",
        )?,
        jwks_file: PathBuf::from(required("jwks_file", "the path of the file of its keys")?),
    })
}

fn text<'a>(
    section: &'a Map<String, Value>,
    key: &str,
    wanted: &str,
) -> Result<Option<&'a str>, ConfigError> {
    let text = section.get(key).map(|value| {
        let problem = || ConfigError::new(key, format!("give {wanted} in quotation marks"));
        value.as_str().ok_or_else(problem)
    });
    text.transpose()
}

fn role(name: &str, rights: &Value) -> Result<Role, ConfigError> {
    SequenceName::check(name).map_err(|error| ConfigError::new("", error.to_string()))?;
    let known = format!(
        "{}, {}",
        Right::ALL.map(Right::word).join(", "),
        Quota::ALL.map(Quota::word).join(", ")
    );
    let Value::Object(rights) = rights else {
        let problem = format!("give a section of rights and quotas: {known}");
        return Err(ConfigError::new("", problem));
    };
    let (mut role, mut quotas) = (Role::new(name), Quotas::default());
    for (word, given) in rights {
        if let Some(quota) = Quota::ALL.into_iter().find(|quota| quota.word() == word) {
            set(&mut quotas, quota, given)?;
            continue;
        }
        let Some(right) = Right::ALL.into_iter().find(|right| right.word() == word) else {
            let problem = format!("there is no such right or quota; known are {known}");
            return Err(ConfigError::new(word, problem));
        };
        role = role.with(right, names(word, given)?);
    }
    Ok(role.with_quotas(quotas))
}

fn set(quotas: &mut Quotas, quota: Quota, given: &Value) -> Result<(), ConfigError> {
    match quota {
        Quota::Numbers => quotas.numbers = Some(NumbersQuota::new(rate(given)?)),
        Quota::Names => quotas.names = Some(NamesQuota::new(at_most(quota, given)?)),
        Quota::WorkerIds => quotas.worker_ids = Some(WorkerIdsQuota::new(at_most(quota, given)?)),
        Quota::Share => {
            let share = given.as_str().and_then(Share::parse);
            quotas.share = share.ok_or_else(|| {
                let problem = "give a percentage in quotation marks, \"0.01%\" to \"100%\"";
                ConfigError::new(quota.word(), problem)
            })?;
        }
    }
    Ok(())
}

/// Reads how many there may be.
fn at_most(quota: Quota, given: &Value) -> Result<u64, ConfigError> {
    // The environment gives text.
    let written = given.as_str().and_then(|text| text.parse().ok());
    let most = given.as_u64().or(written);
    most.filter(|most| *most <= MAX_COUNTED).ok_or_else(|| {
        let problem =
            format!("give a whole number from 0 to {MAX_COUNTED}, without quotation marks");
        ConfigError::new(quota.word(), problem)
    })
}

/// Reads a number of numbers a second, as in `5k/s`.
fn rate(given: &Value) -> Result<u64, ConfigError> {
    let rate = given.as_str().and_then(|text| {
        let number = text.strip_suffix("/s")?;
        let (digits, factor) = match number.chars().next_back()? {
            'k' => (number.strip_suffix('k')?, 1000),
            'M' => (number.strip_suffix('M')?, 1_000_000),
            _ => (number, 1),
        };
        let is_plain = digits.bytes().all(|digit| digit.is_ascii_digit());
        let digits: u64 = digits.parse().ok().filter(|_| is_plain)?;
        let rate = digits.checked_mul(factor)?;
        (1..=MAX_RATE).contains(&rate).then_some(rate)
    });
    rate.ok_or_else(|| {
        let problem = format!(
            "give numbers a second in quotation marks, 1 to {MAX_RATE}, as in \"500/s\", \"5k/s\" or \
             \"2M/s\""
        );
        ConfigError::new(Quota::Numbers.word(), problem)
    })
}

/// Reads the globs of a right: a list, or text with commas between them.
fn names(right: &str, globs: &Value) -> Result<Vec<Glob>, ConfigError> {
    let wrong = || {
        let problem = format!("give a list of globs over names, as in {right} = [\"orders-*\"]");
        ConfigError::new(right, problem)
    };
    let globs: Option<Vec<&str>> = match globs {
        Value::String(text) => Some(text.split(',').map(str::trim).collect()),
        Value::Array(globs) => globs.iter().map(Value::as_str).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
    };
    let globs = globs.ok_or_else(wrong)?.into_iter().map(|glob| {
        Glob::parse(glob).map_err(|error| ConfigError::new(right, format!("{glob:?}: {error}")))
    });
    globs.collect()
}

#[cfg(test)]
#[allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests may fail loudly"
)]
mod tests {
    use super::super::tests::File;
    use super::*;

    const READER: &str = "[access.roles.reader]\nlook = [\"*\"]\n";

    fn name(text: &str) -> SequenceName {
        SequenceName::parse(text).unwrap()
    }

    #[test]
    fn roles_are_read_with_their_rights() {
        assert!(File::with("").load().unwrap().access.is_none());
        let file = File::with(&format!(
            "[access]\nanonymous = \"reader\"\n{READER}[access.roles.billing]\n\
             take = [\"orders\", \"invoice-*\"]\ncreate = [\"invoice-*\"]\nlease = []\nnumbers = \"5k/s\"\n\
             names = 1000\nworkers = 0\nshare = \"0.5%\"\n"
        ));
        let access = file.load().unwrap().access.unwrap();
        let reader = access.anonymous.unwrap();
        assert!(reader.may_all(Right::Look) && !reader.may(Right::Take, &name("a")));
        let billing = access.roles.get("billing").unwrap();
        assert!(billing.may(Right::Take, &name("orders")));
        assert!(billing.may(Right::Create, &name("invoice-1")));
        assert!(!billing.may(Right::Create, &name("orders")));
        assert!(!billing.may(Right::Lease, &name("orders")));
        let quotas = billing.quotas();
        assert_eq!(quotas.numbers.as_ref().map(NumbersQuota::rate), Some(5000));
        assert_eq!(quotas.names.as_ref().map(NamesQuota::most), Some(1000));
        assert_eq!(
            quotas.worker_ids.as_ref().map(WorkerIdsQuota::most),
            Some(0)
        );
        assert_eq!(quotas.share.to_string(), "0.5%");
        assert_eq!(*reader.quotas(), Quotas::default());

        let given = [
            ("ODOMETER_ACCESS__ANONYMOUS", "guest"),
            ("ODOMETER_ACCESS__ROLES__GUEST__TAKE", "a*, b"),
            ("ODOMETER_ACCESS__ROLES__GUEST__NAMES", "7"),
        ];
        let access = file.load_with(given).unwrap().access.unwrap();
        let guest = access.anonymous.unwrap();
        assert!(guest.may(Right::Take, &name("b")) && !guest.may(Right::Look, &name("b")));
        let names = guest.quotas().names.as_ref();
        assert_eq!(names.map(NamesQuota::most), Some(7));
    }

    /// Sections that cannot be used, the key that is told, and what is said of it.
    const WRONG: [(&str, &str, &str); 18] = [
        ("access = 5", "access", "a section"),
        ("[access]\n", "access.roles", "at least one"),
        ("[access]\nroles = 5", "access.roles", "at least one"),
        ("[access]\nrole = 5", "access.role", "known here are"),
        (
            "[access.roles.a]\ntakes = [\"x\"]",
            "access.roles.a.takes",
            "no such right",
        ),
        (
            "[access.roles.a]\nnumbers = 5",
            "access.roles.a.numbers",
            "numbers a second",
        ),
        (
            "[access.roles.a]\nnumbers = \"0/s\"",
            "access.roles.a.numbers",
            "numbers a second",
        ),
        (
            "[access.roles.a]\nnumbers = \"+5/s\"",
            "access.roles.a.numbers",
            "numbers a second",
        ),
        (
            "[access.roles.a]\nnames = -1",
            "access.roles.a.names",
            "a whole number",
        ),
        (
            "[access.roles.a]\nworkers = 100001",
            "access.roles.a.workers",
            "0 to 100000",
        ),
        (
            "[access.roles.a]\nshare = 1",
            "access.roles.a.share",
            "a percentage",
        ),
        (
            "[access.roles.a]\ntake = 5",
            "access.roles.a.take",
            "a list of globs",
        ),
        (
            "[access.roles.a]\ntake = [5]",
            "access.roles.a.take",
            "a list of globs",
        ),
        (
            "[access.roles.a]\ntake = [\"x[\"]",
            "access.roles.a.take",
            "\"x[\": at position",
        ),
        ("[access.roles]\na = 5", "access.roles.a", "a section"),
        (
            "[access.roles.\"a b\"]\ntake = []",
            "access.roles.a b",
            "' '",
        ),
        (
            "[access]\nanonymous = \"x\"\n[access.roles.a]",
            "access.anonymous",
            "no role \"x\"",
        ),
        (
            "[access]\nanonymous = 5\n[access.roles.a]",
            "access.anonymous",
            "quotation marks",
        ),
    ];

    const ISSUER: &str = "[[access.issuers]]\nissuer = \"https://a\"\naudience = \"odometer\"\n\
                          jwks_file = \"a.json\"\n";

    #[test]
    fn issuers_are_read_in_their_order() {
        let other = ISSUER.replace("https://a", "https://b");
        let callers = "[access]\ncallers_file = \"callers.toml\"\n";
        let access = File::with(&format!("{callers}{READER}{ISSUER}{other}")).load();
        let issuers = access.unwrap().access.unwrap().issuers;
        let names: Vec<&str> = issuers.iter().map(|it| it.issuer.as_str()).collect();
        assert_eq!(names, ["https://a", "https://b"]);
        assert_eq!(issuers[0].audience, "odometer");
        assert_eq!(issuers[0].jwks_file, PathBuf::from("a.json"));
    }

    #[test]
    fn an_issuer_that_cannot_be_used_is_named() {
        let place = "access.issuers";
        let without = |key: &str| {
            let lines = ISSUER.lines().filter(|line| !line.starts_with(key));
            lines.map(|line| format!("{line}\n")).collect::<String>()
        };
        let with = |line: &str| format!("{ISSUER}{line}\n");
        for (content, key, said) in [
            ("[access.issuers]\n".to_owned(), "", "[[access.issuers]]"),
            (
                "[access]\nissuers = 5\n".to_owned(),
                "",
                "[[access.issuers]]",
            ),
            (
                "[access]\nissuers = [5]\n".to_owned(),
                "",
                "[[access.issuers]]",
            ),
            (without("issuer ="), "[0].issuer", "missing or empty"),
            (without("audience"), "[0].audience", "missing or empty"),
            (without("jwks_file"), "[0].jwks_file", "missing or empty"),
            (
                ISSUER.replace("\"odometer\"", "5"),
                "[0].audience",
                "quotation marks",
            ),
            (
                ISSUER.replace("odometer", ""),
                "[0].audience",
                "missing or empty",
            ),
            (
                with("role = \"a\""),
                "[0].role",
                "issuer, audience, jwks_file",
            ),
            (with(ISSUER), "[1].issuer", "issuers[0] has the same"),
            (ISSUER.repeat(17), "", "there are 17; give 16 at most"),
            (ISSUER.to_owned(), "", "give access.callers_file as well"),
        ] {
            // A key of the section stands before the sections in it.
            let sentence = File::with(&format!("{content}{READER}")).refusal();
            let named = format!("configuration: {place}{key} in ");
            assert!(sentence.starts_with(&named), "{content}: {sentence}");
            assert!(sentence.contains(said), "{content}: {sentence}");
        }
        let file = File::with(READER);
        let refused = file.load_with([("ODOMETER_ACCESS__ISSUERS", "https://a")]);
        let sentence = refused.unwrap_err().to_string();
        assert!(sentence.contains("[[access.issuers]]"), "{sentence}");
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        for (content, key, said) in WRONG {
            let sentence = File::with(content).refusal();
            let named = format!("configuration: {key} in ");
            assert!(sentence.starts_with(&named), "{content}: {sentence}");
            assert!(sentence.contains(said), "{content}: {sentence}");
            assert_eq!(sentence.lines().count(), 1, "{sentence}");
        }
        let many: String = (0..65).map(|n| format!("[access.roles.r{n}]\n")).collect();
        assert!(File::with(&many).refusal().contains("give 64 at most"));
    }
}
