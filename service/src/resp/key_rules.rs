//! Leads from the keys of clients to sequences and their periods.
//!
//! A key that fits no rule is the name of a sequence. Keys are compared byte by byte, and nothing
//! in them is folded.

use std::borrow::Cow;

use odometer_core::name::SequenceName;
use odometer_core::period::Period;

use crate::calls::problem::Problem;

/// The most groups of a pattern: `$1` to `$9`.
const MAX_GROUPS: usize = 9;

/// The most characters of a pattern, or of what is made of its groups.
const MAX_LENGTH: usize = 256;

/// A rule for the keys that fit its pattern.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyRule {
    pattern: Vec<PatternPiece>,
    sequence: Vec<NamePiece>,
    period: Option<Vec<NamePiece>>,
}

/// Which field of a rule is wrong, and what to give instead.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InvalidKeyRule {
    pub field: &'static str,
    pub problem: String,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum PatternPiece {
    Text(String),
    /// Wildcards that stand next to each other.
    Group {
        /// How many characters there are at least.
        least: usize,
        /// Whether there may be more.
        is_open: bool,
    },
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum NamePiece {
    Text(String),
    /// What a group fits, counted from 0.
    Group(usize),
}

/// What a key leads to, as far as the rules say it.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct KeyTarget<'a> {
    pub(super) name: Cow<'a, str>,
    pub(super) period: Option<Cow<'a, str>>,
}

impl KeyTarget<'_> {
    /// Returns the name and the period, if they are ones.
    ///
    /// # Errors
    /// Why they are not.
    pub(super) fn checked(&self) -> Result<(SequenceName, Option<Period>), Problem> {
        let period = self.period.as_deref().map(Period::parse);
        Ok((SequenceName::parse(&self.name)?, period.transpose()?))
    }
}

/// Returns what a key leads to: by the first rule that it fits, or to the sequence of this name.
pub(super) fn target<'a>(rules: &[KeyRule], key: &'a [u8]) -> KeyTarget<'a> {
    let by_rule = rules.iter().find_map(|rule| rule.target(key));
    by_rule.unwrap_or_else(|| KeyTarget {
        name: match std::str::from_utf8(key) {
            Ok(name) => Cow::Borrowed(name),
            // It gets a character that no name has.
            Err(_) => String::from_utf8_lossy(key),
        },
        period: None,
    })
}

impl KeyRule {
    /// Reads a rule.
    ///
    /// In `pattern`, `?` stands for one character, and `*` for any characters or none. Wildcards
    /// that stand next to each other are a group. `$1` in `sequence` and `period` stands for what
    /// the first group fits.
    ///
    /// # Errors
    /// [`InvalidKeyRule`] names the field.
    pub fn parse(
        pattern: &str,
        sequence: &str,
        period: Option<&str>,
    ) -> Result<Self, InvalidKeyRule> {
        let of = |field| move |problem| InvalidKeyRule { field, problem };
        let pattern = read_pattern(pattern).map_err(of("match"))?;
        let is_group = |piece: &&PatternPiece| matches!(piece, PatternPiece::Group { .. });
        let n_groups = pattern.iter().filter(is_group).count();
        let read = |text| read_name(text, n_groups);
        Ok(Self {
            sequence: read(sequence).map_err(of("sequence"))?,
            period: period.map(read).transpose().map_err(of("period"))?,
            pattern,
        })
    }

    /// Returns what a key leads to; `None` if it does not fit.
    fn target<'a>(&self, key: &[u8]) -> Option<KeyTarget<'a>> {
        let groups = self.groups(key)?;
        let filled = |pieces: &Vec<NamePiece>| Cow::Owned(filled(pieces, &groups));
        Some(KeyTarget {
            name: filled(&self.sequence),
            period: self.period.as_ref().map(filled),
        })
    }

