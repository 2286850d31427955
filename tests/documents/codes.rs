//! Tests that the documents say what to do for each error code.

use super::http_api::contract;
use super::markdown::{Document, anchor, inline_code};

/// Returns the closed list of codes, in the order of the contract.
fn codes() -> Vec<String> {
    let contract = contract();
    let codes = &contract["components"]["schemas"]["Problem"]["properties"]["code"]["enum"];
    let codes = codes.as_array().expect("the codes are listed").iter();
    let codes: Vec<String> = codes
        .filter_map(|code| code.as_str().map(ToOwned::to_owned))
        .collect();
    assert!(codes.len() >= 30, "vacuous: {} codes", codes.len());
    codes
}

#[test]
fn each_error_code_has_its_section() {
    let document = Document::read("docs/errors.md");
    let codes = codes();
    let headings = document.headings();
    let of_codes = headings
        .iter()
        .filter(|heading| codes.iter().any(|code| code == *heading));
    assert_eq!(of_codes.copied().collect::<Vec<_>>(), codes);
    for code in &codes {
        assert_eq!(anchor(code), *code, "the page of the program has this name");
    }
}

#[test]
fn the_documents_say_what_to_do_for_each_code() {
    let document = Document::read("docs/errors.md");
    let rows = document.rows_of(&["Status", "`code`", "What to do"]);
    let explained: Vec<&str> = rows.iter().flat_map(|row| inline_code(&row[1])).collect();
    assert_eq!(explained, codes());
    for code in explained {
        let link = format!("[`{code}`](#{code})");
        let is_there = rows.iter().any(|row| row[1].contains(&link));
        assert!(is_there, "no link to the section of {code}");
    }
}
