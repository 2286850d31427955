//! Measures a server over HTTP.

use std::time::Duration;

use async_trait::async_trait;

use super::wrk::Wrk;
use crate::{cores::Cores, pace::Contender, reading::Reading, usage::Meter};

/// A server and the requests that it gets. The value is requests a second, numbers a second, or the
/// median latency.
pub(crate) struct Http {
    pub(crate) name: String,
    pub(crate) cores: Cores,
    /// The processes of the server. Their processor time counts.
    pub(crate) processes: Vec<u32>,
    /// The number of cores that the server may use.
    pub(crate) n_cores: f64,
    /// Other processes that run on the core of the load.
    pub(crate) beside_load: Vec<u32>,
    pub(crate) wrk: Wrk,
    /// The numbers that one request returns. With 1, requests are counted.
    pub(crate) n_numbers: u32,
    pub(crate) figure: Figure,
}

/// The meaning of a reading's value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Figure {
    Rate,
    /// The median latency in microseconds.
    P50,
}

impl Http {
    pub(crate) fn new(name: &str, cores: &Cores, process: u32, wrk: Wrk) -> Self {
        Self {
            name: name.to_owned(),
            cores: *cores,
            processes: vec![process],
            n_cores: 1.0,
            beside_load: Vec::new(),
            wrk,
            n_numbers: 1,
            figure: Figure::Rate,
        }
    }
}

#[async_trait(?Send)]
impl Contender for Http {
    fn name(&self) -> &str {
        &self.name
    }

    async fn measure(&mut self, length: Duration) -> Reading {
        let meter = Meter::start(&self.processes, &self.beside_load);
        let outcome = self.wrk.run(&self.cores, length).await;
        let used = meter.used();
        let micros = outcome.micros as f64;
        let n_given = outcome.requests.saturating_sub(outcome.refused) as f64;
        let rate = n_given / micros * 1e6;
        let used_us = used.server.as_secs_f64() * 1e6;
        let took = Duration::from_micros(outcome.micros);
        let n_at_once = f64::from(self.wrk.n_connections * self.wrk.depth);
        Reading {
            value: match self.figure {
                Figure::Rate => rate * f64::from(self.n_numbers),
                Figure::P50 => outcome.latency.p50,
            },
            cpu_us: (n_given > 0.0).then(|| used_us / n_given),
            busy: Some(used.busy(took, self.n_cores)),
            // For requests that are sent together, wrk does not know when each one was sent.
            latency: (self.wrk.depth == 1).then_some(outcome.latency),
            n_requests: outcome.requests + outcome.unanswered,
            n_failed: outcome.refused + outcome.unanswered,
            ..Reading::default()
        }
        // For each single call, wrk counts only whole microseconds.
        .figure(
            "mean_us",
            micros * n_at_once / outcome.requests.max(1) as f64,
        )
    }
}
