//! Collects everything that a user reads: documents, `--help`, messages, metrics, alerts,
//! dashboards, the page, and the description of the API.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use odometer_process::metrics::{Metrics, Route};
use serde_json::Value;

use super::blocks::{self, Block};
use super::literals::{self, Language, VALUE};
use crate::support::settings;

/// Crates with messages for users.
const CRATES: [&str; 8] = [
    "core",
    "process",
    "database",
    "migration",
    "store",
    "sequence",
    "service",
    "client/rust",
];
/// Folders that hold nothing of ours.
const FOREIGN: [&str; 2] = ["target", "node_modules"];
/// Folders with guides for users.
const GUIDES: [&str; 2] = ["docs", "client"];
const CONFIGURATION: &str = "service/src/config/odometer.toml";
const PAGE: &str = "service/src/http/page";
const ALERTS: &str = "dashboards/rules/alerts.yaml";
const DASHBOARDS: &str = "dashboards/grafana";
const OPENAPI: &str = "tests/snapshots/openapi.snap";
/// The keys of texts in JSON, and in the annotations of an alert.
const KEYS_OF_TEXTS: [&str; 4] = ["description", "summary", "title", "content"];
/// Words that begin a statement of SQL, which no user reads.
const SQL: [&str; 12] = [
    "SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "ALTER", "DROP", "SET", "WITH", "LOCK",
    "BEGIN", "SHOW",
];

/// A text that a user reads.
pub(super) struct Source {
    /// The path, relative to the root, or what the texts are.
    pub(super) name: String,
    pub(super) blocks: Vec<Block>,
    /// Whether the source tells a reader what to do, and so says "you".
    pub(super) speaks_to_a_reader: bool,
}

impl Source {
    fn of(name: impl Into<String>, blocks: Vec<Block>) -> Self {
        Self {
            name: name.into(),
            blocks,
            speaks_to_a_reader: false,
        }
    }
}

/// Returns every source.
pub(super) fn all() -> Vec<Source> {
    let mut sources = documents();
    sources.push(Source::of("odometer --help", help()));
    sources.push(Source::of(
        CONFIGURATION,
        comments(&read(Path::new(CONFIGURATION))),
    ));
    sources.push(Source::of("the help texts of the metrics", metrics()));
    sources.push(Source::of(ALERTS, annotations(&read(Path::new(ALERTS)))));
    for file in files_below(DASHBOARDS, "json") {
        let name = shown(&file);
        let blocks = json(&name, &read(&file));
        sources.push(Source::of(name, blocks));
    }
    sources.push(Source::of(OPENAPI, openapi(&read(Path::new(OPENAPI)))));
    sources.push(Source::of("the page", page()));
    for folder in CRATES {
        let name = format!("the messages in {folder}/src");
        sources.push(Source::of(name, messages(folder)));
    }
    for Source { name, blocks, .. } in &sources {
        assert!(!blocks.is_empty(), "vacuous: nothing in {name}");
    }
    sources
}

fn documents() -> Vec<Source> {
    let files = files_below("", "md").into_iter().map(|file| {
        let text = read(&file);
        let text = if file == Path::new("CHANGELOG.md") {
            unreleased(&text)
        } else {
            &text
        };
        let is_guide = file.parent() == Some(Path::new(""))
            || GUIDES.iter().any(|folder| file.starts_with(folder));
        let lists = ["CHANGELOG.md", "docs/SUMMARY.md"];
        let is_list = lists.iter().any(|list| file == Path::new(list));
        let is_record = file.starts_with("docs/adr") || is_list;
        let name = shown(&file);
        let blocks = blocks::of_markdown(&name, text);
        Source {
            speaks_to_a_reader: is_guide && !is_record,
            ..Source::of(name, blocks)
        }
    });
    files.collect()
}

/// Returns the part of the changelog that may still change.
fn unreleased(changelog: &str) -> &str {
    let mut at = 0;
    for line in changelog.split_inclusive('\n') {
        if line.starts_with("## ") && !line.contains("Unreleased") {
            break;
        }
        at += line.len();
    }
    &changelog[..at]
}

/// Returns the files with this extension, relative to the root.
fn files_below(folder: &str, extension: &str) -> Vec<PathBuf> {
    let root = settings::repository();
    let mut found = Vec::new();
    collect(&root.join(folder), extension, &mut found);
    let relative = found
        .iter()
        .filter_map(|file| file.strip_prefix(&root).ok());
    let mut files: Vec<PathBuf> = relative.map(Path::to_path_buf).collect();
    files.sort();
    files
}

