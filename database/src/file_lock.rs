//! Locks a SQLite file, so that one process at a time serves from it, by one name. There are two
//! locks: one on a file of its own, and one on the database file itself.
//!
//! SQLite keeps what was committed last in a second file. It finds the second file by the name of
//! the first. If the first file is opened by another name, SQLite finds another second file, or
//! none. Then what was committed last is forgotten.

use std::{
    fs::{File, OpenOptions, Permissions, TryLockError},
    os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use odometer_process::faults::{self, Fault};

use crate::{file_mark::FileMark, start_error::StartError};

/// Names the log target of the events in this file.
const TARGET: &str = "odometer::store::file_lock";

/// Allows only the owner of a file to read and write it.
const OWNERS_ALONE: u32 = 0o600;

/// Selects the bits of a mode that allow something to others than the owner.
const OTHERS: u32 = 0o077;

/// The locks of a SQLite file. They are released when this value is dropped, and when the process
/// ends in any way.
///
/// A process that can open the lock's file can take the lock. So only its owner may open the file,
/// from before the lock is taken. But a process may have opened the file earlier, while others
/// could read it. That process can still take the lock when no process has it, and so keep this
/// service from starting until that process ends. A user who may read the database file itself can
/// do this, too; a warning says so (ADR 21). None of them can take a lock that is held, or touch
/// what is in the database by it.
pub struct FileLock {
    own: File,
    /// What is kept in the lock's file.
    mark: Arc<FileMark>,
    /// The lock on the database file itself. All names of the file share this one lock. `None` if
    /// the file cannot be opened. The file is closed only together with the process's connections,
    /// because closing it ends SQLite's own locks.
    on: Option<File>,
}

impl FileLock {
    /// Takes both locks. Makes the database file if it does not exist, so that it is locked from
    /// the beginning.
    ///
    /// # Errors
    /// Another process holds a lock, the file has several names, or a file cannot be made.
    pub fn take(database: &Path) -> Result<Self, StartError> {
        if !faults::is(Fault::NoFileLock) {
            has_one_name(database)?;
        }
        let path = lock_path(database);
        let file = make_for_owner(&path)?;
        keep_from_others(&file, &path);
        if faults::is(Fault::NoFileLock) {
            let mark = FileMark::read_or_make(&path)?;
            return Ok(Self {
                own: file,
                mark: Arc::new(mark),
                on: None,
            });
        }
        lock(&file, &path, database)?;
        let mark = FileMark::read_or_make(&path)?;
        let mut held = Self {
            own: file,
            mark: Arc::new(mark),
            on: None,
        };
        let on = if database.exists() {
            // SQLite says what is wrong with a file that cannot be opened.
            File::open(database).ok()
        } else {
            Some(make_for_owner(database)?)
        };
        if let Some(on) = &on {
            lock(on, database, database)?;
        }
        held.on = on;
        warn_of_readers(database);
        Ok(held)
    }

    /// Returns what is kept in the lock's file about the database.
    #[must_use]
    pub fn mark(&self) -> &Arc<FileMark> {
        &self.mark
    }
}

impl Drop for FileLock {
    /// Releases the locks. Closing the files does not, if this process is just starting another one:
    /// the new process has them, too, until it runs its program.
    fn drop(&mut self) {
        for file in [self.on.as_ref(), Some(&self.own)].into_iter().flatten() {
            let _ended = file.unlock();
        }
    }
}

/// Opens a file for reading and writing. If the file does not exist, makes it for its owner alone.
fn make_for_owner(path: &Path) -> Result<File, StartError> {
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).read(true).write(true);
    options.mode(OWNERS_ALONE).open(path).map_err(|error| {
        StartError::Configuration(format!(
            "ODOMETER_DATABASE_URL: {} cannot be opened for writing: {error}; give a file in a \
             folder that exists and that this user may write",
            path.display()
        ))
    })
}

/// Takes the lock of `file`.
///
/// # Errors
/// Another process holds the lock of `file`, or the file cannot be locked.
fn lock(file: &File, path: &Path, database: &Path) -> Result<(), StartError> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(StartError::Held(format!(
            "the SQLite file {} is held by another process: stop that one, give this one a file \
             of its own, or use PostgreSQL or MySQL for more than one replica",
            database.display()
        ))),
        Err(TryLockError::Error(error)) => Err(StartError::Other(format!(
            "{} cannot be locked: {error}",
            path.display()
        ))),
    }
}

