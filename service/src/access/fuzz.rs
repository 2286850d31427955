//! Gives the readers of tokens, of hashes and of files of callers texts that nobody would write.

#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests may fail loudly"
)]

use std::time::{Duration, SystemTime};

use odometer_tests::{
    fuzz::{Edit, check, edit},
    settings::properties,
};
use proptest::{collection::vec, prelude::*};

use super::callers::Callers;
use super::role::{Role, Roles};
use super::token;

/// The first token of the first caller.
const PASTED: &str = "odo_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA00";

/// Pieces of tokens and of files of callers, and what is none.
const PIECES: &[&str] = &[
    PASTED,
    PASTED,
    "odo_",
    " ",
    " ",
    "A",
    "0",
    "g",
    "\"",
    "'",
    "\n",
    "\n",
    "\r",
    "\\n",
    "\\u000d",
    "[",
    "]",
    "=",
    ".",
    ",",
    "#",
    "{",
    "}",
    "role",
    "sha256 = []",
    "expires = ",
    "2027-03-01",
    "9999-12-31",
    "\u{e9}",
    "\0",
];

const ROLES: [&str; 2] = ["billing", "reader"];

/// Times at which tokens expire, with their seconds since 1970, by `date -u +%s -d`.
const EXPIRIES: [Option<(&str, u64)>; 4] = [
    None,
    Some(("2027-03-01", 1_803_859_200)),
    Some(("2027-03-01T12:00:00Z", 1_803_902_400)),
    Some(("2027-03-01 12:00:00+02:00", 1_803_895_200)),
];

const MAX_WRITTEN: usize = 4;
const MAX_TOKENS: usize = 3;

/// A caller of a file that must be taken.
#[derive(Clone, Debug)]
struct Written {
    name: String,
    role: usize,
    n_tokens: usize,
    expires: usize,
    /// Whether it stands in a section, in an inline table, or in keys with dots.
    form: usize,
}

fn written() -> impl Strategy<Value = Vec<Written>> {
    let caller = (
        "[a-z][a-z0-9._:-]{0,6}",
        0..ROLES.len(),
        1..=MAX_TOKENS,
        0..EXPIRIES.len(),
        0..3_usize,
    );
    vec(caller, 0..=MAX_WRITTEN).prop_map(|callers| {
        let callers = callers.into_iter().enumerate();
        callers
            .map(|(at, (name, role, n_tokens, expires, form))| Written {
                // No two names are alike.
                name: format!("{name}{at}"),
                role,
                n_tokens,
                expires,
                form,
            })
            .collect()
    })
}

fn token_of(caller: usize, which: usize) -> String {
    format!("odo_{:A<41}{caller}{which}", "")
}

fn digits_of(token: &str) -> String {
    token::to_hex(&token::hash(token).unwrap())
}

fn roles() -> Roles {
    let mut roles = Roles::default();
    for role in ROLES {
        roles.add(Role::new(role));
    }
    roles
}

fn text_of(callers: &[Written]) -> String {
    // What stands in sections comes last.
    let (mut text, mut sections) = (String::new(), String::new());
    for (at, caller) in callers.iter().enumerate() {
        let hashes = (0..caller.n_tokens).map(|which| digits_of(&token_of(at, which)));
        let hashes: Vec<String> = hashes.collect();
        let mut keys = vec![
            format!("role = {:?}", ROLES[caller.role]),
            format!("sha256 = {hashes:?}"),
        ];
        keys.extend(EXPIRIES[caller.expires].map(|(text, _)| format!("expires = {text}")));
        let name = &caller.name;
        match caller.form {
            0 => sections.push_str(&format!("[\"{name}\"]\n{}\n", keys.join("\n"))),
            1 => text.push_str(&format!("\"{name}\" = {{ {} }}\n", keys.join(", "))),
            _ => text.extend(keys.iter().map(|key| format!("\"{name}\".{key}\n"))),
        }
    }
    text + &sections
}

