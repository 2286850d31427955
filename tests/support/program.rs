//! The real program as a process, started on port 0, controlled by signals and read on standard
//! error.

use std::{
    fmt,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread::JoinHandle,
    time::Duration,
};

use rustix::process::Signal;
use tempfile::TempDir;

use super::{
    Callgrind, Client, SteppedClock, child::wait_with_limit, keeper, server::pid, settings, wait,
};

const START_LIMIT: Duration = Duration::from_secs(30);
const READY_LIMIT: Duration = Duration::from_secs(30);
const END_LIMIT: Duration = Duration::from_secs(60);
/// How many times longer a start may take under valgrind.
const COUNTED_START: u32 = 4;

/// The options of a start. The program does not get the environment of the tests.
#[derive(Clone, Debug)]
pub struct Options {
    program: PathBuf,
    environment: Vec<(String, String)>,
    arguments: Vec<String>,
    directory: Option<PathBuf>,
    /// The factor by which the limits of a start are multiplied.
    patience: u32,
}

impl Options {
    pub fn env(mut self, key: &str, value: impl ToString) -> Self {
        self.environment.push((key.to_owned(), value.to_string()));
        self
    }

    pub fn database(self, url: &str) -> Self {
        self.env("ODOMETER_DATABASE_URL", url)
    }

    /// Lets all sequences give as many numbers as the machine can, unless they have a `limit` of
    /// their own.
    pub fn without_speed_limit(self) -> Self {
        self.env("ODOMETER_DEFAULT__LIMIT__RATE", 1_000_000_000)
            .env("ODOMETER_DEFAULT__LIMIT__BURST", 1_000_000_000_000_u64)
    }

    pub fn argument(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    /// Starts the program in `directory`, instead of in an empty directory of its own.
    pub fn in_directory(mut self, directory: &Path) -> Self {
        self.directory = Some(directory.to_path_buf());
        self
    }

    /// Uses the program at another path, for example one that was downloaded.
    pub fn built_at(mut self, program: &Path) -> Self {
        self.program = program.to_path_buf();
        self
    }

    /// Uses the build whose guards can be taken out, and takes `guards` out.
    pub fn without_guards(mut self, guards: &str) -> Self {
        self.program = settings::sabotaged_program();
        self.env("ODOMETER_SABOTAGE", guards)
    }

    /// Returns whether the options use the build whose guards can be taken out.
    pub fn lacks_guards(&self) -> bool {
        self.program == settings::sabotaged_program()
    }

    /// Uses the build whose wall clock can be wrong, and sets the clock `shift_ms` milliseconds
    /// ahead of the machine's clock.
    pub fn clock_ahead(mut self, shift_ms: i64) -> Self {
        self.program = settings::sabotaged_program();
        self.env("ODOMETER_SABOTAGE_CLOCK_MS", shift_ms)
    }

    /// Lets the program listen for clients of Redis, too.
    pub fn with_resp(self) -> Self {
        self.env("ODOMETER_RESP__LISTEN", "127.0.0.1:0")
    }

    /// Runs the same program under valgrind, which counts after [`Callgrind::count`].
    pub fn under(mut self, callgrind: &Callgrind) -> Self {
        let (valgrind, mut arguments) = callgrind.command(false);
        let program = std::mem::replace(&mut self.program, valgrind);
        arguments.push(program.display().to_string());
        self.arguments.splice(..0, arguments);
        self.patience = COUNTED_START;
        self
    }

    /// Limits how many open files the program may have. The program cannot raise the limit.
    pub fn open_files(self, limit: u32) -> Self {
        self.after(&format!("ulimit -n {limit}"))
    }

    /// Runs the same program without a umask. Everybody may then read and write its new files,
    /// unless the program sets other permissions.
    pub fn without_umask(self) -> Self {
        self.after("umask 000")
    }

    /// Starts the same program from a shell that runs `command` before.
    fn after(mut self, command: &str) -> Self {
        let program = std::mem::replace(&mut self.program, PathBuf::from("/bin/sh"));
        let script = format!("{command} && exec \"$0\" \"$@\"");
        let arguments = ["-c".to_owned(), script, program.display().to_string()];
        self.arguments.splice(..0, arguments);
        self
    }

    /// Runs the shipped build with a wall clock that the test may step.
    pub fn clock(self, clock: &SteppedClock) -> Self {
        let environment = clock.environment();
        environment
            .into_iter()
            .fold(self, |options, (key, value)| options.env(key, value))
    }

    fn command(&self, own_directory: &Path) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .env_clear()
            .envs(self.environment.iter().map(|(key, value)| (key, value)))
            // `tests/run` finds processes that are still running by this variable.
            .env("TESTS_RUN_DIRECTORY", keeper::run_directory())
            .current_dir(self.directory.as_deref().unwrap_or(own_directory))
            .stdin(Stdio::null());
        command
    }

