//! Holds what a database and a replica of a model know.

use super::super::{Paced, SpeedLimit, fence::Fence};

/// What a database has committed.
#[derive(Clone, Debug)]
pub(super) struct State {
    /// `None` before the name's first use.
    pub(super) counter: Option<Paced>,
    /// Whether nobody knows how far the counter must rise. It gives nothing.
    pub(super) is_stopped: bool,
    pub(super) limit: SpeedLimit,
    /// The youngest heartbeat or stamp, by the clock of the server that wrote it.
    pub(super) youngest_us: i64,
    /// The server that is stamped.
    pub(super) stamped: u64,
    pub(super) branch: u128,
    pub(super) recoveries: Vec<Recovery>,
    /// How many recoveries an operator has ended for counters that are created.
    pub(super) n_ended: usize,
}

impl State {
    /// Begins the branch of a recovery.
    pub(super) fn begin(&mut self, fence: Fence, is_of_one: bool) {
        let previous = std::mem::replace(&mut self.branch, fence.id);
        self.recoveries.push(Recovery {
            fence,
            previous,
            is_of_one,
        });
    }

    /// Returns the recoveries of all sequences, or of this counter's sequence alone.
    pub(super) fn fences(&self, of_one: bool) -> Vec<Fence> {
        let recoveries = self.recoveries.iter();
        let recoveries = recoveries.filter(|it| it.is_of_one == of_one);
        recoveries.map(|it| it.fence).collect()
    }
}

/// A recovery, and the branch that it ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recovery {
    pub(super) fence: Fence,
    pub(super) previous: u128,
    /// Whether it raised this counter's sequence alone.
    pub(super) is_of_one: bool,
}

/// What a replica knows: the branch that it met last, and the recoveries of that branch.
#[derive(Clone, Debug, Default)]
pub(super) struct Knowledge {
    pub(super) branch: u128,
    pub(super) fences: Vec<Fence>,
    /// Those that raised this counter's sequence alone.
    pub(super) of_one: Vec<Fence>,
}

/// A copy, and the copy on its branch before it.
#[derive(Clone, Debug)]
pub(super) struct Copy {
    pub(super) state: State,
    pub(super) before: Option<usize>,
}

/// A database server.
#[derive(Clone, Debug)]
pub(super) struct Server {
    pub(super) id: u64,
    /// Its clock minus the true time: 0 to [`CLOCK_MARGIN_US`].
    pub(super) ahead_us: i64,
    pub(super) state: State,
}

impl Server {
    pub(super) fn is_stamped(&self) -> bool {
        self.state.stamped == self.id
    }
}
