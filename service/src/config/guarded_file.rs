//! Reads files with secrets, and files that decide who may do what. Nobody but their owner and group
//! may write to them.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use rustix::fs::{Mode, OFlags};

/// The right of everybody to write.
const OTHERS_WRITE: u32 = 0o002;

/// Reads a file that is read again while the service runs.
///
/// # Errors
/// A sentence that names the file: it cannot be read, it is a folder, a pipe or a device, or
/// everybody may write to it.
pub(crate) fn read(path: &Path) -> Result<String, String> {
    text_of(path, open(path)?)
}

/// Reads a file that need not be text, and that is read again while the service runs.
///
/// # Errors
/// As [`read`].
pub(crate) fn read_bytes(path: &Path) -> Result<Vec<u8>, String> {
    let mut content = Vec::new();
    let read = open(path)?.read_to_end(&mut content);
    read.map_err(|error| unread(path, &error))?;
    Ok(content)
}

/// Reads a file that is read at the start alone. So it may be a pipe, as a shell gives one for
/// `<(…)`.
///
/// # Errors
/// A sentence that names the file: it cannot be read, or everybody may write to it.
pub(crate) fn read_once(path: &Path) -> Result<String, String> {
    let opened = File::open(path).map_err(|error| unread(path, &error))?;
    let metadata = opened.metadata().map_err(|error| unread(path, &error))?;
    if metadata.is_file() {
        check_writers(path, &metadata)?;
    }
    text_of(path, opened)
}

/// Opens a file that is read again while the service runs.
///
/// # Errors
/// As [`read`].
pub(crate) fn open(path: &Path) -> Result<File, String> {
    // Without `NONBLOCK`, a pipe that nobody writes to would keep its reader waiting here.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let opened = rustix::fs::open(path, flags, Mode::empty());
    let opened = opened.map_err(|error| unread(path, &error.into()))?;
    let opened = File::from(opened);
    let metadata = opened.metadata().map_err(|error| unread(path, &error))?;
    if !metadata.is_file() {
        return Err(format!(
            "{} is a folder, a pipe or a device, and cannot be read again and again; give the path \
             of a file",
            path.display()
        ));
    }
    check_writers(path, &metadata)?;
    Ok(opened)
}

fn check_writers(path: &Path, metadata: &Metadata) -> Result<(), String> {
    if metadata.permissions().mode() & OTHERS_WRITE == 0 {
        return Ok(());
    }
    Err(format!(
        "{} can be written by everybody, who could give themselves any right; take this away with \
         `chmod o-w`",
        path.display()
    ))
}

fn text_of(path: &Path, mut opened: impl Read) -> Result<String, String> {
    let mut content = String::new();
    let read = opened.read_to_string(&mut content);
    read.map_err(|error| unread(path, &error))?;
    Ok(content)
}

/// Returns the sentence about a file that cannot be read.
pub(crate) fn unread(path: &Path, error: &io::Error) -> String {
    format!("{} cannot be read: {error}", path.display())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use std::fs::{Permissions, create_dir, remove_file, set_permissions, write};
    use std::os::unix::fs::symlink;

    use odometer_tests::directory;
    use rustix::fs::{CWD, mkfifoat};

    use super::*;

    #[test]
    fn a_file_that_everybody_can_write_is_refused() {
        let folder = directory("guarded");
        let path = folder.path().join("token");
        write(&path, "s3cret").unwrap();
        for (mode, is_read) in [(0o600, true), (0o664, true), (0o666, false), (0o602, false)] {
            set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            assert_eq!(read_bytes(&path).is_ok(), is_read, "{mode:o}");
            for read in [read(&path), read_once(&path)] {
                assert_eq!(read.is_ok(), is_read, "{mode:o}: {read:?}");
                let said = read.err().unwrap_or_default();
                let is_told = said.contains("chmod o-w") && !said.contains("s3cret");
                assert!(is_read || is_told, "{said}");
            }
        }
        let none = folder.path().join("none");
        for missing in [read(&none), read_once(&none)] {
            let missing = missing.unwrap_err();
            assert!(
                missing.contains("none cannot be read: No such"),
                "{missing}"
            );
        }
    }

    #[test]
    fn what_cannot_be_read_again_is_refused_and_keeps_no_reader_waiting() {
        let folder = directory("guarded");
        let [pipe, inner, link] = ["pipe", "inner", "link"].map(|name| folder.path().join(name));
        mkfifoat(CWD, &pipe, Mode::RUSR | Mode::WUSR).unwrap();
        create_dir(&inner).unwrap();
        for other in [pipe.as_path(), &inner, Path::new("/dev/null")] {
            symlink(other, &link).unwrap();
            for path in [other, &link] {
                let said = read(path).unwrap_err();
                let named = format!("{} is a folder, a pipe or a device", path.display());
                assert!(said.starts_with(&named), "{said}");
                assert_eq!(read_bytes(path), Err(said));
            }
            remove_file(&link).unwrap();
        }
        // Links to files are followed, as those of Kubernetes.
        let file = folder.path().join("file");
        write(&file, "text").unwrap();
        symlink(&file, &link).unwrap();
        assert_eq!(read(&link), Ok("text".to_owned()));
        assert_eq!(read_once(Path::new("/dev/null")), Ok(String::new()));
    }
}
