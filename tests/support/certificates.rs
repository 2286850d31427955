//! Certificates for the servers of a test, signed by an authority of the test.

use std::{
    os::unix::fs::{PermissionsExt, chown},
    path::{Path, PathBuf},
    process::Command,
};

use super::{postgres, server::run_to_the_end};

/// An authority that signs certificates. Its own certificate is in a file.
pub struct Authority {
    directory: PathBuf,
}

/// The files of a server's certificate and its key.
pub struct Certificate {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl Authority {
    /// Makes an authority in a new folder of `directory`.
    pub fn make(directory: &Path) -> Self {
        let directory = directory.join(format!("authority-{}", uuid::Uuid::new_v4().simple()));
        std::fs::create_dir(&directory).expect("our directory");
        run_to_the_end(
            Command::new("openssl")
                .args(["req", "-x509", "-days", "2", "-nodes"])
                .args(["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"])
                .args(["-subj", "/CN=an authority of the tests"])
                .arg("-keyout")
                .arg(directory.join("ca.key"))
                .arg("-out")
                .arg(directory.join("ca.pem")),
        );
        Self { directory }
    }

    /// Returns the file of the authority's own certificate.
    pub fn certificate(&self) -> PathBuf {
        self.directory.join("ca.pem")
    }

    /// Signs a certificate for the server at `host`. The account that runs PostgreSQL can read the
    /// files.
    pub fn sign(&self, host: &str, directory: &Path) -> Certificate {
        let request = directory.join("server.csr");
        let made = Certificate {
            certificate: directory.join("server.pem"),
            key: directory.join("server.key"),
        };
        run_to_the_end(
            Command::new("openssl")
                .args(["req", "-nodes", "-newkey", "ec"])
                .args(["-pkeyopt", "ec_paramgen_curve:prime256v1"])
                .args(["-subj", "/CN=a database of the tests"])
                .arg("-keyout")
                .arg(&made.key)
                .arg("-out")
                .arg(&request),
        );
        let extensions = directory.join("extensions");
        let text = format!("subjectAltName=DNS:{host}\nbasicConstraints=CA:FALSE\n");
        std::fs::write(&extensions, text).expect("our directory");
        run_to_the_end(
            Command::new("openssl")
                .args(["x509", "-req", "-days", "2", "-CAcreateserial", "-in"])
                .arg(&request)
                .arg("-CA")
                .arg(self.certificate())
                .arg("-CAkey")
                .arg(self.directory.join("ca.key"))
                .arg("-extfile")
                .arg(&extensions)
                .arg("-out")
                .arg(&made.certificate),
        );
        let mode = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(&made.key, mode).expect("our file");
        if let Some((user, group)) = postgres::owner() {
            chown(&made.key, Some(user), Some(group)).expect("root may give a file away");
        }
        made
    }
}
