//! Finds file descriptors for connections: each needs one, and the process may have only so many.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors that are neither for connections of callers nor for connections of the pools.
///
/// These are files, sockets that listen, timers of the runtime, and what libraries open.
const OTHERS: usize = 128;

/// The fewest connections of callers that are tried, even if there are fewer descriptors.
const MIN_CONNECTIONS: usize = 16;

/// How many connections the process can have open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ConnectionCapacity {
    /// Connections of callers.
    pub connections: usize,
    /// The most descriptors the process may have, if that is why there are fewer connections than
    /// wanted.
    pub insufficient_limit: Option<u64>,
}

/// Raises the descriptor limit of this process, and returns how many connections of callers fit.
///
/// The limit rises as far as `wanted` connections of callers and `of_pools` connections to
/// databases need.
///
/// # Errors
/// The limit cannot be raised although it should be possible.
pub(crate) fn raise_descriptor_limit(
    wanted: usize,
    of_pools: usize,
) -> io::Result<ConnectionCapacity> {
    let limit = getrlimit(Resource::Nofile);
    let (room, raised) = plan(limit.current, limit.maximum, wanted, of_pools);
    if let Some(current) = raised {
        let limit = Rlimit {
            current: Some(current),
            maximum: limit.maximum,
        };
        setrlimit(Resource::Nofile, limit)?;
    }
    Ok(room)
}

/// Returns the connections that fit, and the soft limit to set for them if it has to rise. A limit
/// of `None` is no limit.
fn plan(
    soft: Option<u64>,
    hard: Option<u64>,
    wanted: usize,
    of_pools: usize,
) -> (ConnectionCapacity, Option<u64>) {
    let wide = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
    let others = of_pools.saturating_add(OTHERS);
    let needed = wide(wanted.saturating_add(others));
    let allowed = hard.map_or(needed, |hard| hard.min(needed));
    let raised = soft.filter(|soft| *soft < allowed).map(|_| allowed);
    let left = usize::try_from(allowed).unwrap_or(usize::MAX);
    let room = ConnectionCapacity {
        connections: left.saturating_sub(others).max(MIN_CONNECTIONS).min(wanted),
        insufficient_limit: hard.filter(|hard| *hard < needed),
    };
    (room, raised)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_is_raised_as_far_as_needed_and_allowed() {
        for (soft, hard, expected) in [
            (Some(1024), Some(20_000), (1000, None, Some(1228))),
            (Some(1024), None, (1000, None, Some(1228))),
            (Some(1500), Some(20_000), (1000, None, None)),
            (None, None, (1000, None, None)),
            (Some(512), Some(1024), (796, Some(1024), Some(1024))),
            (Some(1024), Some(1024), (796, Some(1024), None)),
            (Some(64), Some(64), (16, Some(64), None)),
        ] {
            let (room, raised) = plan(soft, hard, 1000, 100);
            let found = (room.connections, room.insufficient_limit, raised);
            assert_eq!(found, expected, "{soft:?} {hard:?}");
        }
        assert_eq!(plan(Some(64), Some(64), 4, 100).0.connections, 4);
    }
}
