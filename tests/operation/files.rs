//! SQLite's files are for their owner alone, unless an operator decided otherwise.

use std::{
    fs::{File, Permissions},
    os::unix::fs::PermissionsExt,
    path::Path,
};

use tempfile::TempDir;

use crate::support::{Options, Program, directory, run};

fn mode(path: &Path) -> u32 {
    let found = path.metadata().expect("the file is there");
    found.permissions().mode() & 0o777
}

fn make(path: &Path, mode: u32) {
    File::create(path).expect("our directory");
    std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("our file");
}

fn options() -> (TempDir, Options) {
    let directory = directory("sqlite-files");
    let file = directory.path().join("odometer.db");
    let options = Program::options().database(&format!("sqlite:{}", file.display()));
    (directory, options)
}

#[test]
fn new_sqlite_files_are_for_their_owner_alone() {
    run(async {
        let (directory, options) = options();
        let program = options.without_umask().start_ready().await;
        assert_eq!(program.client().next("private").await, 1);
        for name in [
            "odometer.db",
            "odometer.db-wal",
            "odometer.db-shm",
            "odometer.db.lock",
        ] {
            assert_eq!(mode(&directory.path().join(name)), 0o600, "{name}");
        }
        let log = program.stop().await;
        assert!(!log.contains("chmod"), "{log}");
    });
}

#[test]
fn an_sqlite_file_keeps_its_mode_and_its_lock_is_closed_to_readers() {
    run(async {
        let (directory, options) = options();
        let (file, lock) = (
            directory.path().join("odometer.db"),
            directory.path().join("odometer.db.lock"),
        );
        make(&file, 0o644);
        make(&lock, 0o644);
        let program = options.start_ready().await;
        assert_eq!((mode(&file), mode(&lock)), (0o644, 0o600));
        let log = program.stop().await;
        assert!(log.contains("mode 644"), "{log}");
    });
}
