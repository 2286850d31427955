//! Tests that the table of metrics agrees with a scrape: names, types, labels, and values of
//! labels.

use std::collections::{BTreeMap, BTreeSet};

use super::markdown::{Document, inline_code};
use crate::support::{Backend, Program, TestDatabase, run};

/// Labels with few and fixed values.
const CLOSED: [&str; 3] = ["outcome", "cause", "route"];

#[derive(Default, PartialEq, Eq, Debug)]
struct Metric {
    kind: String,
    labels: BTreeSet<String>,
}

#[test]
fn the_table_of_metrics_is_a_scrape() {
    run(async {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let other = TestDatabase::prepared(Backend::Sqlite).await;
        let program = Program::options()
            .database(&database.url)
            .env("ODOMETER_STORES__FAST__DATABASE", &other.url)
            // Nothing listens on this port.
            .env("ODOMETER_STORES__FAST__REDIS", "redis://127.0.0.1:9")
            .start_ready()
            .await;
        let client = program.client();
        assert_eq!(client.next("measured").await, 1);
        let scrape = client.get("/metrics").await.expect("a reply").body;
        let (exposed, values) = read(&scrape);

        let rows = Document::read("docs/metrics.md").rows_of(&["Metric", "Type", "Labels"]);
        let explained: BTreeSet<&str> = rows.iter().flat_map(|row| inline_code(&row[3])).collect();
        let mut documented = BTreeMap::new();
        for row in &rows {
            let name = inline_code(&row[0]).remove(0).to_owned();
            let labels: BTreeSet<String> = inline_code(&row[2])
                .into_iter()
                .map(str::to_owned)
                .collect();
            for (label, value) in values.get(&name).into_iter().flatten() {
                let is_explained = explained.contains(value.as_str());
                assert!(is_explained, "{label}=\"{value}\" of {name}");
            }
            let kind = row[1].clone();
            let twice = documented.insert(name, Metric { kind, labels });
            assert!(twice.is_none(), "twice: {row:?}");
        }
        assert_eq!(documented, exposed);
        let has_help = |name: &&String| scrape.contains(&format!("# HELP {name} "));
        let bare: Vec<_> = exposed.keys().filter(|name| !has_help(name)).collect();
        assert!(bare.is_empty(), "without help: {bare:?}");
    });
}

/// Returns every metric of a scrape, and the values of the labels in [`CLOSED`].
#[expect(clippy::type_complexity, reason = "read once, above")]
fn read(
    scrape: &str,
) -> (
    BTreeMap<String, Metric>,
    BTreeMap<String, BTreeSet<(String, String)>>,
) {
    let mut metrics: BTreeMap<String, Metric> = BTreeMap::new();
    let mut values: BTreeMap<String, BTreeSet<(String, String)>> = BTreeMap::new();
    let mut current = String::new();
    for line in scrape.lines() {
        if let Some(declared) = line.strip_prefix("# TYPE ") {
            let (name, kind) = declared.split_once(' ').expect("a name and a type");
            name.clone_into(&mut current);
            metrics.entry(current.clone()).or_default().kind = kind.to_owned();
        } else if let Some((name, rest)) = line.split_once('{') {
            assert!(name.starts_with(&current), "{line} below {current}");
            let labels = rest.split('}').next().unwrap_or_default();
            for label in labels.split(',') {
                let (key, value) = label.split_once('=').expect("a label has a value");
                if key == "le" {
                    continue;
                }
                let metric = metrics.entry(current.clone()).or_default();
                metric.labels.insert(key.to_owned());
                if CLOSED.contains(&key) {
                    let value = value.trim_matches('"').to_owned();
                    let known = values.entry(current.clone()).or_default();
                    known.insert((key.to_owned(), value));
                }
            }
        }
    }
    (metrics, values)
}
