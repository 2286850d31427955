//! Tests that the documents say what to do for each error code.

use std::collections::BTreeSet;

use serde_json::Value;

use super::markdown::{Document, inline_code};

#[test]
fn the_documents_say_what_to_do_for_each_code() {
    let rows = Document::read("docs/errors.md").rows_of(&["Status", "`code`", "What to do"]);
    let explained: Vec<&str> = rows.iter().flat_map(|row| inline_code(&row[1])).collect();
    let snapshot = Document::read("tests/snapshots/openapi.snap").text;
    let (_, contract) = snapshot.split_once("\n---\n").expect("a front matter");
    let contract: Value = serde_json::from_str(contract).expect("the contract is JSON");
    let codes = &contract["components"]["schemas"]["Problem"]["properties"]["code"]["enum"];
    let codes: BTreeSet<&str> = codes
        .as_array()
        .expect("the codes are listed")
        .iter()
        .filter_map(Value::as_str)
        .collect();
    assert_eq!(explained.len(), codes.len(), "one is there twice or not");
    assert_eq!(explained.into_iter().collect::<BTreeSet<_>>(), codes);
}
