//! Reads what processes have used, as the kernel counts it.
//!
//! For each process, the kernel counts the processor time in the program's own code (user) and in
//! the kernel's code for the program (system).

use std::{fs, ops::Range, time::Duration};

use crate::reading::Busy;

/// A server is quiet if it used less processor time than the first duration within the second one.
const QUIET: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(100));
/// The most checks whether a server is quiet after a run.
const MAX_QUIET_CHECKS: u32 = 15;

/// Fields 14 and 15 of proc(5), counted from the third: user and system time.
const OWN: Range<usize> = 11..13;
/// Fields 16 and 17: user and system time of children that have ended and were waited for.
const OF_ENDED_CHILDREN: Range<usize> = 13..15;

/// Counts what both sides of a measurement use from its start on.
///
/// The side of the server is the measured processes with all their descendants. For PostgreSQL,
/// this includes the backend process of each connection. The side of the client is this process,
/// all children that end in the meantime (the load generators), and other named processes.
pub(crate) struct Meter<'a> {
    servers: &'a [u32],
    clients: &'a [u32],
    at_start: Used,
}

/// The processor time of both sides of a measurement, user and system.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Used {
    pub(crate) server: Duration,
    pub(crate) client: Duration,
}

impl<'a> Meter<'a> {
    /// Starts to count. `clients` are further processes on the core of the load.
    pub(crate) fn start(servers: &'a [u32], clients: &'a [u32]) -> Self {
        Self {
            servers,
            clients,
            at_start: total(servers, clients),
        }
    }

    /// Returns the processor time since the start.
    pub(crate) fn used(&self) -> Used {
        total(self.servers, self.clients).without(self.at_start)
    }

    /// Waits until the servers are quiet, and returns the processor time since the start. Work of a
    /// server after a run belongs to this run, and must not disturb the next one. The time of the
    /// client ends now.
    pub(crate) async fn used_when_quiet(&self) -> Used {
        let mut used = self.used();
        for _ in 0..MAX_QUIET_CHECKS {
            let earlier = used.server;
            tokio::time::sleep(QUIET.1).await;
            used.server = self.used().server;
            if used.server < earlier + QUIET.0 {
                break;
            }
        }
        used
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

    /// Returns this time as shares of `took`, for a server with `n_cores` cores and a client with
    /// one core.
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

/// Returns the processor time of a process and all its descendants. This includes descendants that
/// have ended and were waited for. The kernel counts in steps of 10 ms.
pub(crate) fn processor_time(process: u32) -> Duration {
    let own = ticks(process, OWN.start..OF_ENDED_CHILDREN.end).unwrap_or_default();
    children(process)
        .into_iter()
        .map(processor_time)
        .sum::<Duration>()
        + own
}

/// Returns the processor time of several processes. No process may be a descendant of another one.
pub(crate) fn processor_time_of(processes: &[u32]) -> Duration {
    processes.iter().copied().map(processor_time).sum()
}

/// Returns the processor time of this process alone, to the nanosecond.
pub(crate) fn own_processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(time).expect("it counts up from 0")
}

/// Returns the bytes of a process in memory that are not swapped out. Memory that is shared with
/// other processes is included: `Rss` of `/proc/PID/smaps_rollup`.
///
/// # Panics
/// If there is no such process.
pub(crate) fn resident_bytes(process: u32) -> u64 {
    let path = format!("/proc/{process}/smaps_rollup");
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let line = text.lines().find_map(|line| line.strip_prefix("Rss:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.expect("the kernel says how much it is") * 1024
}

/// Returns the sum of `fields` of `/proc/PID/stat`, which are times.
fn ticks(process: u32, fields: Range<usize>) -> Option<Duration> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The second field is a name in parentheses. It may contain any byte, so the last parenthesis
    // ends it.
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
