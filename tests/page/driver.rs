//! Drives a real browser: runs `drive.mjs` in a process of its own and answers its questions.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    sync::OnceLock,
};

use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    process::Command,
};

use crate::support::{directory, keeper, npm};

const FILES: [&str; 18] = [
    "package.json",
    "package-lock.json",
    "drive.mjs",
    "access.mjs",
    "answers.mjs",
    "appearance.mjs",
    "beginning.mjs",
    "browser.mjs",
    "controls.mjs",
    "lists.mjs",
    "operators.mjs",
    "outage.mjs",
    "pictures.mjs",
    "places.mjs",
    "rights.mjs",
    "token.mjs",
    "tour.mjs",
    "words.mjs",
];

/// Returns the folder with the driver and everything that it needs. All tests share the folder.
fn workshop() -> &'static Path {
    static PLACE: OnceLock<PathBuf> = OnceLock::new();
    PLACE.get_or_init(|| npm::workshop("page", &FILES))
}

/// The output of a stage: one line for each `step: …` and `found: …`.
pub(super) struct Done(Vec<String>);

impl Done {
    /// Returns how many lines begin with `begin`.
    pub(super) fn n(&self, begin: &str) -> usize {
        let lines = self.0.iter();
        lines.filter(|line| line.starts_with(begin)).count()
    }
}

/// Runs a stage with the service at `base`. The pictures go to `pictures`. If the stage asks for
/// something, `give` provides it.
///
/// # Panics
/// If a step fails. The message has the output of the browser.
pub(super) async fn drive(
    stage: &str,
    base: &str,
    pictures: &Path,
    mut give: impl AsyncFnMut(&str),
) -> Done {
    let profile = directory("browser");
    let mut command = Command::new("timeout");
    command
        .args(["240", "node", "drive.mjs", stage, base])
        .arg(pictures)
        .current_dir(workshop())
        // Not the profile: the browser makes sockets in this directory, and paths of sockets must
        // be short.
        .env("TMPDIR", keeper::run_directory())
        .env("HOME", profile.path())
        .env("TESTS_RUN_DIRECTORY", keeper::run_directory())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let mut process = command.spawn().expect("timeout is part of every system");
    let number = process.id().expect("it has not been waited for");
    keeper::end_with_the_run(number, "TERM");
    let mut answers = process.stdin.take().expect("it is piped");
    let output = process.stdout.take().expect("it is piped");
    let mut lines = BufReader::new(output).lines();
    let mut done = Vec::new();
    while let Some(line) = lines.next_line().await.expect("a pipe can be read") {
        if let Some(wanted) = line.strip_prefix("ask: ") {
            give(wanted).await;
            let answered = answers.write_all(b"done\n").await;
            answered.expect("the driver waits for it");
        }
        done.push(line);
    }
    let ended = process.wait_with_output().await;
    let ended = ended.expect("our child can be waited for");
    keeper::has_ended(number);
    let wrong = String::from_utf8_lossy(&ended.stderr);
    assert!(
        ended.status.success() && done.last().is_some_and(|last| last == "done"),
        "{stage}: {}\n{}\n{wrong}",
        ended.status,
        done.join("\n")
    );
    Done(done)
}

/// Runs a stage that asks for nothing.
pub(super) async fn drive_alone(stage: &str, base: &str) -> Done {
    drive(stage, base, Path::new("."), async |wanted| {
        panic!("nobody can see to it: {wanted}");
    })
    .await
}
