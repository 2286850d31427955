//! Tests the rules of Prometheus. They are valid, everything that they name exists, and each alert
//! has been seen to fire and to stay silent.

use std::{
    collections::BTreeSet,
    path::Path,
    process::{Command, Output},
};

use super::markdown::{Document, anchor, inline_code};
use crate::support::{directory, settings};

const RULES: &str = "dashboards/rules";
const ALERTS: &str = "alerts.yaml";
const RECORDING: &str = "recording.yaml";
/// The start of the line that begins an alert. The next two are the start of a recording rule, and
/// the indentation of fields.
const ALERT: &str = "      - alert: ";
const RECORD: &str = "      - record: ";
const FIELD: &str = "        ";
/// The severities that docs/metrics.md describes.
const SEVERITIES: [&str; 2] = ["page", "ticket"];
/// Labels with few, fixed and documented values.
const CLOSED: [&str; 3] = ["outcome", "cause", "route"];

/// The fields of an alert that can be read line by line from its file.
#[derive(Default)]
struct Alert {
    name: String,
    severity: String,
    summary: String,
    description: String,
    runbook_url: String,
}

fn read(file: &str) -> String {
    let path = settings::repository().join(RULES).join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn alerts() -> Vec<Alert> {
    let mut found: Vec<Alert> = Vec::new();
    for line in read(ALERTS).lines() {
        if let Some(name) = line.strip_prefix(ALERT) {
            found.push(Alert {
                name: name.to_owned(),
                ..Alert::default()
            });
        }
        let (Some(alert), Some((key, value))) = (found.last_mut(), line.trim().split_once(": "))
        else {
            continue;
        };
        match key {
            "severity" => value.clone_into(&mut alert.severity),
            "summary" => value.clone_into(&mut alert.summary),
            "description" => value.clone_into(&mut alert.description),
            "runbook_url" => value.clone_into(&mut alert.runbook_url),
            _ => {}
        }
    }
    assert!(found.len() >= 15, "vacuous: {} alerts", found.len());
    found
}

fn files_of_tests() -> Vec<String> {
    let folder = settings::repository().join(RULES).join("tests");
    let entries = std::fs::read_dir(folder).expect("the rules have tests");
    let names = entries.flatten().map(|entry| entry.file_name());
    let mut found: Vec<String> = names.filter_map(|name| name.into_string().ok()).collect();
    found.sort();
    assert!(!found.is_empty(), "vacuous: no test of a rule");
    found
}

fn promtool(folder: &Path, arguments: &[&str]) -> Output {
    Command::new("promtool")
        .args(arguments)
        .current_dir(folder)
        .output()
        .expect("promtool starts: `tests/install` installs it with Debian's package prometheus")
}

fn test_rules(folder: &Path) -> Output {
    let files: Vec<String> = files_of_tests()
        .into_iter()
        .map(|file| format!("tests/{file}"))
        .collect();
    let mut arguments = vec!["test", "rules"];
    arguments.extend(files.iter().map(String::as_str));
    promtool(folder, &arguments)
}

/// Returns the output of both streams.
fn printed(output: &Output) -> String {
    let parts = [&output.stdout, &output.stderr].map(|part| String::from_utf8_lossy(part));
    parts.concat()
}

#[test]
fn the_rules_are_sound_and_pass_their_tests() {
    let folder = settings::repository().join(RULES);
    let checked = promtool(&folder, &["check", "rules", ALERTS, RECORDING]);
    assert!(checked.status.success(), "{}", printed(&checked));
    let tested = test_rules(&folder);
    assert!(tested.status.success(), "{}", printed(&tested));
}

/// Replaces the expressions of all alerts. If no alert ever fires, every firing case must fail. If
/// all alerts always fire, every silent case must fail.
#[test]
fn each_alert_has_a_case_that_fires_and_one_that_must_not() {
    for (expression, kind) in [("vector(0) > 1", "fires"), ("vector(1)", "is silent: ")] {
        let home = directory("rules");
        let tests = home.path().join("tests");
        std::fs::create_dir(&tests).expect("our directory");
        for file in files_of_tests() {
            let text = read(&format!("tests/{file}"));
            std::fs::write(tests.join(file), text).expect("our directory");
        }
        let broken = with_expression(&read(ALERTS), expression);
        std::fs::write(home.path().join(ALERTS), broken).expect("our directory");
        std::fs::write(home.path().join(RECORDING), read(RECORDING)).expect("our directory");
        let sound = promtool(home.path(), &["check", "rules", ALERTS]);
        assert!(sound.status.success(), "{}", printed(&sound));
        let tested = test_rules(home.path());
        let failures = printed(&tested);
        assert!(!tested.status.success(), "{failures}");
        for alert in alerts() {
            let case = format!("name: {} {kind}", alert.name);
            assert!(failures.contains(&case), "no `{case}` in\n{failures}");
        }
    }
}

/// Returns the same alerts, each with this expression.
fn with_expression(rules: &str, expression: &str) -> String {
    let mut changed = String::new();
    let mut inside = false;
    for line in rules.lines() {
        if line.starts_with(&format!("{FIELD}expr:")) {
            inside = true;
            changed.push_str(&format!("{FIELD}expr: {expression}\n"));
            continue;
        }
        // An expression of several lines is indented further than its key.
        inside &= line.starts_with(&format!("{FIELD} "));
        if !inside {
            changed.push_str(line);
            changed.push('\n');
        }
    }
    changed
}

#[test]
fn an_expression_is_replaced_whole() {
    let rules = "      - alert: A\n        expr: |\n          a\n          > 1\n        for: 1m\n\
                 \x20     - alert: B\n        expr: b\n        labels:\n          x: y\n";
    let wanted = "      - alert: A\n        expr: c\n        for: 1m\n\
                  \x20     - alert: B\n        expr: c\n        labels:\n          x: y\n";
    assert_eq!(with_expression(rules, "c"), wanted);
}

#[test]
fn every_recorded_series_is_tested() {
    let recorded = recorded();
    assert!(recorded.len() >= 10, "vacuous: {} recorded", recorded.len());
    let tests = read("tests/recording.yaml");
    for name in recorded {
        let levels: Vec<&str> = name.split(':').collect();
        assert_eq!(levels.len(), 3, "{name} is not level:metric:operations");
        let tested = tests.lines().any(|line| {
            line.trim()
                .strip_prefix("- expr: ")
                .is_some_and(|expression| words(expression).contains(name.as_str()))
        });
        assert!(tested, "{name} is in no test");
    }
}

fn recorded() -> BTreeSet<String> {
    let rules = read(RECORDING);
    let names = rules.lines().filter_map(|line| line.strip_prefix(RECORD));
    names.map(str::to_owned).collect()
}

/// Returns the names of Odometer's metrics and recorded series in a text.
fn words(text: &str) -> BTreeSet<&str> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':'))
        .filter(|word| word.contains("odometer_"))
        .collect()
}

