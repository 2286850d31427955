//! Reads files with secrets, and files that decide who may do what. Nobody but their owner and group
//! may write to them.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use rustix::fs::{Mode, OFlags};

/// The right of everybody to write.
const OTHERS_WRITE: u32 = 0o002;

/// The right of everybody to read.
const OTHERS_READ: u32 = 0o004;

/// The right of everybody to reach what is in a folder.
const OTHERS_REACH: u32 = 0o001;

/// The most bytes of any file that is read here. A list of 10,000 callers has some MiB.
pub(crate) const MAX_BYTES: u64 = 16 * 1024 * 1024;

/// Reads a file that is read again while the service runs.
///
/// # Errors
/// A sentence that names the file: it cannot be read, it is a folder, a pipe or a device, it is
/// too large, or everybody may write to it.
pub(crate) fn read(path: &Path) -> Result<String, String> {
    text_of(path, read_bytes(path, MAX_BYTES)?)
}

/// Reads a file that need not be text, and that is read again while the service runs. It has
/// `max_bytes` at most.
///
/// # Errors
/// As [`read`].
pub(crate) fn read_bytes(path: &Path, max_bytes: u64) -> Result<Vec<u8>, String> {
    content_of(path, open(path)?, max_bytes)
}

/// Reads a file that is read at the start alone. So it may be a pipe, as a shell gives one for
/// `<(…)`.
///
/// # Errors
/// A sentence that names the file: it cannot be read, it is too large, or everybody may write to it.
pub(crate) fn read_once(path: &Path) -> Result<String, String> {
    let opened = File::open(path).map_err(|error| unread(path, &error))?;
    let metadata = opened.metadata().map_err(|error| unread(path, &error))?;
    if metadata.is_file() {
        check_writers(path, &metadata)?;
    }
    text_of(path, content_of(path, opened, MAX_BYTES)?)
}

fn open(path: &Path) -> Result<File, String> {
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
    match metadata.permissions().mode() & OTHERS_WRITE {
        0 => Ok(()),
        _ => Err(format!(
            "{} can be written by everybody, who could give themselves any right; take this away \
             with `chmod o-w`",
            path.display()
        )),
    }
}

/// Returns a sentence about a file if everybody can write to it.
pub(crate) fn openness(path: &Path) -> Option<String> {
    let metadata = path.metadata().ok().filter(Metadata::is_file)?;
    check_writers(path, &metadata).err()
}

/// Returns a sentence about a file with a secret if everybody on this machine can read it.
///
/// The group may read it. That is how a service reads a file that belongs to another user, such as
/// `root`, or on Kubernetes a volume with `fsGroup`.
pub(crate) fn exposure(path: &Path) -> Option<String> {
    let file = path.canonicalize().ok()?;
    let mode_of = |path: &Path| path.metadata().map(|of| of.permissions().mode());
    let has_right = |path: &Path, right: u32| mode_of(path).is_ok_and(|mode| mode & right != 0);
    let mut folders = file.ancestors().skip(1);
    let is_exposed = file.is_file()
        && has_right(&file, OTHERS_READ)
        && folders.all(|folder| has_right(folder, OTHERS_REACH))
        && !is_of_container(&file);
    is_exposed.then(|| {
        format!(
            "{} has a secret that everybody on this machine can read; give it to the service's user \
             or group, and take this away with `chmod o-r`",
            path.display()
        )
    })
}

/// Returns whether a file is where a container gets its secrets.
///
/// By default everybody can read such a file. But only the containers that mount it see it, so there
/// is nobody else. Docker and podman mount secrets in `/run/secrets`. In a volume that Kubernetes has
/// made of a Secret or the like, the files are in a folder that is called `..` and a time, to which
/// links lead.
fn is_of_container(path: &Path) -> bool {
    let mut names = path.iter().map(OsStr::as_encoded_bytes);
    path.starts_with("/run/secrets") || names.any(|name| name.len() > 2 && name.starts_with(b".."))
}

