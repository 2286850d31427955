//! Tests the release: a tarball with checksums, which is unpacked and gives a first number.

use std::path::Path;

use super::tools::{command, outcome, succeeds};
use crate::{
    documents::markdown::Document,
    support::{Program, directory, run, settings},
};

/// The files that a user has after the download of a release.
struct Download {
    home: tempfile::TempDir,
    /// The name of the tarball.
    tarball: String,
}

impl Download {
    fn of_this_build() -> Self {
        let release = directory("release");
        let place = release.path().join("built");
        build(&place);
        let home = directory("download");
        let sums = place.join("SHA256SUMS");
        let listed = std::fs::read_to_string(&sums).expect("there are checksums");
        let mut names = listed.lines().filter_map(|line| line.split_once("  "));
        let tarball = names.find(|(_, name)| name.ends_with(".tar.gz"));
        let (_, tarball) = tarball.expect("a tarball is in the list");
        for file in ["SHA256SUMS", tarball] {
            std::fs::copy(place.join(file), home.path().join(file)).expect("our directory");
        }
        Self {
            tarball: tarball.to_owned(),
            home,
        }
    }

    /// Checks the files with the command that the release tells users to run first.
    fn check(&self) -> (bool, String) {
        outcome(
            command("sha256sum")
                .args(["--check", "--ignore-missing", "SHA256SUMS"])
                .current_dir(self.home.path()),
        )
    }
}

/// Builds the release with the program of this run, into the folder `place`.
fn build(place: &Path) {
    let program = settings::shipped_program();
    let release = || {
        let mut release = command("release/build");
        release.arg("--of").arg(&program).arg("--to").arg(place);
        release
    };
    let said = succeeds(&mut release());
    let sums = place.join("SHA256SUMS").display().to_string();
    assert!(said.lines().any(|line| line == sums), "{said}");
    // A release is not built over existing files.
    let (is_built, said) = outcome(&mut release());
    assert!(!is_built && said.contains("not empty"), "{said}");
}

/// Returns the links of a folder's documents that lead to no file of the folder.
fn links_to_nothing(folder: &Path) -> Vec<String> {
    let listed = succeeds(command("find").arg(folder).args(["-name", "*.md"]));
    let mut n_links = 0;
    let mut found = Vec::new();
    for path in listed.lines() {
        let document = Document::read(path);
        let place = document.path.parent().expect("a file lies in a folder");
        for link in document.links() {
            let file = link.split('#').next().unwrap_or_default();
            if file.is_empty() || file.starts_with("https://") {
                continue;
            }
            n_links += 1;
            if !place.join(file).exists() {
                found.push(format!("{link} of {path}"));
            }
        }
    }
    assert!(n_links >= 50, "vacuous: {n_links} links");
    found
}

#[test]
fn a_download_is_checked_unpacked_and_gives_its_first_number() {
    run(async {
        let download = Download::of_this_build();
        let (is_whole, said) = download.check();
        assert!(is_whole && said.contains(": OK"), "{said}");
        succeeds(
            command("tar")
                .args(["xzf", &download.tarball])
                .current_dir(download.home.path()),
        );
        let name = download.tarball.trim_end_matches(".tar.gz");
        let folder = download.home.path().join(name);
        for file in ["LICENSE-MIT", "LICENSE-APACHE", "README.md"] {
            assert!(folder.join(file).is_file(), "{file}");
        }
        assert_eq!(links_to_nothing(&folder), Vec::<String>::new());
        let program = folder.join("odometer");
        let symbols = succeeds(command("readelf").arg("--sections").arg(&program));
        assert!(!symbols.contains(".symtab"), "not stripped");
        let options = Program::options().built_at(&program);
        let version = options.run(&["--version"]);
        let wanted = format!("odometer {}", env!("CARGO_PKG_VERSION"));
        assert_eq!(version.output.trim(), wanted);
        let program = options.start_ready().await;
        assert_eq!(program.client().next("orders").await, 1);
        program.stop().await;

        // Negative control: a missing document is found.
        std::fs::remove_file(folder.join("docs/runbook.md")).expect("our copy");
        let missed = links_to_nothing(&folder);
        assert!(missed.len() >= 3, "{missed:?}");

        // Negative control: a byte that changed during the download is found.
        let tarball = download.home.path().join(&download.tarball);
        let mut bytes = std::fs::read(&tarball).expect("our copy");
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&tarball, bytes).expect("our copy");
        let (is_whole, said) = download.check();
        assert!(!is_whole && said.contains("FAILED"), "{said}");

        // The same program gives the same tarball.
        let again = Download::of_this_build();
        let of = |download: &Download| {
            let sums = std::fs::read_to_string(download.home.path().join("SHA256SUMS"));
            sums.expect("our copy")
        };
        assert_eq!(of(&again), of(&download));
    });
}
