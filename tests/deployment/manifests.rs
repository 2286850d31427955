//! What the manifests say fits together: names, times, rights, and what the program does.

use serde_json::{Value, json};

use super::yaml::{MONITORING, OVERLAYS, containers, items, of_kind, only, overlay, text};
use crate::support::settings;

const SINGLE: &str = "sqlite-single";
/// Kinds of volumes that the restricted standard of Kubernetes allows.
const VOLUMES: [&str; 7] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "persistentVolumeClaim",
    "projected",
    "secret",
];

fn seconds(text: &str) -> u64 {
    let digits = text.trim_matches('"').trim_end_matches('s');
    digits.parse().expect("whole seconds")
}

/// A key of the configuration's section `[shutdown]`.
fn of_shutdown(configuration: &str, key: &str) -> u64 {
    let section = configuration
        .split("[shutdown]\n")
        .nth(1)
        .expect("it stops");
    let section = section.split("\n[").next().unwrap_or_default();
    let line = section.lines().find_map(|line| line.strip_prefix(key));
    seconds(line.expect(key).trim_start_matches(" = "))
}

#[test]
fn a_pod_has_longer_to_stop_than_stopping_takes() {
    for name in OVERLAYS {
        let objects = overlay(name);
        let configuration = text(&only(&objects, "ConfigMap")["data"]["odometer.toml"]);
        let pod = &only(&objects, "Deployment")["spec"]["template"]["spec"];
        let grace = &pod["terminationGracePeriodSeconds"];
        let grace = grace.as_u64().expect("a grace period");
        // The image has no shell that could wait.
        let hook = &pod["containers"][0]["lifecycle"]["preStop"]["sleep"];
        let before = hook["seconds"].as_u64().expect("it waits");
        let deadline = of_shutdown(configuration, "deadline");
        assert!(
            of_shutdown(configuration, "ready_wait") < deadline,
            "{name}"
        );
        assert!(grace > before + deadline, "{name}: {grace}");
    }
}

#[test]
fn manifests_hold_no_secret_and_pods_no_token() {
    for name in OVERLAYS.into_iter().chain([MONITORING]) {
        let objects = overlay(name);
        assert!(of_kind(&objects, "Secret").is_empty(), "{name}");
        for account in of_kind(&objects, "ServiceAccount") {
            assert_eq!(account["automountServiceAccountToken"], false, "{name}");
        }
        for deployment in of_kind(&objects, "Deployment") {
            let pod = &deployment["spec"]["template"]["spec"];
            assert_eq!(pod["automountServiceAccountToken"], false, "{name}");
            assert_eq!(pod["serviceAccountName"], "odometer", "{name}");
            for container in containers(deployment) {
                let given = container.to_string();
                assert!(!given.contains("secretKeyRef"), "{name}: {given}");
                assert!(!given.contains("@"), "{name}: {given}");
            }
        }
    }
}

#[test]
fn each_container_sees_the_secret_of_its_own_role_alone() {
    for name in ["postgres", "mysql"] {
        let objects = overlay(name);
        let deployment = only(&objects, "Deployment");
        let volumes = items(&deployment["spec"]["template"]["spec"]["volumes"]);
        let secret_of = |container: &Value| {
            let mounts = items(&container["volumeMounts"]).iter();
            let mounted = mounts.filter_map(|mount| {
                let volume = volumes.iter().find(|of| of["name"] == mount["name"])?;
                assert_eq!(mount["readOnly"], true, "{name}: {mount}");
                volume["secret"]["secretName"].as_str()
            });
            mounted.collect::<Vec<_>>()
        };
        let seen: Vec<_> = containers(deployment).into_iter().map(secret_of).collect();
        assert_eq!(seen, [["odometer-migrate"], ["odometer-serve"]], "{name}");
    }
}

/// What is against the restricted standard of Kubernetes in a pod.
fn faults_of(pod: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    let mut fault_unless = |holds: bool, what: String| {
        if !holds {
            faults.push(what);
        }
    };
    for key in ["hostNetwork", "hostPID", "hostIPC"] {
        fault_unless(pod.get(key).is_none(), key.to_owned());
    }
    let all = &pod["securityContext"];
    let profile = &all["seccompProfile"]["type"];
    fault_unless(profile == "RuntimeDefault", "a profile".to_owned());
    fault_unless(all["runAsUser"].as_u64() > Some(0), "root".to_owned());
    for volume in items(&pod["volumes"]) {
        let mut kinds = volume.as_object().into_iter().flatten().map(|(key, _)| key);
        let allowed = |key: &String| key == "name" || VOLUMES.contains(&key.as_str());
        fault_unless(kinds.all(allowed), volume.to_string());
    }
    let each = items(&pod["initContainers"]).iter();
    for container in each.chain(items(&pod["containers"])) {
        let name = text(&container["name"]);
        let has = &container["securityContext"];
        let drops = has["capabilities"] == json!({"drop": ["ALL"]});
        fault_unless(drops, format!("{name}: capabilities"));
        for (key, wanted) in [
            ("allowPrivilegeEscalation", false),
            ("privileged", false),
            ("readOnlyRootFilesystem", true),
            ("runAsNonRoot", true),
        ] {
            fault_unless(has[key] == wanted, format!("{name}: {key}"));
        }
        for port in items(&container["ports"]) {
            fault_unless(port.get("hostPort").is_none(), format!("{name}: {port}"));
        }
    }
    faults
}

