//! Tests `/openapi.json` with tools of others. A validator reads it, and clients in two languages
//! are generated from it. A fuzzer looks for answers that contradict the description.

mod fuzzing;
mod languages;

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::LazyLock,
};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{Backend, Program, TestDatabase, directory, keeper, pypi, run, settings};

/// The programs from PyPI, which tests/install-programs installs.
static PROGRAMS: LazyLock<PathBuf> = LazyLock::new(|| pypi::programs(FOLDER));

/// The folder of these tests, relative to `tests/`.
const FOLDER: &str = "contract/clients";
/// The time limit of one command, in seconds.
const LIMIT: &str = "240";
/// The token that calls need for changes.
const TOKEN: &str = "the-token-of-the-clients";

/// A service, and a folder with its description.
struct Service {
    program: Program,
    home: TempDir,
    _database: TestDatabase,
}

impl Service {
    async fn start() -> Self {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let program = Program::options()
            .database(&database.url)
            .env("ODOMETER_ADMIN_TOKEN", TOKEN)
            .start_ready()
            .await;
        let home = directory("clients");
        let reply = program.client().get("/openapi.json").await;
        let reply = reply.expect("a reply");
        assert_eq!(reply.status, 200, "{reply:?}");
        std::fs::write(home.path().join("openapi.json"), &reply.body).expect("our directory");
        Self {
            program,
            home,
            _database: database,
        }
    }

    fn description(&self) -> Value {
        let text = std::fs::read(self.home.path().join("openapi.json")).expect("it was written");
        serde_json::from_slice(&text).expect("JSON")
    }

    /// Replaces the written description by a changed one.
    fn describe(&self, changed: &Value) {
        std::fs::write(self.home.path().join("openapi.json"), changed.to_string())
            .expect("our directory");
    }

    /// Returns a command that runs in the folder of the description and is killed after [`LIMIT`].
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("timeout");
        command
            .args(["--kill-after=10", LIMIT])
            .arg(program)
            .current_dir(self.home.path())
            .env("HOME", self.home.path())
            .env("TESTS_RUN_DIRECTORY", keeper::run_directory())
            .env("NO_PROXY", "*")
            .stdin(Stdio::null());
        command
    }

    fn pypi_command(&self, program: &str) -> Command {
        self.command(&PROGRAMS.join(program))
    }
}

/// Returns the path of a file in the folder of these tests.
fn file(name: &str) -> PathBuf {
    settings::repository().join("tests").join(FOLDER).join(name)
}

/// Runs a command. Returns whether the command succeeded, and its whole output.
fn outcome(command: &mut Command) -> (bool, String) {
    let output = command.output().expect("timeout is part of every system");
    let said = [output.stdout, output.stderr].concat();
    (
        output.status.success(),
        String::from_utf8_lossy(&said).into_owned(),
    )
}

#[test]
fn the_description_is_valid() {
    run(async {
        let service = Service::start().await;
        let validate = || {
            let mut validator = service.pypi_command("openapi-spec-validator");
            outcome(validator.args(["--schema", "3.1", "openapi.json"]))
        };
        let (is_valid, said) = validate();
        assert!(is_valid, "{said}");

        // Negative control: two operations have the same `operationId`. This was once a real error.
        let mut description = service.description();
        description["paths"]["/v1/workers/{pool}"]["get"]["operationId"] =
            Value::from("listSequences");
        service.describe(&description);
        let (is_valid, said) = validate();
        assert!(!is_valid && said.contains("listSequences"), "{said}");
    });
}
