//! Tests the listener for clients of Redis: its commands, byte by byte and by real clients.

mod agreement;
mod commands;
mod keys;
mod logins;
mod numbers;
mod programs;
mod recorded;
mod stops;
mod streams;
mod transactions;

use tempfile::TempDir;
use tokio::net::TcpStream;

use crate::support::{Backend, Options, Program, RespClient, TestDatabase, directory};

/// A program with a listener for clients of Redis.
struct RespService {
    database: TestDatabase,
    program: Program,
}

impl RespService {
    async fn start() -> Self {
        Self::with(Program::options()).await
    }

    async fn with(options: Options) -> Self {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let options = options.with_resp().database(&database.url);
        let program = options.start_ready().await;
        Self { database, program }
    }

    async fn connect(&self) -> RespClient<TcpStream> {
        RespClient::open(&self.program.resp_address()).await
    }

    /// Sends one command on a connection of its own, and returns the reply.
    async fn ask(&self, line: &str) -> String {
        self.connect().await.ask(line).await
    }
}

/// Returns options with this configuration file, in the folder that is returned.
fn configured(configuration: &str) -> (TempDir, Options) {
    let folder = directory("resp");
    let file = folder.path().join("odometer.toml");
    std::fs::write(&file, configuration).expect("our directory");
    let options = Program::options().env("ODOMETER_CONFIG", file.display());
    (folder, options)
}
