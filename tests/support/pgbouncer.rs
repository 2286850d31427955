//! A throwaway PgBouncer in transaction mode in front of a throwaway PostgreSQL.

use std::{
    os::unix::{fs::chown, process::CommandExt},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use tempfile::TempDir;

use super::{
    keeper, ports, postgres,
    server::{ACCOUNT, PASSWORD, Server},
    wait,
};

/// One pooler process, ended when dropped or when the run ends.
pub struct PgBouncer {
    process: Child,
    port: u16,
    _directory: TempDir,
}

impl PgBouncer {
    /// Starts a pooler in front of `server`. `more` has further lines of its configuration.
    pub async fn start(server: &Server, more: &str) -> Self {
        Self::to(server.port(), more).await
    }

    /// Starts a pooler in front of what listens on `server_port` of loopback.
    pub async fn to(server_port: u16, more: &str) -> Self {
        let directory = keeper::directory("pgbouncer");
        let port = ports::free();
        let path = directory.path();
        let users = path.join("users.txt");
        std::fs::write(&users, format!("\"{ACCOUNT}\" \"{PASSWORD}\"\n")).expect("our directory");
        let configuration = path.join("pgbouncer.ini");
        let text = format!(
            "[databases]\n* = host=127.0.0.1 port={server_port}\n\
             [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n\
             auth_type = scram-sha-256\nauth_file = {}\npool_mode = transaction\n\
             default_pool_size = 4\nserver_round_robin = 1\nlogfile = {}\n{more}\n",
            users.display(),
            path.join("log").display(),
        );
        std::fs::write(&configuration, text).expect("our directory");
        let mut command = Command::new(program());
        command
            .arg("-q")
            .arg(&configuration)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        // PgBouncer refuses to run as root, as PostgreSQL does.
        if let Some((user, group)) = postgres::owner() {
            for owned in [path, users.as_path(), configuration.as_path()] {
                chown(owned, Some(user), Some(group)).expect("root may give a file away");
            }
            command.uid(user).gid(group);
        }
        let process = command.spawn().expect("the pooler starts");
        keeper::end_with_the_run(process.id(), "KILL");
        let pooler = Self {
            process,
            port,
            _directory: directory,
        };
        wait::until("the pooler listens", Duration::from_secs(20), async || {
            tokio::net::TcpStream::connect(("127.0.0.1", port))
                .await
                .ok()
        })
        .await;
        pooler
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns `url`, which belongs to the server behind the pooler, with the pooler's address.
    pub fn url(&self, url: &str) -> String {
        let (account, place) = url.split_once('@').expect("a URL with an account");
        let (_, database) = place.split_once('/').expect("a URL with a database");
        format!("{account}@127.0.0.1:{}/{database}", self.port)
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        let number = self.process.id();
        // The pooler keeps no data. A gentler signal would make it wait for its clients.
        if self.process.kill().is_ok() && self.process.wait().is_ok() {
            keeper::has_ended(number);
        }
    }
}

fn program() -> PathBuf {
    let path = PathBuf::from("/usr/sbin/pgbouncer");
    assert!(
        path.is_file(),
        "PgBouncer is missing: apt-get install pgbouncer"
    );
    path
}
