//! A small file system for one test, which the test can fill.

use std::{
    io::{ErrorKind, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;

use super::{keeper, server::run_to_the_end};

/// A mounted tmpfs, unmounted when dropped or when the run ends.
pub struct SmallDisk {
    directory: TempDir,
}

impl SmallDisk {
    /// Mounts a tmpfs of `megabytes`.
    ///
    /// # Panics
    /// If the tmpfs cannot be mounted, which needs root.
    pub fn mount(megabytes: u32) -> Self {
        assert!(
            rustix::process::geteuid().is_root(),
            "a small disk can be mounted by root alone: run the tests as root, or in a container"
        );
        let directory = keeper::directory("disk");
        run_to_the_end(
            Command::new("mount")
                .args(["-t", "tmpfs", "-o", &format!("size={megabytes}m,mode=0711")])
                .arg("tmpfs")
                .arg(directory.path()),
        );
        keeper::unmount_with_the_run(directory.path());
        Self { directory }
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Makes a directory on the disk.
    pub fn directory(&self) -> TempDir {
        let made = TempDir::new_in(self.path()).expect("our disk");
        let mode = std::fs::Permissions::from_mode(0o711);
        std::fs::set_permissions(made.path(), mode).expect("our directory");
        made
    }

    /// Fills the disk until no space is left.
    pub fn fill(&self) {
        let mut filler = std::fs::File::create(self.filler()).expect("our disk");
        for size in [1 << 16, 1 << 12] {
            let piece = vec![7; size];
            loop {
                match filler.write_all(&piece) {
                    Ok(()) => {}
                    Err(error) if error.kind() == ErrorKind::StorageFull => break,
                    Err(error) => panic!("the disk cannot be filled: {error}"),
                }
            }
        }
    }

    /// Frees the space that [`Self::fill`] took.
    pub fn free(&self) {
        std::fs::remove_file(self.filler()).expect("it was filled");
    }

    fn filler(&self) -> PathBuf {
        self.path().join("filler")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // The unmount is lazy: a process with an open file on the disk keeps the disk until it
        // closes the file.
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}