/// Checks that the runbook has a section for each alert, because an alert needs a reaction.
#[test]
fn each_alert_has_its_section_of_the_runbook() {
    let runbook = Document::read("docs/runbook.md");
    let watched =
        Document::read("docs/metrics.md").rows_of(&["When", "Alert", "Severity", "Look at"]);
    for alert in alerts() {
        let name = &alert.name;
        assert!(name.starts_with("Odometer"), "{name}");
        assert!(SEVERITIES.contains(&alert.severity.as_str()), "{name}");
        assert!(!alert.summary.is_empty(), "{name}");
        assert!(!alert.description.is_empty(), "{name}");
        let (file, section) = alert.runbook_url.split_once('#').unwrap_or_default();
        assert_eq!(file, "docs/runbook.md", "{name}");
        let mut headings = runbook.headings().into_iter();
        let heading = headings.find(|heading| anchor(heading) == section);
        let heading = heading.unwrap_or_else(|| panic!("{name}: no section {section}"));
        let text = section_of(&runbook.text, heading);
        assert!(
            inline_code(text).contains(&name.as_str()),
            "`{heading}` does not name {name}"
        );
        let rows = watched.iter().filter_map(|row| {
            // A row with two alerts has their severities in the same order.
            let place = inline_code(&row[1]).iter().position(|it| it == name)?;
            let severity = row[2].split(", ").nth(place).unwrap_or_default();
            Some((severity, row[3].as_str()))
        });
        let rows: Vec<(&str, &str)> = rows.collect();
        assert_eq!(rows.len(), 1, "{name} in docs/metrics.md");
        let (severity, link) = rows[0];
        assert_eq!(severity, alert.severity, "{name} in docs/metrics.md");
        let link_wanted = format!("(runbook.md#{section})");
        assert!(link.contains(&link_wanted), "{name}: {link}");
    }
}

/// Returns the text below a heading, up to the first fence.
fn section_of<'a>(document: &'a str, heading: &str) -> &'a str {
    let section = whole_section_of(document, heading);
    section.split("```").next().unwrap_or(section)
}

/// Returns the text below a heading, up to the next heading.
fn whole_section_of<'a>(document: &'a str, heading: &str) -> &'a str {
    let (_, below) = document
        .split_once(&format!("\n## {heading}\n"))
        .unwrap_or_else(|| panic!("no heading {heading}"));
    below.split("\n## ").next().unwrap_or(below)
}

