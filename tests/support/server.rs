//! A throwaway database server on loopback, in a directory of its own.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal};
use sea_orm::{ConnectionTrait, Database, DatabaseConnection, Statement};
use tempfile::TempDir;
use tokio::sync::OnceCell;

use super::{
    Backend, Product, backend::one_connection, child::wait_with_limit, clock, keeper, mariadb,
    mysql, ports, postgres, wait,
};

/// The password of every account of every throwaway server. It is easy to find in a log, and no log
/// may contain it.
pub const PASSWORD: &str = "hunter2-never-in-a-log";
/// The account of the program under test. It owns its database and nothing else.
pub const ACCOUNT: &str = "odometer";
/// The account with which the tests create databases and look into them.
pub const ADMINISTRATOR: &str = "administrator";

const START_LIMIT: Duration = Duration::from_secs(60);
/// How long a server may take for a tidy end.
const END_LIMIT: Duration = Duration::from_secs(30);

/// One server process, ended when dropped or when the run ends.
pub struct Server {
    product: Product,
    directory: TempDir,
    port: u16,
    process: Option<Child>,
    /// The arguments in addition to those of every server.
    arguments: Vec<String>,
    /// The environment variables in addition to those of the tests.
    environment: Vec<(&'static str, String)>,
}

impl Server {
    /// Returns the server of `backend` that the tests of a run share.
    pub async fn shared(backend: Backend) -> &'static Self {
        Self::shared_of(Product::drawn(backend)).await
    }