/// Checks that a database file has only one name.
///
/// # Errors
/// The file has another name, or is mounted by itself: then it has another name elsewhere.
fn has_one_name(database: &Path) -> Result<(), StartError> {
    let Ok(found) = database.metadata() else {
        return Ok(());
    };
    if !found.is_file() {
        return Ok(());
    }
    let problem = if found.nlink() > 1 {
        "has another name (a hard link), by which SQLite does not find what was committed last; \
         remove one of the two names"
    } else if is_mounted(database) {
        "is mounted by itself, and what SQLite commits lies in a second file that is not \
         mounted; mount the folder that it is in"
    } else {
        return Ok(());
    };
    Err(StartError::Configuration(format!(
        "ODOMETER_DATABASE_URL: the SQLite file {} {problem}",
        database.display()
    )))
}

/// Returns whether a file is the root of a mount. Linux tells this since version 5.8.
#[cfg(target_os = "linux")]
fn is_mounted(file: &Path) -> bool {
    use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};

    let found = statx(CWD, file, AtFlags::empty(), StatxFlags::empty());
    found.is_ok_and(|found| found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

#[cfg(not(target_os = "linux"))]
fn is_mounted(_: &Path) -> bool {
    false
}

/// Keeps other users from reading the file of a lock, because a user who may read the file can take
/// the lock. An earlier version may have made the file readable.
fn keep_from_others(file: &File, path: &Path) {
    let is_open = file
        .metadata()
        .is_ok_and(|found| found.permissions().mode() & OTHERS != 0);
    if !is_open {
        return;
    }
    if let Err(error) = file.set_permissions(Permissions::from_mode(OWNERS_ALONE)) {
        tracing::warn!(
            target: TARGET,
            "Users other than its owner may read {} and can so keep this service from starting. \
             Its mode cannot be changed ({error}): run chmod 600 on that file as its owner",
            path.display()
        );
    }
}

/// Warns if other users may read the database file. A file that was there keeps its mode, because
/// somebody may have chosen it.
fn warn_of_readers(database: &Path) {
    let Ok(found) = database.metadata() else {
        return;
    };
    let mode = found.permissions().mode() & 0o777;
    if mode & OTHERS != 0 {
        tracing::warn!(
            target: TARGET,
            "Users other than its owner may read or write the SQLite file {} (mode {mode:o}), and \
             can so keep this service from starting. If they need no access, run chmod 600 on that \
             file",
            database.display()
        );
    }
}

/// Returns the path of the lock's file: next to the database file, whichever path names that file.
fn lock_path(database: &Path) -> PathBuf {
    let database = resolve(database).unwrap_or_else(|| database.to_owned());
    let mut path = database.into_os_string();
    path.push(".lock");
    PathBuf::from(path)
}

/// Resolves the links of a path. The file itself may not exist yet.
fn resolve(database: &Path) -> Option<PathBuf> {
    if let Ok(known) = database.canonicalize() {
        return Some(known);
    }
    let name = database.file_name()?;
    let folder = database
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new(".")).canonicalize().ok()?;
    Some(folder.join(name))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_file_is_its_owners_before_the_lock_is_taken() {
        let name = format!("odometer-{}.db", uuid::Uuid::new_v4());
        let database = std::env::temp_dir().join(name);
        let path = lock_path(&database);
        let other = File::create(&path).unwrap();
        other
            .set_permissions(Permissions::from_mode(0o644))
            .unwrap();
        let mode = || path.metadata().unwrap().permissions().mode() & 0o777;
        other.lock().unwrap();
        assert!(matches!(
            FileLock::take(&database),
            Err(StartError::Held(_))
        ));
        assert_eq!(mode(), OWNERS_ALONE);
        other.unlock().unwrap();
        assert!(FileLock::take(&database).is_ok());
        fs::remove_file(path).unwrap();
        fs::remove_file(database).unwrap();
    }

    #[test]
    fn a_lock_ends_although_a_process_that_is_starting_has_its_files() {
        let name = format!("odometer-{}.db", uuid::Uuid::new_v4());
        let database = std::env::temp_dir().join(name);
        let lock = FileLock::take(&database).unwrap();
        let inherited =
            [&lock.own, lock.on.as_ref().unwrap()].map(|file| file.try_clone().unwrap());
        drop(lock);
        assert!(FileLock::take(&database).is_ok());
        drop(inherited);
        fs::remove_file(lock_path(&database)).unwrap();
        fs::remove_file(database).unwrap();
    }
}