/// Returns what an operator who was woken by an alert misses in a section of the runbook.
fn missing_in(section: &str) -> Vec<&'static str> {
    let mut missing = Vec::new();
    if !section.to_lowercase().contains("callers") {
        missing.push("what callers see");
    }
    let commands = ["```sh\n", "```sql\n", "```text\n"];
    if !commands.iter().any(|fence| section.contains(fence)) {
        missing.push("a command");
    }
    missing
}

#[test]
fn each_section_of_an_alert_has_commands_and_says_what_callers_see() {
    let runbook = Document::read("docs/runbook.md");
    for alert in alerts() {
        let (_, wanted) = alert.runbook_url.split_once('#').unwrap_or_default();
        let mut headings = runbook.headings().into_iter();
        let heading = headings.find(|heading| anchor(heading) == wanted);
        let heading = heading.unwrap_or_else(|| panic!("no section {wanted}"));
        let missing = missing_in(whole_section_of(&runbook.text, heading));
        assert_eq!(missing, Vec::<&str>::new(), "{heading}");
    }
    // Negative control: sections that lack one of the parts, or both.
    let text = "\n## A\n\nCallers wait.\n\n## B\n\n```sh\nls\n```\n\n## C\n\nSee `ls`.\n";
    assert_eq!(missing_in(whole_section_of(text, "A")), ["a command"]);
    assert_eq!(
        missing_in(whole_section_of(text, "B")),
        ["what callers see"]
    );
    assert_eq!(missing_in(whole_section_of(text, "C")).len(), 2);
}

/// Checks that every alert that a document names exists.
#[test]
fn every_alert_that_the_documents_name_exists() {
    let known: BTreeSet<String> = alerts().into_iter().map(|alert| alert.name).collect();
    let mut n_named = 0;
    for document in Document::all() {
        for word in document.inline_code() {
            let is_alert = word.strip_prefix("Odometer").is_some_and(|rest| {
                rest.starts_with(|c: char| c.is_ascii_uppercase())
                    && rest.chars().all(|c| c.is_ascii_alphanumeric())
            });
            if is_alert {
                n_named += 1;
                assert!(
                    known.contains(word),
                    "{word} of {}",
                    document.path.display()
                );
            }
        }
    }
    assert!(n_named >= known.len(), "vacuous: {n_named} alerts named");
}

/// Checks metric names and label values against the documented table. Another test compares the
/// table with a scrape.
#[test]
fn every_metric_that_the_rules_name_is_in_the_table() {
    let rows = Document::read("docs/metrics.md").rows_of(&["Metric", "Type", "Labels"]);
    let metrics: BTreeSet<&str> = rows.iter().map(|row| inline_code(&row[0])[0]).collect();
    let values: BTreeSet<&str> = rows.iter().flat_map(|row| inline_code(&row[3])).collect();
    let recorded = recorded();
    for file in [ALERTS, RECORDING] {
        let rules = read(file).replace("\\\"", "\"");
        let named = words(&rules);
        assert!(named.len() >= 10, "vacuous: {named:?}");
        for name in named {
            let metric = name.strip_suffix("_bucket").unwrap_or(name);
            let exists = metrics.contains(metric) || recorded.contains(name);
            assert!(exists, "{name} of {file}");
        }
        for label in CLOSED {
            for value in matched_values(&rules, label) {
                assert!(values.contains(value), "{label}=\"{value}\" of {file}");
            }
        }
    }
}

/// Returns the values that selectors ask a label for. Alternatives are returned one by one.
fn matched_values<'a>(rules: &'a str, label: &str) -> Vec<&'a str> {
    let mut found = Vec::new();
    for operator in ["=", "!=", "=~", "!~"] {
        let begin = format!("{label}{operator}\"");
        for rest in rules.split(&begin).skip(1) {
            let value = rest.split('"').next().unwrap_or_default();
            found.extend(value.split('|'));
        }
    }
    found
}

#[test]
fn values_of_selectors_are_found() {
    let rule = "a{x=\"1\",route=~\"next|blocks\"} / b{route!=\"other\"}";
    assert_eq!(matched_values(rule, "route"), ["other", "next", "blocks"]);
    assert_eq!(matched_values(rule, "cause"), Vec::<&str>::new());
    let named: Vec<&str> = words("sum by (le) (odometer_a_total{x=\"y\"}) > a:odometer_b:rate5m")
        .into_iter()
        .collect();
    assert_eq!(named, ["a:odometer_b:rate5m", "odometer_a_total"]);
}
