//! Runs `wrk`: many connections that each send the next request when the last answer is there.

use std::{process::Stdio, time::Duration};

use serde::Deserialize;
use tokio::process::Command;

use super::N_CONNECTIONS;
use crate::{
    cores::{Cores, Side},
    reading::Latency,
};

/// The requests that `wrk` sends. Each one is a `POST` without a body.
#[derive(Clone, Debug)]
pub(crate) struct Wrk {
    pub(crate) address: String,
    /// The path, with `NAME` in the place of the name if there are several names.
    pub(crate) path: String,
    pub(crate) n_connections: u32,
    /// Requests that a connection sends before it reads the first answer.
    pub(crate) depth: u32,
    /// The number of names that are asked in turn, or 0 if the path has a fixed name.
    pub(crate) n_names: u32,
    /// The headers, as `name: value`.
    pub(crate) headers: Vec<String>,
    pub(crate) side: Side,
}

/// The figures that `wrk` reports.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct WrkOutcome {
    /// Requests that were answered, with any status.
    pub(crate) requests: u64,
    pub(crate) micros: u64,
    /// Requests that were answered with a status above 399.
    pub(crate) refused: u64,
    /// Requests without an answer, not counted in `requests`.
    pub(crate) unanswered: u64,
    pub(crate) latency: Latency,
}

impl Wrk {
    pub(crate) fn new(address: &str, path: &str) -> Self {
        Self {
            address: address.to_owned(),
            path: path.to_owned(),
            n_connections: N_CONNECTIONS as u32,
            depth: 1,
            n_names: 0,
            headers: Vec::new(),
            side: Side::Load,
        }
    }

    /// Sends requests for `length`, from one thread.
    pub(crate) async fn run(&self, cores: &Cores, length: Duration) -> WrkOutcome {
        let directory = odometer_tests::directory("wrk");
        let script = directory.path().join("wrk.lua");
        std::fs::write(&script, include_str!("wrk.lua")).expect("our directory");
        // wrk counts whole seconds. A shorter run is ended by an interrupt, after which wrk also
        // reports its figures.
        let whole = length.as_secs_f64().ceil();
        let mut command = Command::new("wrk");
        command
            .args(["--threads", "1", "--timeout", "10s"])
            .args(["--connections", &self.n_connections.to_string()])
            .args(["--duration", &format!("{whole}s")])
            .arg("--script")
            .arg(&script)
            .arg(format!("http://{}{}", self.address, self.path))
            .arg("--")
            .args([self.depth.to_string(), self.n_names.to_string()])
            .args(&self.headers)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let child = cores
            .start(self.side, async { command.spawn() })
            .await
            .expect("wrk is missing: bench/run installs it");
        let interrupted = length.as_secs_f64() < whole;
        let process = child.id();
        let output = child.wait_with_output();
        tokio::pin!(output);
        let output = tokio::select! {
            output = &mut output => output,
            () = tokio::time::sleep(length), if interrupted => {
                interrupt(process);
                output.await
            }
        };
        let output = output.expect("wrk can be waited for");
        let text = String::from_utf8_lossy(&output.stdout);
        let line = text.lines().find(|line| line.starts_with("{\"requests\""));
        let outcome = line.and_then(|line| serde_json::from_str(line).ok());
        outcome.unwrap_or_else(|| {
            let errors = String::from_utf8_lossy(&output.stderr);
            panic!("wrk did not say what it saw:\n{text}{errors}")
        })
    }
}

fn interrupt(process: Option<u32>) {
    let process = process.map(odometer_tests::server::pid);
    if let Some(process) = process {
        // wrk may just have ended by itself.
        let _ = rustix::process::kill_process(process, rustix::process::Signal::INT);
    }
}
