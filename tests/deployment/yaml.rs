//! Reads manifests as values: what `kubectl` builds from a folder, and other YAML files.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Mutex, PoisonError},
};

use serde_json::Value;

use super::tools::{command, from_pypi, succeeds};
use crate::support::settings;

/// The overlays that run replicas. An overlay stands before the one that it changes.
pub(super) const OVERLAYS: [&str; 5] = ["access", "postgres", "mysql", "demo", "sqlite-single"];
/// The overlays of one replica with a SQLite file.
pub(super) const SINGLES: [&str; 2] = ["demo", "sqlite-single"];
/// The overlay that runs no replicas.
pub(super) const MONITORING: &str = "monitoring";
/// The folder of the Job for a restored database.
pub(super) const RECOVER: &str = "k8s/recover";
/// The folder of the example of a caller.
pub(super) const CALLER: &str = "k8s/caller";

const TO_JSON: &str = "import json, sys, yaml\n\
                       with open(sys.argv[1]) as file:\n  \
                       print(json.dumps([part for part in yaml.safe_load_all(file) if part]))";

/// Returns every folder that can be applied.
pub(super) fn folders() -> Vec<String> {
    let overlays = OVERLAYS.into_iter().chain([MONITORING]);
    let overlays = overlays.map(|name| format!("k8s/overlays/{name}"));
    let others = [RECOVER, CALLER].map(str::to_owned);
    overlays.chain(others).collect()
}

/// Reads all documents of a YAML file.
pub(super) fn read(file: &Path) -> Vec<Value> {
    let json = succeeds(from_pypi("python").args(["-c", TO_JSON]).arg(file));
    serde_json::from_str(&json).expect("python writes JSON")
}

/// Returns what `kubectl apply -k` would send for a folder, as text.
pub(super) fn built(folder: impl AsRef<Path>) -> String {
    let folder = settings::repository().join(folder);
    succeeds(command("kubectl").arg("kustomize").arg(folder))
}

/// Returns what `kubectl apply -k` would send for an overlay.
pub(super) fn overlay(name: &str) -> Vec<Value> {
    objects(&format!("k8s/overlays/{name}"))
}

/// Returns what `kubectl apply -k` would send for a folder. The folder is built once in a run.
pub(super) fn objects(folder: &str) -> Vec<Value> {
    static BUILT: Mutex<BTreeMap<String, Vec<Value>>> = Mutex::new(BTreeMap::new());
    let mut built_before = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    let objects = built_before.entry(folder.to_owned());
    objects.or_insert_with(|| parsed(Path::new(folder))).clone()
}

/// Builds a folder and returns its objects. The folder may lie anywhere, and may have changed since
/// the last call.
pub(super) fn parsed(folder: &Path) -> Vec<Value> {
    let home = crate::support::directory("manifests");
    let file = home.path().join("built.yaml");
    std::fs::write(&file, built(folder)).expect("our directory");
    let objects = read(&file);
    assert!(!objects.is_empty(), "vacuous: {}", folder.display());
    objects
}

/// Returns the objects of a kind.
pub(super) fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
    let matches = objects.iter().filter(|object| object["kind"] == kind);
    matches.collect()
}

/// Returns the only object of a kind. Panics if there is another number of them.
pub(super) fn only<'a>(objects: &'a [Value], kind: &str) -> &'a Value {
    let found = of_kind(objects, kind);
    assert_eq!(found.len(), 1, "{kind}: {found:?}");
    found[0]
}

/// Returns the configuration of the replicas among these objects.
pub(super) fn odometer_toml(objects: &[Value]) -> &str {
    let maps = of_kind(objects, "ConfigMap").into_iter();
    let found = maps.filter_map(|map| map["data"]["odometer.toml"].as_str());
    let found: Vec<&str> = found.collect();
    assert_eq!(found.len(), 1, "{found:?}");
    found[0]
}

/// Returns the items of an array, or no items if the value is no array.
pub(super) fn items(of: &Value) -> &[Value] {
    of.as_array().map(Vec::as_slice).unwrap_or_default()
}

pub(super) fn text(of: &Value) -> &str {
    of.as_str().unwrap_or_default()
}

/// Returns the containers of the pod of a Deployment or a Job, init containers first.
pub(super) fn containers(deployment: &Value) -> Vec<&Value> {
    let pod = &deployment["spec"]["template"]["spec"];
    let all = items(&pod["initContainers"]).iter();
    all.chain(items(&pod["containers"])).collect()
}
