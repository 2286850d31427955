//! Acts as a reader with a shell who does what a document says.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use tempfile::TempDir;

use crate::support::{Backend, PASSWORD, Program, Server, directory, settings};

/// The address of the program in the documents. Here, each start picks another port.
const SHOWN_ADDRESS: &str = "127.0.0.1:8080";
const SHOWN_PASSWORD: &str = "PASSWORD";
/// The name of the database and of the account in the documents.
const SHOWN_NAME: &str = "odometer";

/// The languages of examples, each with the file and the program that run one.
const EXAMPLES: [(&str, &str, &str); 2] = [
    ("python", "example.py", "python3"),
    // The examples are written so that they are JavaScript, too.
    ("ts", "example.mjs", "node"),
];

/// The commands that start the program in the documents.
const SERVES: [&str; 3] = ["cargo run --release", "odometer serve", "odometer"];

pub(super) struct Reader {
    home: TempDir,
    /// The variables that were exported.
    environment: Vec<(String, String)>,
    program: Option<Program>,
    /// The name of this reader's database and account on servers.
    name: String,
}

impl Reader {
    /// Starts a shell in an empty directory, with `odometer` in its path.
    pub(super) fn start() -> Self {
        let home = directory("reader");
        let programs = home.path().join("bin");
        std::fs::create_dir(&programs).expect("our directory");
        std::os::unix::fs::symlink(settings::shipped_program(), programs.join("odometer"))
            .expect("our directory");
        Self {
            home,
            environment: Vec::new(),
            program: None,
            // MySQL allows user names of at most 32 characters.
            name: format!("d_{:.30}", uuid::Uuid::new_v4().simple().to_string()),
        }
    }

    pub(super) fn home(&self) -> &Path {
        self.home.path()
    }

    pub(super) fn program(&self) -> &Program {
        self.program.as_ref().expect("a program was started")
    }

    /// Runs one command line and returns its output.
    ///
    /// # Panics
    /// If the command fails.
    pub(super) async fn enter(&mut self, command: &str) -> String {
        if let Some(exported) = command.strip_prefix("export ") {
            self.export(exported).await;
            String::new()
        } else if SERVES.contains(&command) {
            self.serve().await;
            String::new()
        } else {
            self.shell(command)
        }
    }

    async fn export(&mut self, exported: &str) {
        let (key, value) = exported.split_once('=').expect("export NAME=VALUE");
        let value = match backend_of(value) {
            Some(backend) => {
                let server = Server::shared(backend).await;
                let (scheme, _) = value.split_once("://").expect("a URL");
                let (account, place) = value
                    .split_once("://")
                    .and_then(|(_, rest)| rest.split_once(&format!(":{SHOWN_PASSWORD}@127.0.0.1:")))
                    .unwrap_or_else(|| {
                        panic!("{value} instead of {scheme}://…:{SHOWN_PASSWORD}@127.0.0.1:…")
                    });
                assert!(place.ends_with(&format!("/{SHOWN_NAME}")), "{value}");
                let account = account.replace(SHOWN_NAME, &self.name);
                server.url_as(&account, PASSWORD, server.port(), &self.name)
            }
            None => value.to_owned(),
        };
        self.environment.retain(|(known, _)| known != key);
        self.environment.push((key.to_owned(), value));
    }

    /// Runs an example in another language against the program, and returns its output.
    ///
    /// # Panics
    /// If the example fails, or if no program runs this language.
    pub(super) fn run_example(&self, language: &str, text: &str) -> String {
        let (_, file, program) = EXAMPLES
            .into_iter()
            .find(|(name, ..)| *name == language)
            .unwrap_or_else(|| panic!("nothing runs {language}"));
        let text = text.replace(SHOWN_ADDRESS, self.program().address());
        std::fs::write(self.home.path().join(file), text).expect("our directory");
        self.shell(&format!("{program} {file}"))
    }

    /// Starts the program. An earlier program is stopped first, and must stop well.
    pub(super) async fn serve(&mut self) {
        if let Some(earlier) = self.program.take() {
            earlier.stop().await;
        }
        let mut options = Program::options().in_directory(self.home.path());
        for (key, value) in &self.environment {
            options = options.env(key, value);
        }
        self.program = Some(options.start_ready().await);
    }

    /// Runs SQL as the administrator of a server, for the account and database of this reader.
    pub(super) async fn administrate(&self, backend: Backend, sql: &str) {
        let server = Server::shared(backend).await;
        let sql = sql
            .replace(SHOWN_NAME, &self.name)
            .replace(&format!("'{SHOWN_PASSWORD}'"), &format!("'{PASSWORD}'"));
        let inside = format!("-- In the database {}\n", self.name);
        let (database, sql) = match sql.strip_prefix(&inside) {
            Some(sql) => (self.name.as_str(), sql),
            None => (server.first_database(), sql.as_str()),
        };
        for statement in sql.split(';').map(str::trim) {
            if !statement.is_empty() {
                server.administrate_in(database, statement).await;
            }
        }
    }

    fn shell(&self, command: &str) -> String {
        let command = match &self.program {
            Some(program) => command.replace(SHOWN_ADDRESS, program.address()),
            None => command.to_owned(),
        };
        let inherited = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{inherited}", self.home.path().join("bin").display());
        // The commands that call a replica find it as those of the documents do, by their default.
        let replica = self.program.as_ref();
        let replica = replica.map(|program| format!("http://{}", program.address()));
        let output = Command::new("timeout")
            .args(["60", "bash", "-o", "pipefail", "-c", &command])
            .env_clear()
            .envs(self.environment.iter().map(|(key, value)| (key, value)))
            .env("PATH", path)
            .envs(replica.map(|url| ("ODOMETER_URL", url)))
            .current_dir(self.home.path())
            .stdin(Stdio::null())
            .output()
            .expect("a shell starts");
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success(),
            "{command}\n{printed}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        printed
    }
}

/// Returns the server that a URL of the documents is for.
pub(super) fn backend_of(url: &str) -> Option<Backend> {
    match url.split_once("://")?.0 {
        "postgres" => Some(Backend::Postgres),
        "mysql" => Some(Backend::MariaDb),
        _ => None,
    }
}
