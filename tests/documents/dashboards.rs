//! Tests that the dashboards are complete. They have what Grafana and a reader need, and nothing
//! that differs between installations.

use std::{collections::BTreeSet, path::PathBuf, process::Command};

use serde_json::Value;

use super::expressions::Expression;
use crate::support::{npm, settings};

const NAMES: [&str; 3] = ["overview", "sequence", "store"];
/// The columns of Grafana's grid.
const GRID_WIDTH: u64 = 24;
/// Values for Grafana's variables: one job, all instances and sequences, and a window with several
/// scrapes in it.
const VARIABLES: [(&str, &str); 4] = [
    ("$__rate_interval", "10s"),
    ("$job", "odometer"),
    ("$instance", ".+"),
    ("$sequence", ".+"),
];

fn path_of(name: &str) -> PathBuf {
    let folder = settings::repository().join("dashboards/grafana");
    folder.join(format!("{name}.json"))
}

fn dashboard(name: &str) -> Value {
    let path = path_of(name);
    let text = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the items of an array, or no items if the value is no array.
fn items(of: &Value) -> &[Value] {
    of.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn text(of: &Value) -> &str {
    of.as_str().unwrap_or_default()
}

/// Returns every expression of every dashboard, as Grafana sends it to Prometheus.
pub(super) fn expressions() -> Vec<Expression> {
    let mut found = Vec::new();
    for name in NAMES {
        for panel in items(&dashboard(name)["panels"]) {
            for target in items(&panel["targets"]) {
                let mut sent = text(&target["expr"]).to_owned();
                for (variable, value) in VARIABLES {
                    sent = sent.replace(variable, value);
                }
                let place = format!("{name}: {}", text(&panel["title"]));
                assert!(!sent.contains('$'), "{place}: {sent}");
                found.push(Expression { place, text: sent });
            }
        }
    }
    found
}

/// Returns what the variables of the dashboards ask Prometheus for.
pub(super) fn queries_of_variables() -> Vec<String> {
    let mut found = Vec::new();
    for name in NAMES {
        for variable in items(&dashboard(name)["templating"]["list"]) {
            let query = text(&variable["query"]["query"]);
            if variable["type"] == "query" {
                assert!(query.starts_with("label_values("), "{name}: {query}");
                found.push(query.to_owned());
            }
        }
    }
    found
}

/// Returns everything that is wrong with a dashboard.
fn faults_of(name: &str, dashboard: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    let mut fault_unless = |holds: bool, what: String| {
        if !holds {
            faults.push(what);
        }
    };
    let uid = format!("odometer-{name}");
    fault_unless(dashboard["uid"] == uid.as_str(), format!("not {uid}"));
    fault_unless(dashboard["id"].is_null(), "an id of its own".to_owned());
    fault_unless(dashboard["refresh"] == "10s", "refresh".to_owned());
    for other in NAMES.iter().filter(|other| **other != name) {
        let start = format!("/d/odometer-{other}?");
        let leads = |link: &Value| text(&link["url"]).starts_with(&start);
        let leads = items(&dashboard["links"]).iter().any(leads);
        fault_unless(leads, format!("no link to {other}"));
    }
    let variables: BTreeSet<&str> = items(&dashboard["templating"]["list"])
        .iter()
        .map(|variable| text(&variable["name"]))
        .collect();
    for needed in ["datasource", "job", "instance"] {
        let is_there = variables.contains(needed);
        fault_unless(is_there, format!("no variable {needed}"));
    }
    // A Prometheus also has other jobs. Without an `allValue`, `All` means the listed jobs only.
    for variable in items(&dashboard["templating"]["list"]) {
        let is_bounded = variable["name"] != "job" || variable["allValue"].is_null();
        fault_unless(is_bounded, "jobs of others".to_owned());
    }
    for panel in items(&dashboard["panels"]) {
        let title = text(&panel["title"]);
        fault_unless(!title.is_empty(), format!("no title: {panel}"));
        fault_unless(panel["id"].is_null(), format!("{title}: an id"));
        if panel["type"] != "row" {
            for what in faults_of_panel(panel, &variables) {
                fault_unless(false, format!("{title}: {what}"));
            }
        }
    }
    faults.extend(overlaps(items(&dashboard["panels"])));
    faults
}

fn faults_of_panel(panel: &Value, variables: &BTreeSet<&str>) -> Vec<&'static str> {
    let mut faults = Vec::new();
    if text(&panel["description"]).is_empty() {
        faults.push("no description");
    }
    let defaults = &panel["fieldConfig"]["defaults"];
    if text(&defaults["unit"]).is_empty() {
        faults.push("no unit");
    }
    if items(&defaults["thresholds"]["steps"]).is_empty() {
        faults.push("no threshold");
    }
    let targets = items(&panel["targets"]);
    if targets.is_empty() {
        faults.push("no expression");
    }
    let places = targets.iter().chain([panel]);
    for place in places {
        if place["datasource"]["uid"] != "${datasource}" {
            faults.push("a data source that is no variable");
        }
    }
    let references: BTreeSet<&str> = targets.iter().map(|of| text(&of["refId"])).collect();
    if references.len() != targets.len() {
        faults.push("two expressions under one name");
    }
    for target in targets {
        let expression = text(&target["expr"]);
        if text(&target["legendFormat"]).is_empty() {
            faults.push("no legend");
        }
        if !expression.contains("job=~\"$job\"") || !expression.contains("instance=~\"$instance\"")
        {
            faults.push("not of the chosen replicas");
        }
        for word in expression.split('$').skip(1) {
            let end = word.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
            let word = end.and_then(|end| word.get(..end)).unwrap_or(word);
            if !variables.contains(word) && word != "__rate_interval" {
                faults.push("a variable that is not there");
            }
        }
    }
    faults
}

/// Returns the panels that overlap or reach beyond the edge.
fn overlaps(panels: &[Value]) -> Vec<String> {
    let mut faults = Vec::new();
    let mut taken = BTreeSet::new();
    for panel in panels {
        let title = text(&panel["title"]);
        let place = |side: &str| panel["gridPos"][side].as_u64();
        let (Some(x), Some(y), Some(width), Some(height)) =
            (place("x"), place("y"), place("w"), place("h"))
        else {
            faults.push(format!("{title}: no place"));
            continue;
        };
        if width == 0 || height == 0 || x + width > GRID_WIDTH {
            faults.push(format!("{title}: beyond the edge"));
        }
        let cells = (y..y + height).flat_map(|row| (x..x + width).map(move |column| (column, row)));
        // `count` visits every cell, so that all cells are marked as taken.
        if cells.filter(|cell| !taken.insert(*cell)).count() > 0 {
            faults.push(format!("{title}: over another one"));
        }
    }
    faults
}

#[test]
fn the_dashboards_are_whole() {
    for name in NAMES {
        let dashboard = dashboard(name);
        assert_eq!(faults_of(name, &dashboard), Vec::<String>::new(), "{name}");
        let n_panels = items(&dashboard["panels"]).len();
        assert!(n_panels > 10, "vacuous: {n_panels} panels of {name}");
    }
}

#[test]
fn what_is_wrong_with_a_dashboard_is_found() {
    /// A place in the JSON, the value that is put there, and the fault that must be found.
    type Mistake = (&'static str, Value, &'static str);
    let whole = dashboard("overview");
    let mistakes: [Mistake; 12] = [
        ("/uid", "other".into(), "not odometer-overview"),
        ("/id", 7.into(), "an id of its own"),
        ("/links/0/url", "/d/x?".into(), "no link to"),
        ("/templating/list/1/name", "jobs".into(), "no variable job"),
        ("/templating/list/1/allValue", ".+".into(), "jobs of others"),
        ("/panels/1/id", 7.into(), "an id"),
        ("/panels/1/description", "".into(), "no description"),
        ("/panels/1/fieldConfig/defaults/unit", "".into(), "no unit"),
        ("/panels/1/targets/0/legendFormat", "".into(), "no legend"),
        (
            "/panels/1/targets/0/datasource/uid",
            "prometheus".into(),
            "a data source",
        ),
        (
            "/panels/1/targets/0/expr",
            "odometer_store_up".into(),
            "not of the chosen replicas",
        ),
        ("/panels/2/gridPos/x", 0.into(), "over another one"),
    ];
    for (place, value, said) in mistakes {
        let mut dashboard = whole.clone();
        let (parent, key) = place.rsplit_once('/').expect("a place");
        let parent = dashboard.pointer_mut(parent).expect("it is there");
        parent[key] = value;
        let faults = faults_of("overview", &dashboard);
        let is_found = faults.iter().any(|fault| fault.contains(said));
        assert!(is_found, "{place}: {faults:?}");
    }
}

#[test]
fn the_dashboards_fit_the_model_that_grafana_publishes() {
    let files = [
        "package.json",
        "package-lock.json",
        "tsconfig.json",
        "model.ts",
        "check.mjs",
    ];
    let place = npm::workshop("dashboards", &files);
    let mut check = Command::new("timeout");
    check.args(["120", "node", "check.mjs"]);
    check.args(NAMES.map(path_of)).current_dir(&place);
    let said = npm::succeed(&mut check);
    let n_checked = said.matches("mistakes in it are found").count();
    assert_eq!(n_checked, NAMES.len(), "{said}");
}