fn collect(folder: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
    for entry in entries.flatten() {
        let path = entry.path();
        let name = entry.file_name().into_string().unwrap_or_default();
        if path.is_dir() {
            if !name.starts_with('.') && !FOREIGN.contains(&name.as_str()) {
                collect(&path, extension, found);
            }
        } else if path.extension().is_some_and(|it| it == extension) {
            found.push(path);
        }
    }
}

pub(super) fn read(file: &Path) -> String {
    let path = settings::repository().join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn shown(file: &Path) -> String {
    file.to_string_lossy().into_owned()
}

/// Returns the texts of every command's `--help`.
fn help() -> Vec<Block> {
    let mut found = Vec::new();
    let mut commands = vec![odometer::command_line::describe()];
    while let Some(command) = commands.pop() {
        commands.extend(command.get_subcommands().cloned());
        let about = command.get_long_about().or(command.get_about());
        let of_arguments = command.get_arguments();
        let of_arguments = of_arguments.filter_map(|it| it.get_long_help().or(it.get_help()));
        let texts = about.into_iter().chain(of_arguments);
        let texts = texts.map(ToString::to_string);
        // An indented line is an example.
        let after = command.get_after_help().map(ToString::to_string);
        let after = after.unwrap_or_default();
        let after = after.lines().filter(|line| !line.starts_with("  "));
        let after = after.collect::<Vec<&str>>().join("\n");
        let place = format!("odometer {} --help", command.get_name());
        let texts = texts.chain(std::iter::once(after));
        found.extend(texts.flat_map(|text| blocks::of_plain(&place, 1, &text)));
    }
    assert!(found.len() >= 20, "vacuous: {} blocks", found.len());
    found
}

/// Returns the comments of a TOML file. A key that is commented out is no text.
fn comments(toml: &str) -> Vec<Block> {
    let lines = toml.lines().map(|line| match line.strip_prefix("# ") {
        Some(text) if !text.starts_with("Example: ") => text,
        Some(_) | None => "",
    });
    let text = lines.collect::<Vec<&str>>().join("\n");
    blocks::of_plain(CONFIGURATION, 1, &text)
}

/// Returns the help texts of a scrape.
fn metrics() -> Vec<Block> {
    let metrics = Metrics::new();
    let _of_others = (
        metrics.database("default", 0),
        metrics.redis_up("default", "server"),
        metrics.sequence("orders"),
        metrics.http(Route::Next, 200),
    );
    let scrape = metrics.render();
    let lines = scrape
        .lines()
        .filter_map(|line| line.strip_prefix("# HELP "));
    // Metrics of several groups may share a name.
    let texts: BTreeSet<(&str, &str)> = lines.filter_map(|line| line.split_once(' ')).collect();
    assert!(texts.len() >= 40, "vacuous: {} metrics", texts.len());
    let blocks = texts
        .into_iter()
        .flat_map(|(name, text)| blocks::of_plain(name, 1, text));
    blocks.collect()
}

/// Returns the texts of the annotations in a file of rules.
fn annotations(rules: &str) -> Vec<Block> {
    let mut found = Vec::new();
    let lines: Vec<&str> = rules.lines().collect();
    for (index, line) in lines.iter().enumerate() {
        let Some((key, value)) = line.trim().split_once(':') else {
            continue;
        };
        if !KEYS_OF_TEXTS.contains(&key) {
            continue;
        }
        let is_folded = value.trim().starts_with(['>', '|']);
        let indent = |line: &str| line.len() - line.trim_start().len();
        let text = if is_folded {
            let below = lines[index + 1..].iter();
            let below = below.take_while(|it| it.trim().is_empty() || indent(it) > indent(line));
            below.copied().collect::<Vec<&str>>().join("\n")
        } else {
            value.trim().trim_matches(['"', '\'']).to_owned()
        };
        let first = index + 1 + usize::from(is_folded);
        found.extend(blocks::of_plain(ALERTS, first, &with_values(&text)));
    }
    found
}

/// Replaces the actions of a template, because their values are not known. Lines stay.
fn with_values(template: &str) -> String {
    let mut parts = template.split("{{");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (action, rest) = part.split_once("}}").unwrap_or((part, ""));
        text.push_str(VALUE);
        text.push_str(&"\n".repeat(action.matches('\n').count()));
        text.push_str(rest);
    }
    text
}

