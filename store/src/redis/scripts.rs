//! Holds the scripts that Redis runs. Redis runs each script atomically.
//!
//! A script computes with counts from the window's base, and with numbers of windows. Both stay
//! below 2^53, because Lua counts exactly only up to there. The numbers that callers get are
//! computed here, not in a script.

use std::sync::LazyLock;

use odometer_process::faults::{self, Fault};
use redis::Script;

/// The bound that counts and window numbers stay below, because Lua's numbers are floating-point
/// numbers.
pub(crate) const MAX: u64 = 1 << 53;
/// How long a key that no replica raises stays, in milliseconds. If the key is gone, the next
/// window is opened.
pub(crate) const KEY_TTL_MS: u64 = 40 * 86_400_000;

/// Reads what stands under a counter's key.
pub(crate) static LOOK: LazyLock<Script> = LazyLock::new(|| script(include_str!("look.lua")));
/// Puts a window there, once.
pub(crate) static INSTALL: LazyLock<Script> = LazyLock::new(|| script(include_str!("install.lua")));
/// Takes numbers of a window.
pub(crate) static STEP: LazyLock<Script> = LazyLock::new(|| script(include_str!("step.lua")));
/// Raises the ceiling of a window.
pub(crate) static RAISE: LazyLock<Script> = LazyLock::new(|| script(include_str!("raise.lua")));
/// Does what a step does, to show whether the server would take one.
pub(crate) static PROBE: LazyLock<Script> = LazyLock::new(|| script(include_str!("probe.lua")));

fn script(body: &str) -> Script {
    let identity = if faults::is(Fault::NoIdentity) {
        "local function identity() return 'any' end\n"
    } else {
        include_str!("identity.lua")
    };
    Script::new(&format!("{identity}{body}"))
}

/// The outcome of a step, or of raising a ceiling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScriptAnswer {
    /// It was done: `used` of the window's `cap` numbers are used now.
    Done { used: u64, cap: u64 },
    /// The count does not fit below the ceiling, and nothing was changed.
    Full { used: u64, cap: u64 },
    /// The window is not there. It was flushed, evicted, deleted, or lost in a restart. Or it was
    /// installed in another process, or in another history of the server's data. Or another window
    /// is there.
    Lost,
}

impl ScriptAnswer {
    pub(crate) fn of((code, used, cap): RawAnswer) -> Self {
        match code {
            1 => Self::Done { used, cap },
            2 => Self::Full { used, cap },
            _ => Self::Lost,
        }
    }
}

/// A window as it stands in Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WindowState {
    pub(crate) window: i64,
    /// The window's first number.
    pub(crate) base: i64,
    pub(crate) used: u64,
    pub(crate) cap: u64,
    /// Whether the window was installed in the server's present process, with the present history
    /// of its data.
    pub(crate) is_ours: bool,
}

/// The answer of `step.lua`, `raise.lua` and `probe.lua`.
pub(crate) type RawAnswer = (i64, u64, u64);

/// The answer of `look.lua`.
pub(crate) type RawWindowState = (i64, i64, String, u64, u64, i64);

/// The answer of `install.lua`: whether the new window stands there, and the number, base, used and
/// cap of the window that it replaced.
pub(crate) type RawReplaced = (i64, i64, String, u64, u64);

impl WindowState {
    /// Reads the answer. Returns `None` if nothing stands there, or nothing that can be read.
    pub(crate) fn of((there, window, base, used, cap, ours): &RawWindowState) -> Option<Self> {
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
