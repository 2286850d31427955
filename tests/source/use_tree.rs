//! Which paths a Rust source names: its `use` trees, and paths written out in the code.

/// Every path that `source` imports, and every path of two or more parts that it writes out,
/// without comments and texts; `crate::a::{b, c::d}` counts as `crate::a::b` and `crate::a::c::d`.
pub(crate) fn paths(source: &str) -> Vec<String> {
    let code = without_comments_and_texts(source);
    let mut paths = Vec::new();
    let mut rest = code.as_str();
    while let Some(at) = find_word(rest, "use") {
        let tree = &rest[at + 3..];
        let end = tree.find(';').unwrap_or(tree.len());
        flatten("", &tree[..end], &mut paths);
        rest = &tree[end..];
    }
    let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let written = code
        .split(|c| !is_path(c))
        .filter(|word| word.contains("::"));
    paths.extend(written.map(|path| path.trim_matches(':').to_owned()));
    paths
}

fn flatten(prefix: &str, tree: &str, paths: &mut Vec<String>) {
    let tree = tree.trim();
    match tree.split_once('{') {
        Some((before, inside)) => {
            let prefix = format!("{prefix}{}", before.trim());
            let inside = inside.trim().strip_suffix('}').unwrap_or(inside);
            for part in top_level_parts(inside) {
                flatten(&prefix, part, paths);
            }
        }
        None if tree.is_empty() => {}
        None => {
            let path = tree.split_whitespace().next().unwrap_or_default();
            paths.push(format!("{prefix}{path}"));
        }
    }
}

fn top_level_parts(list: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut depth = 0_usize;
    let mut start = 0;
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&list[start..]);
    parts
}

fn find_word(code: &str, word: &str) -> Option<usize> {
    let is_part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    code.match_indices(word).map(|(at, _)| at).find(|at| {
        let before = code[..*at].chars().next_back();
        let after = code[at + word.len()..].chars().next();
        !is_part(before) && after.is_some_and(char::is_whitespace)
    })
}

fn without_comments_and_texts(source: &str) -> String {
    let mut code = String::with_capacity(source.len());
    for line in source.lines() {
        let line = line.split("//").next().unwrap_or_default();
        // What stands between two quotes is no code; a quote in a text is rare enough.
        for (part, piece) in line.split('"').enumerate() {
            if part % 2 == 0 {
                code.push_str(piece);
                code.push(' ');
            }
        }
        code.push('\n');
    }
    code
}

#[test]
fn paths_are_found_in_trees_and_in_the_code() {
    let source = r#"
//! use crate::nothing;
use std::fmt;
use crate::{
    http::{self, Server as S},
    store::{Store, journal::{Row, Fate}},
};
pub(crate) use sea_orm::*;
fn f() { let reuse = entity::block::find(); // use a::b;
    let text = "use not::this;";
}
"#;
    let found = paths(source);
    for expected in [
        "std::fmt",
        "crate::http::self",
        "crate::http::Server",
        "crate::store::Store",
        "crate::store::journal::Row",
        "crate::store::journal::Fate",
        "sea_orm::*",
        "entity::block::find",
    ] {
        assert!(
            found.iter().any(|path| path == expected),
            "{expected} in {found:?}"
        );
    }
    assert!(
        !found
            .iter()
            .any(|path| path.contains("nothing") || path.contains("not::"))
    );
}
