//! Reads the file of callers: for each caller its role, the hashes of its tokens, and when they
//! expire.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use jiff::{Timestamp, civil::Date, tz::TimeZone};
use odometer_core::name::SequenceName;
use toml_edit::{DocumentMut, Item, TableLike};

use super::role::{Role, Roles};
use super::token::{self, TokenHash};
use crate::config::guarded_file;

/// The most callers in a file.
const MAX_CALLERS: usize = 10_000;

/// The most tokens of a caller. A caller needs two while its token is replaced.
const MAX_TOKENS: usize = 8;

/// Names that the log gives to callers who are not in the file.
const RESERVED: [&str; 5] = [
    "administrator",
    "anonymous",
    "anybody",
    "everybody",
    "loopback",
];

/// The keys of a caller.
const KEYS: [&str; 3] = ["role", "sha256", "expires"];

/// The callers of a file.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Callers {
    by_name: HashMap<Arc<str>, Arc<KnownCaller>>,
    by_hash: HashMap<TokenHash, Arc<KnownCaller>>,
}

/// A program that shows a token.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KnownCaller {
    pub name: Arc<str>,
    pub role: Arc<Role>,
    /// From this time on, its tokens are wrong.
    pub expires: Option<Timestamp>,
}

impl Callers {
    /// Reads a file of callers.
    ///
    /// # Errors
    /// A sentence in one line that says what is wrong. It never repeats a hash, or a token that
    /// stands in the file by mistake.
    pub fn read(path: &Path, roles: &Roles) -> Result<Self, String> {
        let text = guarded_file::read(path)?;
        Self::parse(&text, roles).map_err(|problem| format!("{}: {problem}", path.display()))
    }

    /// Reads the text of a file of callers.
    ///
    /// # Errors
    /// As [`Callers::read`].
    pub fn parse(text: &str, roles: &Roles) -> Result<Self, String> {
        let in_one_line = |problem: String| problem.replace(char::is_control, " ");
        Self::of(text, roles).map_err(|problem| token::masked(&in_one_line(problem)))
    }

    fn of(text: &str, roles: &Roles) -> Result<Self, String> {
        // The message of the parser has no line of the file.
        let file: DocumentMut = text.parse().map_err(|error: toml_edit::TomlError| {
            format!("not a TOML file: {}", error.message())
        })?;
        if file.len() > MAX_CALLERS {
            return Err(format!(
                "it has {} callers; give {MAX_CALLERS} at most",
                file.len()
            ));
        }
        let mut callers = Self::default();
        for (name, item) in file.iter() {
            callers
                .add(name, item, roles)
                .map_err(|problem| format!("[{name}]: {problem}"))?;
        }
        Ok(callers)
    }

    fn add(&mut self, name: &str, item: &Item, roles: &Roles) -> Result<(), String> {
        SequenceName::check(name).map_err(|error| error.to_string())?;
        if RESERVED.contains(&name) {
            return Err(
                "the log calls others by this name; give the caller another one".to_owned(),
            );
        }
        let table = item
            .as_table_like()
            .ok_or("give a section with `role` and `sha256`")?;
        if let Some((key, _)) = table.iter().find(|(key, _)| !KEYS.contains(key)) {
            let known = KEYS.join(", ");
            return Err(format!("there is no key `{key}`; known are {known}"));
        }
        let caller = Arc::new(KnownCaller {
            name: name.into(),
            role: role(table, roles)?,
            expires: table.get("expires").map(expiry).transpose()?,
        });
        for hash in hashes(table)? {
            if let Some(other) = self.by_hash.insert(hash, Arc::clone(&caller)) {
                let other = &other.name;
                return Err(format!(
                    "`sha256`: a hash stands at [{other}] already; give each caller its own token"
                ));
            }
        }
        self.by_name.insert(Arc::clone(&caller.name), caller);
        Ok(())
    }

    /// Returns the caller whose token this is, if the token has not expired at the time `now`.
    pub fn shown_by(&self, text: &str, now: SystemTime) -> Option<&Arc<KnownCaller>> {
        let caller = self.by_hash.get(&token::hash(text)?)?;
        let has_expired = |expires: &Timestamp| SystemTime::from(*expires) <= now;
        (!caller.expires.as_ref().is_some_and(has_expired)).then_some(caller)
    }

    /// Returns the caller with this name, if there is one.
    pub fn named(&self, name: &str) -> Option<&Arc<KnownCaller>> {
        self.by_name.get(name)
    }

    /// Returns all callers, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<KnownCaller>> {
        self.by_name.values()
    }
}

fn role(table: &dyn TableLike, roles: &Roles) -> Result<Arc<Role>, String> {
    let known = || format!("give one of {}", roles.names());
    let Some(item) = table.get("role") else {
        return Err(format!("`role` is missing; {}", known()));
    };
    let Some(name) = item.as_str() else {
        return Err(format!("`role` must be in quotation marks; {}", known()));
    };
    let role = roles.get(name);
    role.cloned()
        .ok_or_else(|| format!("`role`: there is no role {name:?}; {}", known()))
}

