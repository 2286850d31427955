//! Loads the image of the release and runs containers without a registry. Everything lies below one
//! directory.

use std::{path::Path, process::Command, sync::LazyLock};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{
    tools::{command, outcome, succeeds},
    yaml::text,
};
use crate::support::{directory, keeper, settings};

/// The name of the image in these tests.
pub(super) const IMAGE: &str = concat!("odometer:", env!("CARGO_PKG_VERSION"));

/// The first version of podman that decodes the `data` of a Secret.
const DECODING: (u32, u32) = (4, 4);

/// The configuration of podman for machines without systemd and without podman's default runtime.
const CONFIGURATION: &str = "[containers]\n\
                             default_ulimits = [\"nofile=4096:4096\", \"nproc=4096:4096\"]\n\
                             [engine]\n\
                             runtime = \"runc\"\n\
                             cgroup_manager = \"cgroupfs\"\n\
                             events_logger = \"none\"\n";

/// The archive of the image, which `release/image` makes of the program of this run. The first test
/// that needs the archive makes it.
static ARCHIVE: LazyLock<TempDir> = LazyLock::new(|| {
    let home = directory("archive");
    let program = home.path().join("odometer");
    succeeds(
        command("strip")
            .args(["--strip-all", "-o"])
            .arg(&program)
            .arg(settings::shipped_program()),
    );
    let mut archive = command("release/image");
    succeeds(archive.arg(program).arg(home.path().join(ARCHIVE_NAME)));
    home
});

const ARCHIVE_NAME: &str = "image.oci.tar";

/// A directory for images and containers. They are removed at the drop or at the end of the run.
pub(super) struct Containers {
    home: TempDir,
    /// The processes that were started for containers on this machine.
    processes: Vec<u32>,
}

impl Containers {
    /// Loads the image from its archive, as the README does.
    pub(super) fn with_image() -> Self {
        let home = directory("pod");
        let configuration = home.path().join("containers.conf");
        std::fs::write(configuration, CONFIGURATION).expect("our directory");
        let containers = Self {
            home,
            processes: Vec::new(),
        };
        let archive = ARCHIVE.path().join(ARCHIVE_NAME).display().to_string();
        let said = succeeds(&mut containers.podman(&["load", "-i", &archive]));
        assert!(said.contains(IMAGE), "{said}");
        containers
    }

    pub(super) fn home(&self) -> &Path {
        self.home.path()
    }

    pub(super) fn podman(&self, arguments: &[&str]) -> Command {
        let mut podman = command("podman");
        podman
            .env("CONTAINERS_CONF", self.home().join("containers.conf"))
            .arg("--root")
            .arg(self.home().join("images"))
            // The path of `--runroot` may have at most 50 characters.
            .arg("--runroot")
            .arg(self.home().join("run"))
            .args(["--storage-driver", "vfs"])
            .args(arguments);
        podman
    }

    /// Runs podman with these arguments. Notes the processes that podman started, so that they end
    /// with the run. Returns the output.
    pub(super) fn start(&mut self, arguments: &[&str]) -> String {
        let printed = succeeds(&mut self.podman(arguments));
        let numbers = self.podman(&["ps", "--all", "--quiet", "--no-trunc"]);
        for container in succeeds(&mut { numbers }).split_whitespace() {
            let state = &self.inspect(container)["State"];
            for key in ["Pid", "ConmonPid"] {
                let process = state[key].as_u64().and_then(|of| u32::try_from(of).ok());
                if let Some(process @ 1..) = process {
                    keeper::end_with_the_run(process, "KILL");
                    self.processes.push(process);
                }
            }
        }
        for mount in self.mounts() {
            keeper::unmount_with_the_run(Path::new(&mount));
        }
        printed
    }

