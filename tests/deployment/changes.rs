//! Tests that the changes that the documents describe give the manifests that they promise.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{
    tools::{command, succeeds},
    yaml::{
        CALLER, OVERLAYS, RECOVER, containers, items, odometer_toml, of_kind, only, parsed, text,
    },
};
use crate::{documents::markdown::Document, support::directory};

const DOCUMENT: &str = "docs/kubernetes.md";

/// A copy of the manifests, which tests may change.
struct Copy(TempDir);

impl Copy {
    fn make() -> Self {
        let home = directory("changed");
        let mut copy = command("cp");
        succeeds(copy.args(["-r", "k8s", "dashboards"]).arg(home.path()));
        Self(home)
    }

    fn path(&self, below: impl AsRef<Path>) -> PathBuf {
        self.0.path().join(below)
    }

    fn change(&self, file: &str, change: impl FnOnce(String) -> String) {
        let file = self.path(file);
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        std::fs::write(file, change(text)).expect("our copy");
    }

    fn objects(&self, folder: &str) -> Vec<Value> {
        parsed(&self.path(folder))
    }
}

/// Returns the block of the document that has this kind and begins with `start`. Panics if there is
/// no such block, or more than one.
fn block(kind: &str, start: &str) -> String {
    let fences = Document::read(DOCUMENT).fences();
    let mut found = fences
        .into_iter()
        .filter(|fence| fence.kind == kind && fence.text.starts_with(start))
        .map(|fence| fence.text);
    let block = found.next();
    assert_eq!(found.next(), None, "two blocks begin with {start}");
    block.unwrap_or_else(|| panic!("no block begins with {start}"))
}

#[test]
fn the_image_of_the_document_is_that_of_every_container() {
    let copy = Copy::make();
    let images = block("yaml", "images:\n");
    let version = env!("CARGO_PKG_VERSION");
    let wanted = format!("registry.example/odometer:{version}");
    let overlays = OVERLAYS.map(|name| format!("k8s/overlays/{name}"));
    let others = [RECOVER, CALLER].map(str::to_owned);
    for folder in overlays.into_iter().chain(others) {
        copy.change(&format!("{folder}/kustomization.yaml"), |text| {
            let (before, _) = text.split_once("images:\n").expect("it names images");
            format!("{before}{images}")
        });
        let objects = copy.objects(&folder);
        let runs = ["Deployment", "Job"].map(|kind| of_kind(&objects, kind));
        let mut n_containers = 0;
        for container in runs.iter().flatten().flat_map(|object| containers(object)) {
            assert_eq!(text(&container["image"]), wanted, "{folder}");
            n_containers += 1;
        }
        assert!(n_containers > 0, "vacuous: {folder}");
    }
}

#[test]
fn as_many_replicas_as_the_document_sets_are_the_autoscalers() {
    for name in ["postgres", "mysql"] {
        let folder = format!("k8s/overlays/{name}");
        let copy = Copy::make();
        let bounds = || {
            let objects = copy.objects(&folder);
            let replicas = &only(&objects, "Deployment")["spec"]["replicas"];
            assert!(replicas.is_null(), "{name}: an apply would set it back");
            let scaler = &only(&objects, "HorizontalPodAutoscaler")["spec"];
            [&scaler["minReplicas"], &scaler["maxReplicas"]].map(Value::as_u64)
        };
        assert_eq!(bounds(), [Some(3), Some(6)], "{name}");
        copy.change(&format!("{folder}/replicas.yaml"), |_| {
            block("yaml", "apiVersion: autoscaling/")
        });
        copy.change(&format!("{folder}/kustomization.yaml"), |text| {
            format!("{text}{}", block("yaml", "patchesStrategicMerge:\n"))
        });
        assert_eq!(bounds(), [Some(4), Some(4)], "{name}");
    }
}

#[test]
fn roles_go_with_each_overlay_that_may_stand_below_them() {
    const FILE: &str = "k8s/overlays/access/kustomization.yaml";
    let serving = |objects: &[Value]| {
        let pod = &only(objects, "Deployment")["spec"]["template"]["spec"];
        pod["containers"][0].clone()
    };
    for name in ["mysql", "sqlite-single"] {
        let copy = Copy::make();
        copy.change(FILE, |text| {
            let below = format!("../{name}");
            assert!(text.contains(&below), "{below} is not named");
            text.replace("- ../postgres\n", &format!("- {below}\n"))
        });
        let with_roles = copy.objects("k8s/overlays/access");
        let without = copy.objects(&format!("k8s/overlays/{name}"));
        let [with, without] = [with_roles.as_slice(), &without].map(serving);
        assert_eq!(with["args"], without["args"], "{name}");
        let mounts = |container: &Value| {
            let mounts = items(&container["volumeMounts"]).iter();
            let mut paths: Vec<String> = mounts
                .map(|mount| text(&mount["mountPath"]).to_owned())
                .collect();
            paths.sort();
            paths
        };
        let mut wanted = mounts(&without);
        wanted.extend(["callers", "jwks"].map(|folder| format!("/run/odometer/{folder}")));
        wanted.sort();
        assert_eq!(mounts(&with), wanted, "{name}");
        assert!(
            odometer_toml(&with_roles).contains("\n[access]\n"),
            "{name}"
        );
    }
}

#[test]
fn the_volume_of_one_node_is_claimed_as_the_document_says() {
    let copy = Copy::make();
    let claimed = || {
        let objects = copy.objects("k8s/overlays/sqlite-single");
        only(&objects, "PersistentVolumeClaim")["spec"]["accessModes"].clone()
    };
    assert_eq!(claimed(), json!(["ReadWriteOncePod"]));
    let change = block("text", "sed -i ");
    let change = change.lines().next().unwrap_or_default();
    let mut shell = command("bash");
    succeeds(shell.args(["-c", change]).current_dir(copy.path("")));
    assert_eq!(claimed(), json!(["ReadWriteOnce"]));
}

#[test]
fn the_demo_takes_five_commands_and_no_secret() {
    let start = "kubectl apply -f k8s/namespace.yaml\nkubectl apply -k ";
    let commands = block("text", start);
    assert_eq!(commands.lines().count(), 5, "{commands}");
    let folder = commands[start.len()..].lines().next().expect("a folder");
    let names_a_secret = |folder: &str| {
        let objects = parsed(Path::new(folder));
        only(&objects, "Deployment").to_string().contains("secret")
    };
    assert!(!names_a_secret(folder), "{folder}");
    assert!(names_a_secret("k8s/overlays/sqlite-single"));
}
