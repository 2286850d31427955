//! Matches names with patterns, by which templates are chosen.

use std::fmt;

use thiserror::Error;

use crate::name::SequenceName;

/// Lists the characters that stand for others. All but the first stand for one character.
const SPECIAL: [char; 3] = ['*', '?', '['];

/// Lists the sets without a character.
const EMPTY_SETS: [&str; 2] = ["[]", "[!]"];

/// A pattern that names are compared with.
///
/// `*` stands for any characters, or none. `?` stands for one character. `[a-f]` stands for one
/// character of the set, `[!a-f]` for one that is not in the set. All other characters stand for
/// themselves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Glob(::glob::Pattern);

/// Says why a text is not a [`Glob`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct InvalidGlob(String);

impl Glob {
    /// Reads a pattern.
    ///
    /// # Errors
    /// [`InvalidGlob`] if the text is not a pattern, or plainly fits no name. A range that ends
    /// before it begins, as in `[9-0]`, is taken, and is empty.
    pub fn parse(text: &str) -> Result<Self, InvalidGlob> {
        let refused = |reason: String| Err(InvalidGlob(reason));
        let Some(first) = text.chars().next() else {
            return refused("it is empty; give a glob over names, as in \"orders-*\"".to_owned());
        };
        if text.contains("**") {
            return refused("`**` fits what `*` fits; write one".to_owned());
        }
        if let Some((at, found)) = out_of_place(text) {
            return refused(format!(
                "{found:?} at position {at} is in no name; names have ASCII letters, digits and \
                 \".\", \"_\", \":\", \"-\", and a glob has *, ?, [a-f] and [!a-f]"
            ));
        }
        if "._:-".contains(first) {
            return refused(format!(
                "a name starts with an ASCII letter or a digit, not with {first:?}: it fits none"
            ));
        }
        if !text.contains(SPECIAL)
            && let Err(fault) = SequenceName::check(text)
        {
            return refused(format!(
                "without *, ? and [ it fits one name only, which cannot be. {fault}"
            ));
        }
        let no_set = |at: usize| {
            refused(format!(
                "at position {}: the set is not closed, or is empty; write a set as in [a-f] or \
                 [!a-f]",
                at.saturating_add(1)
            ))
        };
        // The library would take these for the beginning of a longer set.
        if let Some(at) = EMPTY_SETS.into_iter().find_map(|set| text.find(set)) {
            return no_set(at);
        }
        ::glob::Pattern::new(text)
            .map(Self)
            .or_else(|error| no_set(error.pos))
    }

    /// Returns whether this pattern certainly fits all names that `other` fits. `false` says
    /// nothing.
    pub(crate) fn fits_all_of(&self, other: &Self) -> bool {
        self.0.as_str().strip_suffix('*').is_some_and(|prefix| {
            !prefix.contains(SPECIAL) && other.beginning().starts_with(prefix)
        })
    }

    /// Returns whether this pattern is `*`, which all names fit.
    pub fn fits_all(&self) -> bool {
        self.0.as_str() == "*"
    }

    /// Returns the text with which every name begins that fits the pattern.
    pub fn beginning(&self) -> &str {
        let text = self.0.as_str();
        text.split(SPECIAL).next().unwrap_or_default()
    }

    /// Returns whether a name fits the pattern. Case matters.
    pub fn fits(&self, name: &SequenceName) -> bool {
        self.0.matches(name.as_str())
    }
}

/// Finds the first character that is in no name and has no meaning at its position in the pattern.
///
/// The position counts from 1.
fn out_of_place(glob: &str) -> Option<(usize, char)> {
    let (mut before, mut is_in_set) = (None, false);
    (1..).zip(glob.chars()).find(|(_, c)| {
        let means_something = match c {
            '*' | '?' | '[' => !is_in_set,
            ']' => is_in_set,
            '!' => is_in_set && before == Some('['),
            _ => c.is_ascii_alphanumeric() || "._:-".contains(*c),
        };
        is_in_set = *c == '[' || (is_in_set && *c != ']');
        before = Some(*c);
        !means_something
    })
}

impl fmt::Display for Glob {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.0.as_str())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;

    fn name(text: &str) -> SequenceName {
        SequenceName::parse(text).unwrap()
    }

    #[test]
    fn a_glob_fits_what_it_says() {
        for (glob, fits, others) in [
            (
                "orders",
                &["orders"][..],
                &["Orders", "orders1", "order"][..],
            ),
            (
                "orders-*",
                &["orders-", "orders-eu.1:x"],
                &["orders", "x-orders-1"],
            ),
            ("*", &["a", "A.b:c-d_e", "0..."], &[]),
            ("*.eu", &["a.eu", "a.b.eu", "a..eu"], &["eu", "a.eu."]),
            ("a?c", &["abc", "a.c"], &["ac", "abbc"]),
            ("t[0-9]", &["t0", "t9"], &["t", "ta", "t10"]),
            ("t[!0-9]*", &["ta", "t-1"], &["t", "t1"]),
            ("[ab]*:[xy]", &["a:x", "bcd:y"], &["c:x", "a:z"]),
            ("*a*a*b", &["aab", "xaxaxb"], &["ab", "aaaa"]),
        ] {
            let glob = Glob::parse(glob).unwrap();
            for text in fits {
                assert!(glob.fits(&name(text)), "{glob} and {text}");
            }
            for text in others {
                assert!(!glob.fits(&name(text)), "{glob} and {text}");
            }
        }
    }

    #[test]
    fn a_glob_that_fits_no_name_is_refused() {
        for (text, said) in [
            ("", "it is empty"),
            ("a**", "write one"),
            ("a[b", "position 2"),
            ("[]", "position 1"),
            ("a[!]b", "position 2"),
            ("[]a[b]", "position 1"),
            ("a[!]b[c]", "position 2"),
            ("a b*", "' ' at position 2"),
            ("a/*", "'/' at position 2"),
            ("{a,b}*", "'{' at position 1"),
            ("t[^0-9]", "'^' at position 3"),
            ("größe*", "'ö' at position 3"),
            ("-*", "fits none"),
            ("!a*", "'!' at position 1"),
            ("a!b*", "'!' at position 2"),
            ("a]*", "']' at position 2"),
        ] {
            let sentence = Glob::parse(text).unwrap_err().to_string();
            assert!(sentence.contains(said), "{text}: {sentence}");
        }
    }
}
