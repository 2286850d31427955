//! Wall clocks that are wrong: shifted by the program itself, or stepped under a real process.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use jiff::Timestamp;
use tempfile::TempDir;

use super::keeper;

/// The path of the library below Debian's directory for the machine's architecture.
const LIBRARY: &str = "faketime/libfaketimeMT.so.1";

/// A wall clock for processes that start with it. The clock is the machine's clock plus an offset,
/// which may change at any time. The monotonic clocks of the processes are the machine's.
pub struct SteppedClock {
    directory: TempDir,
    library: PathBuf,
}

impl SteppedClock {
    /// Makes a clock with the offset 0.
    ///
    /// # Panics
    /// If the library is missing.
    pub fn right() -> Self {
        let clock = Self {
            directory: keeper::directory("clock"),
            library: library().expect("libfaketime is missing: run tests/install"),
        };
        clock.step_to(0);
        clock
    }

    /// Sets the clock so that it is `offset_ms` milliseconds ahead of the machine's clock.
    pub fn step_to(&self, offset_ms: i64) {
        let sign = if offset_ms < 0 { '-' } else { '+' };
        let (seconds, millis) = (
            offset_ms.unsigned_abs() / 1000,
            offset_ms.unsigned_abs() % 1000,
        );
        // The file is renamed into its place, so that no process reads half of it.
        let written = self.directory.path().join("next");
        std::fs::write(&written, format!("{sign}{seconds}.{millis:03}\n")).expect("our directory");
        std::fs::rename(&written, self.file()).expect("our directory");
    }

    /// Returns the environment variables that make a process use this clock.
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

/// Returns the environment variables that make a process use a clock which is ahead of the machine's
/// clock. Its monotonic clocks are the machine's.
///
/// # Panics
/// If the library is missing.
pub fn ahead(by: Duration) -> Vec<(&'static str, String)> {
    let library = library().expect("libfaketime is missing: run tests/install");
    let library = library.to_str().expect("a path of ASCII").to_owned();
    vec![
        ("LD_PRELOAD", library),
        ("FAKETIME", format!("+{:.3}", by.as_secs_f64())),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
    ]
}

/// Reads the machine's clock, in milliseconds since the Unix epoch.
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
        // A busy machine may have delayed the process.
        assert!(
            (-60_000..=1_000).contains(&off),
            "{offset_ms}: off by {off}"
        );
    }
}
