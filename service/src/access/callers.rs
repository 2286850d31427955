//! Reads the file of callers: for each caller its role, how it shows who it is, and until when.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use jiff::{Timestamp, civil::Date, tz::TimeZone};
use odometer_core::name::SequenceName;
use toml_edit::{DocumentMut, Item, TableLike};

use super::issuers::issuer::IssuerSettings;
use super::role::{Role, Roles};
use super::token::{self, TokenHash};
use crate::config::guarded_file;

/// The most callers in a file.
const MAX_CALLERS: usize = 10_000;

/// The most tokens of a caller. A caller needs two while its token is replaced.
const MAX_TOKENS: usize = 8;

/// The most characters of the name in a certificate.
const MAX_CERTIFICATE_NAME: usize = 2048;

/// Names that the log gives to callers who are not in the file.
const RESERVED: [&str; 5] = [
    "administrator",
    "anonymous",
    "anybody",
    "everybody",
    "loopback",
];

/// The keys of a caller.
const KEYS: [&str; 6] = [
    "role",
    "sha256",
    "subject",
    "issuer",
    "certificate",
    "expires",
];

/// The keys that say what a caller can show. A caller needs one of them.
const WAYS: [&str; 3] = ["sha256", "subject", "certificate"];

/// The callers of a file.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Callers {
    by_name: HashMap<Arc<str>, Arc<KnownCaller>>,
    by_hash: HashMap<TokenHash, Arc<KnownCaller>>,
    /// By the issuer of a JSON Web Token, and then by its subject.
    by_subject: HashMap<String, HashMap<String, Arc<KnownCaller>>>,
    /// By the name in a certificate: a URI or a DNS name.
    by_certificate: HashMap<String, Arc<KnownCaller>>,
}

/// A program or a person that shows who it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KnownCaller {
    pub name: Arc<str>,
    pub role: Arc<Role>,
    /// From this time on, all that it can show is wrong.
    pub expires: Option<Timestamp>,
}

impl KnownCaller {
    /// Returns whether all that the caller can show is wrong at the time `now`.
    pub fn has_expired(&self, now: SystemTime) -> bool {
        let expires = self.expires.map(SystemTime::from);
        expires.is_some_and(|expires| expires <= now)
    }
}

impl Callers {
    /// Reads a file of callers.
    ///
    /// # Errors
    /// A sentence in one line that says what is wrong. It never repeats a hash, or a token that
    /// stands in the file by mistake.
    pub fn read(path: &Path, roles: &Roles, issuers: &[IssuerSettings]) -> Result<Self, String> {
        let text = guarded_file::read(path)?;
        let callers = Self::parse(&text, roles, issuers);
        callers.map_err(|problem| format!("{}: {problem}", path.display()))
    }

    /// Reads the text of a file of callers. `issuers` are those that a caller may name.
    ///
    /// # Errors
    /// As [`Callers::read`].
    pub fn parse(text: &str, roles: &Roles, issuers: &[IssuerSettings]) -> Result<Self, String> {
        let in_one_line = |problem: String| problem.replace(char::is_control, " ");
        Self::of(text, roles, issuers).map_err(|problem| token::masked(&in_one_line(problem)))
    }

