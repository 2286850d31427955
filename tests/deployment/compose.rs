//! Tests the compose files: everything that they name exists, and nothing of them is reached from
//! other machines. The program accepts the settings of the file with dashboards.

use std::{collections::BTreeSet, path::Path};

use serde_json::Value;

use super::{
    roles::Roles,
    yaml::{items, read, text},
};
use crate::support::{Backend, Program, run, settings};

const FILE: &str = "dashboards/compose.yaml";
/// The file with two callers. It lies where `docker compose` looks for one.
pub(super) const WITH_CALLERS: &str = "compose.yaml";
/// Every compose file, with the least numbers of its volumes in use and of its published ports.
const FILES: [(&str, usize, usize); 2] = [(FILE, 8, 4), (WITH_CALLERS, 7, 1)];
/// The image that is built here, so that no registry has it.
const BUILT: &str = "odometer:local";
const REPLICAS: [&str; 2] = ["odometer-1", "odometer-2"];
const OURS: [&str; 3] = ["migrate", REPLICAS[0], REPLICAS[1]];

fn compose() -> Value {
    read_compose(FILE)
}

pub(super) fn read_compose(file: &str) -> Value {
    read(&settings::repository().join(file)).remove(0)
}

fn services(compose: &Value) -> Vec<(&String, &Value)> {
    let services = compose["services"].as_object().expect("it has services");
    services.iter().collect()
}

#[test]
fn the_variables_of_compose_are_ours() {
    run(async {
        let compose = compose();
        let roles = Roles::make(Backend::Postgres).await;
        let check = |unknown: Option<&str>, environment: &Value| {
            let mut options = Program::options();
            for (key, value) in environment.as_object().into_iter().flatten() {
                assert!(key.starts_with("ODOMETER_"), "{key}");
                options = match key.as_str() {
                    "ODOMETER_DATABASE_URL" => options.env(key, &roles.serve),
                    _ => options.env(key, text(value)),
                };
            }
            if let Some(unknown) = unknown {
                options = options.env(unknown, "1");
            }
            options.run(&["check"])
        };
        let migrated = Program::options()
            .database(&roles.migrate)
            .run(&["migrate"]);
        assert_eq!(migrated.code, Some(0), "{migrated}");
        for name in OURS {
            let environment = &compose["services"][name]["environment"];
            assert!(environment["ODOMETER_LISTEN"].is_string(), "{name}");
            let checked = check(None, environment);
            assert_eq!(checked.code, Some(0), "{name}: {checked}");
            // Negative control: a variable that the program does not know.
            let checked = check(Some("ODOMETER_LISTENS"), environment);
            assert_eq!(checked.code, Some(78), "{name}: {checked}");
        }
    });
}

#[test]
fn the_database_of_compose_is_the_one_that_it_starts() {
    let compose = compose();
    let server = &compose["services"]["postgres"]["environment"];
    let of = |key: &str| text(&server[key]);
    let url = format!(
        "postgres://{}:{}@postgres:5432/{}",
        of("POSTGRES_USER"),
        of("POSTGRES_PASSWORD"),
        of("POSTGRES_DB"),
    );
    for name in OURS {
        let environment = &compose["services"][name]["environment"];
        assert_eq!(text(&environment["ODOMETER_DATABASE_URL"]), url, "{name}");
    }
}

#[test]
fn every_file_and_volume_that_compose_mounts_exists() {
    for (file, n_least, _) in FILES {
        let compose = read_compose(file);
        let folder = settings::repository().join(file);
        let folder = folder.parent().expect("it lies in a folder");
        let mut n_mounted = 0;
        for (name, service) in services(&compose) {
            for volume in items(&service["volumes"]) {
                let (source, _) = text(volume).split_once(':').expect("from and to");
                if source.starts_with('.') {
                    assert!(folder.join(source).exists(), "{name}: {source}");
                    assert!(text(volume).ends_with(":ro"), "{name}: {volume}");
                } else {
                    assert!(compose["volumes"].get(source).is_some(), "{name}: {source}");
                }
                n_mounted += 1;
            }
            if service["build"].is_string() {
                let dockerfile = Path::new(text(&service["build"])).join("Dockerfile");
                assert!(folder.join(dockerfile).is_file(), "{name}");
            }
        }
        assert!(n_mounted >= n_least, "vacuous: {n_mounted} in {file}");
    }
}

#[test]
fn every_service_of_compose_is_pinned_and_published_on_loopback_alone() {
    for (file, _, n_least) in FILES {
        let compose = read_compose(file);
        let mut published = BTreeSet::new();
        for (name, service) in services(&compose) {
            if service["image"] != BUILT {
                let (_, tag) = text(&service["image"]).split_once(':').expect("a tag");
                let parts = tag.trim_start_matches('v').split('.');
                let is_number = |part: &str| part.parse::<u32>().is_ok();
                let n_parts = parts.clone().count();
                assert!(
                    n_parts >= 2 && parts.clone().all(is_number),
                    "{name}: {tag}"
                );
            }
            for port in items(&service["ports"]) {
                let parts: Vec<&str> = text(port).split(':').collect();
                assert_eq!(parts[0], "127.0.0.1", "{name}: {port}");
                assert!(parts[1].parse::<u16>().is_ok(), "{name}: {port}");
                assert!(published.insert(parts[1].to_owned()), "twice: {port}");
            }
        }
        assert!(published.len() >= n_least, "vacuous: {published:?}");
    }
}

/// Only `migrate` builds the image. Two builds of one image at the same time would be one too many,
/// and no registry has the image.
#[test]
fn one_service_of_compose_builds_the_image_before_the_others_take_it() {
    let compose = compose();
    let ours = |name: &str| &compose["services"][name];
    let builds = |name: &&&str| ours(name)["build"].is_string();
    let builders: Vec<_> = OURS.iter().filter(builds).collect();
    assert_eq!(builders, [&"migrate"]);
    for name in REPLICAS {
        assert_eq!(ours(name)["image"], ours("migrate")["image"], "{name}");
        assert_eq!(ours(name)["pull_policy"], "never", "{name}");
        let after = &ours(name)["depends_on"]["migrate"]["condition"];
        assert_eq!(after, "service_completed_successfully", "{name}");
    }
}

/// Prometheus and Grafana reach each other and the replicas by the names of services.
#[test]
fn who_is_asked_in_compose_is_a_service() {
    let compose = compose();
    let configured = settings::repository().join("dashboards/prometheus.yaml");
    let configured = read(&configured).remove(0);
    let scraped = &configured["scrape_configs"][0]["dns_sd_configs"][0];
    let sources = "dashboards/grafana/provisioning/datasources/prometheus.yaml";
    let sources = read(&settings::repository().join(sources)).remove(0);
    let source = text(&sources["datasources"][0]["url"]);
    let host = source.trim_start_matches("http://").split(':').next();
    let host = host.unwrap_or_default();
    assert!(compose["services"].get(host).is_some(), "{host}");
    for name in REPLICAS {
        let replica = &compose["services"][name];
        let aliases = items(&replica["networks"]["default"]["aliases"]);
        assert_eq!(aliases, items(&scraped["names"]), "{name}");
        let listen = text(&replica["environment"]["ODOMETER_LISTEN"]);
        let (_, port) = listen.rsplit_once(':').expect("a port");
        assert_eq!(scraped["port"].to_string(), port);
        let published = text(&replica["ports"][0]);
        assert!(published.ends_with(&format!(":{port}")), "{published}");
    }
}
