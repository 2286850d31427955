//! Tests the release: what it leaves, and that a download gives a first number by the commands of
//! the README.

use std::{
    io::Write,
    path::{Path, PathBuf},
    sync::LazyLock,
    time::Instant,
};

use tempfile::TempDir;

use super::tools::{command, outcome, succeeds};
use crate::{
    documents::markdown::{Document, Fence},
    support::{Program, directory, run, settings},
};

/// The section of the README with the first commands.
const FIRST: &str = "Sixty seconds to a number";
const CHECKSUMS: &str = "SHA256SUMS";

/// The release of the program of this run. The first test that needs the release builds it.
static RELEASE: LazyLock<TempDir> = LazyLock::new(|| {
    let home = directory("release");
    build(&home.path().join("built"));
    home
});

/// Returns the only file of the release with a name that ends in `end`.
pub(super) fn file(end: &str) -> PathBuf {
    let folder = RELEASE.path().join("built");
    let mut found = names(&folder);
    found.retain(|name| name.ends_with(end));
    assert_eq!(found.len(), 1, "{end}: {found:?}");
    folder.join(&found[0])
}

/// Returns the names of a folder's files, in order.
fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("it is a folder").flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
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
    for name in names(place) {
        let file = place.join(name).display().to_string();
        assert!(said.lines().any(|line| line == file), "not {file}: {said}");
    }
    // A release is not built over existing files.
    let (is_built, said) = outcome(&mut release());
    assert!(!is_built && said.contains("not empty"), "{said}");
}

/// The files that a user has after the download of a release.
fn download() -> TempDir {
    let home = directory("download");
    for end in [CHECKSUMS, ".tar.gz", ".deb", ".oci.tar", ".cdx.json"] {
        let file = file(end);
        let name = file.file_name().expect("it is a file");
        std::fs::copy(&file, home.path().join(name)).expect("our directory");
    }
    home
}

/// Checks the files of a folder with the command that the release tells users to run first.
fn check(folder: &Path) -> (bool, String) {
    outcome(
        command("sha256sum")
            .args(["--check", "--ignore-missing", CHECKSUMS])
            .current_dir(folder),
    )
}