    fn of(text: &str, roles: &Roles, issuers: &[IssuerSettings]) -> Result<Self, String> {
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
                .add(name, item, roles, issuers)
                .map_err(|problem| format!("[{name}]: {problem}"))?;
        }
        Ok(callers)
    }

    fn add(
        &mut self,
        name: &str,
        item: &Item,
        roles: &Roles,
        issuers: &[IssuerSettings],
    ) -> Result<(), String> {
        SequenceName::check(name).map_err(|error| error.to_string())?;
        if RESERVED.contains(&name) {
            return Err(
                "the log calls others by this name; give the caller another one".to_owned(),
            );
        }
        let table = item
            .as_table_like()
            .ok_or_else(|| format!("give a section with `role`, and with {}", ways()))?;
        if let Some((key, _)) = table.iter().find(|(key, _)| !KEYS.contains(key)) {
            let known = KEYS.join(", ");
            return Err(format!("there is no key `{key}`; known are {known}"));
        }
        let caller = Arc::new(KnownCaller {
            name: name.into(),
            role: role(table, roles)?,
            expires: table.get("expires").map(expiry).transpose()?,
        });
        if !WAYS.iter().any(|way| table.contains_key(way)) {
            return Err(format!("it can show nothing; give {}", ways()));
        }
        self.add_hashes(table, &caller)?;
        self.add_subject(table, issuers, &caller)?;
        self.add_certificate(table, &caller)?;
        self.by_name.insert(Arc::clone(&caller.name), caller);
        Ok(())
    }

    fn add_hashes(
        &mut self,
        table: &dyn TableLike,
        caller: &Arc<KnownCaller>,
    ) -> Result<(), String> {
        let hashes = table.get("sha256").map(hashes).transpose()?;
        for hash in hashes.unwrap_or_default() {
            if let Some(other) = self.by_hash.insert(hash, Arc::clone(caller)) {
                let other = &other.name;
                return Err(format!(
                    "`sha256`: a hash stands at [{other}] already; give each caller its own token"
                ));
            }
        }
        Ok(())
    }

    fn add_subject(
        &mut self,
        table: &dyn TableLike,
        issuers: &[IssuerSettings],
        caller: &Arc<KnownCaller>,
    ) -> Result<(), String> {
        let issuer = text(table, "issuer", "the `iss` of the caller's tokens")?;
        let Some(subject) = text(table, "subject", "the `sub` of the caller's tokens")? else {
            return match issuer {
                None => Ok(()),
                Some(_) => Err("`issuer` needs `subject`; give both".to_owned()),
            };
        };
        let issuer = issuer_of(issuer, issuers)?.to_owned();
        let of_issuer = self.by_subject.entry(issuer).or_default();
        if let Some(other) = of_issuer.insert(subject.to_owned(), Arc::clone(caller)) {
            let other = &other.name;
            return Err(format!(
                "`subject`: it stands at [{other}] already; give each caller its own subject"
            ));
        }
        Ok(())
    }

    fn add_certificate(
        &mut self,
        table: &dyn TableLike,
        caller: &Arc<KnownCaller>,
    ) -> Result<(), String> {
        let Some(name) = certificate(table)? else {
            return Ok(());
        };
        if let Some(other) = self
            .by_certificate
            .insert(name.to_owned(), Arc::clone(caller))
        {
            let other = &other.name;
            return Err(format!(
                "`certificate`: the name stands at [{other}] already; give each caller its own"
            ));
        }
        Ok(())
    }

    /// Returns the caller whose token this is, if the caller has not expired at the time `now`.
    pub fn shown_by(&self, text: &str, now: SystemTime) -> Option<&Arc<KnownCaller>> {
        let caller = self.by_hash.get(&token::hash(text)?)?;
        (!caller.has_expired(now)).then_some(caller)
    }

    /// Returns the caller whom an issuer calls `subject`, if the caller has not expired at the time
    /// `now`.
    pub fn called(
        &self,
        issuer: &str,
        subject: &str,
        now: SystemTime,
    ) -> Option<&Arc<KnownCaller>> {
        let caller = self.by_subject.get(issuer)?.get(subject)?;
        (!caller.has_expired(now)).then_some(caller)
    }

    /// Returns the caller whose certificate has these names, if the caller has not expired at the
    /// time `now`. `None` if the names are of several callers, too.
    pub fn certified(&self, names: &[String], now: SystemTime) -> Option<&Arc<KnownCaller>> {
        let mut found = names
            .iter()
            .filter_map(|name| self.by_certificate.get(name));
        let caller = found.next()?;
        let is_alone = found.all(|other| other.name == caller.name);
        (is_alone && !caller.has_expired(now)).then_some(caller)
    }

    /// Returns whether a caller is known by a certificate.
    pub fn have_certificates(&self) -> bool {
        !self.by_certificate.is_empty()
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

/// Returns the keys of which a caller needs one.
fn ways() -> String {
    WAYS.map(|way| format!("`{way}`")).join(" or ")
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

/// Reads a text that is not empty.
fn text<'a>(table: &'a dyn TableLike, key: &str, wanted: &str) -> Result<Option<&'a str>, String> {
    let text = table.get(key).map(|item| {
        let text = item.as_str().filter(|text| !text.is_empty());
        text.ok_or_else(|| format!("`{key}`: give {wanted} in quotation marks"))
    });
    text.transpose()
}

