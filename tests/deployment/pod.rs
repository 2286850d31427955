//! Runs the pods of the manifests with podman, on real databases.

use std::time::Duration;

use serde_json::{Value, json};

use super::{
    containers::{Containers, IMAGE, faults_of},
    roles::Roles,
    tools::{outcome, succeeds},
    yaml::{containers, objects, of_kind, only, text},
};
use crate::support::{Backend, Client, PASSWORD, for_each_server, ports, wait};

const TOKEN: &str = "token-of-the-test";
/// The time within which a started pod must be ready.
const START_LIMIT: Duration = Duration::from_secs(60);
/// The end of the serving container's name. podman puts the pod's name before it.
const SERVING: &str = "-odometer";

for_each_server!(the_pod_runs_read_only_without_rights_and_gives_numbers);

async fn the_pod_runs_read_only_without_rights_and_gives_numbers(backend: Backend) {
    // For PostgreSQL the base is enough. Its overlay changes nothing inside the pod.
    let folder = match backend {
        Backend::MariaDb => "k8s/overlays/mysql",
        Backend::Postgres | Backend::Sqlite => "k8s/base",
    };
    let roles = Roles::make(backend).await;
    let mut pod = Pod::of(folder);
    pod.containers
        .secret("odometer-migrate", &[("url", &roles.migrate)]);
    pod.containers.secret(
        "odometer-serve",
        &[("url", &roles.serve), ("admin-token", TOKEN)],
    );
    pod.play();
    assert_eq!(pod.first_number().await, 1);
    assert_eq!(faults_of(&pod.serving()), Vec::<String>::new());
    // Negative control: the process of this test has rights, and can write to its root.
    let own = json!({"State": {"Pid": std::process::id()}});
    assert!(!faults_of(&own).is_empty());
    let log = pod.log();
    assert!(log.contains("Listening on"), "{log}");
    assert!(!log.contains(TOKEN) && !log.contains(PASSWORD), "{log}");

    // The second start is like a new image: the numbers go on, and the schema is already there.
    pod.stop();
    pod.play();
    assert_eq!(pod.first_number().await, 2);
}

#[test]
fn the_single_pod_keeps_its_file_on_its_volume() {
    crate::support::run(async {
        let mut pod = Pod::of("k8s/overlays/sqlite-single");
        pod.containers
            .secret("odometer-serve", &[("admin-token", TOKEN)]);
        pod.play();
        assert_eq!(pod.first_number().await, 1);
        assert_eq!(faults_of(&pod.serving()), Vec::<String>::new());
        pod.stop();
        pod.play();
        assert_eq!(pod.first_number().await, 2);
    });
}

#[test]
fn the_demo_needs_no_secret_and_a_killed_pod_repeats_no_number() {
    crate::support::run(async {
        let mut pod = Pod::of("k8s/overlays/demo");
        pod.play();
        assert_eq!(pod.first_number().await, 1);
        assert_eq!(faults_of(&pod.serving()), Vec::<String>::new());
        pod.kill();
        pod.play();
        // The numbers that the killed pod held are a gap.
        assert!(pod.first_number().await > 1);
    });
}

/// A pod of the manifests, changed as little as podman 4.3 allows.
pub(super) struct Pod {
    pub(super) containers: Containers,
    pub(super) client: Client,
    file: String,
}

impl Pod {
    fn of(folder: &str) -> Self {
        Self::with(folder, &[])
    }

    /// Adds ConfigMaps that no folder has, because operators make them in the cluster.
    pub(super) fn with(folder: &str, config_maps: &[Value]) -> Self {
        let containers = Containers::with_image();
        let built = objects(folder);
        let [port, operations] = [ports::free(), ports::free()];
        // In a cluster, an existing claim stays as it is. podman refuses it, so the volume is made
        // here.
        for claim in of_kind(&built, "PersistentVolumeClaim") {
            let name = text(&claim["metadata"]["name"]);
            succeeds(&mut containers.podman(&["volume", "create", name]));
        }
        let deployment = for_podman(only(&built, "Deployment"), [port, operations]);
        let built = of_kind(&built, "ConfigMap").into_iter();
        let parts = built.chain(config_maps).chain([&deployment]);
        let parts: Vec<String> = parts.map(Value::to_string).collect();
        let file = containers.home().join("pod.yaml");
        std::fs::write(&file, parts.join("\n---\n")).expect("our directory");
        Self {
            containers,
            client: Client::new(&format!("http://127.0.0.1:{port}")),
            file: file.display().to_string(),
        }
    }

    pub(super) fn play(&mut self) {
        let play = ["play", "kube", "--build=false", "--network=host"];
        self.containers.start(&[&play[..], &[&self.file]].concat());
    }

    /// Stops the pod as a cluster would, and removes it. The exit code must be 0.
    fn stop(&self) {
        let stop = ["stop", "--time=45", &self.containers.named(SERVING)];
        succeeds(&mut self.containers.podman(&stop));
        let state = &self.serving()["State"];
        assert_eq!(state["ExitCode"], 0, "{state}");
        self.remove();
    }

    /// Kills the pod in the middle of its work, and removes it. The volume stays.
    fn kill(&self) {
        let kill = ["kill", "--signal=KILL", &self.containers.named(SERVING)];
        succeeds(&mut self.containers.podman(&kill));
        self.remove();
    }

    fn remove(&self) {
        let down = ["play", "kube", "--down", &self.file];
        succeeds(&mut self.containers.podman(&down));
    }

    pub(super) async fn ready(&self) {
        wait::until("the pod is ready", START_LIMIT, async || {
            let reply = self.client.get("/readyz").await;
            reply.is_ok_and(|reply| reply.status == 200).then_some(())
        })
        .await;
    }

    async fn first_number(&self) -> i64 {
        self.ready().await;
        self.client.next("orders").await
    }

    pub(super) fn log(&self) -> String {
        let serving = self.containers.named(SERVING);
        outcome(&mut self.containers.podman(&["logs", &serving])).1
    }

    /// Returns what podman reports about the serving container.
    fn serving(&self) -> Value {
        self.containers.inspect(&self.containers.named(SERVING))
    }
}

/// Changes a Deployment so that podman 4.3 can run it. podman supports no ports in the machine's
/// own network. In a pod that is always restarted, it cannot run a container only once. podman
/// needs a shell for the liveness probe, and nobody looks at the other probes.
fn for_podman(deployment: &Value, [callers, operations]: [u16; 2]) -> Value {
    let n_containers = containers(deployment).len();
    let mut deployment = deployment.clone();
    deployment["spec"]["replicas"] = 1.into();
    let pod = &mut deployment["spec"]["template"]["spec"];
    pod["restartPolicy"] = "OnFailure".into();
    let mut n_named = 0;
    for kind in ["initContainers", "containers"] {
        for container in pod[kind].as_array_mut().into_iter().flatten() {
            container["image"] = IMAGE.into();
            n_named += 1;
        }
    }
    assert_eq!(n_named, n_containers);
    let serving = pod["containers"][0].as_object_mut().expect("it serves");
    for key in ["ports", "livenessProbe"] {
        serving.remove(key).expect(key);
    }
    let arguments = serving["args"].as_array_mut().expect("it has arguments");
    arguments.push(format!("--listen=127.0.0.1:{callers}").into());
    arguments.push(format!("--set=operations.listen=127.0.0.1:{operations}").into());
    deployment
}
