//! Which processor cores work for whom: the measured on one, who asks it on another.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The cores of this run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cores {
    all: CpuSet,
    server: CpuSet,
    load: CpuSet,
}

/// Who is started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    /// What is measured: one core.
    Server,
    /// Who asks: another one.
    Load,
    /// Any core.
    Anywhere,
}

impl Cores {
    /// Those that this process may use.
    pub(crate) fn of_this_machine() -> Self {
        let all = sched_getaffinity(None).expect("the kernel says which cores are ours");
        let mut own = (0..CpuSet::MAX_CPU).filter(|core| all.is_set(*core));
        let first = own.next().expect("a core runs this");
        let second = own.next().unwrap_or(first);
        Self {
            all,
            server: one(first),
            load: one(second),
        }
    }

    /// What `start` starts runs where `side` does: a new process inherits from the thread that
    /// starts it, which must be this one all the time.
    pub(crate) async fn start<T>(&self, side: Side, start: impl Future<Output = T>) -> T {
        self.move_to(side);
        let started = start.await;
        self.move_to(Side::Anywhere);
        started
    }

    fn move_to(&self, side: Side) {
        let cores = match side {
            Side::Server => &self.server,
            Side::Load => &self.load,
            Side::Anywhere => &self.all,
        };
        sched_setaffinity(None, cores).expect("a thread may choose among its own cores");
    }
}

fn one(core: usize) -> CpuSet {
    let mut cores = CpuSet::new();
    cores.set(core);
    cores
}