/// Reads the name in a caller's certificate, as the certificate has it: a URI or a DNS name.
fn certificate(table: &dyn TableLike) -> Result<Option<&str>, String> {
    let Some(item) = table.get("certificate") else {
        return Ok(None);
    };
    let name = item.as_str().filter(|name| {
        let is_short = !name.is_empty() && name.len() <= MAX_CERTIFICATE_NAME;
        // No certificate stands for several callers, so a name with `*` would never fit.
        is_short
            && name
                .bytes()
                .all(|byte| byte.is_ascii_graphic() && byte != b'*')
    });
    let name = name.ok_or(
        "`certificate`: give the URI or the DNS name in the caller's certificate (a subject \
         alternative name), as in \"spiffe://corp/ns/payments/sa/billing\", without `*` and blanks",
    )?;
    Ok(Some(name))
}

/// Returns the issuer that a caller names, or the only one.
fn issuer_of<'a>(named: Option<&str>, issuers: &'a [IssuerSettings]) -> Result<&'a str, String> {
    let names: Vec<&'a str> = issuers.iter().map(|it| it.issuer.as_str()).collect();
    match (named, names.as_slice()) {
        (_, []) => Err("`subject`: there is no issuer; configure [[access.issuers]]".to_owned()),
        (None, [only]) => Ok(only),
        (None, _) => Err(format!("`issuer` is missing; give one of {names:?}")),
        (Some(named), _) => {
            let found = names.iter().copied().find(|name| *name == named);
            found.ok_or_else(|| {
                format!("`issuer`: there is no issuer {named:?}; give one of {names:?}")
            })
        }
    }
}

