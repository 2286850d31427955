//! Runs the program inside the process of the tests.

use std::net::SocketAddr;
use std::process::Command;
use std::thread::JoinHandle;
use std::time::Duration;

use actix_web::rt::System;
use odometer::application::Application;
use odometer::config::{Config, Environment, Flags};
use tokio::sync::{mpsc, oneshot};

use crate::support::{Backend, Client, Finished, TestDatabase, wait};

/// The time within which the program must be ready.
const READY_LIMIT: Duration = Duration::from_secs(30);

/// The settings that the program is started with.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    environment: Vec<(String, String)>,
}

impl Options {
    /// Sets a variable of the environment that the program reads.
    pub(crate) fn env(mut self, key: &str, value: impl ToString) -> Self {
        self.environment.push((key.to_owned(), value.to_string()));
        self
    }

    /// Sets the database.
    pub(crate) fn database(self, url: &str) -> Self {
        self.env("ODOMETER_DATABASE_URL", url)
    }

    /// Runs a command of the program to its end, as a process.
    pub(crate) fn run(&self, arguments: &[&str]) -> Finished {
        let mut command = Command::new(env!("CARGO_BIN_EXE_odometer"));
        let environment = self.environment.iter().map(|(key, value)| (key, value));
        command.args(arguments).env_clear().envs(environment);
        let output = command.output().expect("the program starts");
        Finished {
            code: output.status.code(),
            output: String::from_utf8_lossy(&output.stdout).into_owned(),
            errors: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Starts the program and waits until it is ready.
    pub(crate) async fn start_ready(&self) -> Program {
        let program = self.start().await;
        let client = program.client();
        wait::until("the program is ready", READY_LIMIT, async || {
            let reply = client.get("/readyz").await;
            reply.is_ok_and(|reply| reply.status == 200).then_some(())
        })
        .await;
        program
    }

    /// Starts the program on a thread of its own and waits until it listens.
    pub(crate) async fn start(&self) -> Program {
        let given = self.environment.iter();
        let given = given.map(|(key, value)| (key.as_str(), value.as_str()));
        let environment = Environment::of(given.chain([("ODOMETER_LISTEN", "127.0.0.1:0")]));
        let config = Config::load(&Flags::default(), &environment).expect("it can be configured");
        let (tell, told) = oneshot::channel();
        let (signals, received) = mpsc::channel(1);
        let thread = std::thread::spawn(move || {
            System::new().block_on(async move {
                let application = Application::start(&config).await;
                let application = application.expect("the program starts");
                tell.send(application.address()).expect("the test waits");
                application
                    .run(received)
                    .await
                    .expect("the program stops in order");
            });
        });
        let address: SocketAddr = told.await.expect("the program starts");
        Program {
            address: address.to_string(),
            signals,
            thread: Some(thread),
        }
    }
}

/// A running program. It is stopped when this value is dropped.
pub(crate) struct Program {
    address: String,
    signals: mpsc::Sender<&'static str>,
    thread: Option<JoinHandle<()>>,
}

impl Program {
    pub(crate) fn options() -> Options {
        Options {
            environment: Vec::new(),
        }
    }

    /// Returns the address that the program listens on.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(&self.url())
    }

    /// Stops the program in the normal way, and waits for its end.
    pub(crate) async fn stop(mut self) {
        let _ended = self.signals.send("the test").await;
        if let Some(thread) = self.thread.take() {
            let ended = tokio::task::spawn_blocking(move || thread.join()).await;
            let ended = ended.expect("the wait is not cancelled");
            ended.expect("the program ends without a panic");
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ended = self.signals.try_send("the test");
    }
}

/// Starts a program with a database of its own.
pub(crate) async fn program(backend: Backend) -> (TestDatabase, Program) {
    let database = TestDatabase::prepared(backend).await;
    let program = Program::options()
        .database(&database.url)
        .start_ready()
        .await;
    (database, program)
}
