//! Counts instructions and allocations with valgrind.
//!
//! The counts are the same on every run of the same build on the same kind of machine. Only the
//! work of threads that follow the clock differs.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use tempfile::TempDir;
use tokio::process::Command;

use super::keeper;

/// The path of valgrind. It is absolute, because the program under test gets no `PATH`.
const VALGRIND: &str = "/usr/bin/valgrind";
const VGDB: &str = "/usr/bin/vgdb";
/// The start of the names of the files that valgrind writes.
const WRITTEN: &str = "counted";
const LIMIT: Duration = Duration::from_secs(120);
/// The functions that ask for memory: those of the C library, and those of the program's allocator.
const ALLOCATORS: [&str; 10] = [
    "malloc",
    "calloc",
    "realloc",
    "posix_memalign",
    "aligned_alloc",
    "_rjem_malloc",
    "_rjem_mallocx",
    "_rjem_calloc",
    "_rjem_realloc",
    "_rjem_rallocx",
];

/// One process under valgrind, and the directory for its counts.
pub struct Callgrind {
    directory: TempDir,
}

/// The counts of the thread that did most. Other threads follow the clock, and on a slower machine
/// they do more.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Counted {
    pub instructions: u64,
    /// Calls for memory.
    pub allocations: u64,
}

impl Callgrind {
    /// Makes an empty directory for the counts.
    ///
    /// # Panics
    /// If valgrind is missing.
    pub fn new() -> Self {
        assert!(
            Path::new(VALGRIND).is_file() && Path::new(VGDB).is_file(),
            "valgrind is missing: run tests/install"
        );
        Self {
            directory: keeper::directory("callgrind"),
        }
    }

    /// Returns the path of valgrind and the arguments that stand before the program. valgrind
    /// counts at once if `counts_at_once` is true, else from the first [`Self::count`] on.
    pub(crate) fn command(&self, counts_at_once: bool) -> (PathBuf, Vec<String>) {
        let at_start = if counts_at_once { "yes" } else { "no" };
        let arguments = vec![
            "--tool=callgrind".to_owned(),
            "--separate-threads=yes".to_owned(),
            format!("--instr-atstart={at_start}"),
            format!("--callgrind-out-file={}", self.written().display()),
            format!("--log-file={}", self.directory.path().join("log").display()),
            self.prefix(),
        ];
        (PathBuf::from(VALGRIND), arguments)
    }

    /// Runs `program` to its end, which must be a success, and counts the whole run.
    pub async fn run(program: &Path, arguments: &[&str]) -> Counted {
        let callgrind = Self::new();
        let (valgrind, before) = callgrind.command(true);
        let mut command = Command::new(valgrind);
        command
            .args(before)
            .arg(program)
            .args(arguments)
            .env_clear()
            .env("TESTS_RUN_DIRECTORY", keeper::run_directory());
        ended_well(command).await;
        callgrind.counted()
    }

    /// Switches the counting of `process`, which runs under this valgrind, on or off.
    pub async fn count(&self, process: u32, on: bool) {
        let mut command = Command::new(VGDB);
        command
            .args([self.prefix(), format!("--pid={process}")])
            .args(["instrumentation", if on { "on" } else { "off" }]);
        ended_well(command).await;
    }

    /// Reads the counts of a process that has ended.
    ///
    /// # Panics
    /// If there is nothing to read.
    pub fn counted(&self) -> Counted {
        let files = std::fs::read_dir(self.directory.path()).expect("our directory");
        let threads = files.filter_map(|file| {
            let path = file.expect("our directory").path();
            let name = path.file_name()?.to_str()?;
            // The file without a number is for the whole process, and is empty.
            name.strip_prefix(WRITTEN)?.strip_prefix('-')?;
            let text = std::fs::read_to_string(&path);
            Some(read(&text.expect("valgrind writes text")))
        });
        let busiest = threads.max_by_key(|thread| thread.instructions);
        busiest.expect("valgrind wrote a file for each thread")
    }

    fn written(&self) -> PathBuf {
        self.directory.path().join(WRITTEN)
    }

    fn prefix(&self) -> String {
        format!(
            "--vgdb-prefix={}",
            self.directory.path().join("vgdb").display()
        )
    }
}

impl Default for Callgrind {
    fn default() -> Self {
        Self::new()
    }
}

async fn ended_well(mut command: Command) {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let process = command.spawn().expect("it can be run");
    let id = process.id().expect("nobody has waited for it");
    keeper::end_with_the_run(id, "KILL");
    let output = tokio::time::timeout(LIMIT, process.wait_with_output()).await;
    let output = output.expect("it ends in time").expect("it can be read");
    keeper::has_ended(id);
    assert!(output.status.success(), "{command:?}: {output:?}");
}

/// Reads the format of <https://valgrind.org/docs/manual/cl-format.html>. In this format a name is
/// written once, with a number that stands for the name later.
fn read(text: &str) -> Counted {
    let mut counted = Counted {
        instructions: 0,
        allocations: 0,
    };
    let mut names: HashMap<&str, &str> = HashMap::new();
    let mut called = "";
    for line in text.lines() {
        if let Some((kind, function)) = line.split_once("fn=(") {
            let (number, name) = function.split_once(')').unwrap_or((function, ""));
            if !name.is_empty() {
                names.insert(number, name.trim_start());
            }
            if kind == "c" {
                called = names.get(number).copied().unwrap_or_default();
            }
        } else if let Some(calls) = line.strip_prefix("calls=") {
            // callgrind adds an apostrophe and a number to the name of a function that calls
            // itself.
            let function = called.split('\'').next().unwrap_or_default();
            if ALLOCATORS.contains(&function) {
                counted.allocations += first_number(calls);
            }
        } else if let Some(total) = line.strip_prefix("totals:") {
            counted.instructions = first_number(total);
        }
    }
    counted
}

fn first_number(text: &str) -> u64 {
    let number = text.split_whitespace().next();
    let number = number.and_then(|number| number.parse().ok());
    number.expect("callgrind writes a number here")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_a_function_are_summed_by_name_and_number() {
        let text = "fn=(1) main\n16 400\ncfn=(2) malloc\ncalls=3 0\n16 90\ncfn=(3) free\n\
            calls=7 0\n16 9\n\nfn=(4) other\n1 1\ncfn=(2)\ncalls=2 0\n16 60\n\
            cfn=(5) realloc'2\ncalls=1 0\n16 60\n\ntotals: 620\n";
        let expected = Counted {
            instructions: 620,
            allocations: 6,
        };
        assert_eq!(read(text), expected);
    }
}
