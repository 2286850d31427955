//! Compares globs with a second, simple implementation.

use proptest::{collection::vec, prelude::*, sample::Index};

use super::edit::{edit, edited};
use crate::{glob::Glob, name::SequenceName, tests::properties};

/// Parts of patterns, each with texts that fit it.
const PARTS: &[(&str, &[&str])] = &[
    ("a", &["a"]),
    ("B", &["B"]),
    ("0", &["0"]),
    ("-", &["-"]),
    ("orders.", &["orders."]),
    ("*", &["", "a", "b-", "0.a:b"]),
    ("?", &["a", "-"]),
    ("[b]", &["b"]),
    ("[!b]", &["a", "-"]),
    ("[ab]", &["a", "b"]),
    ("[!ab]", &["c", "-", "0"]),
    ("[a-c]", &["a", "c"]),
    ("[!0-9]", &["a", "-"]),
    ("[-.]", &["-", "."]),
    ("[a-]", &["a", "-"]),
    ("[0-9a-c_]", &["7", "b", "_"]),
];

/// Makes a pattern, and a text that fits it.
fn made() -> impl Strategy<Value = (String, String)> {
    vec((0..PARTS.len(), any::<Index>()), 1..7).prop_map(|choices| {
        let (mut pattern, mut text) = (String::new(), String::new());
        for (part, which) in choices {
            let (part, texts) = PARTS[part];
            if part == "*" && pattern.ends_with('*') {
                continue;
            }
            if part == "-" && pattern.is_empty() {
                continue;
            }
            pattern.push_str(part);
            text.push_str(texts[which.index(texts.len())]);
        }
        match pattern.is_empty() {
            true => ("a".to_owned(), "a".to_owned()),
            false => (pattern, text),
        }
    })
}

/// Returns whether a name fits a pattern: the second implementation. It tries everything.
fn fits(pattern: &[char], name: &[char]) -> bool {
    if let ['*', rest @ ..] = pattern {
        return (0..=name.len()).any(|n| fits(rest, &name[n..]));
    }
    let Some((first, after)) = name.split_first() else {
        return pattern.is_empty();
    };
    match pattern {
        [] => false,
        ['?', rest @ ..] => fits(rest, after),
        ['[', rest @ ..] => {
            let end = rest.iter().position(|c| *c == ']').expect("it is closed");
            let is_in = match &rest[..end] {
                ['!', others @ ..] => !is_in_set(others, *first),
                set => is_in_set(set, *first),
            };
            is_in && fits(&rest[end + 1..], after)
        }
        [c, rest @ ..] => c == first && fits(rest, after),
    }
}

fn is_in_set(set: &[char], c: char) -> bool {
    assert!(!set.is_empty(), "a set is empty");
    set_has(set, c)
}

fn set_has(set: &[char], c: char) -> bool {
    match set {
        [] => false,
        [first, '-', last, rest @ ..] => (*first..=*last).contains(&c) || set_has(rest, c),
        [one, rest @ ..] => *one == c || set_has(rest, c),
    }
}

fn characters(text: &str) -> Vec<char> {
    text.chars().collect()
}

proptest! {
    #![proptest_config(properties())]

    #[test]
    fn a_pattern_fits_what_a_simple_search_finds_that_it_fits(
        (pattern, text) in made(),
        other in "[ab0][abc0.-]{0,5}",
        (of_pattern, of_text) in (edit(), edit()),
        at in any::<Index>(),
    ) {
        let glob = Glob::parse(&pattern).expect("it is made of parts");
        if let Ok(name) = SequenceName::parse(&text) {
            assert!(glob.fits(&name), "{pattern} {name}");
        }
        for pattern in [edited(&pattern, &of_pattern), pattern] {
            let Ok(glob) = Glob::parse(&pattern) else {
                continue;
            };
            assert_eq!(glob.to_string(), pattern);
            let beginning = glob.beginning();
            let wider = Glob::parse(&format!("{}*", &beginning[..at.index(beginning.len() + 1)]));
            let wider = wider.expect("names begin with it");
            assert!(wider.fits_all_of(&glob), "{wider} {glob}");
            for text in [text.as_str(), &edited(&text, &of_text), &other] {
                let Ok(name) = SequenceName::parse(text) else {
                    continue;
                };
                let does_fit = glob.fits(&name);
                assert_eq!(does_fit, fits(&characters(&pattern), &characters(text)), "{glob} {name}");
                assert!(!does_fit || text.starts_with(beginning), "{glob} {name}");
                assert!(!does_fit || wider.fits(&name), "{wider} {name}");
            }
        }
    }

    #[test]
    fn a_pattern_that_is_said_to_fit_more_fits_more(
        (one, _) in made(),
        (other, text) in made(),
    ) {
        let (one, other) = (Glob::parse(&one), Glob::parse(&other));
        let (one, other) = (one.expect("it is made of parts"), other.expect("so is it"));
        if let (true, Ok(name)) = (one.fits_all_of(&other), SequenceName::parse(&text)) {
            assert!(one.fits(&name), "{one} {other} {name}");
        }
    }
}
