//! Tests the image: how the Dockerfile is written, and what the Dockerfile builds.

use std::time::Duration;

use serde_json::json;

use super::{
    containers::{Containers, IMAGE, faults_of},
    tools::{command, from_pypi, outcome, succeeds},
};
use crate::support::{Client, directory, ports, run, settings, wait};

/// The user and group that the Dockerfile's `USER` and the manifests name.
const USER: &str = "65532:65532";
const START_LIMIT: Duration = Duration::from_secs(60);
/// Arguments that take away all rights: to write to the root, to gain rights, and any other.
const UNPRIVILEGED: [&str; 4] = [
    "--read-only",
    "--cap-drop=all",
    "--security-opt=no-new-privileges",
    "--network=host",
];

fn dockerfile() -> String {
    let file = settings::repository().join("Dockerfile");
    std::fs::read_to_string(file).expect("the Dockerfile is there")
}

#[test]
fn the_image_is_labelled_with_the_version_it_has() {
    let version = env!("CARGO_PKG_VERSION");
    let label = format!("org.opencontainers.image.version=\"{version}\"");
    assert!(dockerfile().contains(&label), "not {label}");
}

#[test]
fn the_dockerfile_passes_hadolint() {
    succeeds(from_pypi("hadolint").arg("Dockerfile"));
    let home = directory("hadolint");
    let wrong = home.path().join("Dockerfile");
    std::fs::write(&wrong, "FROM rust:latest\n").expect("our directory");
    let (passes, said) = outcome(from_pypi("hadolint").arg(&wrong));
    assert!(!passes && said.contains("DL3007"), "{said}");
}

#[test]
fn every_base_of_the_image_is_pinned_by_its_digest() {
    let dockerfile = dockerfile();
    let bases: Vec<&str> = dockerfile
        .lines()
        .filter_map(|line| line.strip_prefix("FROM ")?.split(' ').next())
        .collect();
    // The final image is based on no other image.
    assert_eq!(bases.last(), Some(&"scratch"));
    assert!(bases.len() >= 2, "vacuous: {bases:?}");
    for base in bases.iter().filter(|base| **base != "scratch") {
        let (name, digest) = base.split_once("@sha256:").unwrap_or_default();
        assert!(name.contains(':') && digest.len() == 64, "{base}");
    }
}

/// Checks that the image is built by a toolchain that the workspace allows.
#[test]
fn the_image_is_built_by_a_toolchain_that_is_new_enough() {
    let dockerfile = dockerfile();
    let version = dockerfile.split("FROM rust:").nth(1).expect("a toolchain");
    let workspace = std::fs::read_to_string(settings::repository().join("Cargo.toml"));
    let workspace = workspace.expect("the workspace is there");
    let least = workspace.split("rust-version = \"").nth(1);
    let least = least.and_then(|rest| rest.split('"').next());
    let numbers = |text: &str| -> Vec<u32> {
        let text = text.split(['-', '@']).next().unwrap_or_default();
        text.split('.')
            .filter_map(|part| part.parse().ok())
            .collect()
    };
    let least = numbers(least.expect("a least version"));
    assert!(!least.is_empty() && numbers(version) >= least, "{least:?}");
}

/// Checks what the Dockerfile's arguments make cargo build, without building it.
#[test]
fn the_image_has_the_features_that_are_asked_for() {
    let dockerfile = dockerfile();
    let (_, of_the_build) = dockerfile.split_once("\nFROM ").expect("a stage");
    assert!(of_the_build.contains("\nARG FEATURES=\n"));
    let told = of_the_build.lines().find_map(|line| {
        let line = line
            .trim_start_matches([' ', '&'])
            .trim_end_matches([' ', '\\']);
        line.strip_prefix("cargo build --release ")
    });
    let asked = format!("cargo tree --offline {}", told.expect("it is built"));
    let of = |features: &str| {
        let mut tree = command("bash");
        outcome(tree.args(["-c", &asked]).env("FEATURES", features))
    };
    let sends_spans = |said: &str| said.contains("opentelemetry-otlp ");
    let (is_sound, said) = of("");
    assert!(is_sound && !sends_spans(&said), "{said}");
    let (is_sound, said) = of("otlp");
    assert!(is_sound && sends_spans(&said), "{said}");
    let (is_sound, said) = of("otpl");
    assert!(!is_sound, "{said}");
}