    /// Runs the pod of a Job to its end, because podman has no Jobs. Returns the exit code and the
    /// log.
    pub(super) fn run_job(&mut self, job: &Value) -> (i64, String) {
        let name = &job["metadata"]["name"];
        let mut spec = job["spec"]["template"]["spec"].clone();
        spec["containers"][0]["image"] = IMAGE.into();
        // podman puts the pod's name before the container's.
        let container = &spec["containers"][0]["name"];
        let container = format!("{}-{}", text(name), text(container));
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec,
        });
        let file = self.home().join("job.yaml");
        std::fs::write(&file, pod.to_string()).expect("our directory");
        let file = file.display().to_string();
        self.start(&["play", "kube", "--build=false", "--network=host", &file]);
        let container = self.named(&container);
        let code = succeeds(&mut self.podman(&["wait", &container]));
        let said = outcome(&mut self.podman(&["logs", &container])).1;
        succeeds(&mut self.podman(&["play", "kube", "--down", &file]));
        (code.trim().parse().expect("an exit code"), said)
    }

    /// Returns the name of the only container with a name that ends in `end`. How such a name
    /// begins depends on the version of podman.
    pub(super) fn named(&self, end: &str) -> String {
        let filter = format!("--filter=name={end}$");
        let mut list = self.podman(&["ps", "--all", "--format={{.Names}}", &filter]);
        let names = succeeds(&mut list);
        let names: Vec<&str> = names.split_whitespace().collect();
        assert_eq!(names.len(), 1, "{end}: {names:?}");
        names[0].to_owned()
    }

    /// Creates a Secret. Before podman 4.4, the `data` of a Secret is mounted without being decoded
    /// (containers/podman#16631). For these versions, the values are written undecoded.
    pub(super) fn secret(&self, name: &str, values: &[(&str, &str)]) {
        let decodes = self.version() >= DECODING;
        let written = |value: &str| if decodes { base64(value) } else { value.into() };
        let data: serde_json::Map<String, Value> = values
            .iter()
            .map(|(key, value)| ((*key).to_owned(), written(value).into()))
            .collect();
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data,
        });
        let file = self.home().join(format!("{name}.yaml"));
        std::fs::write(&file, secret.to_string()).expect("our directory");
        let file = file.display().to_string();
        succeeds(&mut self.podman(&["secret", "create", name, &file]));
    }

    /// Returns podman's major and minor version.
    fn version(&self) -> (u32, u32) {
        let version = succeeds(&mut self.podman(&["version", "--format={{.Client.Version}}"]));
        let mut parts = version.trim().split('.').map(|part| part.parse().ok());
        let mut part = || parts.next().flatten();
        (part().expect("a number"), part().expect("a number"))
    }

    /// Returns what `podman inspect` reports about a container.
    pub(super) fn inspect(&self, container: &str) -> Value {
        let known = succeeds(&mut self.podman(&["inspect", "--type", "container", container]));
        let known: Value = serde_json::from_str(&known).expect("podman writes JSON");
        known[0].clone()
    }

    /// Returns everything that is mounted below the directory.
    fn mounts(&self) -> Vec<String> {
        let mounted = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let places = mounted.lines().filter_map(|line| line.split(' ').nth(1));
        let home = self.home().display().to_string();
        let ours = places.filter(|place| place.starts_with(&home));
        ours.map(str::to_owned).collect()
    }
}

impl Drop for Containers {
    fn drop(&mut self) {
        // If the test has already failed, cleaning up must not fail again.
        for arguments in [
            ["pod", "rm", "--force", "--all", "--time=0"],
            ["rm", "--force", "--all", "--volumes", "--time=0"],
        ] {
            let _ = self.podman(&arguments).output();
        }
        for process in self.processes.drain(..) {
            keeper::has_ended(process);
        }
        for mount in self.mounts() {
            let _ = Command::new("umount").args(["-l", "--", &mount]).output();
        }
    }
}

fn base64(value: &str) -> String {
    let encode = ["-c", "printf %s \"$1\" | base64 --wrap=0", "sh", value];
    succeeds(command("sh").args(encode))
}

/// Returns the status of a process from the kernel, which lists its rights.
pub(super) fn rights(process: &Value) -> String {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"));
    status.unwrap_or_else(|error| panic!("{process}: {error}"))
}

/// Returns the faults of a container's process, which should have no rights and a read-only root.
pub(super) fn faults_of(container: &Value) -> Vec<String> {
    let process = &container["State"]["Pid"];
    let status = rights(process);
    let mut faults = Vec::new();
    for (key, wanted) in [
        ("Uid", "65532 65532 65532 65532"),
        ("CapPrm", "0000000000000000"),
        ("CapEff", "0000000000000000"),
        ("CapBnd", "0000000000000000"),
        ("NoNewPrivs", "1"),
        ("Seccomp", "2"),
    ] {
        let line = status.lines().find_map(|line| {
            let rest = line.strip_prefix(key)?.strip_prefix(':')?;
            Some(rest.split_whitespace().collect::<Vec<_>>().join(" "))
        });
        if line.as_deref() != Some(wanted) {
            faults.push(format!("{key}: {line:?}"));
        }
    }
    let mounts = std::fs::read_to_string(format!("/proc/{process}/mounts"));
    let mounts = mounts.expect("the process runs");
    let root = mounts
        .lines()
        .find(|line| line.split(' ').nth(1) == Some("/"));
    let options = root.and_then(|line| line.split(' ').nth(3));
    if options.is_none_or(|options| !options.split(',').any(|option| option == "ro")) {
        faults.push(format!("its root: {root:?}"));
    }
    faults
}
