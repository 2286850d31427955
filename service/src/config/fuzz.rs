//! Gives the reader of the configuration files and settings that nobody would write.

#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests may fail loudly"
)]

use std::collections::{BTreeMap, BTreeSet};

use figment::Figment;
use figment::providers::{Format as _, Toml};
use odometer_core::{glob::Glob, name::SequenceName};
use odometer_tests::fuzz::{Edit, check, edit};
use proptest::{collection::vec, prelude::*, sample::Index};

use super::access;
use super::tests::File;
use crate::access::{
    quotas::{names::NamesQuota, numbers::NumbersQuota, share::Share, worker_ids::WorkerIdsQuota},
    right::Right,
    role::Role,
    settings::AccessSettings,
};

const SECRET: &str = "never-to-be-shown";

/// Lines that must be taken, any of them together. Tables come last.
const TAKEN: [&str; 13] = [
    "listen = \"127.0.0.1:0\"",
    "unknown = \"reject\"",
    "max_sequences = 7",
    "migrate = true",
    "worker = 3",
    "http.hosts = [\"numbers.example\"]",
    "refill.deadline = \"5s\"",
    "limits.waiters = \"10\"",
    "idle.park = \"90s\"",
    "default.block.min = 5",
    "access.roles.a.take = [\"a*\"]",
    "[[template]]\nmatch = \"a*\"\nperiod = \"day\"\nformat = \"{period}-{value}\"",
    "[[resp.key]]\nmatch = \"a:*\"\nsequence = \"a\"\nperiod = \"$1\"",
];

/// Other lines, and what is none.
const LINES: [&str; 26] = [
    "unknown = \"create\"",
    "max_sequences = 0",
    "worker = -1",
    "refill.backoff_min = \"1h\"",
    "block.min = 5",
    "format = \"A{value}\"",
    "period = \"day\"",
    "match = \"a*\"",
    "match = \"a**\"",
    "share = \"orders\"",
    "databases = [\"sqlite:a.db\"]",
    "redis = [\"redis://h\"]",
    "access = 5",
    "access.anonymous = \"a\"",
    "[default]",
    "[[template]]",
    "resp.expire = \"ignore\"",
    "[[resp.key]]",
    "[resp]",
    "sequence = \"$1\"",
    "[stores.a]",
    "[stores.default]",
    "[limits]",
    "none = 1",
    "=",
    "\"",
];

/// Pieces of a URL, a token, a file, or another setting.
const PIECES: &[&str] = &[
    "postgres://u:",
    "@",
    "h:1/d",
    "/",
    "?sslmode=verify-full",
    "%",
    " ",
    "=",
    "listen",
    "-1",
    "\n",
    "\r",
    "\\n",
    "*",
    "**",
    "\"",
    "[",
    "]",
    "{",
    ",",
    "#",
    "a",
    "0",
    "k/s",
    "\u{e9}",
];

/// Checks that a refusal is one line that begins as it must.
fn is_one_line(said: &str, beginning: &str) -> bool {
    said.starts_with(beginning) && !said.contains(['\n', '\r'])
}

