//! Reads files with secrets, and files that decide who may do what. Nobody but their owner and group
//! may write to them.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// The right of everybody to write.
const OTHERS_WRITE: u32 = 0o002;

/// Reads a file.
///
/// # Errors
/// A sentence that names the file: it cannot be read, or everybody may write to it.
pub(crate) fn read(path: &Path) -> Result<String, String> {
    let mut content = String::new();
    let read = open(path)?.read_to_string(&mut content);
    read.map_err(|error| unread(path, &error))?;
    Ok(content)
}

/// Reads a file that need not be text.
///
/// # Errors
/// As [`read`].
pub(crate) fn read_bytes(path: &Path) -> Result<Vec<u8>, String> {
    let mut content = Vec::new();
    let read = open(path)?.read_to_end(&mut content);
    read.map_err(|error| unread(path, &error))?;
    Ok(content)
}

/// Opens a file, to be read.
///
/// # Errors
/// As [`read`].
pub(crate) fn open(path: &Path) -> Result<File, String> {
    let file = path.display();
    let opened = File::open(path).map_err(|error| unread(path, &error))?;
    let metadata = opened.metadata().map_err(|error| unread(path, &error))?;
    if metadata.is_file() && metadata.permissions().mode() & OTHERS_WRITE != 0 {
        return Err(format!(
            "{file} can be written by everybody, who could give themselves any right; take this \
             away with `chmod o-w`"
        ));
    }
    Ok(opened)
}

/// Returns the sentence about a file that cannot be read.
pub(crate) fn unread(path: &Path, error: &io::Error) -> String {
    format!("{} cannot be read: {error}", path.display())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use std::fs::{Permissions, create_dir, remove_dir_all, set_permissions, write};

    use super::*;

    #[test]
    fn a_file_that_everybody_can_write_is_refused() {
        let folder = format!("odometer-guarded-{}", uuid::Uuid::new_v4());
        let folder = std::env::temp_dir().join(folder);
        create_dir(&folder).unwrap();
        let path = folder.join("token");
        write(&path, "s3cret").unwrap();
        for (mode, is_read) in [(0o600, true), (0o664, true), (0o666, false), (0o602, false)] {
            set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            assert_eq!(read_bytes(&path).is_ok(), is_read, "{mode:o}");
            let read = read(&path);
            assert_eq!(read.is_ok(), is_read, "{mode:o}: {read:?}");
            let said = read.err().unwrap_or_default();
            let is_told = said.contains("chmod o-w") && !said.contains("s3cret");
            assert!(is_read || is_told, "{said}");
        }
        let missing = read(&folder.join("none")).unwrap_err();
        assert!(missing.contains("none cannot be read"), "{missing}");
        remove_dir_all(&folder).unwrap();
    }
}