/// Reads what was opened, which may have no end.
fn content_of(path: &Path, opened: File, max_bytes: u64) -> Result<Vec<u8>, String> {
    let mut content = Vec::new();
    // One byte more tells a file that is too large.
    let read = opened.take(max_bytes + 1).read_to_end(&mut content);
    let n_bytes = read.map_err(|error| unread(path, &error))?;
    if u64::try_from(n_bytes).is_ok_and(|n_bytes| n_bytes <= max_bytes) {
        return Ok(content);
    }
    Err(format!(
        "{} is too large; give {max_bytes} bytes at most",
        path.display()
    ))
}

fn text_of(path: &Path, content: Vec<u8>) -> Result<String, String> {
    let text = String::from_utf8(content);
    text.map_err(|error| {
        unread(
            path,
            &io::Error::new(io::ErrorKind::InvalidData, error.utf8_error()),
        )
    })
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
            assert_eq!(read_bytes(&path, MAX_BYTES).is_ok(), is_read, "{mode:o}");
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
                assert_eq!(read_bytes(path, MAX_BYTES), Err(said));
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

    #[test]
    fn a_file_that_is_too_large_is_refused_before_it_fills_the_memory() {
        let folder = directory("guarded");
        let path = folder.path().join("callers.toml");
        write(&path, "1234").unwrap();
        assert_eq!(read_bytes(&path, 4), Ok(b"1234".to_vec()));
        let said = read_bytes(&path, 3).unwrap_err();
        assert!(
            said.ends_with("is too large; give 3 bytes at most"),
            "{said}"
        );
        let large = File::options().write(true).open(&path).unwrap();
        large.set_len(MAX_BYTES).unwrap();
        assert!(read(&path).is_ok() && read_once(&path).is_ok());
        large.set_len(MAX_BYTES + 1).unwrap();
        let endless = read_once(Path::new("/dev/zero"));
        for refused in [read(&path), read_once(&path), endless] {
            let said = refused.unwrap_err();
            assert!(said.contains("give 16777216 bytes at most"), "{said}");
        }
    }

    fn set(path: &Path, mode: u32) {
        set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_secret_that_everybody_can_read_is_told_unless_a_folder_keeps_them_out() {
        let folder = directory("guarded");
        set(folder.path(), 0o711);
        let inner = folder.path().join("inner");
        create_dir(&inner).unwrap();
        let [path, link] = [inner.join("token"), folder.path().join("link")];
        write(&path, "s3cret").unwrap();
        symlink(&path, &link).unwrap();
        for (mode, above, is_told) in [
            (0o644, 0o755, true),
            (0o604, 0o711, true),
            (0o640, 0o755, false),
            (0o600, 0o755, false),
            (0o644, 0o750, false),
        ] {
            set(&path, mode);
            set(&inner, above);
            for path in [&path, &link] {
                let told = exposure(path).unwrap_or_default();
                assert_eq!(told.contains("chmod o-r"), is_told, "{mode:o} {above:o}");
                assert!(!told.contains("s3cret"), "{told}");
            }
        }
        assert!(is_of_container(Path::new("/run/secrets/token")));
        assert!(!is_of_container(&path), "{}", path.display());
        assert_eq!(exposure(&inner), None);
        assert_eq!(exposure(&folder.path().join("none")), None);
        assert_eq!(exposure(Path::new("/dev/null")), None);
    }

    #[test]
    fn a_secret_in_a_volume_of_kubernetes_is_not_told() {
        let folder = directory("guarded");
        set(folder.path(), 0o711);
        for (name, is_told) in [("..2026_11_28_20_13_30.4215", false), ("2026", true)] {
            let made = folder.path().join(name);
            create_dir(&made).unwrap();
            set(&made, 0o755);
            write(made.join("url"), "s3cret").unwrap();
            set(&made.join("url"), 0o644);
            let [data, shown] = ["..data", "url"].map(|name| folder.path().join(name));
            symlink(name, &data).unwrap();
            symlink("..data/url", &shown).unwrap();
            assert_eq!(exposure(&shown).is_some(), is_told, "{name}");
            for link in [data, shown] {
                remove_file(link).unwrap();
            }
        }
    }
}