/// A configuration is used, or refused with a sentence that shows no secret.
#[test]
fn configurations_are_refused_without_their_secrets() {
    let pieces = || {
        let text = |all: Vec<usize>| -> String { all.into_iter().map(|at| PIECES[at]).collect() };
        vec(0..PIECES.len(), 0..6).prop_map(text)
    };
    let set = prop_oneof![
        pieces().prop_map(|secret: String| format!("database_url=postgres://u:{SECRET}{secret}")),
        pieces().prop_map(|secret: String| format!("database_url={SECRET}{secret}")),
        pieces().prop_map(|secret: String| format!("admin_token={SECRET}{secret}")),
        pieces().prop_map(|secret: String| format!("resp.password={SECRET}{secret}")),
        pieces(),
    ];
    let inputs = (
        prop::collection::btree_set(0..TAKEN.len(), 0..6),
        prop::option::of((0..LINES.len(), any::<Index>())),
        prop::option::of(edit(PIECES)),
        set,
    );
    check(&inputs, 10, |(taken, other, edit, set)| {
        let mut lines: Vec<&str> = taken.into_iter().map(|choice| TAKEN[choice]).collect();
        let right = [
            format!("database_url=postgres://u:{SECRET}@h:1/d"),
            format!("admin_token={SECRET}"),
        ];
        let mut file = File::with(&lines.join("\n"));
        file.flags.set = right.to_vec();
        if let Err(error) = file.load() {
            panic!("{lines:?}: {error}");
        }

        if let Some((line, at)) = other {
            lines.insert(at.index(lines.len() + 1), LINES[line]);
        }
        let content = lines.join("\n");
        let mut file = File::with(&edit.map_or(content.clone(), |edit: Edit| edit.of(&content)));
        let mut n_taken = 0;
        for set in [vec![set], right.to_vec()] {
            file.flags.set = set;
            match file.load() {
                Ok(_) => n_taken += 1,
                Err(error) => {
                    let said = error.to_string();
                    assert!(is_one_line(&said, "configuration: "), "{said:?}");
                    assert!(!said.contains(SECRET), "{said}");
                }
            }
        }
        n_taken > 0
    });
}

const GLOBS: [&str; 6] = ["*", "orders", "invoice-*", "a?", "t[0-9]", "t[!0-9]*"];

const NAMES: [&str; 8] = [
    "orders",
    "invoice-",
    "invoice-7",
    "ab",
    "t7",
    "tt",
    "7",
    "A",
];

/// Units of quotas, with their numbers a second.
const UNITS: [(&str, u64); 3] = [("/s", 1), ("k/s", 1000), ("M/s", 1_000_000)];

/// Keys of a role with values that are refused.
const WRONG_IN_ROLE: [(&str, &str); 36] = [
    ("takes", "[\"*\"]"),
    ("Take", "[\"*\"]"),
    ("named", "1000"),
    ("take", "5"),
    ("take", "nan"),
    ("take", "true"),
    ("block", "2027-03-01"),
    ("create", "{ a = [\"*\"] }"),
    ("define", "[5]"),
    ("lease", "[[\"*\"]]"),
    ("look", "[\"a**\"]"),
    ("look", "[\"[]a[b]\"]"),
    ("take", "\"\""),
    ("take", "\"a,,b\""),
    ("block", "[\"\"]"),
    ("create", "[\"a\\nb\"]"),
    ("numbers", "5"),
    ("numbers", "\"5\""),
    ("numbers", "\"/s\""),
    ("numbers", "\"k/s\""),
    ("numbers", "\"0/s\""),
    ("numbers", "\"-5/s\""),
    ("numbers", "\"+5/s\""),
    ("numbers", "\"1.5k/s\""),
    ("numbers", "\"5K/s\""),
    ("numbers", "\"1001M/s\""),
    ("numbers", "\"18446744073709551616/s\""),
    ("numbers", "[\"5/s\"]"),
    ("names", "-1"),
    ("names", "\"7 \""),
    ("names", "100001"),
    ("workers", "1.5"),
    ("workers", "[]"),
    ("share", "1"),
    ("share", "\"0%\""),
    ("share", "\"100.01%\""),
];

/// Keys of the section with values that are refused.
const WRONG_IN_SECTION: [(&str, &str); 7] = [
    ("anonymous", "\"no role\""),
    ("anonymous", "5"),
    ("anonymous", "[]"),
    ("callers_file", "5"),
    ("callers_file", "[\"callers.toml\"]"),
    ("issuer", "[]"),
    ("role", "\"a\\r\""),
];

