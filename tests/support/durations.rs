//! Notes how long each test took, so that a run can print its slowest tests.

use std::{fs::OpenOptions, io::Write, time::Instant};

use super::settings;

/// A running test; its duration is noted when the value is dropped.
pub(crate) struct Clocked(Instant);

impl Clocked {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }
}

impl Drop for Clocked {
    fn drop(&mut self) {
        let Some(directory) = settings::run_directory() else {
            return;
        };
        let test = std::thread::current();
        let name = test.name().unwrap_or_default();
        let line = format!("{:.1} {name}\n", self.0.elapsed().as_secs_f64());
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(directory.join("durations"));
        // A run whose directory is gone prints nothing.
        let _noted = file.and_then(|mut file| file.write_all(line.as_bytes()));
    }
}
