//! Wall clocks that go wrong: shifted by the program itself, or stepped under a real process.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use tempfile::TempDir;

use super::keeper;

/// Where Debian keeps the library, below the directory of the machine's kind.
const LIBRARY: &str = "faketime/libfaketimeMT.so.1";

/// The wall clock of processes that were started with it: that of the machine and an offset, which
/// may change at any time. Their monotonic clocks are the machine's.
pub struct SteppedClock {
    directory: TempDir,
    library: PathBuf,
}

impl SteppedClock {
    /// # Panics
    /// Where the library is missing.
    pub fn right() -> Self {
        let clock = Self {
            directory: keeper::directory("clock"),
            library: library().expect("libfaketime is missing: run tests/install"),
        };
        clock.step_to(0);
        clock
    }

    /// From now on the clock is so many milliseconds ahead of the machine's.
    pub fn step_to(&self, offset_ms: i64) {
        let sign = if offset_ms < 0 { '-' } else { '+' };
        let (seconds, millis) = (
            offset_ms.unsigned_abs() / 1000,
            offset_ms.unsigned_abs() % 1000,
        );
        // Renamed, so that nobody reads half of it.
        let written = self.directory.path().join("next");
        std::fs::write(&written, format!("{sign}{seconds}.{millis:03}\n")).expect("our directory");
        std::fs::rename(&written, self.file()).expect("our directory");
    }

    /// What a process must be given to live by it.
    pub fn environment(&self) -> [(&'static str, String); 4] {
        let shown = |path: &Path| path.to_str().expect("a path of ASCII").to_owned();
        [
            ("LD_PRELOAD", shown(&self.library)),
            ("FAKETIME_TIMESTAMP_FILE", shown(&self.file())),
            ("FAKETIME_NO_CACHE", "1".to_owned()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
        ]
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("offset")
    }
}

/// The machine's clock, in milliseconds of the Unix epoch.
pub fn now_ms() -> i64 {
    Timestamp::now().as_millisecond()
}

fn library() -> Option<PathBuf> {
    let kinds = std::fs::read_dir("/usr/lib").ok()?;
    let mut found = kinds
        .filter_map(Result::ok)
        .map(|kind| kind.path().join(LIBRARY))
        .filter(|path| path.is_file());
    found.next()
}

#[test]
fn a_stepped_clock_is_what_a_process_sees() {
    let clock = SteppedClock::right();
    for offset_ms in [0, 93_600_500, -93_600_500] {
        clock.step_to(offset_ms);
        let asked = std::process::Command::new("date")
            .arg("+%s")
            .envs(clock.environment())
            .output()
            .expect("date runs");
        let seen: i64 = String::from_utf8_lossy(&asked.stdout)
            .trim()
            .parse()
            .unwrap_or_else(|_| panic!("not a time: {asked:?}"));
        let off = seen * 1000 - (now_ms() + offset_ms);
        // The machine may have been busy for a while.
        assert!(
            (-60_000..=1_000).contains(&off),
            "{offset_ms}: off by {off}"
        );
    }
}