/// A role that must be taken.
#[derive(Clone, Debug)]
struct WrittenRole {
    /// The globs of each right, and whether they are written as text with commas.
    globs: BTreeMap<usize, (Vec<usize>, bool)>,
    numbers: Option<(u64, usize)>,
    /// Quotas of names and of worker ids, and a share in hundredths of a percent.
    others: (Option<u64>, Option<u64>, Option<u16>),
}

/// A section `[access]` that must be taken.
#[derive(Clone, Debug)]
struct WrittenAccess {
    roles: BTreeMap<String, WrittenRole>,
    anonymous: Option<Index>,
    has_callers: bool,
}

fn written() -> impl Strategy<Value = WrittenAccess> {
    let globs = (vec(0..GLOBS.len(), 0..3), any::<bool>());
    let globs = prop::collection::btree_map(0..Right::ALL.len(), globs, 0..4);
    let numbers = prop::option::of((1..=1000_u64, 0..UNITS.len()));
    let most = || prop::option::of(0..=100_000_u64);
    let others = (most(), most(), prop::option::of(1..=10_000_u16));
    let role = (globs, numbers, others).prop_map(|(globs, numbers, others)| WrittenRole {
        globs,
        numbers,
        others,
    });
    let roles = prop::collection::btree_map("[a-z0-9][a-z0-9._:-]{0,5}", role, 1..4);
    let others = (prop::option::of(any::<Index>()), any::<bool>());
    (roles, others).prop_map(|(roles, (anonymous, has_callers))| WrittenAccess {
        roles,
        anonymous,
        has_callers,
    })
}

impl WrittenRole {
    fn keys(&self) -> BTreeMap<&str, String> {
        let value = |(globs, is_text): &(Vec<usize>, bool)| {
            let globs: Vec<&str> = globs.iter().map(|glob| GLOBS[*glob]).collect();
            match is_text & !globs.is_empty() {
                true => format!("{:?}", globs.join(", ")),
                false => format!("{globs:?}"),
            }
        };
        let rights = self.globs.iter();
        let mut keys: BTreeMap<&str, String> = rights
            .map(|(right, globs)| (Right::ALL[*right].word(), value(globs)))
            .collect();
        if let Some((number, unit)) = self.numbers {
            keys.insert("numbers", format!("\"{number}{}\"", UNITS[unit].0));
        }
        let (names, workers, share) = self.others;
        keys.extend(names.map(|most| ("names", most.to_string())));
        keys.extend(workers.map(|most| ("workers", format!("\"{most}\""))));
        let percent = |share: u16| format!("\"{}.{:02}%\"", share / 100, share % 100);
        keys.extend(share.map(|share| ("share", percent(share))));
        keys
    }

    fn assert_is(&self, role: &Role) {
        for (at, right) in Right::ALL.into_iter().enumerate() {
            let globs = self.globs.get(&at).map_or(&[][..], |(globs, _)| globs);
            for name in NAMES {
                let name = SequenceName::parse(name).unwrap();
                let mut globs = globs.iter().map(|glob| Glob::parse(GLOBS[*glob]).unwrap());
                let expected = globs.any(|glob| glob.fits(&name));
                assert_eq!(role.may(right, &name), expected, "{right:?} {name}");
            }
        }
        let rate = self.numbers.map(|(number, unit)| number * UNITS[unit].1);
        let quotas = role.quotas();
        let read = quotas.numbers.as_ref().map(NumbersQuota::rate);
        assert_eq!(read, rate);
        let (names, workers, share) = self.others;
        let read = quotas.names.as_ref().map(NamesQuota::most);
        assert_eq!(read, names);
        let read = quotas.worker_ids.as_ref().map(WorkerIdsQuota::most);
        assert_eq!(read, workers);
        let left = u64::MAX / 10_000;
        let most = share.map_or(Share::default().most(left), |share| {
            left * u64::from(share) / 10_000
        });
        assert!(
            quotas.share.most(left).abs_diff(most) <= 1,
            "{:?}",
            quotas.share
        );
    }
}

