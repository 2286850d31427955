//! Creates and starts a throwaway MariaDB.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use super::server::{ACCOUNT, ADMINISTRATOR, PASSWORD, run_to_the_end};

/// Writes an empty data directory to `directory`/data.
pub fn initialise(directory: &Path) {
    let mut command = program("mariadb-install-db");
    command
        .arg("--no-defaults")
        .arg(format!("--datadir={}", directory.join("data").display()))
        .args(["--auth-root-authentication-method=normal", "--skip-test-db"]);
    with_tables_of_its_own(&mut command, directory);
    as_root_if_root(&mut command);
    run_to_the_end(&mut command);
    write_accounts(directory);
}

/// Writes the statements that the server runs at each start. The program's account gets rights on
/// its own databases only.
pub(super) fn write_accounts(directory: &Path) {
    let accounts = format!(
        "CREATE USER IF NOT EXISTS {ADMINISTRATOR}@'%' IDENTIFIED BY '{PASSWORD}';\n\
         GRANT ALL ON *.* TO {ADMINISTRATOR}@'%' WITH GRANT OPTION;\n\
         CREATE USER IF NOT EXISTS {ACCOUNT}@'%' IDENTIFIED BY '{PASSWORD}';\n\
         GRANT ALL ON `t\\_%`.* TO {ACCOUNT}@'%';\n"
    );
    std::fs::write(directory.join("accounts.sql"), accounts)
        .expect("the server's directory is writable");
}

/// Returns the command that runs the data of `directory`/data on `port` of loopback.
pub fn command(directory: &Path, port: u16) -> Command {
    let mut command = program("mariadbd");
    command
        .arg("--no-defaults")
        .arg(format!("--datadir={}", directory.join("data").display()));
    listen(&mut command, directory, port);
    with_tables_of_its_own(&mut command, directory);
    as_root_if_root(&mut command);
    command
}

/// Adds the arguments that MariaDB and MySQL have in common.
pub(super) fn listen(command: &mut Command, directory: &Path, port: u16) {
    command
        .arg(format!("--socket={}", directory.join("s").display()))
        .arg(format!("--pid-file={}", directory.join("pid").display()))
        .arg(format!("--port={port}"))
        .arg(format!(
            "--init-file={}",
            directory.join("accounts.sql").display()
        ))
        .args(["--bind-address=127.0.0.1", "--skip-name-resolve"])
        .args(["--innodb-buffer-pool-size=64M", "--max-connections=300"]);
}

/// Gives the server a directory of its own for its temporary tables. When a server starts, it
/// deletes all temporary tables in this directory, including those of another server.
fn with_tables_of_its_own(command: &mut Command, directory: &Path) {
    command.env("TMPDIR", directory);
}

pub(super) fn as_root_if_root(command: &mut Command) {
    if rustix::process::geteuid().is_root() {
        command.arg("--user=root");
    }
}

pub fn program(name: &str) -> Command {
    let path = ["/usr/sbin", "/usr/bin"]
        .iter()
        .map(|directory| PathBuf::from(directory).join(name))
        .find(|path| path.is_file())
        .unwrap_or_else(|| panic!("{name} is missing: apt-get install mariadb-server"));
    Command::new(path)
}
