//! Tests that manifests fit the schemas of Kubernetes and the rules of other tools.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{
    tools::{command, from_pypi, outcome, succeeds},
    yaml::{MONITORING, built, folders, items, objects, text},
};
use crate::support::{directory, settings};

/// The versions of Kubernetes.
const VERSIONS: [&str; 2] = ["1.36", "1.37"];
/// Kinds of the Prometheus operator. Kubernetes has no schema for them.
const CUSTOM_KINDS: [&str; 2] = ["ServiceMonitor", "PrometheusRule"];
/// The most rules that one overlay may skip.
const MAX_SKIPS: usize = 2;

fn validates(version: &str, file: &Path) -> (bool, String) {
    outcome(
        from_pypi("kubernetes-validate")
            .args(["-k", version, "--strict"])
            .arg(file),
    )
}

fn passes_checkov(files: &[PathBuf]) -> (bool, String) {
    let mut checkov = from_pypi("checkov");
    checkov.args(["--framework", "kubernetes", "--skip-download"]);
    checkov.args(["--compact", "--quiet"]);
    for file in files {
        checkov.arg("-f").arg(file);
    }
    outcome(&mut checkov)
}

/// Writes objects to a file that each tool can read. The file is JSON, which is also YAML.
fn write(objects: &[&Value], file: &Path) {
    let documents: Vec<String> = objects.iter().map(|object| object.to_string()).collect();
    std::fs::write(file, documents.join("\n---\n")).expect("our directory");
}

/// Returns the name of the file for a folder's objects.
fn file_of(folder: &str) -> String {
    format!("{}.yaml", folder.replace('/', "-"))
}

#[test]
fn every_overlay_fits_the_schemas_of_two_versions() {
    let home = directory("schemas");
    for name in folders() {
        let mut objects = objects(&name);
        let is_custom = |object: &Value| CUSTOM_KINDS.contains(&text(&object["kind"]));
        let n_custom = objects.iter().filter(|object| is_custom(object)).count();
        let n_known = if name.ends_with(MONITORING) { 2 } else { 0 };
        assert_eq!(n_custom, n_known, "{name}");
        objects.retain(|object| !is_custom(object));
        assert!(!objects.is_empty(), "vacuous: {name}");
        let file = home.path().join(file_of(&name));
        write(&objects.iter().collect::<Vec<_>>(), &file);
        for version in VERSIONS {
            let (fits, said) = validates(version, &file);
            assert!(fits, "{name} on {version}\n{said}");
            // The output must report each object as passed.
            assert_eq!(
                said.matches(" passed for ").count(),
                objects.len(),
                "{said}"
            );
        }
    }
    let namespace = settings::repository().join("k8s/namespace.yaml");
    assert!(validates(VERSIONS[1], &namespace).0);
}

#[test]
fn a_key_that_kubernetes_does_not_know_is_found() {
    let home = directory("schemas");
    let file = home.path().join("wrong.yaml");
    let wrong = built("k8s/overlays/postgres").replace("minReplicas: ", "minReplicaz: ");
    std::fs::write(&file, wrong).expect("our directory");
    for version in VERSIONS {
        let (fits, said) = validates(version, &file);
        assert!(!fits && said.contains("minReplicaz"), "{said}");
    }
}

#[test]
fn every_overlay_passes_checkov_and_each_skip_is_justified() {
    let home = directory("checkov");
    let mut files = Vec::new();
    for name in folders() {
        let objects = objects(&name);
        let annotations = objects
            .iter()
            .filter_map(|object| object["metadata"]["annotations"].as_object());
        let mut n_skips = 0;
        for (key, value) in annotations.flatten() {
            if key.starts_with("checkov.io/skip") {
                let (rule, reason) = text(value).split_once('=').unwrap_or_default();
                assert!(rule.starts_with("CKV_"), "{name}: {key}");
                assert!(reason.len() > 20, "{name}: {rule} for no reason");
                n_skips += 1;
            }
        }
        assert!(n_skips <= MAX_SKIPS, "{name} skips {n_skips}");
        let file = home.path().join(file_of(&name));
        write(&objects.iter().collect::<Vec<_>>(), &file);
        files.push(file);
    }
    let (passes, said) = passes_checkov(&files);
    assert!(passes && said.contains("Failed checks: 0"), "{said}");

    // Negative control: a container may become root.
    let file = home.path().join("wrong.yaml");
    let wrong = built("k8s/overlays/postgres").replace(
        "allowPrivilegeEscalation: false",
        "allowPrivilegeEscalation: true",
    );
    std::fs::write(&file, wrong).expect("our directory");
    let (passes, said) = passes_checkov(&[file]);
    assert!(!passes && said.contains("CKV_K8S_20"), "{said}");
}