/// The source that has documents of the repository in it.
const PAGES: &str = "service/src/http/documents.rs";

/// Checks that cargo finds every package in the files that are sent to the build.
#[test]
fn what_the_image_is_built_from_is_the_whole_workspace() {
    let home = directory("context");
    let ignored = std::fs::read_to_string(settings::repository().join(".dockerignore"));
    let ignored = ignored.expect("the list is there");
    let sent = ignored.lines().filter_map(|line| line.strip_prefix('!'));
    let sent: Vec<&str> = sent.collect();
    assert!(sent.len() >= 5, "vacuous: {sent:?}");
    let of_the_context = |sent: &[&str]| {
        let place = tempfile::TempDir::new_in(home.path()).expect("our directory");
        let mut copy = command("cp");
        copy.args(["-r", "--parents"]).args(sent).arg(place.path());
        succeeds(&mut copy);
        outcome(
            command("cargo")
                .args(["metadata", "--locked", "--offline", "--no-deps"])
                .args(["--format-version", "1"])
                .current_dir(place.path()),
        )
    };
    let (is_whole, said) = of_the_context(&sent);
    assert!(is_whole, "{said}");
    assert!(sent.contains(&"release"), "release/root is not sent");
    // Pages of the program are made of documents.
    let pages = std::fs::read_to_string(settings::repository().join(PAGES));
    let pages = pages.expect("the source is there");
    let parts = pages.split("include_str!(\"../../../").skip(1);
    let parts: Vec<&str> = parts.filter_map(|part| part.split('"').next()).collect();
    assert!(parts.len() >= 2, "vacuous: {parts:?}");
    for part in parts {
        assert!(sent.contains(&part), "{part} is not sent");
    }
    let less: Vec<&str> = sent.into_iter().filter(|path| *path != "core").collect();
    assert!(!of_the_context(&less).0);
}

#[test]
fn the_image_gives_a_number_read_only_and_without_rights() {
    run(async {
        let mut containers = Containers::with_image();
        let port = ports::free();
        let listen = format!("--env=ODOMETER_LISTEN=127.0.0.1:{port}");
        let file = "--volume=numbers:/var/lib/odometer";
        let mut arguments = vec!["run", "--detach", "--name=odometer"];
        arguments.extend(UNPRIVILEGED);
        arguments.extend([&listen, file, IMAGE]);
        containers.start(&arguments);
        let client = Client::new(&format!("http://127.0.0.1:{port}"));
        wait::until("the container is ready", START_LIMIT, async || {
            let reply = client.get("/readyz").await;
            reply.is_ok_and(|reply| reply.status == 200).then_some(())
        })
        .await;
        assert_eq!(client.next("orders").await, 1);
        // The image itself has no time zones. The zone comes from the program.
        let daily = json!({"period": "day", "time_zone": "Asia/Shanghai"});
        client.define("daily", &daily).await;
        assert_eq!(client.next("daily").await, 1);
        let known = containers.inspect("odometer");
        assert_eq!(known["Config"]["User"], USER);
        assert_eq!(faults_of(&known), Vec::<String>::new());
        succeeds(&mut containers.podman(&["stop", "--time=45", "odometer"]));
        assert_eq!(containers.inspect("odometer")["State"]["ExitCode"], 0);
    });
}

#[test]
fn the_image_has_no_shell_and_cannot_write_beside_its_volumes() {
    let containers = Containers::with_image();
    for shell in ["/bin/sh", "/bin/bash", "/bin/busybox"] {
        let entry = format!("--entrypoint={shell}");
        let shell = ["run", "--rm", "--network=none", &entry, IMAGE, "-c", "true"];
        let (runs, said) = outcome(&mut containers.podman(&shell));
        assert!(!runs && said.contains("no such file"), "{said}");
    }
    // Without a volume, the program has no directory to write its file to, and says so.
    let mut arguments = vec!["run", "--rm"];
    arguments.extend(UNPRIVILEGED);
    arguments.extend(["--env=ODOMETER_LISTEN=127.0.0.1:0", IMAGE]);
    let (runs, said) = outcome(&mut containers.podman(&arguments));
    assert!(!runs && said.contains("odometer.db"), "{said}");
    // Negative control: the program itself is in the image.
    let version = ["run", "--rm", "--network=none", IMAGE, "--version"];
    let said = succeeds(&mut containers.podman(&version));
    assert!(said.starts_with("odometer "), "{said}");
}