    /// Returns the server of `product` that the tests of a run share.
    pub async fn shared_of(product: Product) -> &'static Self {
        static POSTGRES_15: OnceCell<Server> = OnceCell::const_new();
        static POSTGRES_18: OnceCell<Server> = OnceCell::const_new();
        static MARIADB: OnceCell<Server> = OnceCell::const_new();
        static MYSQL: OnceCell<Server> = OnceCell::const_new();
        let cell = match product {
            Product::Postgres15 => &POSTGRES_15,
            Product::Postgres18 => &POSTGRES_18,
            Product::MariaDb => &MARIADB,
            Product::MySql => &MYSQL,
        };
        cell.get_or_init(|| Self::start_of(product)).await
    }

    /// Starts a server that belongs to one test, for a test that stops it.
    pub async fn start(backend: Backend) -> Self {
        Self::start_of(Product::drawn(backend)).await
    }

    /// Starts a server of `product` that belongs to one test.
    pub async fn start_of(product: Product) -> Self {
        Self::start_of_with(product, Vec::new()).await
    }

    /// Starts a server of `product` that belongs to one test, with more `arguments`.
    pub async fn start_of_with(product: Product, arguments: Vec<String>) -> Self {
        Self::start_new(product, keeper::directory(product.name()), arguments).await
    }

    /// Starts a server that writes its data to an empty `directory`, with more `arguments`.
    pub async fn start_with(backend: Backend, directory: TempDir, arguments: Vec<String>) -> Self {
        Self::start_new(Product::drawn(backend), directory, arguments).await
    }

    /// Starts a server on a directory that already holds its data.
    pub async fn start_in(product: Product, directory: TempDir) -> Self {
        Self::start_on(product, directory, Vec::new()).await
    }

    /// Starts a server of `product` that belongs to one test, with a clock that is ahead of the
    /// machine's clock.
    pub async fn start_ahead(product: Product, by: Duration) -> Self {
        let directory = keeper::directory(product.name());
        initialise(product, directory.path());
        let mut server = Self::stopped(product, directory, Vec::new());
        server.environment = clock::ahead(by);
        server.start_again().await;
        server
    }

    async fn start_new(product: Product, directory: TempDir, arguments: Vec<String>) -> Self {
        initialise(product, directory.path());
        Self::start_on(product, directory, arguments).await
    }

    async fn start_on(product: Product, directory: TempDir, arguments: Vec<String>) -> Self {
        let mut server = Self::stopped(product, directory, arguments);
        server.start_again().await;
        server
    }

    fn stopped(product: Product, directory: TempDir, arguments: Vec<String>) -> Self {
        Self {
            product,
            directory,
            port: ports::free(),
            process: None,
            arguments,
            environment: Vec::new(),
        }
    }

    /// Starts the server on its data and port, and waits until it answers.
    pub async fn start_again(&mut self) {
        assert!(self.process.is_none(), "the server is running");
        let started = Instant::now();
        loop {
            let mut process = self.spawn();
            if self.answers_before_it_ends(&mut process, started).await {
                self.process = Some(process);
                return;
            }
            keeper::has_ended(process.id());
            // After a kill, PostgreSQL refuses to start until the last of its processes is gone.
            assert!(
                started.elapsed() < START_LIMIT,
                "{} does not start:\n{}",
                self.product,
                std::fs::read_to_string(self.log()).unwrap_or_default()
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    fn spawn(&self) -> Child {
        let directory = self.directory.path();
        let mut command = match self.product {
            Product::Postgres15 | Product::Postgres18 => {
                postgres::command(self.product, directory, self.port)
            }
            Product::MariaDb => mariadb::command(directory, self.port),
            Product::MySql => mysql::command(directory, self.port),
        };
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.log())
            .expect("the server's directory is ours");
        let process = command
            .args(&self.arguments)
            .envs(self.environment.iter().map(|(key, value)| (key, value)))
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a file can be had twice"))
            .stderr(log)
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?} does not start: {error}"));
        keeper::end_with_the_run(process.id(), self.quick_end());
        process
    }

    async fn answers_before_it_ends(&self, process: &mut Child, started: Instant) -> bool {
        loop {
            if let Some(connection) = self.try_administrate().await {
                connection.close().await.expect("a connection closes");
                return true;
            }
            if process
                .try_wait()
                .expect("a child can be waited for")
                .is_some()
                || started.elapsed() > START_LIMIT
            {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Returns the name of the signal that ends the server quickly and tidily.
    fn quick_end(&self) -> &'static str {
        match self.backend() {
            Backend::Postgres => "QUIT",
            Backend::MariaDb | Backend::Sqlite => "TERM",
        }
    }

    /// Kills every process of the server at once, as a power cut would.
    pub fn kill(&mut self) {
        let mut process = self.process.take().expect("the server is running");
        let number = process.id();
        let children = children_of(number);
        process.kill().expect("our child can be killed");
        for child in children {
            // The child may have noticed the kill already and be gone.
            let _ = rustix::process::kill_process(child, Signal::KILL);
        }
        process.wait().expect("our child can be waited for");
        keeper::has_ended(number);
    }

    /// Stops the process of PostgreSQL that writes the log of commits in the background. What
    /// commits from then on without waiting for the log is in memory alone.
    ///
    /// # Panics
    /// If there is no such process.
    pub fn freeze_log_writer(&self) {
        let process = self.process.as_ref().expect("the server is running");
        let writer = children_of(process.id()).into_iter().find(|child| {
            let title = format!("/proc/{}/cmdline", child.as_raw_nonzero());
            let title = std::fs::read(title).unwrap_or_default();
            String::from_utf8_lossy(&title).contains("walwriter")
        });
        let writer = writer.expect("PostgreSQL has a writer of its log");
        rustix::process::kill_process(writer, Signal::STOP).expect("it can be sent a signal");
    }

    /// Ends the server in order, as an operator does.
    pub fn shut_down(&mut self) {
        let mut process = self.process.take().expect("the server is running");
        // PostgreSQL ends its sessions on this signal, and waits for them on others.
        let signal = match self.backend() {
            Backend::Postgres => Signal::INT,
            Backend::MariaDb | Backend::Sqlite => Signal::TERM,
        };
        rustix::process::kill_process(pid(process.id()), signal)
            .expect("our child can be sent a signal");
        let ended = wait_with_limit(&mut process, END_LIMIT);
        let is_in_order = ended.is_some_and(|status| status.success());
        assert!(is_in_order, "{} does not end in order", self.product);
    }

    /// Shuts the server down, and moves its data to a new cluster by `pg_upgrade`. Returns the
    /// server of the new cluster. PostgreSQL only.
    pub async fn upgraded(mut self) -> Self {
        self.shut_down();
        let directory = keeper::directory(self.product.name());
        postgres::upgrade(self.product, self.directory.path(), directory.path());
        let arguments = std::mem::take(&mut self.arguments);
        Self::start_on(self.product, directory, arguments).await
    }

    /// Takes a snapshot of the server's disk while the server runs.
    pub fn snapshot(&self) -> TempDir {
        let snapshot = keeper::directory("snapshot");
        // No file changes meanwhile, as in a snapshot of a whole disk.
        self.freeze();
        copy(self.directory.path(), snapshot.path());
        self.thaw();
        snapshot
    }

    /// Puts a snapshot in the place of the disk. The server must be killed.
    pub fn put_back(&self, snapshot: &TempDir) {
        assert!(self.process.is_none(), "the server is running");
        for entry in std::fs::read_dir(self.directory.path()).expect("the directory is ours") {
            let path = entry.expect("an entry").path();
            let removed = match path.is_dir() {
                true => std::fs::remove_dir_all(&path),
                false => std::fs::remove_file(&path),
            };
            removed.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        }
        copy(snapshot.path(), self.directory.path());
    }

    /// Stops every process of the server by SIGSTOP. The server then answers nothing and closes
    /// nothing.
    pub fn freeze(&self) {
        self.signal_all(Signal::STOP);
    }

    /// Lets a frozen server go on.
    pub fn thaw(&self) {
        self.signal_all(Signal::CONT);
    }

    fn signal_all(&self, signal: Signal) {
        let process = self.process.as_ref().expect("the server is running");
        let number = process.id();
        rustix::process::kill_process(pid(number), signal).expect("our child can be sent a signal");
        // The parent comes first: a stopped parent starts no further children.
        for child in children_of(number) {
            // The child may have ended in the meantime.
            let _ = rustix::process::kill_process(child, signal);
        }
    }

    /// Returns how many connections the program's account has, as the server counts them.
    pub async fn n_connections(&self) -> i64 {
        let query = match self.backend() {
            Backend::Postgres => {
                format!("SELECT count(*) FROM pg_stat_activity WHERE usename = '{ACCOUNT}'")
            }
            Backend::MariaDb | Backend::Sqlite => format!(
                "SELECT count(*) FROM {} WHERE user = '{ACCOUNT}'",
                self.product.sessions()
            ),
        };
        let connection = self.administrator(self.first_database()).await;
        let statement = Statement::from_string(connection.get_database_backend(), query);
        let row = connection.query_one_raw(statement).await;
        let row = row.expect("the query is right").expect("it has a row");
        connection.close().await.expect("a connection closes");
        row.try_get_by_index(0).expect("a number")
    }

    async fn try_administrate(&self) -> Option<DatabaseConnection> {
        self.try_administrate_in(self.first_database()).await
    }

    async fn try_administrate_in(&self, database: &str) -> Option<DatabaseConnection> {
        let mut options = one_connection(self.administrator_url(database));
        options
            .connect_timeout(Duration::from_secs(2))
            .acquire_timeout(Duration::from_secs(2));
        let connection = Box::pin(Database::connect(options)).await.ok()?;
        match connection.execute_unprepared("SELECT 1").await {
            Ok(_) => Some(connection),
            Err(_) => None,
        }
    }

    /// Opens a connection to `database`. On a busy machine this may take long.
    async fn administrator(&self, database: &str) -> DatabaseConnection {
        wait::until("the server of the test answers", START_LIMIT, async || {
            self.try_administrate_in(database).await
        })
        .await
    }

    /// Runs `statement` as administrator in the server's first database.
    pub async fn administrate(&self, statement: &str) {
        self.administrate_in(self.first_database(), statement).await;
    }

    /// Runs `statement` as administrator in `database`.
    pub async fn administrate_in(&self, database: &str, statement: &str) {
        let connection = self.administrator(database).await;
        connection
            .execute_unprepared(statement)
            .await
            .unwrap_or_else(|error| panic!("{statement}: {error}"));
        connection.close().await.expect("a connection closes");
    }

    /// Returns the text that `query` selects in the server's first database.
    pub async fn say(&self, query: &str) -> String {
        let connection = self.administrator(self.first_database()).await;
        let statement = Statement::from_string(connection.get_database_backend(), query);
        let row = connection.query_one_raw(statement).await;
        let row = row.unwrap_or_else(|error| panic!("{query}: {error}"));
        connection.close().await.expect("a connection closes");
        let text = row.expect("it has a row").try_get_by_index(0);
        text.expect("a text")
    }

    /// Returns the name of a database that exists in every server.
    pub fn first_database(&self) -> &'static str {
        match self.backend() {
            Backend::Postgres => "postgres",
            Backend::MariaDb | Backend::Sqlite => "mysql",
        }
    }

    /// Returns the id of the server's first process.
    ///
    /// # Panics
    /// If the server is not running.
    pub fn id(&self) -> u32 {
        let process = self.process.as_ref().expect("the server is running");
        process.id()
    }

    pub fn backend(&self) -> Backend {
        self.product.backend()
    }

    pub fn product(&self) -> Product {
        self.product
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    fn log(&self) -> PathBuf {
        self.directory.path().join("server.log")
    }

    /// Returns the URL by which the program under test reaches `database`.
    pub fn url(&self, database: &str) -> String {
        self.url_as(ACCOUNT, PASSWORD, self.port, database)
    }

    pub fn administrator_url(&self, database: &str) -> String {
        self.url_as(ADMINISTRATOR, PASSWORD, self.port, database)
    }

    pub fn url_as(&self, account: &str, password: &str, port: u16, name: &str) -> String {
        let scheme = self.backend().scheme();
        format!("{scheme}://{account}:{password}@127.0.0.1:{port}/{name}")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.process.is_some() {
            // A frozen server would never end.
            self.thaw();
        }
        let Some(mut process) = self.process.take() else {
            if self.backend() == Backend::Postgres {
                postgres::forget_killed(self.directory.path());
            }
            return;
        };
        let number = process.id();
        let signal = match self.backend() {
            Backend::Postgres => Signal::QUIT,
            Backend::MariaDb | Backend::Sqlite => Signal::TERM,
        };
        if rustix::process::kill_process(pid(number), signal).is_ok() {
            // The server may miss the signal, or wait for something that never comes.
            wait_with_limit(&mut process, END_LIMIT);
        }
    }
}

/// Writes the data of an empty server to `directory`.
fn initialise(product: Product, directory: &Path) {
    match product {
        Product::Postgres15 | Product::Postgres18 => postgres::initialise(product, directory),
        Product::MariaDb => mariadb::initialise(directory),
        Product::MySql => mysql::initialise(directory),
    }
}

/// Converts a process id to the type of the system call.
pub fn pid(number: u32) -> Pid {
    i32::try_from(number)
        .ok()
        .and_then(Pid::from_raw)
        .expect("a process id is positive and fits")
}

fn children_of(parent: u32) -> Vec<Pid> {
    let listed = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
    listed
        .unwrap_or_default()
        .split_whitespace()
        .filter_map(|child| child.parse().ok())
        .map(pid)
        .collect()
}

/// Copies all that is in a directory, with owners and times.
fn copy(from: &Path, to: &Path) {
    run_to_the_end(Command::new("cp").arg("-a").arg(from.join(".")).arg(to));
}

/// Runs `command` to its end.
///
/// # Panics
/// If the command cannot be started or fails; the message has its output.
pub fn run_to_the_end(command: &mut Command) {
    let output = command
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("{command:?} does not start: {error}"));
    assert!(
        output.status.success(),
        "{command:?} failed: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}