#[test]
fn rules_and_dashboards_are_in_the_manifests_as_they_are() {
    succeeds(command("k8s/generate").arg("--check"));

    // Negative control: a rule of the copy was changed after the manifests were generated.
    let home = directory("generated");
    succeeds(
        command("cp")
            .args(["-r", "k8s", "dashboards"])
            .arg(home.path()),
    );
    let check = || outcome(command(home.path().join("k8s/generate")).arg("--check"));
    assert!(check().0);
    let rules = home.path().join("dashboards/rules/alerts.yaml");
    let changed = std::fs::read_to_string(&rules).expect("our copy");
    std::fs::write(&rules, changed.replacen("for: 5m", "for: 6m", 1)).expect("our copy");
    let (is_fresh, said) = check();
    assert!(!is_fresh && said.contains("rules.yaml"), "{said}");
}

#[test]
fn alerts_link_to_where_the_runbook_is_published() {
    const PUBLISHED: &str = "https://wiki.example/odometer/runbook.md";
    let home = directory("generated");
    succeeds(
        command("cp")
            .args(["-r", "k8s", "dashboards"])
            .arg(home.path()),
    );
    let generate = || command(home.path().join("k8s/generate"));
    succeeds(generate().env("RUNBOOK", PUBLISHED));
    succeeds(generate().arg("--check").env("RUNBOOK", PUBLISHED));
    // Negative control: without `RUNBOOK`, the links are the ones of the repository.
    let (is_fresh, said) = outcome(generate().arg("--check"));
    assert!(!is_fresh && said.contains("rules.yaml"), "{said}");
    let links = |rules: &Path| {
        let rules = std::fs::read_to_string(rules).expect("our copy");
        let links = rules.lines().filter_map(|line| {
            let link = line.trim().strip_prefix("runbook_url: ")?;
            Some(link.to_owned())
        });
        links.collect::<Vec<String>>()
    };
    let before = links(&home.path().join("dashboards/rules/alerts.yaml"));
    let before = before.into_iter();
    let wanted: Vec<String> = before
        .map(|link| link.replacen("docs/runbook.md", PUBLISHED, 1))
        .collect();
    assert!(wanted.len() >= 15, "vacuous: {wanted:?}");
    assert!(wanted.iter().all(|link| link.starts_with("https:")));
    let written = home.path().join("k8s/overlays/monitoring/rules.yaml");
    assert_eq!(links(&written), wanted);
}

#[test]
fn prometheus_gets_the_rules_and_grafana_the_dashboards() {
    let objects = objects("k8s/overlays/monitoring");
    let of = |kind: &str| super::yaml::of_kind(&objects, kind);
    let mut groups = Vec::new();
    for file in ["alerts.yaml", "recording.yaml"] {
        let file = settings::repository().join("dashboards/rules").join(file);
        for rules in super::yaml::read(&file) {
            groups.extend_from_slice(items(&rules["groups"]));
        }
    }
    assert!(groups.len() >= 2, "vacuous: {} groups", groups.len());
    assert_eq!(items(&of("PrometheusRule")[0]["spec"]["groups"]), groups);

    let dashboards = of("ConfigMap");
    assert_eq!(dashboards.len(), 3);
    for dashboard in dashboards {
        // Grafana's sidecar looks for this label.
        assert_eq!(dashboard["metadata"]["labels"]["grafana_dashboard"], "1");
        let data = dashboard["data"].as_object().expect("it has data");
        let (file, json) = data.iter().next().expect("it has a file");
        let name = file.strip_prefix("odometer-").expect("its name is ours");
        let path = settings::repository().join("dashboards/grafana").join(name);
        let there = std::fs::read_to_string(path).expect("it is a dashboard");
        assert_eq!(text(json), there, "{file}");
    }
}
