//! What processes have used, as the kernel counts it.

use std::{fs, time::Duration};

/// Processor time of a process and all below it, those included that have ended and were waited
/// for. In steps of 10 ms.
pub(crate) fn processor_time(process: u32) -> Duration {
    let own = stat(process).unwrap_or_default();
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

fn stat(process: u32) -> Option<Duration> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The second field is a name in parentheses that may have any bytes but the last parenthesis.
    let (_, after_name) = text.rsplit_once(')')?;
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    // Fields 14 to 17 of proc(5): user and system time, own and of children waited for.
    let ticks: u64 = (11..15)
        .map(|at| fields.get(at)?.parse::<u64>().ok())
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
}
