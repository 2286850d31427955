//! Runs `pgbench`, PostgreSQL's own load generator, with one prepared statement on each connection.

use std::path::Path;

use async_trait::async_trait;
use odometer_tests::{
    Server, directory,
    server::{ADMINISTRATOR, PASSWORD},
};
use tokio::process::Command;

use super::native::{Amount, NativeOutcome, Tool, number_after, output, whole_seconds};
use crate::{cores::Cores, reading::Latency};

/// How long the clients may take to connect, in seconds. `pgbench` counts this time as part of the run.
/// On a busy machine it can be as long as a short run, which then makes no request.
const CONNECTING: u64 = 1;

/// The part of all requests for which `pgbench` logs the latency.
const SAMPLED: &str = "0.1";

pub(crate) struct Pgbench {
    port: u16,
    database: String,
    statement: String,
    n_connections: u32,
}

impl Pgbench {
    pub(crate) fn new(
        server: &Server,
        database: &str,
        statement: &str,
        n_connections: u32,
    ) -> Self {
        Self {
            port: server.port(),
            database: database.to_owned(),
            statement: statement.to_owned(),
            n_connections,
        }
    }
}

#[async_trait(?Send)]
impl Tool for Pgbench {
    async fn run(&mut self, cores: &Cores, amount: Amount) -> NativeOutcome {
        let directory = directory("pgbench");
        let script = directory.path().join("statement.sql");
        std::fs::write(&script, format!("{};\n", self.statement)).expect("our directory");
        let mut command = Command::new("pgbench");
        command
            .env("PGPASSWORD", PASSWORD)
            .current_dir(directory.path())
            .args(["--host", "127.0.0.1", "--port", &self.port.to_string()])
            .args(["--username", ADMINISTRATOR, "--no-vacuum"])
            .args(["--protocol", "prepared", "--jobs", "1"])
            .args(["--client", &self.n_connections.to_string()])
            .arg("--file")
            .arg(&script);
        match amount {
            Amount::OneEach => command.args(["--transactions", "1"]),
            Amount::For(length) => {
                let seconds = CONNECTING + whole_seconds(length);
                command.args(["--time", &seconds.to_string()]).args([
                    "--log",
                    "--log-prefix",
                    "times",
                    "--sampling-rate",
                    SAMPLED,
                ])
            }
        };
        let text = output(cores, command.arg(&self.database)).await;
        let of_whole = "number of transactions actually processed:";
        let processed = text.replace('/', " ");
        NativeOutcome {
            rate: number_after(&text, "tps ="),
            n_requests: number_after(&processed, of_whole) as u64,
            n_failed: number_after(&text, "number of failed transactions:") as u64,
            latency: latency(directory.path()),
        }
    }
}

/// Reads lines such as `CLIENT NUMBER MICROSECONDS …`. Returns `None` if no request was sampled.
fn latency(directory: &Path) -> Option<Latency> {
    let files = std::fs::read_dir(directory).expect("our directory");
    let micros: Vec<f64> = files
        .flatten()
        .filter(|file| file.file_name().to_string_lossy().starts_with("times."))
        .filter_map(|file| std::fs::read_to_string(file.path()).ok())
        .flat_map(|text| {
            let micros = text
                .lines()
                .filter_map(|line| line.split(' ').nth(2)?.parse().ok());
            micros.collect::<Vec<f64>>()
        })
        .collect();
    (!micros.is_empty()).then(|| Latency::of(micros))
}
