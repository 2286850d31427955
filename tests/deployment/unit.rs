//! Tests the unit of systemd: the one of the release, and what `docs/systemd.md` says about it.

use std::path::Path;

use super::{
    package::Root,
    tools::{command, outcome, succeeds},
};
use crate::{documents::markdown::Document, support::settings};

const UNIT: &str = "odometer.service";
const DOCUMENT: &str = "docs/systemd.md";
/// The folder of units in a root.
const UNITS: &str = "usr/lib/systemd/system";
/// How the document states the exposure.
const EXPOSURE: &str = "an exposure of ";

fn unit() -> String {
    let file = settings::repository().join("release").join(UNIT);
    std::fs::read_to_string(file).expect("the unit is there")
}

/// Returns the value of a key of the unit, which has the key once.
fn value(key: &str) -> String {
    let unit = unit();
    let mut lines = unit.lines().filter_map(|line| line.strip_prefix(key));
    let value = lines.next().expect(key).to_owned();
    assert_eq!(lines.next(), None, "{key}");
    value
}

/// Makes a root with the package and the units of systemd that the unit names.
fn installed() -> Root {
    let root = Root::make();
    root.install();
    let machine = Path::new("/").join(UNITS);
    let mut copy = command("cp");
    succeeds(copy.args(["-a", "-T"]).arg(machine).arg(root.path(UNITS)));
    root
}

/// Runs `systemd-analyze` on the unit of a root.
fn analyze(root: &Root, arguments: &[&str]) -> (bool, String) {
    let mut analyze = command("systemd-analyze");
    analyze.arg(format!("--root={}", root.path("").display()));
    // There is no `man` in the root.
    outcome(analyze.arg("--man=no").args(arguments).arg(UNIT))
}

/// Returns the block of the document with this first line.
fn block(first: &str) -> String {
    let fences = Document::read(DOCUMENT).fences().into_iter();
    let mut found = fences.filter(|fence| fence.text.lines().next() == Some(first));
    let block = found.next();
    assert!(found.next().is_none(), "two blocks begin with {first}");
    block
        .unwrap_or_else(|| panic!("no block begins with {first}"))
        .text
}

#[test]
fn systemd_finds_no_fault_in_the_unit() {
    let root = installed();
    let verified = || analyze(&root, &["verify"]);
    assert_eq!(verified(), (true, String::new()));
    // With the secrets of the document, too.
    let secrets = root.path(UNITS).join(format!("{UNIT}.d"));
    std::fs::create_dir_all(&secrets).expect("our root");
    let block = block("[Service]");
    assert!(block.contains("LoadCredential="), "{block}");
    std::fs::write(secrets.join("override.conf"), block).expect("our root");
    assert_eq!(verified(), (true, String::new()));

    // Negative control: a key that systemd does not know is found.
    let wrong = unit().replace("ProtectHome=", "ProtectHomes=");
    std::fs::write(root.path(UNITS).join(UNIT), wrong).expect("our root");
    let (_, said) = verified();
    assert!(said.contains("ProtectHomes"), "{said}");
}

#[test]
fn the_unit_is_exposed_as_little_as_the_document_says() {
    let document = Document::read(DOCUMENT).text;
    let stated = document.split_once(EXPOSURE).expect("it is stated").1;
    let (whole, rest) = stated.split_once('.').expect("a figure");
    let tenths: u32 = format!("{whole}{}", &rest[..1]).parse().expect("a figure");
    let root = installed();
    let under = |tenths: u32| {
        let threshold = format!("--threshold={tenths}");
        analyze(&root, &["security", "--offline=true", &threshold]).0
    };
    assert!(under(tenths), "more than {tenths} tenths");
    assert!(!under(tenths - 1), "less than {tenths} tenths");

    // Negative control: a unit that may have capabilities is exposed more.
    let wrong = unit().replace("CapabilityBoundingSet=\n", "");
    std::fs::write(root.path(UNITS).join(UNIT), wrong).expect("our root");
    assert!(!under(tenths));
}

#[test]
fn the_document_shows_the_unit_that_is_shipped() {
    assert_eq!(block("[Unit]"), unit());
}

#[test]
fn a_stop_by_systemd_takes_longer_than_the_deadline() {
    let seconds: u64 = value("TimeoutStopSec=").parse().expect("seconds");
    // `shutdown.deadline` has its default here.
    assert!(seconds > 25, "{seconds}");
    let n_files: u64 = value("LimitNOFILE=").parse().expect("a number");
    // Twice the default of `http.connections`.
    assert!(n_files > 2 * 16_384, "{n_files}");
}