#[test]
fn pods_keep_to_the_restricted_standard() {
    let namespace = settings::repository().join("k8s/namespace.yaml");
    let namespace = super::yaml::read(&namespace).remove(0);
    let labels = &namespace["metadata"]["labels"];
    assert_eq!(labels["pod-security.kubernetes.io/enforce"], "restricted");
    for name in OVERLAYS {
        let objects = overlay(name);
        let pod = &only(&objects, "Deployment")["spec"]["template"]["spec"];
        assert_eq!(faults_of(pod), Vec::<String>::new(), "{name}");
        let mut wrong = pod.clone();
        wrong["containers"][0]["securityContext"]["runAsNonRoot"] = false.into();
        assert_eq!(faults_of(&wrong), ["odometer: runAsNonRoot"], "{name}");
    }
}

#[test]
fn what_is_selected_is_there() {
    for name in OVERLAYS {
        let objects = overlay(name);
        let deployment = only(&objects, "Deployment");
        let labels = &deployment["spec"]["template"]["metadata"]["labels"];
        let selects = |selector: &Value| {
            let mut wanted = selector.as_object().into_iter().flatten().peekable();
            let is_vacuous = wanted.peek().is_none();
            !is_vacuous && wanted.all(|(key, value)| labels[key] == *value)
        };
        assert!(selects(&deployment["spec"]["selector"]["matchLabels"]));
        let service = only(&objects, "Service");
        assert!(selects(&service["spec"]["selector"]), "{name}");
        let port = &service["spec"]["ports"][0];
        let container = &deployment["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(port["targetPort"], container["ports"][0]["name"], "{name}");
        assert_eq!(container["ports"][0]["containerPort"], 8080, "{name}");
        for policy in of_kind(&objects, "NetworkPolicy") {
            assert!(selects(&policy["spec"]["podSelector"]["matchLabels"]));
        }
        for budget in of_kind(&objects, "PodDisruptionBudget") {
            assert!(selects(&budget["spec"]["selector"]["matchLabels"]));
        }
        for scaler in of_kind(&objects, "HorizontalPodAutoscaler") {
            let target = &scaler["spec"]["scaleTargetRef"];
            assert_eq!(target["name"], deployment["metadata"]["name"], "{name}");
        }
        let monitoring = overlay(MONITORING);
        let monitor = &only(&monitoring, "ServiceMonitor")["spec"];
        let wanted = &monitor["selector"]["matchLabels"];
        assert_eq!(*wanted, service["metadata"]["labels"], "{name}");
        assert_eq!(monitor["endpoints"][0]["port"], port["name"], "{name}");
        // Rules and alerts ask for the job by this name, which is that of the Service.
        assert_eq!(service["metadata"]["name"], "odometer", "{name}");
    }
}

#[test]
fn probes_ask_what_the_program_answers() {
    for name in OVERLAYS {
        let objects = overlay(name);
        let deployment = only(&objects, "Deployment");
        let container = &deployment["spec"]["template"]["spec"]["containers"][0];
        for (probe, path) in [
            ("startupProbe", "/livez"),
            ("livenessProbe", "/livez"),
            ("readinessProbe", "/readyz"),
        ] {
            let asked = &container[probe]["httpGet"];
            assert_eq!(asked["path"], path, "{name}: {probe}");
            assert_eq!(asked["port"], "http", "{name}: {probe}");
        }
    }
}

#[test]
fn replicas_images_and_volumes_are_as_the_store_needs() {
    for name in OVERLAYS {
        let objects = overlay(name);
        let is_single = name == SINGLE;
        let deployment = only(&objects, "Deployment");
        let each = containers(deployment);
        assert_eq!(each.len(), if is_single { 1 } else { 2 }, "{name}");
        for container in &each {
            let image = text(&container["image"]);
            let version = env!("CARGO_PKG_VERSION");
            assert_eq!(image, format!("odometer:{version}"), "{name}");
            let resources = &container["resources"];
            for kind in ["requests", "limits"] {
                assert!(resources[kind]["memory"].is_string(), "{name}");
                assert!(resources[kind]["cpu"].is_string(), "{name}");
            }
        }
        let spec = &deployment["spec"];
        // Where it is scaled an apply must not set it back.
        let n_replicas = spec["replicas"].as_u64();
        assert_eq!(n_replicas, is_single.then_some(1), "{name}");
        for scaler in of_kind(&objects, "HorizontalPodAutoscaler") {
            let least = scaler["spec"]["minReplicas"].as_u64();
            assert!(least >= Some(3), "{name}: {least:?}");
        }
        let strategy = if is_single {
            "Recreate"
        } else {
            "RollingUpdate"
        };
        assert_eq!(spec["strategy"]["type"], strategy, "{name}");
        for kind in ["HorizontalPodAutoscaler", "PodDisruptionBudget"] {
            assert_eq!(of_kind(&objects, kind).is_empty(), is_single, "{name}");
        }
        let n_claims = of_kind(&objects, "PersistentVolumeClaim").len();
        assert_eq!(n_claims, usize::from(is_single), "{name}");
        let spread = items(&spec["template"]["spec"]["topologySpreadConstraints"]);
        assert_eq!(spread.is_empty(), is_single, "{name}");
    }
}
