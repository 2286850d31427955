//! Says which SQLite file a database is, and how young it was last. Both are kept in the file of the
//! [lock](crate::file_lock), next to the database file.
//!
//! A copy of the database file does not have the file of the lock, or has that of another database.
//! If an earlier state of the database is put back in its place, the file of the lock shows that the
//! database was younger: it holds the last heartbeat that was committed.
//!
//! A restore of both files together, as from a snapshot of a disk, goes unnoticed.

use std::{
    fs::File,
    io::{self, Read},
    os::unix::fs::FileExt,
    path::Path,
};

use parking_lot::Mutex;
use uuid::Uuid;

use crate::start_error::StartError;

/// Names the log target of the events in this file.
const TARGET: &str = "odometer::store::file_mark";

/// Bounds what is read of the file, in bytes.
const MAX_LENGTH: u64 = 1024;
/// Sets the width of the number of a heartbeat, so that a line takes as much place as the one that
/// it replaces.
const WIDTH: usize = 20;

/// What is kept next to a SQLite file. The first line has the file's id, the second one a heartbeat.
pub struct FileMark {
    file: File,
    id: String,
    /// `None` if none was written yet, or since the last recovery.
    last: Mutex<Option<LastHeartbeat>>,
}

/// A heartbeat that was certainly committed in the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastHeartbeat {
    /// The holder of the heartbeat's row.
    pub holder: String,
    pub beat: i64,
}

impl FileMark {
    /// Reads the file at `path`, which this process has locked. Gives it an id if it has none.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub(crate) fn read_or_make(path: &Path) -> Result<Self, StartError> {
        Self::try_to_read_or_make(path).map_err(|error| {
            StartError::Configuration(format!(
                "ODOMETER_DATABASE_URL: {} cannot be read or written: {error}",
                path.display()
            ))
        })
    }

    fn try_to_read_or_make(path: &Path) -> io::Result<Self> {
        // Another handle of the locked file would keep its lock for as long as this value lives.
        let file = File::options().read(true).write(true).open(path)?;
        let mut bytes = Vec::new();
        (&file).take(MAX_LENGTH).read_to_end(&mut bytes)?;
        let text = String::from_utf8_lossy(&bytes);
        let (id, last) = parse(&text).unwrap_or_else(|| (Uuid::new_v4().to_string(), None));
        let mark = Self {
            file,
            id,
            last: Mutex::new(last),
        };
        if !text.starts_with(&mark.first_line()) {
            mark.file.set_len(0)?;
            mark.file.write_all_at(mark.first_line().as_bytes(), 0)?;
            // The database is stamped with the id afterwards. Without it a copy would be seen in it.
            mark.file.sync_all()?;
            keep_in_folder(path);
        }
        Ok(mark)
    }

    fn first_line(&self) -> String {
        format!("{}\n", self.id)
    }

    /// Returns the random id of the file.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the last heartbeat that was noted, by this process or an earlier one.
    #[must_use]
    pub fn last(&self) -> Option<LastHeartbeat> {
        self.last.lock().clone()
    }

    /// Notes a heartbeat that is committed. If that fails, an older one stays: it shows less, and
    /// nothing wrong.
    ///
    /// It takes as long as a write to the cache of a file.
    pub fn note(&self, holder: &str, beat: i64) {
        let noted = LastHeartbeat {
            holder: holder.to_owned(),
            beat,
        };
        self.replace(Some(noted));
    }

    /// Forgets the last heartbeat, because the database was recovered.
    pub fn forget(&self) {
        self.replace(None);
    }

    fn replace(&self, last: Option<LastHeartbeat>) {
        let line = last.as_ref().map_or_else(String::new, |last| {
            format!("{:WIDTH$} {}\n", last.beat, last.holder)
        });
        let start = self.first_line().len() as u64;
        let mut kept = self.last.lock();
        let written = self.file.write_all_at(line.as_bytes(), start);
        let written = written.and_then(|()| self.file.set_len(start + line.len() as u64));
        match written {
            Ok(()) => *kept = last,
            Err(error) => tracing::debug!(
                target: TARGET,
                error = %error,
                "the last heartbeat cannot be noted next to the SQLite file"
            ),
        }
    }
}

/// Lets the entry of a new file outlive a power cut. Some file systems cannot do that for a folder.
fn keep_in_folder(path: &Path) {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let opened = File::open(folder.unwrap_or(Path::new(".")));
    if let Err(error) = opened.and_then(|folder| folder.sync_all()) {
        tracing::debug!(
            target: TARGET,
            error = %error,
            "the folder of the SQLite file cannot be written to the disk"
        );
    }
}

/// Returns id and heartbeat. `None` if the text has no id.
fn parse(text: &str) -> Option<(String, Option<LastHeartbeat>)> {
    let (id, rest) = text.split_once('\n')?;
    let id = Uuid::try_parse(id).ok()?;
    let last = rest.split_once('\n').and_then(|(line, _)| {
        let (beat, holder) = line.trim_start().split_once(' ')?;
        Some(LastHeartbeat {
            holder: holder.to_owned(),
            beat: beat.parse().ok()?,
        })
    });
    Some((id.to_string(), last))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_was_noted_is_read_again() {
        let path = std::env::temp_dir().join(format!("odometer-{}.lock", Uuid::new_v4()));
        fs::write(&path, "").unwrap();
        let open = || FileMark::read_or_make(&path).unwrap();
        let first = open();
        assert_eq!(first.last(), None);
        first.note("a longer holder", 12);
        first.note("holder", 13);
        let second = open();
        assert_eq!(second.id(), first.id());
        let noted = LastHeartbeat {
            holder: "holder".to_owned(),
            beat: 13,
        };
        assert_eq!(second.last(), Some(noted));
        second.forget();
        assert_eq!(open().last(), None);
        assert_eq!(open().id(), first.id());
        fs::write(&path, "no id").unwrap();
        assert_ne!(open().id(), first.id());
        fs::remove_file(path).unwrap();
    }
}
