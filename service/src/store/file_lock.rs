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

/// Beside the file that is meant, by whatever way it is named.
fn lock_path(database: &Path) -> PathBuf {
    let database = resolve(database).unwrap_or_else(|| database.to_owned());
    let mut path = database.into_os_string();
    path.push(".lock");
    PathBuf::from(path)
}

/// Without links; the file itself may not exist yet.
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
