//! The lock beside a SQLite file: one process at a time serves from it.

use std::{
    fs::{File, OpenOptions, TryLockError},
    path::{Path, PathBuf},
};

use super::error::StartError;

/// Released when dropped, or when the process ends in whatever way.
pub(super) struct FileLock {
    _file: File,
}

impl FileLock {
    /// # Errors
    /// Another process holds it, or the file cannot be made.
    pub(super) fn take(database: &Path) -> Result<Self, StartError> {
        let path = lock_path(database);
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(|error| {
                StartError::Configuration(format!(
                    "ODOMETER_DATABASE_URL: {} cannot be opened for writing: {error}; \
                     give a file in a folder that exists and that this user may write",
                    path.display()
                ))
            })?;
        match file.try_lock() {
            Ok(()) => Ok(Self { _file: file }),
            Err(TryLockError::WouldBlock) => Err(StartError::Held(format!(
                "the SQLite file {} is held by another process: stop that one, give this one a \
                 file of its own, or use PostgreSQL or MySQL for more than one replica",
                database.display()
            ))),
            Err(TryLockError::Error(error)) => Err(StartError::Other(format!(
                "{} cannot be locked: {error}",
                path.display()
            ))),
        }
    }
}

fn lock_path(database: &Path) -> PathBuf {
    let mut path = database.as_os_str().to_owned();
    path.push(".lock");
    PathBuf::from(path)
}