/// Reads the hashes of a caller's tokens.
fn hashes(item: &Item) -> Result<Vec<TokenHash>, String> {
    const FORM: &str = "give a list of SHA-256 hashes of 64 hexadecimal digits, as `odometer token` \
        prints it";
    let list = item.as_array();
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

/// Reads the time from which on all that a caller can show is wrong. A date alone is its first
/// moment, in UTC.
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
        let callers = Callers::parse(&text, &roles(), &[]).unwrap();
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
            Callers::parse("", &roles(), &[])
                .unwrap()
                .iter()
                .next()
                .is_none()
        );
    }

    fn issuers<const N: usize>(names: [&str; N]) -> Vec<IssuerSettings> {
        let issuer = |name: &str| IssuerSettings {
            issuer: name.to_owned(),
            audience: "odometer".to_owned(),
            jwks_file: "jwks.json".into(),
        };
        names.into_iter().map(issuer).collect()
    }

    #[test]
    fn a_subject_leads_to_its_caller_until_it_expires() {
        let text = format!(
            "[a]\nrole = \"billing\"\nsubject = \"s\"\nissuer = \"x\"\nexpires = 2027-03-01\n\
             [b]\nrole = \"reader\"\nsubject = \"s\"\nissuer = \"y\"\nsha256 = [\"{}\"]\n",
            hex(TOKEN)
        );
        let callers = Callers::parse(&text, &roles(), &issuers(["x", "y"])).unwrap();
        let start = SystemTime::UNIX_EPOCH;
        let end = start + Duration::from_secs(1_803_859_200);
        let called = |issuer, subject, now| {
            let caller = callers.called(issuer, subject, now);
            caller.map(|caller| caller.name.to_string())
        };
        assert_eq!(called("x", "s", start).as_deref(), Some("a"));
        assert_eq!(called("x", "s", end), None);
        assert_eq!(called("y", "s", end).as_deref(), Some("b"));
        assert_eq!(called("z", "s", start), None);
        assert_eq!(called("x", "S", start), None);
        assert_eq!(callers.shown_by(TOKEN, end).unwrap().name.as_ref(), "b");

        // Only one issuer need not be named.
        let text = "[a]\nrole = \"billing\"\nsubject = \"s\"\n";
        let callers = Callers::parse(text, &roles(), &issuers(["x"])).unwrap();
        assert!(callers.called("x", "s", start).is_some());
    }

    #[test]
    fn a_subject_that_is_of_no_use_is_named() {
        let (none, one, two) = (issuers([]), issuers(["x"]), issuers(["x", "y"]));
        for (keys, issuers, said) in [
            ("subject = \"s\"", &none, "[[access.issuers]]"),
            (
                "subject = \"s\"",
                &two,
                "`issuer` is missing; give one of [\"x\", \"y\"]",
            ),
            ("subject = 5", &one, "`subject`: give"),
            ("subject = \"\"", &one, "`subject`: give"),
            ("subject = \"s\"\nissuer = 5", &one, "`issuer`: give"),
            (
                "subject = \"s\"\nissuer = \"z\"",
                &one,
                "no issuer \"z\"; give one of [\"x\"]",
            ),
            ("issuer = \"x\"", &one, "give `sha256` or `subject`"),
            (
                "subject = \"s\"\n[b]\nrole = \"reader\"\nsubject = \"s\"\nissuer = \"x\"",
                &one,
                "`subject`: it stands at [a] already",
            ),
        ] {
            let text = format!("[a]\nrole = \"billing\"\n{keys}\n");
            let problem = Callers::parse(&text, &roles(), issuers).unwrap_err();
            assert!(problem.contains(said), "{keys}: {problem}");
        }
        let text = format!(
            "[a]\nrole = \"billing\"\nissuer = \"x\"\nsha256 = [\"{}\"]\n",
            hex(TOKEN)
        );
        let problem = Callers::parse(&text, &roles(), &one).unwrap_err();
        assert!(problem.contains("`issuer` needs `subject`"), "{problem}");
    }

    #[test]
    fn a_certificate_leads_to_its_caller_if_its_names_are_of_one_alone() {
        let hash = hex(TOKEN);
        let text = format!(
            "[a]\nrole = \"billing\"\ncertificate = \"spiffe://corp/a\"\nexpires = 2027-03-01\n\
             [b]\nrole = \"reader\"\ncertificate = \"b.example\"\nsha256 = [\"{hash}\"]\n"
        );
        let callers = Callers::parse(&text, &roles(), &[]).unwrap();
        // 2027-03-01T00:00:00Z, by `date -u -d 2027-03-01 +%s`.
        let end = SystemTime::UNIX_EPOCH + Duration::from_secs(1_803_859_200);
        let before = end - Duration::from_millis(1);
        let found = |names: &[&str], now| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            let caller = callers.certified(&names, now);
            caller.map(|caller| caller.name.to_string())
        };
        let (a, b) = (Some("a".to_owned()), Some("b".to_owned()));
        assert_eq!(found(&["spiffe://corp/a"], before), a);
        assert_eq!(found(&["other", "spiffe://corp/a"], before), a);
        assert_eq!(found(&["spiffe://corp/a"], end), None, "it has expired");
        assert_eq!(found(&["b.example"], end), b);
        let of_both = ["spiffe://corp/a", "b.example"];
        assert_eq!(found(&of_both, before), None, "it is of two callers");
        for others in [&["B.example"][..], &["spiffe://corp/a/"], &[""], &[]] {
            assert_eq!(found(others, before), None, "{others:?}");
        }
        assert!(callers.have_certificates());
        let token = callers.shown_by(TOKEN, end).unwrap();
        assert_eq!(&*token.name, "b", "a token is as good as the certificate");
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
            (
                "[a]\nrole = \"billing\"".to_owned(),
                "nothing; give `sha256` or `subject` or `certificate`",
            ),
            (
                "[a]\nrole = \"billing\"\nsha256 = 5".to_owned(),
                "`sha256`: give",
            ),
            (
                "[a]\nrole = \"billing\"\ncertificate = \"*.example\"".to_owned(),
                "`certificate`: give the URI",
            ),
            (
                format!("[a]\n{good}\ncertificate = 5"),
                "`certificate`: give the URI",
            ),
            (
                "[a]\nrole = \"billing\"\ncertificate = \"x\"\n[b]\nrole = \"reader\"\n\
                 certificate = \"x\""
                    .to_owned(),
                "[b]: `certificate`: the name stands at [a] already",
            ),
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
            let problem = Callers::parse(&text, &roles(), &[]).unwrap_err();
            assert!(problem.contains(said), "{text}: {problem}");
            assert!(!problem.contains(char::is_control), "{problem:?}");
            let tells = problem.contains(TOKEN) || problem.contains(&digits);
            assert!(!tells, "{text}: {problem}");
        }
    }
}