impl WrittenAccess {
    fn anonymous(&self) -> Option<&str> {
        let names: Vec<&String> = self.roles.keys().collect();
        self.anonymous
            .map(|at| names[at.index(names.len())].as_str())
    }

    /// Returns the section as text, with a key of it or of a role replaced.
    fn text(&self, of_section: (&str, &str), role: &str, of_role: (&str, &str)) -> String {
        let mut keys = BTreeMap::new();
        keys.extend(
            self.anonymous()
                .map(|name| ("anonymous", format!("{name:?}"))),
        );
        let callers = self.has_callers.then(|| "\"callers.toml\"".to_owned());
        keys.extend(callers.map(|file| ("callers_file", file)));
        let mut text = section("access", keys, of_section);
        for (name, written) in &self.roles {
            let replaced = if name == role { of_role } else { NOTHING };
            let title = format!("access.roles.{name:?}");
            text.push_str(&section(&title, written.keys(), replaced));
        }
        text
    }

    fn assert_is(&self, access: &AccessSettings) {
        let names: BTreeSet<&str> = access.roles.iter().map(|role| &**role.name()).collect();
        assert!(names.into_iter().eq(self.roles.keys()), "{access:?}");
        for (name, written) in &self.roles {
            written.assert_is(access.roles.get(name).unwrap());
        }
        let anonymous = access.anonymous.as_ref().map(|role| &**role.name());
        assert_eq!(anonymous, self.anonymous());
        assert_eq!(access.callers_file.is_some(), self.has_callers);
    }
}

/// A key without a name replaces nothing.
const NOTHING: (&str, &str) = ("", "");

fn section<'a>(
    title: &str,
    mut keys: BTreeMap<&'a str, String>,
    (key, value): (&'a str, &'a str),
) -> String {
    if !key.is_empty() {
        keys.insert(key, value.to_owned());
    }
    let keys = keys.iter().map(|(key, value)| format!("{key} = {value}\n"));
    format!("[{title}]\n{}", keys.collect::<String>())
}

/// What this layer has before the names of its keys.
const LAYER: &str = "default";

fn read(text: &str) -> Result<Option<AccessSettings>, String> {
    access::read(&Figment::from(Toml::string(text))).map_err(|error| error.to_string())
}

/// Who may do what is read as it was written. What is wrong is named by its key.
#[test]
fn access_is_read_as_it_was_written_or_refused_by_its_key() {
    let wrong = (
        0..WRONG_IN_SECTION.len(),
        0..WRONG_IN_ROLE.len(),
        any::<Index>(),
    );
    check(
        &(written(), wrong, edit(PIECES)),
        10,
        |(written, wrong, edit)| {
            let right = written.text(NOTHING, "", NOTHING);
            let access = read(&right).unwrap_or_else(|said| panic!("{right}: {said}"));
            written.assert_is(&access.unwrap());

            let (of_section, of_role, at) = wrong;
            let (of_section, of_role) = (WRONG_IN_SECTION[of_section], WRONG_IN_ROLE[of_role]);
            let names: Vec<&String> = written.roles.keys().collect();
            let role = names[at.index(names.len())];
            for (text, key) in [
                (
                    written.text(of_section, "", NOTHING),
                    of_section.0.to_owned(),
                ),
                (
                    written.text(NOTHING, role, of_role),
                    format!("roles.{role}.{}", of_role.0),
                ),
            ] {
                let said = read(&text).unwrap_err();
                let beginning = format!("configuration: {LAYER}.access.{key}: ");
                assert!(is_one_line(&said, &beginning), "{text}: {said:?}");
            }

            match read(&edit.of(&right)) {
                Ok(access) => access.is_some(),
                Err(said) => {
                    assert!(
                        is_one_line(&said, &format!("configuration: {LAYER}.access")),
                        "{said:?}"
                    );
                    false
                }
            }
        },
    );
}
