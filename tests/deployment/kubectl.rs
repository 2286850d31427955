//! Tests that every object in the `kubectl` commands of the documents is in the manifests. There is
//! no cluster to ask.

use std::collections::BTreeSet;

use serde_json::Value;

use super::yaml::{containers, folders, items, objects, text};
use crate::{documents::markdown::Document, support::settings};

/// The words that may stand before the name of an object, besides the form `KIND/NAME`.
const KINDS: [(&str, &str); 3] = [
    ("deployment", "Deployment"),
    ("job", "Job"),
    ("pvc", "PersistentVolumeClaim"),
];
/// The placeholder for the name of a pod.
const ANY_POD: &str = "NAME";

/// The names in the manifests that `kubectl` commands may use.
#[derive(Default)]
struct Known {
    /// The kind and the name of each object.
    objects: BTreeSet<(String, String)>,
    namespaces: BTreeSet<String>,
    containers: BTreeSet<String>,
    arguments: BTreeSet<String>,
    secrets: BTreeSet<String>,
    config_maps: BTreeSet<String>,
    /// The labels of pods, as `KEY=VALUE`.
    labels: BTreeSet<String>,
}

impl Known {
    fn all() -> Self {
        let mut known = Self::default();
        for folder in folders() {
            for object in objects(&folder) {
                known.learn(&object);
            }
        }
        known
    }

    fn learn(&mut self, object: &Value) {
        let of = |value: &Value| text(value).to_owned();
        let metadata = &object["metadata"];
        self.objects
            .insert((of(&object["kind"]), of(&metadata["name"])));
        self.namespaces.insert(of(&metadata["namespace"]));
        for container in containers(object) {
            self.containers.insert(of(&container["name"]));
            self.arguments
                .extend(items(&container["args"]).iter().map(of));
        }
        let template = &object["spec"]["template"];
        for volume in items(&template["spec"]["volumes"]) {
            self.secrets.insert(of(&volume["secret"]["secretName"]));
            self.config_maps.insert(of(&volume["configMap"]["name"]));
        }
        let labels = template["metadata"]["labels"].as_object();
        let labels = labels.into_iter().flatten();
        self.labels
            .extend(labels.map(|(key, value)| format!("{key}={}", text(value))));
    }

    fn has(&self, word: &str, name: &str) -> bool {
        let kind = KINDS.iter().find(|(short, _)| *short == word);
        kind.is_some_and(|(_, kind)| {
            let object = ((*kind).to_owned(), name.to_owned());
            self.objects.contains(&object)
        })
    }

    /// Returns the first word of a command that names nothing in the manifests.
    fn unknown<'a>(&self, command: &'a str) -> Option<&'a str> {
        let words: Vec<&str> = command.split_whitespace().collect();
        let pairs = words.windows(2).map(|pair| (pair[0], pair[1]));
        let of_pairs = pairs.filter(|(before, word)| match *before {
            "-n" => !self.namespaces.contains(*word),
            "-c" => !self.containers.contains(*word),
            "-l" => !self.labels.contains(*word),
            "-f" => *word != "-" && !settings::repository().join(word).is_file(),
            "-k" | "kustomize" => {
                let folder = settings::repository().join(word);
                !folder.join("kustomization.yaml").is_file()
            }
            "generic" => !self.secrets.contains(*word),
            "configmap" => !self.config_maps.contains(*word),
            kind if KINDS.iter().any(|(short, _)| *short == kind) => !self.has(kind, word),
            _ => false,
        });
        let of_pairs = of_pairs.map(|(_, word)| word);
        let alone = words.iter().copied().filter(|word| {
            let names_an_object = |(kind, name): (&str, &str)| match kind {
                "pod" => name == ANY_POD,
                kind => self.has(kind, name),
            };
            match word.split_once('/') {
                _ if word.starts_with("--config=") || word.starts_with("--database-url") => {
                    !self.arguments.contains(*word)
                }
                Some((kind, name)) if kind.chars().all(|c| c.is_ascii_lowercase()) => {
                    let is_path = settings::repository().join(word).exists();
                    !kind.is_empty() && !is_path && !names_an_object((kind, name))
                }
                _ => false,
            }
        });
        of_pairs.chain(alone).next()
    }
}

/// Returns every `kubectl` command line of a document, from its blocks and its sentences.
fn commands(document: &Document) -> Vec<String> {
    let fences = document.fences();
    let blocks = fences.iter().map(|fence| fence.text.replace("\\\n", " "));
    let lines: Vec<String> = blocks
        .flat_map(|block| block.lines().map(str::to_owned).collect::<Vec<_>>())
        .chain(document.inline_code().into_iter().map(str::to_owned))
        .collect();
    let parts = lines.iter().flat_map(|line| line.split(" | "));
    let parts = parts
        .map(str::trim)
        .filter(|part| part.starts_with("kubectl "));
    parts.map(str::to_owned).collect()
}

#[test]
fn what_kubectl_is_told_of_is_in_the_manifests() {
    let known = Known::all();
    let mut n_commands = 0;
    for document in Document::all() {
        for command in commands(&document) {
            let unknown = known.unknown(&command);
            assert_eq!(unknown, None, "{command} of {}", document.path.display());
            n_commands += 1;
        }
    }
    assert!(n_commands >= 30, "vacuous: {n_commands} commands");
    // Negative control: each command has one wrong word.
    for (command, wrong) in [
        ("kubectl -n odometr get pods", "odometr"),
        ("kubectl -n odometer logs NAME -c migrates", "migrates"),
        (
            "kubectl -n odometer get pods -l name=odometer",
            "name=odometer",
        ),
        (
            "kubectl apply -k k8s/overlays/oracle",
            "k8s/overlays/oracle",
        ),
        ("kubectl apply -f k8s/name.yaml", "k8s/name.yaml"),
        ("kubectl -n odometer logs job/recover", "job/recover"),
        ("kubectl -n odometer describe pvc numbers", "numbers"),
        (
            "kubectl create secret generic odometer --from-file=url=x",
            "odometer",
        ),
        (
            "kubectl create configmap odometer-keys --from-file=jwks.json",
            "odometer-keys",
        ),
        (
            "kubectl exec pod/NAME -- odometer check --config=/etc/x",
            "--config=/etc/x",
        ),
    ] {
        assert_eq!(known.unknown(command), Some(wrong), "{command}");
    }
}
