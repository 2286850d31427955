//! Gives the readers of queries and of paths texts that nobody would write.

#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests may fail loudly"
)]

use odometer_tests::{
    fuzz::{Edit, check, edit},
    settings::properties,
};
use proptest::{collection::vec, prelude::*, sample::Index};

use super::*;

/// Pieces of queries, and what is none.
const PIECES: &[&str] = &[
    "count=7",
    "count=10001",
    "&size=5",
    "size=0",
    "&period=2026",
    "period=",
    "limit=1000",
    "limit=1001",
    "after=orders",
    "&",
    "&",
    "=",
    "+",
    "%2F",
    "%ff",
    "%00",
    "count",
    "-1",
    "0",
    "9",
    "18446744073709551616",
    "\u{e9}",
];

/// Parameters with values that must be taken.
const VALUES: [(&str, &[&str]); 13] = [
    ("count", &["1", "7", "10000"]),
    ("size", &["1", "5", "18446744073709551615"]),
    ("period", &["2026", "20261120", "eod-7"]),
    ("contiguous", &["true", "false"]),
    ("ids", &["true", "false"]),
    ("confirm", &["true", "false"]),
    ("limit", &["1", "7", "1000"]),
    ("after", &["7"]),
    ("prefix", &["", "orders", "%6Frders", "a%3Ab"]),
    ("contains", &["", "-1", "orders"]),
    ("sort", &["name", "reserve", "runway"]),
    ("id", &["42", "INV-2026", "%2F"]),
    ("dry_run", &["true", "false"]),
];

/// The queries of a call: its parameters, how many of them must be given, and what reads them.
type Call = (&'static [&'static str], usize, fn(Option<&str>) -> bool);

const CALLS: [Call; 8] = [
    (
        &["count", "period", "contiguous", "ids", "confirm"],
        0,
        |query| next(query).is_ok(),
    ),
    (&["size", "period", "confirm"], 1, |query| {
        blocks(query).is_ok()
    }),
    (&["prefix", "after", "limit"], 0, |query| {
        listing(query).is_ok()
    }),
    (&["contains", "after", "limit", "sort"], 0, |query| {
        live(query).is_ok()
    }),
    (&["id", "period"], 1, |query| explain(query).is_ok()),
    (&["period"], 0, |query| period(query).is_ok()),
    (&["dry_run"], 0, |query| dry_run(query).is_ok()),
    (&["after", "limit"], 0, |query| {
        workers::listed(query).is_ok()
    }),
];

/// Makes a query that a call takes: parameters in any order, each once.
fn query_of((known, n_needed, _): Call, choices: &[(Index, Index)]) -> String {
    let mut given: Vec<&str> = Vec::new();
    let mut parts = Vec::new();
    let needed = (0..n_needed).map(|at| (at, None));
    let chosen = choices
        .iter()
        .map(|(at, value)| (at.index(known.len()), Some(*value)));
    for (at, value) in chosen.chain(needed) {
        let key = known[at];
        if given.contains(&key) {
            continue;
        }
        let (_, values) = VALUES.iter().find(|(of, _)| *of == key).unwrap();
        given.push(key);
        parts.push(format!(
            "{key}={}",
            values[value.map_or(0, |value| value.index(values.len()))]
        ));
    }
    parts.join("&")
}

/// Checks that what is read of a query keeps to its bounds.
fn assert_bounds(query: &str) {
    let given = Some(query);
    if let Ok(asked) = next(given) {
        assert!(
            asked
                .count
                .is_none_or(|count| (1..=MAX_COUNT).contains(&count))
        );
    }
    assert!(blocks(given).map_or(true, |asked| asked.size > 0));
    for asked in [
        listing(given).ok(),
        live(given).ok().map(|(asked, _)| asked),
    ] {
        assert!(asked.is_none_or(|asked| (1..=MAX_LIMIT).contains(&asked.limit)));
    }
    assert!(workers::listed(given).map_or(true, |asked| (1..=10_000).contains(&asked.limit)));
    let _read = (
        explain(given).is_ok(),
        period(given).is_ok(),
        dry_run(given).is_ok(),
    );
    assert_eq!(
        no_query(given).is_ok(),
        query.split('&').all(str::is_empty),
        "{query}"
    );
}

#[test]
fn queries_are_refused_or_keep_to_their_bounds() {
    let choices = vec((any::<Index>(), any::<Index>()), 0..5);
    let inputs = (0..CALLS.len(), choices, vec(edit(PIECES), 1..3));
    check(&inputs, 60, |(call, choices, edits): (_, _, Vec<Edit>)| {
        let call = CALLS[call];
        let query = query_of(call, &choices);
        assert!((call.2)(Some(&query)), "{query}");
        let other = edits
            .iter()
            .fold(query.clone(), |query, edit| edit.of(&query));
        assert_bounds(&query);
        assert_bounds(&other);
        (call.2)(Some(&other))
    });
}

proptest! {
    #![proptest_config(properties())]

    #[test]
    fn paths_name_what_they_were_made_from(
        bytes in prop_oneof![
            vec(any::<u8>(), 0..4),
            "[A-Za-z0-9][A-Za-z0-9._:-]{0,129}".prop_map(String::into_bytes),
            "[A-Za-z0-9._:/%+-]{0,4}".prop_map(String::into_bytes),
        ],
    ) {
        let encoded = percent_encoding::percent_encode(&bytes, percent_encoding::NON_ALPHANUMERIC);
        let path = format!("/v1/sequences/{encoded}/periods/{encoded}");
        let written = std::str::from_utf8(&bytes).ok();
        match name(&path) {
            Ok(name) => assert_eq!(Some(name.as_str()), written),
            Err(_) => assert!(written.is_none_or(|text| SequenceName::parse(text).is_err())),
        }
        match key(&path) {
            Ok(key) => assert_eq!(Some(key.as_str()), written),
            Err(_) => assert!(written.is_none_or(|text| Period::parse(text).is_err())),
        }
    }
}
