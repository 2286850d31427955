//! Runs every command and example of the documents, and compares the answers with the ones that
//! they show.

use std::{os::unix::fs::PermissionsExt, process::Command, time::Duration};

use serde_json::{Value, json};

use super::{
    answers,
    markdown::{Document, Fence},
    names,
    reader::{Reader, backend_of},
};
use crate::source::workspace;
use crate::support::{Program, run, settings, wait};

/// How long to wait for work that the program does after its reply, such as a prefetch.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// The runbook. Other tests run its SQL statements, and the commands of the section [`RESTORE`].
const RUNBOOK: &str = "docs/runbook.md";
/// The document on Kubernetes. The tests of manifests make the changes that it describes.
const MANIFESTS: &str = "docs/kubernetes.md";
pub(super) const RESTORE: &str = "Store went back";
/// The folder with a page for each client library.
const LIBRARIES: &str = "docs/clients";
/// The call of examples in languages that no test runs. The other examples make it, too.
const EXAMPLE_CALL: &str = "\"http://127.0.0.1:8080/v1/sequences/orders/next\"";

#[test]
fn every_command_of_the_readme_answers_what_it_shows() {
    run(async {
        let mut reader = Reader::start();
        let n_commands = follow(&Document::read("README.md"), &mut reader).await;
        assert!(n_commands >= 5, "vacuous: {n_commands} commands");
        assert!(reader.home().join("odometer.db").is_file());
    });
}

#[test]
fn every_command_of_the_other_documents_works() {
    run(async {
        let mut n_commands = 0;
        for document in Document::all() {
            if document.path.as_os_str() == "README.md" {
                continue;
            }
            let mut reader = Reader::start();
            if document.text.contains("```sh") {
                reader.serve().await;
                assert_eq!(reader.program().client().next("orders").await, 1);
            }
            n_commands += follow(&document, &mut reader).await;
        }
        assert!(n_commands >= 60, "vacuous: {n_commands} commands");
    });
}

/// Does what a document says, block by block. Returns the number of commands.
async fn follow(document: &Document, reader: &mut Reader) -> usize {
    let fences = document.fences();
    let mut n_commands = 0;
    let mut printed = None;
    for (index, fence) in fences.iter().enumerate() {
        let place = format!("{}:{}", document.path.display(), fence.line);
        match fence.kind.as_str() {
            "sh" if document.path.as_os_str() == RUNBOOK && fence.section == RESTORE => {}
            "sh" => {
                let answer = fences.get(index + 1).filter(|next| is_answer(next));
                let commands = commands(&fence.text);
                n_commands += commands.len();
                for (at, command) in commands.iter().enumerate() {
                    let shown = answer.filter(|_| at + 1 == commands.len());
                    obey(reader, command, shown, &place).await;
                }
                printed = answer.map(|answer| answer.line);
            }
            "sql" if document.path.as_os_str() == RUNBOOK => {}
            "sql" => {
                let backend = fences[index..]
                    .iter()
                    .flat_map(|later| later.text.lines())
                    .find_map(|line| backend_of(line.strip_prefix("export ")?.split_once('=')?.1))
                    .unwrap_or_else(|| panic!("{place}: for which server?"));
                reader.administrate(backend, &fence.text).await;
            }
            "toml" => is_a_file(reader, &fence.text, &place),
            // These are examples of the library's own README, which its tests compile or run.
            "rust" | "python" | "ts" | "java" if document.path.starts_with(LIBRARIES) => {
                let library = document.path.file_stem().and_then(|stem| stem.to_str());
                let library = library.expect("a page has the name of its library");
                let own = Document::read(format!("client/{library}/README.md"));
                assert!(own.text.contains(&fence.text), "{place}");
            }
            "python" | "ts" => {
                n_commands += 1;
                let printed = reader.run_example(&fence.kind, &fence.text);
                let number: Result<u64, _> = printed.trim().parse();
                assert!(number.is_ok(), "{place}: printed {printed}, not a number");
            }
            // The tests need neither language, so they only see whether the call exists.
            "java" | "go" => assert!(fence.text.contains(EXAMPLE_CALL), "{place}"),
            // The tests of manifests put this block into a manifest.
            "yaml" => assert_eq!(document.path.as_os_str(), MANIFESTS, "{place}"),
            // The block is a picture, or an answer that was already compared.
            "text" => {}
            "json" => assert_eq!(printed, Some(fence.line), "{place}: what answers this?"),
            other => panic!("{place}: a block of `{other}` that nobody looks at"),
        }
    }
    n_commands
}

fn is_answer(fence: &Fence) -> bool {
    fence.follows_a_fence && matches!(fence.kind.as_str(), "json" | "text")
}

/// Runs one command and compares its output with the shown answer.
async fn obey(reader: &mut Reader, command: &str, shown: Option<&Fence>, place: &str) {
    if is_of_a_run(command, place) || is_of_the_repository(command, place) {
        return;
    }
    let mut printed = reader.enter(command).await;
    let Some(shown) = shown else {
        let is_problem = printed.contains("\"type\":\"/docs/errors/");
        assert!(!is_problem, "{place}: {command}\n{printed}");
        return;
    };
    let mut different = answers::difference(&shown.kind, &shown.text, &printed);
    // A command that only reads may be repeated.
    if different.is_some() && command.starts_with("curl -s ") && !command.contains("-X") {
        let what = format!("{place}: {command} answers\n{}", shown.text);
        wait::until(&what, ANSWER_LIMIT, async || {
            printed = reader.enter(command).await;
            different = answers::difference(&shown.kind, &shown.text, &printed);
            let last = different.as_ref();
            last.is_none().then_some(())
        })
        .await;
    }
    assert!(
        different.is_none(),
        "{place}: {}\n{command}\nprinted\n{printed}instead of\n{}",
        different.unwrap_or_default(),
        shown.text
    );
}

