//! Measures Redis with the unchanged `redis-benchmark`.

use std::time::Duration;

use async_trait::async_trait;
use odometer_tests::{keeper, ports};
use tokio::process::Command;

use super::native::{Amount, Native, NativeOutcome, Tool, number_after, output};
use crate::{
    cores::{Cores, Side},
    process::Process,
    reading::Latency,
};

/// The connections that `redis-benchmark` opens by default.
const N_CONNECTIONS: u64 = 50;
/// The assumed requests a second, until the first run shows the real rate.
const FIRST_RATE: f64 = 50_000.0;

/// Starts a server that writes nothing to a disk.
pub(crate) async fn start(cores: &Cores) -> Process {
    let port = ports::free();
    let mut command = std::process::Command::new("redis-server");
    command
        .args(["--bind", "127.0.0.1", "--port", &port.to_string()])
        .args(["--save", "", "--appendonly", "no"])
        .current_dir(keeper::run_directory());
    Process::start(cores, Side::Server, &mut command, port).await
}

/// The request that `redis-benchmark` sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// The next number of one key.
    One,
    /// The next hundred numbers of one key.
    Hundred,
}

impl Step {
    /// Returns how many numbers the request gives.
    pub(crate) fn n_numbers(self) -> u32 {
        match self {
            Self::One => 1,
            Self::Hundred => 100,
        }
    }

    fn command(self) -> &'static [&'static str] {
        match self {
            Self::One => &["INCR", "orders"],
            Self::Hundred => &["INCRBY", "orders", "100"],
        }
    }
}

/// Returns a contender that sends `step` for one key, with `depth` requests at a time on each
/// connection.
pub(crate) fn contender(
    name: &str,
    cores: &Cores,
    server: &Process,
    step: Step,
    depth: u32,
) -> Native {
    contender_at(name, cores, (server.id(), server.port()), (step, depth))
}

/// Does the same for another process that speaks the protocol of Redis on a port.
pub(crate) fn contender_at(
    name: &str,
    cores: &Cores,
    (process, port): (u32, u16),
    (step, depth): (Step, u32),
) -> Native {
    let tool = RedisBenchmark {
        port,
        step,
        depth: u64::from(depth),
        rate: FIRST_RATE,
    };
    Native::new(name, cores, process, tool)
}

struct RedisBenchmark {
    port: u16,
    step: Step,
    /// Requests that a connection sends before it reads the first answer.
    depth: u64,
    /// The rate of the last run. `redis-benchmark` takes a number of requests instead of a time, so
    /// this rate gives the number.
    rate: f64,
}

#[async_trait(?Send)]
impl Tool for RedisBenchmark {
    async fn run(&mut self, cores: &Cores, amount: Amount) -> NativeOutcome {
        let n_requests = match amount {
            Amount::OneEach => N_CONNECTIONS * self.depth,
            Amount::For(length) => requests_in(length, self.rate).max(N_CONNECTIONS * self.depth),
        };
        let mut command = Command::new("redis-benchmark");
        command
            .args(["-h", "127.0.0.1", "-p", &self.port.to_string()])
            .args(["-c", &N_CONNECTIONS.to_string()])
            .args(["-P", &self.depth.to_string()])
            .args(["-n", &n_requests.to_string()])
            .args(self.step.command());
        let text = output(cores, &mut command).await;
        let rate = number_after(&text, "throughput summary:");
        if let Amount::For(_) = amount {
            self.rate = rate;
        }
        NativeOutcome {
            rate,
            n_requests,
            // `redis-benchmark` ends at the first failure.
            n_failed: 0,
            // For requests that are sent together, `redis-benchmark` does not know how long each
            // one took.
            latency: (self.depth == 1).then(|| latency(&text)),
        }
    }
}

fn requests_in(length: Duration, rate: f64) -> u64 {
    (length.as_secs_f64() * rate) as u64
}

/// Reads lines such as `75.000% <= 0.263 milliseconds (cumulative count 48234)`. Values between two
/// lines are interpolated linearly.
fn latency(text: &str) -> Latency {
    let points: Vec<(f64, f64)> = text
        .lines()
        .skip_while(|line| !line.starts_with("Latency by percentile"))
        .skip(1)
        .map_while(|line| {
            let (percent, rest) = line.split_once("% <= ")?;
            let millis: f64 = rest.split_whitespace().next()?.parse().ok()?;
            Some((percent.parse::<f64>().ok()? / 100.0, millis * 1000.0))
        })
        .collect();
    assert!(!points.is_empty(), "redis-benchmark timed nothing:\n{text}");
    Latency::by(|part| {
        let after = points.iter().position(|point| point.0 >= part);
        let after = after.unwrap_or(points.len() - 1);
        let (above, below) = (points[after], points[after.saturating_sub(1)]);
        let width = above.0 - below.0;
        if width <= 0.0 {
            return above.1;
        }
        below.1 + (above.1 - below.1) * (part - below.0).min(width) / width
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_between_two_lines_are_read_off_the_line() {
        let text = "Latency by percentile distribution:\n\
                    0.000% <= 0.063 milliseconds (cumulative count 1)\n\
                    50.000% <= 0.200 milliseconds (cumulative count 5)\n\
                    100.000% <= 0.400 milliseconds (cumulative count 10)\n\n\
                    Cumulative distribution of latencies:\n0.000% <= 0.103 milliseconds";
        let latency = latency(text);
        let rounded = [latency.p50, latency.p75, latency.max].map(f64::round);
        assert_eq!(rounded, [200.0, 300.0, 400.0]);
    }
}