    /// Starts `serve` and waits for its address.
    ///
    /// # Panics
    /// If the program ends before it listens; the message has its log.
    pub async fn start(&self) -> Program {
        let options = if self
            .environment
            .iter()
            .any(|(key, _)| key == "ODOMETER_LISTEN")
        {
            self.clone()
        } else {
            self.clone().env("ODOMETER_LISTEN", "127.0.0.1:0")
        };
        let own_directory = keeper::directory("program");
        let mut process = options
            .command(own_directory.path())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        keeper::end_with_the_run(process.id(), "KILL");
        let output = process.stderr.take().expect("standard error is piped");
        let mut program = Program {
            process,
            ended: None,
            log: Log::read(output),
            scheme: "http",
            address: String::new(),
            patience: self.patience,
            _own_directory: own_directory,
        };
        let found = wait::until(
            "the program listens",
            START_LIMIT * self.patience,
            async || {
                if let Some(address) = program.log.address_after("Listening on") {
                    return Some(Some(address));
                }
                program.has_ended().then_some(None)
            },
        );
        match found.await {
            // A program that listens on all addresses is reached by loopback, as all others are.
            Some((scheme, address)) => {
                program.scheme = scheme;
                program.address = address.replace("0.0.0.0", "127.0.0.1");
            }
            None => panic!("the program ended before it listened:\n{}", program.log()),
        }
        program
    }

    /// Starts `serve` and waits until it is ready.
    pub async fn start_ready(&self) -> Program {
        let mut program = self.start().await;
        program.ready().await;
        program
    }

    /// Runs a command to its end.
    pub fn run(&self, arguments: &[&str]) -> Finished {
        self.begin(arguments).finish()
    }

    /// Starts a command that ends by itself.
    pub fn begin(&self, arguments: &[&str]) -> Begun {
        let own_directory = keeper::directory("program");
        let mut process = self
            .command(own_directory.path())
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        keeper::end_with_the_run(process.id(), "KILL");
        let output = process.stdout.take().expect("standard output is piped");
        let errors = process.stderr.take().expect("standard error is piped");
        let output = std::thread::spawn(move || read_all(output));
        let errors = std::thread::spawn(move || read_all(errors));
        Begun {
            process,
            output,
            errors,
            _own_directory: own_directory,
        }
    }
}

/// A command that is still running.
pub struct Begun {
    process: Child,
    output: JoinHandle<String>,
    errors: JoinHandle<String>,
    _own_directory: TempDir,
}

impl Begun {
    pub fn terminate(&self) {
        rustix::process::kill_process(pid(self.process.id()), Signal::TERM)
            .expect("our child can be sent a signal");
    }

    /// Waits until the command has ended.
    pub fn finish(mut self) -> Finished {
        let status = wait_with_limit(&mut self.process, Duration::from_secs(120));
        Finished {
            code: status.and_then(|status| status.code()),
            output: self.output.join().expect("reading does not fail"),
            errors: self.errors.join().expect("reading does not fail"),
        }
    }
}

/// The result of a command that ran to its end.
#[derive(Debug)]
pub struct Finished {
    /// The exit code. `None` if a signal killed the command, or if the test killed it because it
    /// did not end.
    pub code: Option<i32>,
    pub output: String,
    pub errors: String,
}

impl fmt::Display for Finished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}\n{}{}", self.code, self.output, self.errors)
    }
}

/// A running `odometer serve`, killed when dropped.
pub struct Program {
    process: Child,
    ended: Option<ExitStatus>,
    log: Log,
    /// `http` or `https`.
    scheme: &'static str,
    address: String,
    patience: u32,
    _own_directory: TempDir,
}

impl Program {
    /// Returns the options of the shipped build with the defaults.
    pub fn options() -> Options {
        Options {
            program: settings::shipped_program(),
            environment: Vec::new(),
            arguments: Vec::new(),
            directory: None,
            patience: 1,
        }
    }

