//! The scripts that Redis runs, each at one moment and undivided.
//!
//! Numbers that a script computes with are counts from the window's base, and numbers of windows:
//! both stay below 2^53, which is as far as Lua counts exactly. The numbers that callers get are
//! computed here, not there.

use std::sync::LazyLock;

use odometer_process::faults::{self, Fault};
use redis::Script;

/// Counts and window numbers stay below: Lua's numbers are floating-point ones.
pub(crate) const MAX: u64 = 1 << 53;
/// How long a key stays that nobody raises; gone, its window is followed by the next one.
pub(crate) const KEPT_MS: u64 = 40 * 86_400_000;

/// What stands under a counter's key.
pub(crate) static LOOK: LazyLock<Script> = LazyLock::new(|| script(include_str!("look.lua")));
/// Puts a window there, once.
pub(crate) static INSTALL: LazyLock<Script> = LazyLock::new(|| script(include_str!("install.lua")));
/// Takes numbers of a window.
pub(crate) static STEP: LazyLock<Script> = LazyLock::new(|| script(include_str!("step.lua")));
/// Raises the ceiling of a window.
pub(crate) static RAISE: LazyLock<Script> = LazyLock::new(|| script(include_str!("raise.lua")));
/// Whether steps would be taken.
pub(crate) static PROBE: LazyLock<Script> = LazyLock::new(|| script(include_str!("probe.lua")));

fn script(body: &str) -> Script {
    let identity = if faults::is(Fault::NoIdentity) {
        "local function identity() return 'any' end\n"
    } else {
        include_str!("identity.lua")
    };
    Script::new(&format!("{identity}{body}"))
}

/// What a step, or a raised ceiling, came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScriptAnswer {
    /// Done; so many of the window's numbers are used now, of so many.
    Done { used: u64, cap: u64 },
    /// So many do not fit below the ceiling; nothing was changed.
    Full { used: u64, cap: u64 },
    /// Nothing is there: flushed, evicted, deleted or forgotten in a restart.
    Gone,
    /// What is there was installed in another process, or in another history of its data.
    Foreign,
    /// Another window is there.
    Other,
}

impl ScriptAnswer {
    pub(crate) fn of((code, used, cap): (i64, u64, u64)) -> Option<Self> {
        match code {
            1 => Some(Self::Done { used, cap }),
            2 => Some(Self::Full { used, cap }),
            3 => Some(Self::Gone),
            4 => Some(Self::Foreign),
            5 => Some(Self::Other),
            _ => None,
        }
    }
}

/// A window as it stands in Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WindowState {
    pub(crate) window: i64,
    /// Its first number.
    pub(crate) base: i64,
    pub(crate) used: u64,
    pub(crate) cap: u64,
    /// Whether it was installed in this process and this history of its data.
    pub(crate) is_ours: bool,
}

/// As `look.lua` answers.
pub(crate) type RawStanding = (i64, i64, String, u64, u64, i64);

impl WindowState {
    /// `None` where nothing stands there, or nothing that can be read.
    pub(crate) fn of((there, window, base, used, cap, ours): &RawStanding) -> Option<Self> {
        if *there != 1 {
            return None;
        }
        Some(Self {
            window: *window,
            base: base.parse().ok()?,
            used: *used,
            cap: *cap,
            is_ours: *ours == 1,
        })
    }
}