/// Reads the hashes of a caller's tokens.
fn hashes(table: &dyn TableLike) -> Result<Vec<TokenHash>, String> {
    const FORM: &str = "give a list of SHA-256 hashes of 64 hexadecimal digits, as `odometer token` \
        prints it";
    let list = table.get("sha256").and_then(Item::as_array);
    let list = list.ok_or_else(|| format!("`sha256`: {FORM}"))?;
    if list.is_empty() || list.len() > MAX_TOKENS {
        return Err(format!("`sha256`: give 1 to {MAX_TOKENS} hashes"));
    }
    let hashes = list
        .iter()
        .map(|hash| hash.as_str().and_then(token::from_hex));
    let hashes: Option<Vec<TokenHash>> = hashes.collect();
    hashes.ok_or_else(|| format!("`sha256`: {FORM}"))
}

/// Reads the time from which on a caller's tokens are wrong. A date alone is its first moment, in
/// UTC.
fn expiry(item: &Item) -> Result<Timestamp, String> {
    let written = item.as_datetime().map(ToString::to_string);
    let written = written.unwrap_or_default();
    let moment = written.parse().ok().or_else(|| {
        let date: Date = written.parse().ok()?;
        // A local time without a zone would also be read as its date.
        let is_date_alone = written.len() == 10;
        let begin = is_date_alone.then(|| date.to_zoned(TimeZone::UTC).ok())??;
        Some(begin.timestamp())
    });
    moment.ok_or_else(|| {
        "`expires`: give a date or a time with its zone, before the end of the year 9999 and without \
         quotation marks, as in 2027-03-01 or 2027-03-01T12:00:00Z"
            .to_owned()
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use std::time::Duration;

    use super::*;

    const TOKEN: &str = "odo_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

    fn roles() -> Roles {
        let mut roles = Roles::default();
        roles.add(Role::new("billing"));
        roles.add(Role::new("reader"));
        roles
    }

    fn hex(text: &str) -> String {
        token::to_hex(&token::hash(text).unwrap())
    }

    #[test]
    fn a_token_leads_to_its_caller_until_it_expires() {
        let other = token::make();
        let text = format!(
            "[billing-prod]\nrole = \"billing\"\nsha256 = [\"{}\", \"{}\"]\n\
             expires = 2027-03-01\n[\"eu.report\"]\nrole = \"reader\"\nsha256 = [\"{}\"]\n",
            hex(TOKEN),
            hex(token::make().expose()),
            hex(other.expose()),
        );
        let callers = Callers::parse(&text, &roles()).unwrap();
        // 2027-03-01T00:00:00Z, by `date -u -d 2027-03-01 +%s`.
        let end = SystemTime::UNIX_EPOCH + Duration::from_secs(1_803_859_200);
        let before = end - Duration::from_millis(1);
        let shown = callers.shown_by(TOKEN, before).unwrap();
        assert_eq!(
            (&*shown.name, &**shown.role.name()),
            ("billing-prod", "billing")
        );
        assert!(callers.shown_by(TOKEN, end).is_none());
        let other = callers.shown_by(other.expose(), end).unwrap();
        assert_eq!(&*other.name, "eu.report");
        assert!(callers.shown_by(token::make().expose(), before).is_none());
        assert!(callers.named("billing-prod").is_some() && callers.named("x").is_none());
        assert_eq!(callers.iter().count(), 2);
        assert!(
            Callers::parse("", &roles())
                .unwrap()
                .iter()
                .next()
                .is_none()
        );
    }

    #[test]
    fn what_is_wrong_is_named_without_a_token() {
        let digits = hex(TOKEN);
        let hash = format!("sha256 = [\"{digits}\"]");
        let good = format!("role = \"billing\"\n{hash}");
        for (text, said) in [
            ("[a\n".to_owned(), "not a TOML file"),
            ("a = 5".to_owned(), "[a]: give a section"),
            (format!("[\"a b\"]\n{good}"), "[a b]: "),
            (format!("[administrator]\n{good}"), "another one"),
            (format!("[a]\n{good}\nrol = 1"), "no key `rol`"),
            (format!("[a]\n{hash}"), "`role` is missing; give one of"),
            (format!("[a]\nrole = 5\n{hash}"), "quotation marks"),
            (format!("[a]\nrole = \"x\"\n{hash}"), "no role \"x\""),
            ("[a]\nrole = \"billing\"".to_owned(), "`sha256`: give"),
            (
                format!("[a]\nrole = \"billing\"\nsha256 = [\"{TOKEN}\"]"),
                "64 hexadecimal digits",
            ),
            (
                "[a]\nrole = \"billing\"\nsha256 = []".to_owned(),
                "give 1 to 8",
            ),
            (
                format!("[a]\n{good}\n[b]\n{good}"),
                "a hash stands at [a] already",
            ),
            (format!("[\"a\\nb\"]\n{good}"), "[a b]: "),
            (format!("[\"a b {TOKEN}\"]\n{good}"), "[a b odo_…]: "),
            (format!("[a]\n{good}\n{TOKEN} = 1"), "no key `odo_…`"),
            (format!("[a]\n{good}\n{digits} = 1"), "no key `…`"),
            (
                format!("[a]\nrole = \"{TOKEN}\"\n{hash}"),
                "no role \"odo_…\"",
            ),
            (
                format!("[a]\n{good}\nexpires = \"2027-03-01\""),
                "`expires`",
            ),
            (
                format!("[a]\n{good}\nexpires = 2027-03-01T12:00:00"),
                "`expires`",
            ),
        ] {
            let problem = Callers::parse(&text, &roles()).unwrap_err();
            assert!(problem.contains(said), "{text}: {problem}");
            assert!(!problem.contains(char::is_control), "{problem:?}");
            let tells = problem.contains(TOKEN) || problem.contains(&digits);
            assert!(!tells, "{text}: {problem}");
        }
    }
}