/// Returns the links of a folder's documents that lead to no file of the folder.
pub(super) fn links_to_nothing(folder: &Path) -> Vec<String> {
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

/// Returns the block of the README's first commands that begins with `start`.
fn block(start: &str) -> Fence {
    let fences = Document::read("README.md").fences().into_iter();
    let mut found = fences.filter(|fence| fence.section == FIRST && fence.text.starts_with(start));
    let block = found.next();
    assert!(found.next().is_none(), "two blocks begin with {start}");
    block.unwrap_or_else(|| panic!("no block begins with {start}"))
}

fn shell(line: &str, folder: &Path) -> String {
    succeeds(command("bash").args(["-c", line]).current_dir(folder))
}

#[test]
fn the_commands_of_the_readme_give_a_number_from_the_tarball() {
    run(async {
        let home = download();
        let commands = block("tar xzf ").text;
        let (unpack, serve) = commands.split_once('\n').expect("two commands");
        let program = serve.trim().strip_suffix(" serve").expect("it serves");
        let call = block("curl ").text;

        let begin = Instant::now();
        shell(unpack, home.path());
        let options = Program::options().built_at(&home.path().join(program));
        let serving = options.in_directory(home.path()).start_ready().await;
        let printed = shell(
            &call.replace("127.0.0.1:8080", serving.address()),
            home.path(),
        );
        let seconds = begin.elapsed().as_secs_f64();
        assert!(printed.contains("\"value\":\"1\""), "{printed}");
        // A speed is no matter of a test. The figure goes around the test's own output, which is
        // shown only if the test fails.
        let said = format!("from the tarball to the first number: {seconds:.2} s");
        let _unread = writeln!(std::io::stderr(), "{said}");
        serving.stop().await;
    });
}

/// Checks that the commands for packages and images name files that the release leaves.
#[test]
fn every_file_that_the_readme_installs_is_in_the_release() {
    let home = download();
    let readme = Document::read("README.md").text;
    for (before, end) in [
        ("tar xzf ", ".tar.gz"),
        ("dpkg -i ", ".deb"),
        ("podman load -i ", ".oci.tar"),
    ] {
        let name = readme.split(before).nth(1).expect(before);
        let name = name.split_whitespace().next().expect("a name");
        assert!(name.ends_with(end), "{before}{name}");
        assert!(home.path().join(name).is_file(), "{before}{name}");
    }
}

#[test]
fn a_download_is_checked_and_its_tarball_is_whole() {
    let home = download();
    let (is_whole, said) = check(home.path());
    assert!(is_whole, "{said}");
    assert_eq!(said.matches(": OK").count(), 4, "{said}");
    let tarball = file(".tar.gz");
    let name = tarball.file_name().expect("it is a file").to_string_lossy();
    shell(&format!("tar xzf {name}"), home.path());
    let folder = home.path().join(name.trim_end_matches(".tar.gz"));
    for file in [
        "LICENSE-MIT",
        "LICENSE-APACHE",
        "README.md",
        "odometer.service",
        "odometer.toml",
        "completions/odometer.bash",
        "completions/_odometer",
        "completions/odometer.fish",
        "man/odometer.1",
    ] {
        let size = std::fs::metadata(folder.join(file)).map(|file| file.len());
        assert!(size.is_ok_and(|size| size > 0), "{file}");
    }
    assert_eq!(links_to_nothing(&folder), Vec::<String>::new());
    let program = folder.join("odometer");
    let symbols = succeeds(command("readelf").arg("--sections").arg(&program));
    assert!(!symbols.contains(".symtab"), "not stripped");
    let version = Program::options().built_at(&program).run(&["--version"]);
    let wanted = format!("odometer {}", env!("CARGO_PKG_VERSION"));
    assert_eq!(version.output.trim(), wanted);

    // Negative control: a missing document is found.
    std::fs::remove_file(folder.join("docs/runbook.md")).expect("our copy");
    let missed = links_to_nothing(&folder);
    assert!(missed.len() >= 3, "{missed:?}");

    // Negative control: a byte that changed during the download is found.
    let tarball = home.path().join(&*name);
    let mut bytes = std::fs::read(&tarball).expect("our copy");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&tarball, bytes).expect("our copy");
    let (is_whole, said) = check(home.path());
    assert!(!is_whole && said.contains("FAILED"), "{said}");
}

#[test]
fn the_same_program_gives_the_same_files() {
    let again = directory("again");
    let place = again.path().join("built");
    build(&place);
    let sums = |file: PathBuf| std::fs::read_to_string(file).expect("there are checksums");
    assert_eq!(sums(place.join(CHECKSUMS)), sums(file(CHECKSUMS)));
}

#[test]
fn what_the_release_cannot_make_is_said_before_it_begins() {
    let home = directory("less");
    let place = home.path().join("built");
    let tools = home.path().join("bin");
    std::fs::create_dir(&tools).expect("our directory");
    for tool in [
        "timeout", "bash", "sed", "head", "dirname", "strip", "objdump", "python3", "dpkg-deb",
    ] {
        let path = succeeds(command("which").arg(tool));
        std::os::unix::fs::symlink(path.trim(), tools.join(tool)).expect("our directory");
    }
    let path = settings::repository().join("release/build");
    let release = |arguments: &[&str]| {
        let mut release = command("bash");
        release.arg(&path).args(arguments).arg("--to").arg(&place);
        outcome(release.env("PATH", &tools))
    };
    let (is_built, said) = release(&[]);
    assert!(!is_built && said.contains("buildah is missing"), "{said}");
    assert!(said.contains("--without image"), "{said}");
    assert!(!place.exists(), "it began");
    let (is_built, said) = release(&["--without", "tarball"]);
    assert!(!is_built && said.contains("--without PART"), "{said}");
}
