//! Creates and starts a throwaway PostgreSQL.

use std::{
    io::Write,
    os::unix::{fs::chown, process::CommandExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::LazyLock,
};

use super::{
    Product, keeper,
    server::{ACCOUNT, ADMINISTRATOR, PASSWORD, run_to_the_end},
    settings,
};

/// Writes an empty cluster to `directory`/data, with the two accounts of the tests.
pub fn initialise(product: Product, directory: &Path) {
    initialise_without_the_program_s_account(product, directory);
    add_the_program_s_account(product, directory);
}

fn initialise_without_the_program_s_account(product: Product, directory: &Path) {
    if let Some((user, group)) = owner() {
        chown(directory, Some(user), Some(group)).expect("root may give a directory away");
    }
    let password_file = directory.join("password");
    write_as_owner(&password_file, PASSWORD);
    run_to_the_end(
        program(product, "initdb")
            .arg("-D")
            .arg(directory.join("data"))
            .args(["-U", ADMINISTRATOR, "-E", "UTF8", "--locale=C.UTF-8"])
            .args(["--auth-local=trust", "--auth-host=scram-sha-256"])
            .arg("--no-sync")
            .arg("--pwfile")
            .arg(&password_file),
    );
}

/// Moves the cluster of `old`/data to a new one, `new`/data, as an upgrade to another version does.
/// The server must have been shut down.
pub fn upgrade(product: Product, old: &Path, new: &Path) {
    initialise_without_the_program_s_account(product, new);
    let programs = tools(product);
    run_to_the_end(
        program(product, "pg_upgrade")
            // The program writes to this directory.
            .current_dir(new)
            .arg("--socketdir")
            .arg(new)
            .arg("--old-bindir")
            .arg(&programs)
            .arg("--new-bindir")
            .arg(&programs)
            .arg("--old-datadir")
            .arg(old.join("data"))
            .arg("--new-datadir")
            .arg(new.join("data"))
            .args(["--username", ADMINISTRATOR, "--no-sync"]),
    );
}

/// Returns the command that runs the cluster of `directory`/data on `port` of loopback.
pub fn command(product: Product, directory: &Path, port: u16) -> Command {
    let mut command = program(product, "postgres");
    command
        .arg("-D")
        .arg(directory.join("data"))
        .arg("-k")
        .arg(directory)
        .args(["-p", &port.to_string()])
        .args(["-c", "listen_addresses=127.0.0.1"])
        .args(["-c", "max_connections=300"])
        .args(["-c", "shared_buffers=64MB"])
        // The server keeps its shared memory in its own directory. A killed server then leaves
        // nothing in the machine's shared memory.
        .args(["-c", "dynamic_shared_memory_type=mmap"]);
    command
}

/// Removes the System V shared memory of a killed server. At its next start the server would use
/// this memory to find out whether it is still running.
pub fn forget_killed(directory: &Path) {
    let notes = std::fs::read_to_string(directory.join("data/postmaster.pid"));
    // The seventh line has the key and the id of the shared memory.
    let number = notes.ok().and_then(|notes| {
        let line = notes.lines().nth(6)?;
        Some(line.split_whitespace().nth(1)?.to_owned())
    });
    if let Some(number) = number {
        // The memory may be gone already, and a test that fails must not fail again here.
        let _ = Command::new("ipcrm").args(["-m", &number]).status();
    }
}

/// Copies the server at `port`, and configures the copy to follow the server as a standby.
pub fn copy_as_standby(product: Product, directory: &Path, port: u16) {
    if let Some((user, group)) = owner() {
        chown(directory, Some(user), Some(group)).expect("root may give a directory away");
    }
    run_to_the_end(
        program(product, "pg_basebackup")
            .env("PGPASSWORD", PASSWORD)
            .args(["-h", "127.0.0.1", "-p", &port.to_string()])
            .args(["-U", ADMINISTRATOR, "-R", "-c", "fast", "-X", "stream"])
            .arg("-D")
            .arg(directory.join("data")),
    );
}

/// Creates the program's account in single-user mode, which needs no running server.
fn add_the_program_s_account(product: Product, directory: &Path) {
    let mut process = program(product, "postgres")
        .args(["--single", "-j", "-D"])
        .arg(directory.join("data"))
        .arg("postgres")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the server starts in single-user mode");
    let statement = format!("CREATE ROLE {ACCOUNT} LOGIN PASSWORD '{PASSWORD}';\n\n");
    process
        .stdin
        .take()
        .expect("standard input is piped")
        .write_all(statement.as_bytes())
        .expect("the server reads its standard input");
    let status = process.wait().expect("our child can be waited for");
    assert!(status.success(), "the account was not created: {status}");
}

fn write_as_owner(path: &Path, text: &str) {
    std::fs::write(path, text).expect("the server's directory is writable");
    if let Some((user, group)) = owner() {
        chown(path, Some(user), Some(group)).expect("root may give a file away");
    }
}

/// Returns the command of one of the server's programs, which runs as the account that may run it.
pub fn program(product: Product, name: &str) -> Command {
    let mut command = Command::new(tools(product).join(name));
    // The program must be able to enter the directory in which it starts.
    command.current_dir("/").env("LC_ALL", "C.UTF-8");
    if let Some((user, group)) = owner() {
        command.uid(user).gid(group);
    }
    command
}

/// Returns the user and the group that run PostgreSQL, if the tests run as root. PostgreSQL refuses
/// to run as root, so the account that its package creates runs it.
pub fn owner() -> Option<(u32, u32)> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let accounts = std::fs::read_to_string("/etc/passwd").expect("the accounts can be read");
    let account = accounts
        .lines()
        .find(|line| line.starts_with("postgres:"))
        .expect("root needs the account postgres: apt-get install postgresql");
    let mut fields = account.split(':').skip(2).map(|field| field.parse().ok());
    match (fields.next().flatten(), fields.next().flatten()) {
        (Some(user), Some(group)) => Some((user, group)),
        _ => panic!("not an account: {account}"),
    }
}