proptest! {
    #![proptest_config(properties())]

    #[test]
    fn a_text_in_the_form_of_a_token_has_a_hash_of_its_own(
        token in "odo_[A-Za-z0-9_-]{43}",
        edit in edit(PIECES),
    ) {
        let hash = token::hash(&token);
        assert!(hash.is_some(), "{token}");
        let other = edit.of(&token);
        let of_other = token::hash(&other);
        assert_eq!(of_other == hash, other == token, "{other}");
        let has_form = other.len() == token.len() && other.starts_with("odo_");
        assert_eq!(of_other.is_some(), has_form, "{other}");
    }

    #[test]
    fn a_hash_is_read_from_its_digits_and_from_nothing_else(
        hash: [u8; 32],
        edit in edit(PIECES),
    ) {
        let digits = token::to_hex(&hash);
        assert_eq!(token::from_hex(&digits), Some(hash));
        assert_eq!(token::from_hex(&digits.to_uppercase()), Some(hash));
        let other = edit.of(&digits);
        match token::from_hex(&other) {
            Some(read) => assert_eq!(token::to_hex(&read), other.to_lowercase()),
            None => assert!(other.len() != 64 || other.contains(|c: char| !c.is_ascii_hexdigit())),
        }
    }

    #[test]
    fn a_token_leads_to_its_caller_and_no_other_text_does(
        callers in written(),
        edit in edit(PIECES),
    ) {
        let text = text_of(&callers);
        let file = Callers::parse(&text, &roles(), &[]).unwrap_or_else(|error| panic!("{error}: {text}"));
        assert_eq!(file.iter().count(), callers.len());
        for (at, caller) in callers.iter().enumerate() {
            let end = EXPIRIES[caller.expires].map(|(_, seconds)| seconds);
            let at_second = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
            let before = at_second(end.unwrap_or(u64::from(u32::MAX)) - 1);
            for which in 0..caller.n_tokens {
                let token = token_of(at, which);
                let found = file.shown_by(&token, before).unwrap();
                let role = ROLES[caller.role];
                assert_eq!((&*found.name, &**found.role.name()), (&*caller.name, role));
                if let Some(end) = end {
                    assert!(file.shown_by(&token, at_second(end)).is_none(), "{token}");
                }
            }
            let other = edit.of(&token_of(at, 0));
            let is_of_a_caller = callers.iter().enumerate().any(|(at, caller)| {
                (0..caller.n_tokens).any(|which| token_of(at, which) == other)
            });
            let found = file.shown_by(&other, SystemTime::UNIX_EPOCH);
            assert_eq!(found.is_some(), is_of_a_caller, "{other}");
            let none = token_of(at, caller.n_tokens);
            assert!(file.shown_by(&none, SystemTime::UNIX_EPOCH).is_none());
        }
    }
}

#[test]
fn a_file_of_callers_is_refused_in_one_line_without_its_tokens_or_keeps_to_what_it_says() {
    assert_eq!(token_of(0, 0), PASTED);
    let second = prop::option::weighted(0.2, edit(PIECES));
    check(
        &(written(), edit(PIECES), second),
        60,
        |(callers, first, second)| {
            let text = first.of(&text_of(&callers));
            let text = second.map_or(text.clone(), |second: Edit| second.of(&text));
            let all = (0..MAX_WRITTEN).flat_map(|at| (0..MAX_TOKENS).map(move |n| token_of(at, n)));
            match Callers::parse(&text, &roles(), &[]) {
                Ok(file) => {
                    let digits = text.to_lowercase();
                    for caller in file.iter() {
                        assert_eq!(file.named(&caller.name), Some(caller));
                    }
                    for token in all {
                        let found = file.shown_by(&token, SystemTime::UNIX_EPOCH);
                        assert!(
                            found.is_none() || digits.contains(&digits_of(&token)),
                            "{text}"
                        );
                    }
                    true
                }
                Err(problem) => {
                    assert!(!problem.contains(char::is_control), "{problem:?}");
                    for token in all {
                        let is_told =
                            problem.contains(&token) || problem.contains(&digits_of(&token));
                        assert!(!is_told, "{problem}");
                    }
                    false
                }
            }
        },
    );
}
