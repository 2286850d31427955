//! Creates and starts a throwaway MySQL.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use super::{mariadb, server::run_to_the_end, settings};

/// Writes an empty data directory to `directory`/data.
pub fn initialise(directory: &Path) {
    let mut command = server(directory);
    command.arg("--initialize-insecure");
    run_to_the_end(&mut command);
    mariadb::write_accounts(directory);
}

/// Returns the command that runs the data of `directory`/data on `port` of loopback.
pub fn command(directory: &Path, port: u16) -> Command {
    let mut command = server(directory);
    mariadb::listen(&mut command, directory, port);
    command.arg("--mysqlx=OFF");
    command
}

fn server(directory: &Path) -> Command {
    let mut command = program("usr/sbin/mysqld");
    let share = settings::unpacked_servers().join("usr/share/mysql");
    command
        .arg("--no-defaults")
        .arg(format!("--datadir={}", directory.join("data").display()))
        .arg(format!("--lc-messages-dir={}", share.display()))
        .arg(format!("--character-sets-dir={}/charsets", share.display()))
        .args(["--innodb-redo-log-capacity=32M", "--secure-file-priv=NULL"])
        .env("TMPDIR", directory);
    mariadb::as_root_if_root(&mut command);
    command
}

/// Returns the folder with MySQL's command line and its backup tool.
pub fn tools() -> PathBuf {
    settings::unpacked_servers().join("usr/bin")
}

/// Returns the command of one of MySQL's programs, by its path below `/`.
pub fn program(path: &str) -> Command {
    Command::new(settings::unpacked_servers().join(path))
}