/// Returns the folder with the server's programs.
pub fn tools(product: Product) -> PathBuf {
    match product {
        Product::Postgres15 => packaged(),
        Product::Postgres18 => unpacked().join("usr/lib/postgresql/18/bin"),
        Product::MariaDb | Product::MySql => panic!("{product} is no PostgreSQL"),
    }
}

/// Returns the folder of the unpacked server. Root uses a copy, because the server's account may
/// have no access to the repository.
fn unpacked() -> PathBuf {
    static PLACE: LazyLock<PathBuf> = LazyLock::new(|| {
        let place = settings::unpacked_servers();
        if owner().is_none() {
            return place;
        }
        let copy = keeper::run_directory().join("servers");
        std::fs::create_dir_all(copy.join("usr/lib"))
            .expect("the directory of the run is writable");
        std::fs::create_dir_all(copy.join("usr/share"))
            .expect("the directory of the run is writable");
        for folder in ["lib", "usr/lib/postgresql", "usr/share/postgresql"] {
            run_to_the_end(
                Command::new("cp")
                    .arg("-a")
                    .arg(place.join(folder))
                    .arg(copy.join(folder)),
            );
        }
        copy
    });
    PLACE.clone()
}

fn packaged() -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten();
    let mut found: Vec<(u32, PathBuf)> = versions
        .flatten()
        .filter_map(|entry| {
            let version = entry.file_name().to_str()?.parse().ok()?;
            Some((version, entry.path().join("bin")))
        })
        .filter(|(_, programs)| programs.join("initdb").is_file())
        .collect();
    found.sort();
    match found.pop() {
        Some((_, programs)) => programs,
        None => panic!("PostgreSQL is missing: apt-get install postgresql"),
    }
}
