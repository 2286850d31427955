//! Assigns processor cores: the measured server runs on one core, the load on another.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The cores that this run may use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cores {
    all: CpuSet,
    server: CpuSet,
    load: CpuSet,
}

/// The cores that a started program may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    /// The core of the measured server.
    Server,
    /// The core of the load: the programs that send requests.
    Load,
    /// Any core.
    Anywhere,
}

impl Cores {
    /// Returns the cores that this process may use.
    pub(crate) fn of_this_machine() -> Self {
        let all = sched_getaffinity(None).expect("the kernel says which cores are ours");
        let mut own = (0..CpuSet::MAX_CPU).filter(|core| all.is_set(*core));
        let first = own.next().expect("a core runs this");
        // Two threads of the same core would take time from each other.
        let siblings = siblings(first);
        let others: Vec<usize> = own.collect();
        let apart = others.iter().find(|core| !siblings.contains(core));
        let second = apart.or(others.first()).copied().unwrap_or(first);
        if apart.is_none() {
            eprintln!("server and load share one core here: no figure is worth anything");
        }
        Self {
            all,
            server: one(first),
            load: one(second),
        }
    }

    /// Returns the number of cores.
    pub(crate) fn n_all(&self) -> f64 {
        f64::from(self.all.count())
    }

    /// Runs `start` on the cores of `side`. A new process inherits the cores of the thread that
    /// starts it. So the runtime must have only this thread.
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

/// Returns the numbers of all threads that share a physical core with `core`.
fn siblings(core: usize) -> Vec<usize> {
    let path = format!("/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list");
    // The file has a form such as `0,4` or `0-1`. Without the file, no siblings are known.
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let ranges = text.trim().split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse().ok()?..=last.parse().ok()?)
    });
    ranges.flatten().collect()
}

fn one(core: usize) -> CpuSet {
    let mut cores = CpuSet::new();
    cores.set(core);
    cores
}
