//! Tests the Debian package: its contents, and what its installation and removal change.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::{
    release::{file, links_to_nothing},
    tools::{command, outcome, succeeds},
};
use crate::{
    documents::markdown::Document,
    support::{Program, directory, run, settings},
};

/// A folder that dpkg takes for the root of a system.
pub(super) struct Root(TempDir);

impl Root {
    pub(super) fn make() -> Self {
        let home = directory("root");
        for folder in [
            "var/lib/dpkg/info",
            "var/lib/dpkg/updates",
            "var/lib/odometer",
        ] {
            std::fs::create_dir_all(home.path().join(folder)).expect("our directory");
        }
        std::fs::write(home.path().join("var/lib/dpkg/status"), "").expect("our directory");
        Self(home)
    }

    /// Installs the package of the release. The C library is missing in this root.
    pub(super) fn install(&self) {
        succeeds(self.dpkg("--install").arg(file(".deb")));
    }

    /// Returns dpkg for this root, in which it finds no shell for the package's scripts.
    fn dpkg(&self, action: &str) -> std::process::Command {
        let mut dpkg = command("dpkg");
        dpkg.arg(format!("--root={}", self.path("").display()))
            .args([
                "--force-script-chrootless",
                "--force-depends",
                "--force-not-root",
            ])
            // A machine may leave documents out by a configuration of its own.
            .arg("--path-include=/*")
            .args(["--force-confdef", "--log=/dev/null", action]);
        dpkg
    }

    pub(super) fn path(&self, below: impl AsRef<Path>) -> PathBuf {
        self.0.path().join(below)
    }
}

#[test]
fn the_program_of_the_package_gives_a_number() {
    run(async {
        let root = Root::make();
        root.install();
        let home = directory("installed");
        let program = Program::options()
            .built_at(&root.path("usr/bin/odometer"))
            .in_directory(home.path())
            // The file that the unit names.
            .env(
                "ODOMETER_CONFIG",
                root.path("etc/odometer/odometer.toml").display(),
            )
            .start_ready()
            .await;
        assert_eq!(program.client().next("orders").await, 1);
        assert!(home.path().join("odometer.db").is_file());
        program.stop().await;
    });
}

#[test]
fn the_package_has_everything_in_its_place() {
    let root = Root::make();
    root.install();
    for file in [
        "etc/odometer/odometer.toml",
        "usr/lib/systemd/system/odometer.service",
        "usr/share/bash-completion/completions/odometer",
        "usr/share/zsh/vendor-completions/_odometer",
        "usr/share/fish/vendor_completions.d/odometer.fish",
        "usr/share/man/man1/odometer.1.gz",
        "usr/share/doc/odometer/changelog.gz",
        "usr/share/doc/odometer/copyright",
    ] {
        let size = std::fs::metadata(root.path(file)).map(|file| file.len());
        assert!(size.is_ok_and(|size| size > 0), "{file}");
    }
    let documents = root.path("usr/share/doc/odometer");
    assert_eq!(links_to_nothing(&documents), Vec::<String>::new());
    let listed = succeeds(command("dpkg-deb").arg("--contents").arg(file(".deb")));
    assert!(listed.lines().count() > 50, "vacuous: {listed}");
    for line in listed.lines() {
        let mut fields = line.split_whitespace();
        let mode = fields.next().unwrap_or_default();
        let is_readable = mode.ends_with("r-x") || mode.ends_with("r--");
        assert!(is_readable && fields.next() == Some("root/root"), "{line}");
    }
}

/// Returns the number that a text begins with.
fn minor_version(text: &str) -> Option<u32> {
    let end = text.find(|letter: char| !letter.is_ascii_digit());
    text.get(..end.unwrap_or(text.len()))?.parse().ok()
}

#[test]
fn the_package_depends_on_the_libraries_that_the_program_names() {
    let field = |name| {
        succeeds(
            command("dpkg-deb")
                .arg("--field")
                .arg(file(".deb"))
                .arg(name),
        )
    };
    assert_eq!(field("Version").trim(), env!("CARGO_PKG_VERSION"));
    let depends = field("Depends");
    let glibc = depends.split("libc6 (>= ").nth(1).expect("a C library");
    let glibc = glibc.split(')').next().expect("a version");
    let program = settings::shipped_program();
    let symbols = succeeds(command("objdump").arg("--dynamic-syms").arg(&program));
    let versions = symbols.split("GLIBC_2.").skip(1).filter_map(minor_version);
    let newest = versions.max().expect("it names versions");
    assert_eq!(glibc, format!("2.{newest}"));
    let document = Document::read("docs/start.md").text;
    assert!(
        document.contains(&format!("glibc {glibc} or later")),
        "{glibc}"
    );
    let named = succeeds(command("objdump").arg("--private-headers").arg(&program));
    let needs_gcc = named.contains("libgcc_s.so.1");
    assert_eq!(depends.contains("libgcc-s1"), needs_gcc, "{depends}");

    // Negative control: a program with a library of another package is refused.
    let mut needs = command("release/needs");
    let (is_known, said) = outcome(needs.arg("/usr/bin/dpkg-deb").arg("deb"));
    assert!(!is_known && said.contains("which package"), "{said}");
}

#[test]
fn the_package_keeps_what_you_changed_and_never_removes_numbers() {
    let root = Root::make();
    root.install();
    let configuration = root.path("etc/odometer/odometer.toml");
    let numbers = root.path("var/lib/odometer/odometer.db");
    std::fs::write(&configuration, "# mine\n").expect("our directory");
    std::fs::write(&numbers, "numbers").expect("our directory");
    let is_mine = || std::fs::read_to_string(&configuration).is_ok_and(|text| text == "# mine\n");

    root.install();
    assert!(is_mine(), "after an upgrade");
    succeeds(root.dpkg("--remove").arg("odometer"));
    assert!(is_mine() && !root.path("usr/bin/odometer").exists());
    succeeds(root.dpkg("--purge").arg("odometer"));
    assert!(!configuration.exists(), "after a purge");
    assert!(numbers.is_file(), "numbers are gone");
}
