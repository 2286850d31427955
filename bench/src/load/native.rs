//! Measures a server in its own protocol, with a well-known load generator for it.

use std::{process::Stdio, time::Duration};

use async_trait::async_trait;
use tokio::process::Command;

use crate::{
    cores::{Cores, Side},
    pace::Contender,
    reading::{Latency, Reading},
    usage::{Meter, Used},
};

/// A server and its load generator. The value is requests a second.
pub(crate) struct Native {
    name: String,
    cores: Cores,
    process: u32,
    tool: Box<dyn Tool>,
    /// The processor time of both sides for the start and the connections of a run. It is known
    /// after the first run.
    connecting: Option<Used>,
}

/// A load generator.
#[async_trait(?Send)]
pub(crate) trait Tool {
    /// Runs the load generator to its end.
    ///
    /// # Panics
    /// If the load generator cannot be started, fails, or does not report its figures.
    async fn run(&mut self, cores: &Cores, amount: Amount) -> NativeOutcome;
}

/// The amount of load in a run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Amount {
    /// About one request on each connection, which shows the cost of connecting.
    OneEach,
    For(Duration),
}

/// The outcome of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NativeOutcome {
    /// Requests a second, without the time to connect.
    pub(crate) rate: f64,
    pub(crate) n_requests: u64,
    pub(crate) n_failed: u64,
    pub(crate) latency: Option<Latency>,
}

impl Native {
    /// Makes a contender. `process` is the main process of the server.
    pub(crate) fn new(name: &str, cores: &Cores, process: u32, tool: impl Tool + 'static) -> Self {
        Self {
            name: name.to_owned(),
            cores: *cores,
            process,
            tool: Box::new(tool),
            connecting: None,
        }
    }

    /// Runs the load generator and waits until the server is quiet.
    async fn run(&mut self, amount: Amount) -> (NativeOutcome, Used) {
        let servers = [self.process];
        let meter = Meter::start(&servers, &[]);
        let outcome = self.tool.run(&self.cores, amount).await;
        (outcome, meter.used_when_quiet().await)
    }
}

#[async_trait(?Send)]
impl Contender for Native {
    fn name(&self) -> &str {
        &self.name
    }

    async fn measure(&mut self, length: Duration) -> Reading {
        let connecting = match self.connecting {
            Some(connecting) => connecting,
            None => self.run(Amount::OneEach).await.1,
        };
        self.connecting = Some(connecting);
        let (outcome, used) = self.run(Amount::For(length)).await;
        let used = used.without(connecting);
        let used_us = used.server.as_secs_f64() * 1e6;
        let n_given = outcome.n_requests.saturating_sub(outcome.n_failed).max(1);
        // The time excludes connecting, as the rate does.
        let took_s = outcome.n_requests.max(1) as f64 / outcome.rate.max(1.0);
        let took = Duration::from_secs_f64(took_s);
        Reading {
            value: outcome.rate,
            cpu_us: Some(used_us / n_given as f64),
            busy: Some(used.busy(took, 1.0)),
            latency: outcome.latency,
            n_requests: outcome.n_requests,
            n_failed: outcome.n_failed,
            ..Reading::default()
        }
    }
}

/// Runs `command` to its end on the core of the load, and returns its output.
///
/// # Panics
/// If the command cannot be started or fails. The message has the output of the command.
pub(crate) async fn output(cores: &Cores, command: &mut Command) -> String {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let started = cores.start(Side::Load, async { command.spawn() }).await;
    let started = started
        .unwrap_or_else(|error| panic!("{command:?}: {error}: bench/run installs what is missing"));
    let output = started.wait_with_output().await;
    let output = output.expect("our child can be waited for");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{command:?} failed:\n{text}{errors}"
    );
    text
}

/// Returns the first word after `label` in `text`, as a number.
///
/// # Panics
/// If there is no such number.
pub(crate) fn number_after(text: &str, label: &str) -> f64 {
    let found = text.split_once(label).and_then(|(_, rest)| {
        let word = rest.split_whitespace().next()?;
        word.trim_end_matches(['s', ',']).parse().ok()
    });
    found.unwrap_or_else(|| panic!("no number after `{label}`:\n{text}"))
}

/// Rounds up to whole seconds, because the load generators count only these.
pub(crate) fn whole_seconds(length: Duration) -> u64 {
    length.as_secs_f64().ceil().max(1.0) as u64
}
