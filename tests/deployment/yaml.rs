//! Manifests as values: what `kubectl` builds of a folder, and other files in YAML.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Mutex, PoisonError},
};

use serde_json::Value;

use super::tools::{command, from_pypi, succeeds};
use crate::support::settings;

/// Those that run replicas.
pub(super) const OVERLAYS: [&str; 3] = ["postgres", "mysql", "sqlite-single"];
/// The one beside them.
pub(super) const MONITORING: &str = "monitoring";
/// The Job for a database that was restored.
pub(super) const RECOVER: &str = "k8s/recover";

const TO_JSON: &str = "import json, sys, yaml\n\
                       with open(sys.argv[1]) as file:\n  \
                       print(json.dumps([part for part in yaml.safe_load_all(file) if part]))";

/// What there is to be applied, as folders.
pub(super) fn folders() -> Vec<String> {
    let overlays = OVERLAYS.into_iter().chain([MONITORING]);
    let overlays = overlays.map(|name| format!("k8s/overlays/{name}"));
    overlays.chain([RECOVER.to_owned()]).collect()
}

/// All documents of a file in YAML.
pub(super) fn read(file: &Path) -> Vec<Value> {
    let json = succeeds(from_pypi("python").args(["-c", TO_JSON]).arg(file));
    serde_json::from_str(&json).expect("python writes JSON")
}

/// What `kubectl apply -k` of a folder would send, as text.
pub(super) fn built(folder: impl AsRef<Path>) -> String {
    let folder = settings::repository().join(folder);
    succeeds(command("kubectl").arg("kustomize").arg(folder))
}

/// What `kubectl apply -k` of an overlay would send.
pub(super) fn overlay(name: &str) -> Vec<Value> {
    objects(&format!("k8s/overlays/{name}"))
}

/// What `kubectl apply -k` of a folder would send.
pub(super) fn objects(folder: &str) -> Vec<Value> {
    static BUILT: Mutex<BTreeMap<String, Vec<Value>>> = Mutex::new(BTreeMap::new());
    let mut built_before = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    let objects = built_before.entry(folder.to_owned());
    objects.or_insert_with(|| parsed(Path::new(folder))).clone()
}

/// The same of a folder that may be anywhere, and changed since.
pub(super) fn parsed(folder: &Path) -> Vec<Value> {
    let home = crate::support::directory("manifests");
    let file = home.path().join("built.yaml");
    std::fs::write(&file, built(folder)).expect("our directory");
    let objects = read(&file);
    assert!(!objects.is_empty(), "vacuous: {}", folder.display());
    objects
}

/// The objects of a kind.
pub(super) fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
    let matches = objects.iter().filter(|object| object["kind"] == kind);
    matches.collect()
}

/// The only object of a kind.
pub(super) fn only<'a>(objects: &'a [Value], kind: &str) -> &'a Value {
    let found = of_kind(objects, kind);
    assert_eq!(found.len(), 1, "{kind}: {found:?}");
    found[0]
}

/// The items of an array; none where there is no array.
pub(super) fn items(of: &Value) -> &[Value] {
    of.as_array().map(Vec::as_slice).unwrap_or_default()
}

pub(super) fn text(of: &Value) -> &str {
    of.as_str().unwrap_or_default()
}

/// The containers of the pod of a Deployment or a Job, those before the others too.
pub(super) fn containers(deployment: &Value) -> Vec<&Value> {
    let pod = &deployment["spec"]["template"]["spec"];
    let all = items(&pod["initContainers"]).iter();
    all.chain(items(&pod["containers"])).collect()
}
