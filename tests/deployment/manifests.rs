//! Tests that the parts of the manifests fit together, and fit the program: names, times, and
//! rights.

use serde_json::{Value, json};

use super::{
    tools::{command, succeeds},
    yaml::{
        MONITORING, OVERLAYS, SINGLES, containers, items, odometer_toml, of_kind, only, overlay,
        parsed, text,
    },
};
use crate::support::{Client, Program, directory, run, settings};

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

/// Returns the seconds of a key in the section `[shutdown]` of the configuration.
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
        let configuration = odometer_toml(&objects);
        let pod = &only(&objects, "Deployment")["spec"]["template"]["spec"];
        let grace = &pod["terminationGracePeriodSeconds"];
        let grace = grace.as_u64().expect("a grace period");
        // The image has no shell, so the hook must be `sleep`.
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

/// Returns the faults of a pod against the restricted standard of Kubernetes.
pub(super) fn faults_of(pod: &Value) -> Vec<String> {
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
        let container = &deployment["spec"]["template"]["spec"]["containers"][0];
        let configuration = odometer_toml(&objects);
        for (nth, port) in [("http", 8080), ("operations", 8081)].iter().enumerate() {
            let [served, opened] = [&service["spec"], container].map(|of| &of["ports"][nth]);
            assert_eq!(served["name"], port.0, "{name}");
            assert_eq!(served["targetPort"], port.0, "{name}");
            assert_eq!(opened["name"], port.0, "{name}");
            assert_eq!(opened["containerPort"], port.1, "{name}");
            let listen = format!("listen = \"0.0.0.0:{}\"\n", port.1);
            assert!(configuration.contains(&listen), "{name}: no {listen}");
        }
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
        assert_eq!(monitor["endpoints"][0]["port"], "operations", "{name}");
        // Rules and alerts select the job by this name. Prometheus takes the name from the Service.
        assert_eq!(service["metadata"]["name"], "odometer", "{name}");
    }
}

#[test]
fn probes_ask_what_the_program_answers() {
    run(async {
        let program = Program::options()
            .env("ODOMETER_OPERATIONS__LISTEN", "127.0.0.1:0")
            .start_ready()
            .await;
        let operations = Client::new(&program.operations_url());
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
                assert_eq!(asked["port"], "operations", "{name}: {probe}");
                let reply = operations.get(path).await;
                let status = reply.expect("it answers").status;
                assert_eq!(status, 200, "{name}: {probe}");
            }
        }
        // Negative control: the program does not answer 200 on every path.
        let reply = operations.get("/healthz").await;
        assert_eq!(reply.expect("it answers").status, 404);
        program.stop().await;
    });
}

/// Follows `docs/kubernetes.md` for users who deploy an image of their own.
#[test]
fn an_image_that_is_named_in_an_overlay_is_the_one_of_every_container() {
    let home = directory("image");
    let mut copy = command("cp");
    succeeds(copy.args(["-r", "k8s", "dashboards"]).arg(home.path()));
    let digest = format!("sha256:{}", "5".repeat(64));
    for name in OVERLAYS {
        let folder = home.path().join("k8s/overlays").join(name);
        let file = folder.join("kustomization.yaml");
        let overlay = std::fs::read_to_string(&file).expect("our copy");
        let named = overlay
            .replace("newName: odometer\n", "newName: registry.example/x\n")
            .replace(
                concat!("newTag: ", env!("CARGO_PKG_VERSION")),
                &format!("digest: {digest}"),
            );
        std::fs::write(&file, named).expect("our copy");
        let objects = parsed(&folder);
        let each = containers(only(&objects, "Deployment"));
        let n_containers = if SINGLES.contains(&name) { 1 } else { 2 };
        assert_eq!(each.len(), n_containers, "{name}");
        for container in each {
            let image = format!("registry.example/x@{digest}");
            assert_eq!(text(&container["image"]), image, "{name}");
        }
    }
}

