//! What processes have used, as the kernel counts it.
//!
//! The kernel counts for each process the time that processors spent in its own code (user) and in
//! the kernel's code on its behalf (system).

use std::{fs, ops::Range, time::Duration};

use crate::reading::Busy;

/// Fields 14 and 15 of proc(5), counted from the third: user and system time.
const OWN: Range<usize> = 11..13;
/// Fields 16 and 17: the same of children that have ended and were waited for.
const OF_ENDED_CHILDREN: Range<usize> = 13..15;

/// Counts what both sides of a measurement use from its start on.
///
/// The server's side is the processes that are measured with all below them: of PostgreSQL the
/// backend of each connection, too. The client's side is this process and all children that end
/// meanwhile, which are the programs that ask, and other processes that are named.
pub(crate) struct Meter<'a> {
    servers: &'a [u32],
    clients: &'a [u32],
    at_start: Used,
}

/// Processor time, user and system, of both sides of a measurement.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Used {
    pub(crate) server: Duration,
    pub(crate) client: Duration,
}

impl<'a> Meter<'a> {
    /// `clients` are processes that run on the core of who asks, next to the one that asks.
    pub(crate) fn start(servers: &'a [u32], clients: &'a [u32]) -> Self {
        Self {
            servers,
            clients,
            at_start: total(servers, clients),
        }
    }

    /// Since the start.
    pub(crate) fn used(&self) -> Used {
        total(self.servers, self.clients).without(self.at_start)
    }
}

impl Used {
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            server: self.server + other.server,
            client: self.client + other.client,
        }
    }

    pub(crate) fn without(self, other: Self) -> Self {
        Self {
            server: self.server.saturating_sub(other.server),
            client: self.client.saturating_sub(other.client),
        }
    }

    /// The shares of `took` that this is, of a server with `n_cores` and a client with one.
    pub(crate) fn busy(self, took: Duration, n_cores: f64) -> Busy {
        let took = took.as_secs_f64();
        Busy {
            server: self.server.as_secs_f64() / (took * n_cores),
            client: Some(self.client.as_secs_f64() / took),
        }
    }
}

fn total(servers: &[u32], clients: &[u32]) -> Used {
    let ended = ticks(std::process::id(), OF_ENDED_CHILDREN).unwrap_or_default();
    Used {
        server: processor_time_of(servers),
        client: own_processor_time() + ended + processor_time_of(clients),
    }
}

/// Processor time of a process and all below it, those included that have ended and were waited
/// for. In steps of 10 ms.
pub(crate) fn processor_time(process: u32) -> Duration {
    let own = ticks(process, OWN.start..OF_ENDED_CHILDREN.end).unwrap_or_default();
    children(process)
        .into_iter()
        .map(processor_time)
        .sum::<Duration>()
        + own
}

/// [`processor_time`] of several, none of which is below another one.
pub(crate) fn processor_time_of(processes: &[u32]) -> Duration {
    processes.iter().copied().map(processor_time).sum()
}

/// Processor time of this process alone, to the nanosecond.
pub(crate) fn own_processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(time).expect("it counts up from 0")
}

/// Bytes of memory that a process has and that are not swapped out, those shared with others
/// included: `Rss` of `/proc/PID/smaps_rollup`.
///
/// # Panics
/// When there is no such process.
pub(crate) fn resident_bytes(process: u32) -> u64 {
    let path = format!("/proc/{process}/smaps_rollup");
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let line = text.lines().find_map(|line| line.strip_prefix("Rss:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.expect("the kernel says how much it is") * 1024
}

/// The sum of `fields` of `/proc/PID/stat`, which are times.
fn ticks(process: u32, fields: Range<usize>) -> Option<Duration> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The second field is a name in parentheses that may have any bytes but the last parenthesis.
    let (_, after_name) = text.rsplit_once(')')?;
    let all: Vec<&str> = after_name.split_whitespace().collect();
    let ticks: u64 = fields
        .map(|at| all.get(at)?.parse::<u64>().ok())
        .sum::<Option<_>>()?;
    Some(Duration::from_secs(ticks) / u32::try_from(rustix::param::clock_ticks_per_second()).ok()?)
}

fn children(process: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{process}/task"));
    let lists = tasks.into_iter().flatten().flatten();
    lists
        .filter_map(|task| fs::read_to_string(task.path().join("children")).ok())
        .flat_map(|list| {
            list.split_whitespace()
                .filter_map(|id| id.parse().ok())
                .collect::<Vec<_>>()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_use_is_seen() {
        let own = std::process::id();
        let before = processor_time(own);
        let mut sum = 0_u64;
        while processor_time(own) < before + Duration::from_millis(20) {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!(own_processor_time() >= Duration::from_millis(20));
        assert!(resident_bytes(own) > 100_000);
    }

    #[test]
    fn a_child_that_has_ended_counts_for_the_client() {
        let meter = Meter::start(&[], &[]);
        let busy = "i=0; while [ $i -lt 100000 ]; do i=$((i + 1)); done";
        while meter.used().client < Duration::from_millis(30) {
            let mut shell = std::process::Command::new("sh");
            let ended = shell.args(["-c", busy]).status();
            assert!(ended.expect("a shell starts").success());
        }
        let children = ticks(std::process::id(), OF_ENDED_CHILDREN);
        assert!(children.expect("the kernel says it") > Duration::ZERO);
        assert_eq!(meter.used().server, Duration::ZERO);
    }

    #[test]
    fn a_share_is_of_the_cores_that_a_server_has() {
        let used = Used {
            server: Duration::from_millis(900),
            client: Duration::from_millis(500),
        };
        let busy = used.busy(Duration::from_secs(1), 2.0);
        assert_eq!((busy.server, busy.client), (0.45, Some(0.5)));
    }
}