fn openapi(snapshot: &str) -> Vec<Block> {
    let header = snapshot
        .find("\n{")
        .unwrap_or_else(|| panic!("no JSON in {OPENAPI}"));
    let (header, text) = snapshot.split_at(header + 1);
    let mut blocks = json(OPENAPI, text);
    for block in &mut blocks {
        block.line += header.lines().count();
    }
    assert!(blocks.len() >= 100, "vacuous: {} blocks", blocks.len());
    blocks
}

/// Returns the descriptions, summaries and titles of a JSON text.
fn json(file: &str, text: &str) -> Vec<Block> {
    let value: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}"));
    let mut texts = Vec::new();
    texts_in(&value, &mut texts);
    let blocks = texts.into_iter().flat_map(|described| {
        let quoted = Value::from(described).to_string();
        let before = text.find(&quoted).and_then(|at| text.get(..at));
        let line = before.unwrap_or_default().matches('\n').count() + 1;
        let mut blocks = blocks::of_plain(file, line, described);
        // The text has one line there.
        for block in &mut blocks {
            block.line = line;
            block.text = block.text.replace('\n', " ");
        }
        blocks
    });
    blocks.collect()
}

fn texts_in<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
    if let Some(fields) = value.as_object() {
        for (key, value) in fields {
            match value.as_str() {
                Some(text) if KEYS_OF_TEXTS.contains(&key.as_str()) => found.push(text),
                _ => texts_in(value, found),
            }
        }
    }
    for value in value.as_array().into_iter().flatten() {
        texts_in(value, found);
    }
}

fn page() -> Vec<Block> {
    let mut found = Vec::new();
    for file in files_below(PAGE, "html") {
        // Each line is an element of the page.
        for (index, line) in blocks::without_tags(&read(&file)).lines().enumerate() {
            found.extend(blocks::of_plain(&shown(&file), index + 1, line));
        }
    }
    for file in files_below(PAGE, "js") {
        found.extend(texts(&file, Language::JavaScript));
    }
    assert!(found.len() >= 50, "vacuous: {} texts", found.len());
    found
}

fn messages(folder: &str) -> Vec<Block> {
    let mut found = Vec::new();
    for file in files_below(&format!("{folder}/src"), "rs") {
        let name = shown(&file);
        if !name.contains("/tests/") && !name.ends_with("tests.rs") {
            found.extend(texts(&file, Language::Rust));
        }
    }
    found.retain(|block| {
        let first = block.text.split_whitespace().next().unwrap_or_default();
        !SQL.contains(&first)
    });
    found
}

fn texts(file: &Path, language: Language) -> Vec<Block> {
    let literals = literals::texts_of(&read(file), language).into_iter();
    let name = shown(file);
    let blocks = literals.flat_map(|it| blocks::of_plain(&name, it.line, &it.text));
    blocks.collect()
}

#[test]
fn the_released_parts_of_the_changelog_are_left_out() {
    let text =
        "# Changelog\n\n## [0.2.0] - Unreleased\n\n- New.\n\n## [0.1.0] - 2026-01-01\n\n- Old.\n";
    assert_eq!(
        unreleased(text),
        "# Changelog\n\n## [0.2.0] - Unreleased\n\n- New.\n\n"
    );
}

#[test]
fn annotations_are_found_with_their_lines() {
    let rules = "- alert: A\n  expr: b\n  annotations:\n    summary: It is down\n\
                 \x20   description: >-\n      {{ $value }} replicas of {{\n      query }} are down.\n\
                 \x20     Look.\n    runbook_url: c\n";
    let found: Vec<(usize, String)> = annotations(rules)
        .into_iter()
        .map(|block| (block.line, block.text))
        .collect();
    let folded = "Xx replicas of Xx\nare down.\nLook.";
    let wanted = [(4, "It is down"), (6, folded)];
    assert_eq!(found, wanted.map(|(line, text)| (line, text.to_owned())));
}

#[test]
fn texts_of_json_are_found_with_their_lines() {
    let text = "{\n \"a\": [\n  {\"description\": \"One.\\n\\nTwo\\nthree.\"}],\n\
                \x20\"title\": \"Four\",\n \"b\": \"c\"\n}";
    let found: Vec<(usize, String)> = json("a.json", text)
        .into_iter()
        .map(|it| (it.line, it.text))
        .collect();
    let wanted = [(3, "One."), (3, "Two three."), (4, "Four")];
    assert_eq!(found, wanted.map(|(line, text)| (line, text.to_owned())));
}