/// Returns the first word that `script` refuses, or for which the script finds nothing to do.
fn unknown_word<'a>(script: &str, mut words: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    words.find(|word| match (script, *word) {
        ("tests/run", "--all" | "--full") | ("bench/run", "--quick" | "--row" | "--list") => false,
        ("tests/run", name) => !names::is_part_of_a_test(name),
        ("bench/run", name) => !names::is_measured(name),
        _ => true,
    })
}

#[test]
fn words_that_a_script_refuses_are_found() {
    let first = |line: &'static str| {
        let (script, words) = line.split_once(' ').expect("a script and its words");
        unknown_word(script, words.split(' '))
    };
    assert_eq!(first("tests/run --full documents"), None);
    assert_eq!(first("bench/run --quick --row single"), None);
    assert_eq!(first("tests/run --ful documents"), Some("--ful"));
    assert_eq!(first("bench/run --qiuck"), Some("--qiuck"));
    assert_eq!(first("bench/run --full"), Some("--full"));
    assert_eq!(first("bench/run --row nothing"), Some("nothing"));
    assert_eq!(first(".ci/run --full"), Some("--full"));
}

/// Returns whether a command builds, tests or measures. The run of this test does the same, so the
/// command is not run inside it. Everything that the command names must exist.
fn is_of_a_run(command: &str, place: &str) -> bool {
    let mut words = command.split_whitespace().peekable();
    if command.starts_with("RUSTFLAGS=") {
        let flags_end = command.rfind('"').expect("RUSTFLAGS=\"…\"") + 1;
        words = command[flags_end..].split_whitespace().peekable();
    }
    match words.next() {
        Some(script @ (".ci/run" | "tests/run" | "bench/run")) => {
            let path = settings::repository().join(script);
            let mode = std::fs::metadata(&path).map(|file| file.permissions().mode());
            assert!(
                mode.is_ok_and(|mode| mode & 0o111 != 0),
                "{place}: {script}"
            );
            if let Some(word) = unknown_word(script, words) {
                panic!("{place}: {script} knows no {word}");
            }
            true
        }
        Some("cargo") if words.peek() != Some(&"run") => {
            let known = ["test", "clippy", "bench", "build"];
            assert!(
                words.next().is_some_and(|word| known.contains(&word)),
                "{place}"
            );
            if let Some(package) = words.skip_while(|word| *word != "-p").nth(1) {
                assert!(names::is_package(package), "{place}: no package {package}");
            }
            true
        }
        _ => false,
    }
}

/// Returns whether a command is about the manifests. If so, runs it in the repository.
fn is_of_the_repository(command: &str, place: &str) -> bool {
    let is_one = ["kubectl kustomize k8s/", "k8s/generate --check"];
    if !is_one.iter().any(|start| command.starts_with(start)) {
        return false;
    }
    let output = Command::new("bash")
        .args(["-c", command])
        .current_dir(settings::repository())
        .output()
        .expect("a shell starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{place}: {command}\n{said}");
    true
}

/// Checks that `cargo run` starts the program in the workspace.
#[test]
fn cargo_run_starts_the_program() {
    let metadata = workspace::metadata();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let members = list(&metadata["workspace_default_members"]);
    let packages = list(&metadata["packages"]);
    let packages = packages.iter().filter(|it| members.contains(&it["id"]));
    let targets = packages.flat_map(|package| list(&package["targets"]));
    let programs = targets.filter(|target| list(&target["kind"]).contains(&json!("bin")));
    let names: Vec<Value> = programs.map(|program| program["name"].clone()).collect();
    assert_eq!(names, ["odometer"]);
}

/// Treats a block as a file. If its first line is a comment with a name, the block is written under
/// this name, for the commands that follow. From then on, `odometer.toml` applies to each start of
/// the program. A block without a name is checked as a configuration, as is `odometer.toml`.
fn is_a_file(reader: &Reader, text: &str, place: &str) {
    const CONFIGURATION: &str = "odometer.toml";
    let first = text.lines().next().and_then(|line| line.strip_prefix("# "));
    let name = first.filter(|name| name.ends_with(".toml") && !name.contains([' ', '/']));
    if let Some(name) = name {
        std::fs::write(reader.home().join(name), text).expect("our directory");
    }
    if name.is_none_or(|name| name == CONFIGURATION) {
        is_a_configuration(text, place);
    }
}

fn is_a_configuration(text: &str, place: &str) {
    let home = crate::support::directory("configured");
    std::fs::write(home.path().join("odometer.toml"), text).expect("our directory");
    let finished = Program::options().in_directory(home.path()).run(&["check"]);
    assert_eq!(finished.code, Some(0), "{place}: {finished}");
}

/// Returns the command lines of a block. Lines that end in a backslash are joined with the next
/// line.
fn commands(text: &str) -> Vec<String> {
    let joined = text.replace("\\\n", " ");
    let lines = joined.lines().map(str::trim);
    lines
        .filter(|line| !line.is_empty())
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect()
}

#[test]
fn command_lines_are_put_together() {
    assert_eq!(
        commands("a b \\\n  c\n\n  d\n"),
        ["a b c".to_owned(), "d".to_owned()]
    );
}