    /// Returns what the groups of the pattern fit in a key; `None` if the key does not fit.
    ///
    /// A pattern has one open group at most, so each key fits in one way at most.
    fn groups<'a>(&self, key: &'a [u8]) -> Option<[&'a [u8]; MAX_GROUPS]> {
        let least: usize = self.pattern.iter().map(PatternPiece::least).sum();
        let n_more = key.len().checked_sub(least)?;
        let mut groups: [&[u8]; MAX_GROUPS] = [&[]; MAX_GROUPS];
        let mut places = groups.iter_mut();
        let mut rest = key;
        for piece in &self.pattern {
            match piece {
                PatternPiece::Text(text) => rest = rest.strip_prefix(text.as_bytes())?,
                PatternPiece::Group { least, is_open } => {
                    let n_bytes = least + if *is_open { n_more } else { 0 };
                    let (fitting, behind) = rest.split_at_checked(n_bytes)?;
                    *places.next()? = fitting;
                    rest = behind;
                }
            }
        }
        rest.is_empty().then_some(groups)
    }
}

impl PatternPiece {
    /// Returns the fewest bytes of a key that fit this piece.
    fn least(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Group { least, .. } => *least,
        }
    }
}

fn filled(pieces: &[NamePiece], groups: &[&[u8]; MAX_GROUPS]) -> String {
    let mut text = Vec::new();
    for piece in pieces {
        match piece {
            NamePiece::Text(part) => text.extend_from_slice(part.as_bytes()),
            NamePiece::Group(at) => {
                text.extend_from_slice(groups.get(*at).copied().unwrap_or_default());
            }
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}

fn read_pattern(text: &str) -> Result<Vec<PatternPiece>, String> {
    if text.is_empty() || text.len() > MAX_LENGTH {
        return Err(format!(
            "give a pattern over keys of 1 to {MAX_LENGTH} characters, as in \"order:????????\""
        ));
    }
    let mut pieces: Vec<PatternPiece> = Vec::new();
    for character in text.chars() {
        match (character, pieces.last_mut()) {
            ('?', Some(PatternPiece::Group { least, .. })) => *least += 1,
            ('*', Some(PatternPiece::Group { is_open, .. })) => *is_open = true,
            ('?' | '*', Some(PatternPiece::Text(_)) | None) => pieces.push(PatternPiece::Group {
                least: usize::from(character == '?'),
                is_open: character == '*',
            }),
            (_, Some(PatternPiece::Text(text))) => text.push(character),
            (_, Some(PatternPiece::Group { .. }) | None) => {
                pieces.push(PatternPiece::Text(character.to_string()));
            }
        }
    }
    let is_open =
        |piece: &&PatternPiece| matches!(piece, PatternPiece::Group { is_open: true, .. });
    if pieces.iter().filter(is_open).count() > 1 {
        return Err("it has `*` twice, so a key could fit in several ways; give one".to_owned());
    }
    let is_group = |piece: &&PatternPiece| matches!(piece, PatternPiece::Group { .. });
    if pieces.iter().filter(is_group).count() > MAX_GROUPS {
        return Err(format!("it has more than {MAX_GROUPS} groups of wildcards"));
    }
    Ok(pieces)
}

fn read_name(text: &str, n_groups: usize) -> Result<Vec<NamePiece>, String> {
    if text.is_empty() || text.len() > MAX_LENGTH {
        return Err(format!("give 1 to {MAX_LENGTH} characters, as in \"$1\""));
    }
    let mut pieces: Vec<NamePiece> = Vec::new();
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        if character == '$' {
            let digit = characters.next().and_then(|digit| digit.to_digit(10));
            let group = digit.and_then(|digit| usize::try_from(digit).ok()?.checked_sub(1));
            let group = group.filter(|group| *group < n_groups).ok_or_else(|| {
                format!("`$` is followed by the number of a group in `match`, which has {n_groups}")
            })?;
            pieces.push(NamePiece::Group(group));
            continue;
        }
        if !character.is_ascii_alphanumeric() && !"._:-".contains(character) {
            return Err(format!(
                "{character:?} is in no name; give letters, digits, \".\", \"_\", \":\", \"-\" and \
                 groups such as $1"
            ));
        }
        match pieces.last_mut() {
            Some(NamePiece::Text(text)) => text.push(character),
            Some(NamePiece::Group(_)) | None => {
                pieces.push(NamePiece::Text(character.to_string()));
            }
        }
    }
    Ok(pieces)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rules() -> Vec<KeyRule> {
        let rule = |pattern, sequence, period| KeyRule::parse(pattern, sequence, period).unwrap();
        vec![
            rule("order:????????", "order", Some("$1")),
            rule(":1:*", "$1", None),
            rule("cosid:{*}.adder", "cosid-$1", None),
            rule("??-*-?", "s:$3", Some("$2.$1")),
            rule("gone", "kept", None),
        ]
    }

    fn led(key: &str) -> (String, Option<String>) {
        let rules = rules();
        let target = target(&rules, key.as_bytes());
        (target.name.into_owned(), target.period.map(Cow::into_owned))
    }

    #[test]
    fn the_first_rule_that_fits_decides() {
        for (key, name, period) in [
            ("order:20261129", "order", Some("20261129")),
            ("order:2026112", "order:2026112", None),
            ("order:202611299", "order:202611299", None),
            (":1:hits", "hits", None),
            (":1:", "", None),
            ("cosid:{a.b}.adder", "cosid-a.b", None),
            ("cosid:{}.adder", "cosid-", None),
            ("cosid:{a}.adder2", "cosid:{a}.adder2", None),
            ("ab-c-d-e", "s:e", Some("c-d.ab")),
            ("ab--e", "s:e", Some(".ab")),
            ("gone", "kept", None),
            ("Gone", "Gone", None),
            ("orders", "orders", None),
        ] {
            let wanted = (name.to_owned(), period.map(str::to_owned));
            assert_eq!(led(key), wanted, "{key}");
        }
    }

    #[test]
    fn what_is_no_name_is_refused_and_not_folded() {
        let checked = |key: &[u8]| target(&rules(), key).checked().map_err(|it| it.to_string());
        assert!(checked(b"orders").is_ok());
        for key in [
            &b"or ders"[..],
            b"",
            b"\xff",
            b":1:",
            b":2:a",
            b"order:        ",
        ] {
            let refused = checked(key).unwrap_err();
            let is_named = refused.starts_with("invalid_name") || key.starts_with(b"order:");
            assert!(is_named, "{refused}");
        }
        let refused = checked(b"order:2026 129").unwrap_err();
        assert!(refused.starts_with("invalid_period"), "{refused}");
    }

    #[test]
    fn a_rule_that_cannot_be_used_names_its_field() {
        for (pattern, sequence, period, field) in [
            ("", "a", None, "match"),
            ("*a*", "a", None, "match"),
            ("a?b?c?d?e?f?g?h?i?j?", "a", None, "match"),
            ("a*", "", None, "sequence"),
            ("a*", "$2", None, "sequence"),
            ("a*", "$0", None, "sequence"),
            ("a*", "b$", None, "sequence"),
            ("a*", "b c", None, "sequence"),
            ("a*", "b", Some("{$1}"), "period"),
            ("ab", "b", Some("$1"), "period"),
        ] {
            let error = KeyRule::parse(pattern, sequence, period).unwrap_err();
            assert_eq!(error.field, field, "{pattern} {sequence}: {error:?}");
        }
    }

    proptest! {
        #![proptest_config(odometer_tests::settings::properties())]

        /// A pattern fits a key if, and only if, its groups with the texts between them are the
        /// key.
        #[test]
        fn fuzz_what_fits_is_made_of_its_groups(
            before in "[a:{}]{0,3}",
            ones in 0_usize..4,
            between in "[a:{}]{1,3}",
            is_open in any::<bool>(),
            behind in "[a:{}]{0,3}",
            key in "[a:{}]{0,12}",
        ) {
            let open = if is_open { "*" } else { "" };
            let pattern = format!("{before}{}{between}{open}{behind}", "?".repeat(ones));
            let rule = KeyRule::parse(&pattern, "x", None).unwrap();
            let texts = || [before.as_str(), between.as_str(), behind.as_str()];
            let n_fixed: usize = texts().iter().map(|text| text.len()).sum::<usize>() + ones;
            let is_long_enough = match is_open {
                true => key.len() >= n_fixed,
                false => key.len() == n_fixed,
            };
            let fits = is_long_enough
                && key.starts_with(&before)
                && key.ends_with(&behind)
                && key.get(before.len() + ones..).is_some_and(|rest| rest.starts_with(&between));
            prop_assert_eq!(rule.groups(key.as_bytes()).is_some(), fits, "{} {}", pattern, key);
            let made = format!("{before}{}{between}{}{behind}", "b".repeat(ones), "cc".repeat(open.len()));
            let groups = rule.groups(made.as_bytes());
            prop_assert!(groups.is_some(), "{} {}", pattern, made);
        }
    }
}
