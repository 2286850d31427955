//! Ends every process that a run started, and removes every file that it wrote, however the run
//! ends.
//!
//! A small shell process holds the other end of a pipe. Statics are not dropped, and a killed
//! process runs no destructor, but the kernel closes its pipes.

use std::{
    io::Write,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{LazyLock, Mutex, PoisonError},
};

use super::settings;

/// The directory in which each run makes its own directory, as `tests/run` does.
///
/// `TMPDIR` does not count. The path of a Unix socket may have 107 bytes, and servers make sockets
/// below this directory. In a home directory, tests about exposed files would see other files and
/// permissions than elsewhere.
const PARENT: &str = "/tmp";

static KEEPER: LazyLock<Keeper> = LazyLock::new(Keeper::start);

struct Keeper {
    orders: Mutex<std::process::ChildStdin>,
    directory: PathBuf,
}

impl Keeper {
    fn start() -> Self {
        let given = settings::run_directory();
        let directory = given.clone().unwrap_or_else(|| {
            let number = uuid::Uuid::new_v4().simple().to_string();
            Path::new(PARENT).join(format!("odometer-tests-{number:.8}"))
        });
        std::fs::create_dir_all(&directory).expect("the directory of the run can be made");
        // A server that refuses to run as root must reach its own directory below this one.
        std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o711))
            .expect("the directory of the run is ours");
        #[expect(
            clippy::zombie_processes,
            reason = "it outlives the run, which therefore cannot wait for it"
        )]
        let mut process = Command::new("bash")
            .args(["-c", include_str!("keeper.sh"), "odometer-tests-keeper"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // An interrupt from the terminal is for the run, not for the process that cleans up
            // after it.
            .process_group(0)
            .spawn()
            .expect("bash starts");
        std::fs::write(
            directory.join(format!("keeper-{}", process.id())),
            process.id().to_string(),
        )
        .expect("the directory of the run is writable");
        let orders = Mutex::new(process.stdin.take().expect("standard input is piped"));
        let keeper = Self { orders, directory };
        if given.is_none() {
            keeper.order(&format!("directory {}", keeper.directory.display()));
        }
        keeper
    }

    fn order(&self, line: &str) {
        let mut orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        writeln!(orders, "{line}").expect("the keeper lives as long as the run");
    }
}

/// Returns the directory of everything that a run writes.
pub fn run_directory() -> &'static Path {
    &KEEPER.directory
}

/// Ends `process` with `signal` (a name such as `QUIT`) when the run is gone.
pub fn end_with_the_run(process: u32, signal: &str) {
    KEEPER.order(&format!("process {process} {signal}"));
}

/// Tells the keeper that `process` has ended and was waited for. Another process may soon get its
/// number.
pub fn has_ended(process: u32) {
    KEEPER.order(&format!("ended {process}"));
}

/// Unmounts `path` when the run is gone.
pub fn unmount_with_the_run(path: &Path) {
    KEEPER.order(&format!("mount {}", path.display()));
}

/// Makes a new directory below the run's directory, and so below `/tmp`. The directory is removed
/// when the returned value is dropped, or with the run.
pub fn directory(name: &str) -> tempfile::TempDir {
    tempfile::Builder::new()
        .prefix(&format!("{name}-"))
        .tempdir_in(run_directory())
        .expect("the directory of the run is writable")
}
