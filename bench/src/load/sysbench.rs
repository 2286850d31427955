//! Runs `sysbench`, with one prepared statement on each connection.
//!
//! `mysqlslap` comes with the server, but it cannot prepare statements and times no single
//! statement.

use async_trait::async_trait;
use odometer_tests::{
    Server, directory,
    server::{ADMINISTRATOR, PASSWORD},
};
use tokio::process::Command;

use super::native::{Amount, NativeOutcome, Tool, number_after, output, whole_seconds};
use crate::{cores::Cores, reading::Latency};

pub(crate) struct Sysbench {
    port: u16,
    database: String,
    statement: String,
    n_connections: u32,
}

impl Sysbench {
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
impl Tool for Sysbench {
    async fn run(&mut self, cores: &Cores, amount: Amount) -> NativeOutcome {
        let directory = directory("sysbench");
        let script = directory.path().join("statement.lua");
        std::fs::write(&script, include_str!("sysbench.lua")).expect("our directory");
        let mut command = Command::new("sysbench");
        command
            .arg(&script)
            .args(["--db-driver=mysql", "--mysql-host=127.0.0.1"])
            .arg(format!("--mysql-port={}", self.port))
            .arg(format!("--mysql-user={ADMINISTRATOR}"))
            .arg(format!("--mysql-password={PASSWORD}"))
            .arg(format!("--mysql-db={}", self.database))
            .arg(format!("--statement={}", self.statement))
            .arg(format!("--threads={}", self.n_connections))
            .arg("--histogram=on");
        match amount {
            Amount::OneEach => command
                .arg(format!("--events={}", self.n_connections))
                .arg("--time=0"),
            Amount::For(length) => command.arg(format!("--time={}", whole_seconds(length))),
        };
        let text = output(cores, command.arg("run")).await;
        let n_requests = number_after(&text, "total number of events:");
        NativeOutcome {
            rate: n_requests / number_after(&text, "total time:"),
            n_requests: n_requests as u64,
            n_failed: number_after(&text, "ignored errors:") as u64,
            latency: latency(&text),
        }
    }
}

/// Reads lines such as `0.308 |****   123`, in milliseconds. Returns `None` if there are no such
/// lines.
fn latency(text: &str) -> Option<Latency> {
    let lines = text
        .lines()
        .skip_while(|line| !line.starts_with("Latency histogram"));
    let counts: Vec<(f64, u64)> = lines
        .filter_map(|line| {
            let (millis, rest) = line.split_once('|')?;
            let count = rest.split_whitespace().last()?.parse().ok()?;
            Some((millis.trim().parse::<f64>().ok()? * 1000.0, count))
        })
        .collect();
    (!counts.is_empty()).then(|| Latency::of_counts(&counts))
}