/// Converts an amount of memory to KiB. The unit is the one of a manifest or of a document.
fn kib(amount: f64, unit: &str) -> f64 {
    match unit {
        "KiB" => amount,
        "Mi" | "MiB" => amount * 1024.0,
        other => panic!("{other}?"),
    }
}

#[test]
fn as_many_names_as_a_pod_takes_fit_its_memory() {
    let speed = std::fs::read_to_string(settings::repository().join("docs/speed.md"));
    let speed = speed.expect("the document is there");
    // The number of a footnote may stand between the row's name and its figure.
    let row = speed
        .lines()
        .find_map(|line| line.strip_prefix("| memory a name, live, of 100000 "))
        .and_then(|line| line.split_once("| "));
    let mut measured = row.expect("it is measured").1.split(' ');
    let amount = measured.next().and_then(|amount| amount.parse().ok());
    let of_a_name = kib(amount.expect("a number"), measured.next().expect("a unit"));
    // The memory of the program with 200 names in use, as docs/kubernetes.md states it.
    let document = std::fs::read_to_string(settings::repository().join("docs/kubernetes.md"));
    let document = document.expect("the document is there");
    let row = document
        .lines()
        .find_map(|line| line.strip_prefix("| 200 names in turn, as fast as it goes | "));
    let mut measured = row.expect("it is measured").split(' ');
    let amount = measured.next().and_then(|amount| amount.parse().ok());
    let of_the_program = kib(amount.expect("a number"), measured.next().expect("a unit"));
    for name in OVERLAYS {
        let objects = overlay(name);
        let container = &only(&objects, "Deployment")["spec"]["template"]["spec"]["containers"][0];
        let limit = text(&container["resources"]["limits"]["memory"]);
        let (amount, unit) = limit.split_at(limit.find('M').expect("mebibytes"));
        let limit = kib(amount.parse().expect("a number"), unit);
        let configuration = odometer_toml(&objects);
        let mut lines = configuration.lines();
        let n_names = lines.find_map(|line| line.strip_prefix("live_sequences = "));
        let n_names: f64 = n_names.expect(name).parse().expect("a number");
        let needs = |n_names: f64| of_the_program + n_names * of_a_name;
        // A third of the limit stays free for callers and for memory that the allocator keeps.
        assert!(needs(n_names) * 1.5 < limit, "{name}: {}", needs(n_names));
        // Negative control: the program's own default does not fit the limit.
        assert!(needs(1_000_000.0) > limit, "{name}");
    }
}

#[test]
fn the_document_counts_the_connections_of_all_pods_at_once() {
    let objects = overlay("postgres");
    let deployment = &only(&objects, "Deployment")["spec"];
    let of = |value: &Value| value.as_u64().expect("a number");
    let grace = of(&deployment["template"]["spec"]["terminationGracePeriodSeconds"]);
    let n_stopping = grace.div_ceil(of(&deployment["minReadySeconds"]));
    let n_starting = of(&deployment["strategy"]["rollingUpdate"]["maxSurge"]);
    let n_serving = of(&only(&objects, "HorizontalPodAutoscaler")["spec"]["maxReplicas"]);
    let n_pods = n_serving + n_starting + n_stopping;
    let document = settings::repository().join("docs/kubernetes.md");
    let document = std::fs::read_to_string(document).expect("it is there");
    // `pool.max` has its default here, 8. One more connection probes the database.
    let n_connections = n_pods * (8 + 1);
    let said = format!("({n_serving} + {n_starting} + {n_stopping}) × 9 = {n_connections}");
    assert!(document.contains(&said), "not {said}");
}

#[test]
fn replicas_images_and_volumes_are_as_the_store_needs() {
    for name in OVERLAYS {
        let objects = overlay(name);
        let is_single = SINGLES.contains(&name);
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
        // The autoscaler sets the number of replicas. An apply must not set it back.
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