    /// Returns the URL, `http://host:port` or `https://host:port`.
    pub fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }

    /// Returns the address, `host:port`.
    pub fn address(&self) -> &str {
        &self.address
    }

    pub fn client(&self) -> Client {
        Client::new(&self.url())
    }

    /// Returns the URL of the operations listener, from the line of the log that has it.
    ///
    /// # Panics
    /// If there is no such listener.
    pub fn operations_url(&self) -> String {
        let found = self.log.address_after("the page on");
        let (scheme, address) = found.expect("an operations listener");
        format!("{scheme}://{address}")
    }

    /// Returns the address, `host:port`, of the listener for clients of Redis.
    ///
    /// # Panics
    /// If there is no such listener.
    pub fn resp_address(&self) -> String {
        let found = self.log.address_after("clients of Redis on");
        let (_, address) = found.expect("a listener for clients of Redis");
        address.replace("0.0.0.0", "127.0.0.1")
    }

    /// Returns the address, `host:port`, at which a client without TLS finds probes and metrics.
    pub fn scraped_at(&self) -> String {
        match self.scheme {
            "https" => self.operations_url().replace("http://", ""),
            _ => self.address.clone(),
        }
    }

    /// Waits until the program says that it is ready.
    pub async fn ready(&mut self) {
        let client = Client::new(&format!("http://{}", self.scraped_at()));
        wait::until(
            "the program is ready",
            READY_LIMIT * self.patience,
            async || {
                assert!(!self.has_ended(), "the program ended:\n{}", self.log());
                let reply = client.get("/readyz").await;
                reply.is_ok_and(|reply| reply.status == 200).then_some(())
            },
        )
        .await;
    }

    /// Returns the most memory that the process has had at once, in bytes.
    pub fn peak_memory(&self) -> u64 {
        let path = format!("/proc/{}/status", self.id());
        let status = std::fs::read_to_string(path).expect("the process is there");
        let peak = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:")?.strip_suffix("kB"));
        let peak: u64 = peak
            .and_then(|peak| peak.trim().parse().ok())
            .expect("the kernel says so");
        peak * 1024
    }

    /// Returns the id of the process.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    pub fn interrupt(&self) {
        self.signal(Signal::INT);
    }

    pub fn hang_up(&self) {
        self.signal(Signal::HUP);
    }

    /// Stops the process by SIGSTOP, until [`Self::thaw`].
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets a stopped process go on.
    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        assert!(self.ended.is_none(), "the program has ended");
        rustix::process::kill_process(pid(self.process.id()), signal)
            .expect("our child can be sent a signal");
    }

    /// Kills the process by SIGKILL, and waits until it is gone.
    pub fn kill(&mut self) {
        if self.ended.is_none() {
            self.process.kill().expect("our child can be killed");
            let status = self.process.wait().expect("our child can be waited for");
            self.note_end(status);
        }
    }

    pub fn has_ended(&mut self) -> bool {
        if self.ended.is_none() {
            let status = self
                .process
                .try_wait()
                .expect("our child can be waited for");
            if let Some(status) = status {
                self.note_end(status);
            }
        }
        self.ended.is_some()
    }

    fn note_end(&mut self, status: ExitStatus) {
        keeper::has_ended(self.process.id());
        self.ended = Some(status);
    }

    /// Waits until the program has ended. Returns its exit code, or `None` after a signal.
    pub async fn end(&mut self) -> Option<i32> {
        wait::until("the program ends", END_LIMIT, async || {
            self.has_ended().then_some(())
        })
        .await;
        self.log.wait_until_closed();
        self.ended.and_then(|status| status.code())
    }

    /// Ends the program by SIGTERM and returns its log. The exit code must be 0.
    pub async fn stop(mut self) -> String {
        self.terminate();
        let code = self.end().await;
        assert_eq!(
            code,
            Some(0),
            "the program did not stop well:\n{}",
            self.log()
        );
        self.log()
    }

    /// Returns the text that the program has written to standard error up to now.
    pub fn log(&self) -> String {
        self.log.lines().join("\n")
    }

    pub fn log_lines(&self) -> Vec<String> {
        self.log.lines()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            let lines = self.log.lines();
            let shown = lines.len().saturating_sub(40);
            eprintln!("--- the end of the log of {}", self.address);
            for line in lines.iter().skip(shown) {
                eprintln!("{line}");
            }
        }
    }
}

/// The lines of standard error. A thread reads them, so that the program never waits for the test.
#[derive(Clone)]
struct Log {
    shared: Arc<(Mutex<Lines>, Condvar)>,
}

#[derive(Default)]
struct Lines {
    lines: Vec<String>,
    closed: bool,
}

impl Log {
    fn read(output: impl Read + Send + 'static) -> Self {
        let log = Self {
            shared: Arc::default(),
        };
        let writer = log.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                writer.with(|lines| lines.lines.push(line));
            }
            writer.with(|lines| lines.closed = true);
            writer.shared.1.notify_all();
        });
        log
    }

    fn with<T>(&self, what: impl FnOnce(&mut Lines) -> T) -> T {
        what(&mut self.shared.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn lines(&self) -> Vec<String> {
        self.with(|lines| lines.lines.clone())
    }

    /// Returns the scheme and the `host:port` of the first line that has a URL after `before`.
    fn address_after(&self, before: &str) -> Option<(&'static str, String)> {
        let schemes = ["http", "https", "redis", "rediss"];
        self.with(|lines| {
            lines.lines.iter().find_map(|line| {
                schemes.into_iter().find_map(|scheme| {
                    let address = address_in(line, &format!("{before} {scheme}://"))?;
                    Some((scheme, address))
                })
            })
        })
    }

    fn wait_until_closed(&self) {
        let lines = self.shared.0.lock().unwrap_or_else(PoisonError::into_inner);
        let limit = Duration::from_secs(10);
        let waited = self
            .shared
            .1
            .wait_timeout_while(lines, limit, |lines| !lines.closed);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

fn address_in(line: &str, before: &str) -> Option<String> {
    let (_, rest) = line.split_once(before)?;
    let end = rest
        .find(|c: char| !(c.is_ascii_alphanumeric() || ".:[]".contains(c)))
        .unwrap_or(rest.len());
    rest.get(..end).map(str::to_owned)
}

fn read_all(mut from: impl Read) -> String {
    let mut bytes = Vec::new();
    from.read_to_end(&mut bytes).expect("a pipe can be read");
    String::from_utf8_lossy(&bytes).into_owned()
}
