//! A driver as a process: it takes one step at a time, and prints one line for each.

use std::{
    io::{BufRead, BufReader, Read, Write},
    process::{Child, ChildStdin, Stdio},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

use rustix::process::Signal;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::language::Language;
use crate::support::{Range, keeper, server::pid, wait};

/// How long a driver may take for one answer. This is longer than every deadline of a library.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// A running driver, killed when dropped.
pub(super) struct Driver {
    process: Child,
    has_ended: bool,
    steps: ChildStdin,
    answers: UnboundedReceiver<String>,
    errors: Arc<Mutex<String>>,
}

impl Driver {
    /// Starts a driver, and waits until it is ready. It has made no call by then.
    pub(super) async fn start(language: Language, options: &Value) -> Self {
        Self::start_in(language, options, &[]).await
    }

    /// Starts a driver with these variables in its environment.
    pub(super) async fn start_in(
        language: Language,
        options: &Value,
        environment: &[(&str, String)],
    ) -> Self {
        let mut process = language
            .command()
            .arg(options.to_string())
            .envs(environment.iter().map(|(name, value)| (name, value)))
            // `tests/run` finds processes that are still running by this variable.
            .env("TESTS_RUN_DIRECTORY", keeper::run_directory())
            .env("NO_PROXY", "*")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("the driver of {language:?}: {error}"));
        keeper::end_with_the_run(process.id(), "KILL");
        let steps = process.stdin.take().expect("it is piped");
        let answers = lines_of(process.stdout.take().expect("it is piped"));
        let errors = kept_text_of(process.stderr.take().expect("it is piped"));
        let mut driver = Self {
            process,
            has_ended: false,
            steps,
            answers,
            errors,
        };
        let answer = driver.answer().await;
        assert_eq!(answer.as_deref(), Ok("ready"), "{language:?}");
        driver
    }

    /// Sends a step. The answer is to be read by [`Self::answer`].
    pub(super) fn send(&mut self, step: &str) -> Result<(), String> {
        let sent = writeln!(self.steps, "{step}").and_then(|()| self.steps.flush());
        sent.map_err(|error| format!("`{step}` cannot be sent: {error}\n{}", self.errors()))
    }

    /// Reads the next answer. An error says why there is none.
    pub(super) async fn answer(&mut self) -> Result<String, String> {
        match tokio::time::timeout(ANSWER_LIMIT, self.answers.recv()).await {
            Ok(Some(answer)) => Ok(answer),
            Ok(None) => Err(format!("the driver ended:\n{}", self.errors())),
            Err(_) => Err(format!(
                "the driver did not answer within {ANSWER_LIMIT:?}:\n{}",
                self.errors()
            )),
        }
    }

    /// Sends a step and reads its answer.
    pub(super) async fn ask(&mut self, step: &str) -> Result<String, String> {
        self.send(step)?;
        self.answer().await
    }

    /// Sends a step that gives numbers.
    ///
    /// # Panics
    /// If the answer has another form.
    pub(super) async fn take(&mut self, step: &str) -> Given {
        let answer = self.ask(step).await;
        let answer = answer.unwrap_or_else(|error| panic!("{step}: {error}"));
        Given::parse(&answer).unwrap_or_else(|| panic!("{step}: {answer}"))
    }

    /// Sends a step that is answered by `done`.
    pub(super) async fn obey(&mut self, step: &str) {
        assert_eq!(self.ask(step).await.as_deref(), Ok("done"), "{step}");
    }

    /// Returns what the hooks reported since the last call.
    pub(super) async fn hooks(&mut self) -> Hooks {
        let answer = self.ask("hooks").await.expect("an answer");
        Hooks::parse(&answer).unwrap_or_else(|error| panic!("hooks: {error}: {answer}"))
    }

    /// Returns how many numbers are buffered.
    pub(super) async fn left(&mut self) -> u64 {
        let answer = self.ask("readings").await.expect("an answer");
        left_in(&answer).unwrap_or_else(|| panic!("readings: {answer}"))
    }

    /// Ends the driver by its last step. It must end with exit code 0.
    pub(super) async fn exit(mut self) {
        assert_eq!(self.ask("exit").await.as_deref(), Ok("bye"), "exit");
        let status = wait::until("the driver ends", ANSWER_LIMIT, async || {
            self.process
                .try_wait()
                .expect("our child can be waited for")
        })
        .await;
        self.has_ended = true;
        keeper::has_ended(self.process.id());
        assert!(status.success(), "{status}\n{}", self.errors());
    }

    /// Stops the process by SIGSTOP, until [`Self::thaw`].
    pub(super) fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets a stopped process go on.
    pub(super) fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    /// Returns how many times the threads of the library for Rust have waited for something.
    pub(super) fn n_waits(&self) -> u64 {
        let tasks = format!("/proc/{}/task", self.process.id());
        let tasks = std::fs::read_dir(tasks).expect("the driver runs").flatten();
        // A thread may end meanwhile.
        let texts =
            tasks.filter_map(|task| std::fs::read_to_string(task.path().join("status")).ok());
        let of_library = texts.filter(|text| text.starts_with("Name:\todometer-client\n"));
        let n_waits = of_library.filter_map(|text| {
            let (_, rest) = text.split_once("\nvoluntary_ctxt_switches:")?;
            rest.lines().next()?.trim().parse::<u64>().ok()
        });
        n_waits.sum()
    }

    fn signal(&self, signal: Signal) {
        rustix::process::kill_process(pid(self.process.id()), signal)
            .expect("our child can be sent a signal");
    }

    /// Returns what the driver has written to standard error.
    fn errors(&self) -> String {
        let errors = self.errors.lock();
        errors.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Kills the driver by SIGKILL, and waits until it is gone.
    pub(super) fn kill(&mut self) {
        if !self.has_ended {
            self.process.kill().expect("our child can be killed");
            self.process.wait().expect("our child can be waited for");
            self.has_ended = true;
            keeper::has_ended(self.process.id());
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.kill();
        if thread::panicking() {
            eprintln!(
                "--- what the driver wrote to standard error\n{}",
                self.errors()
            );
        }
    }
}

/// Reads lines in a thread, so that the process never waits for the test.
fn lines_of(output: impl Read + Send + 'static) -> UnboundedReceiver<String> {
    let (sender, receiver) = unbounded_channel();
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

fn kept_text_of(output: impl Read + Send + 'static) -> Arc<Mutex<String>> {
    let kept = Arc::new(Mutex::new(String::new()));
    let text = Arc::clone(&kept);
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            let mut text = text.lock().unwrap_or_else(PoisonError::into_inner);
            text.push_str(&line);
            text.push('\n');
        }
    });
    kept
}

/// The numbers of one answer, in the order in which callers got them, and the error after which no
/// more came.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Given {
    pub(super) ranges: Vec<Range>,
    pub(super) error: Option<String>,
}

impl Given {
    /// Reads `given 1-100,205 error CODE`, in which the numbers and the error may be missing.
    pub(super) fn parse(answer: &str) -> Option<Self> {
        let mut words = answer.strip_prefix("given")?.split_whitespace();
        let mut given = Self::default();
        let mut word = words.next();
        if let Some(text) = word
            && text != "error"
        {
            given.ranges = ranges_in(text)?;
            word = words.next();
        }
        if let Some(text) = word {
            given.error = (text == "error")
                .then(|| words.next())
                .flatten()
                .map(str::to_owned);
            given.error.as_ref()?;
        }
        words.next().is_none().then_some(given)
    }

    pub(super) fn n_numbers(&self) -> u64 {
        self.ranges.iter().map(|range| range.count).sum()
    }

    /// Returns each number, in the order in which callers got them.
    pub(super) fn values(&self) -> Vec<i64> {
        self.ranges.iter().flat_map(Range::values).collect()
    }
}

fn ranges_in(text: &str) -> Option<Vec<Range>> {
    let ranges = text.split(',').map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (i64, i64) = (first.parse().ok()?, last.parse().ok()?);
        (first <= last).then(|| Range::between(first, last))
    });
    ranges.collect()
}

/// Reads how many numbers are buffered from `left L rate R`.
pub(super) fn left_in(readings: &str) -> Option<u64> {
    let (left, rate) = readings.strip_prefix("left ")?.split_once(" rate ")?;
    let _rate: f64 = rate.parse().ok()?;
    left.parse().ok()
}

/// What the hooks of a library reported.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Hooks {
    pub(super) refills: Vec<Refill>,
    /// The seconds that each caller waited.
    pub(super) waited: Vec<f64>,
    pub(super) dropped: Vec<Dropped>,
}

/// One report of a call for numbers. Calls of callers without a buffer are reported as well.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Refill {
    pub(super) endpoint: String,
    /// `ok`, `resized` (the size was refused, and a smaller one was given), `timeout`,
    /// `connection`, or the code of the service.
    pub(super) outcome: String,
    pub(super) seconds: f64,
    /// How many numbers it brought.
    pub(super) count: u64,
}

/// Numbers that the library dropped, and why.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Dropped {
    pub(super) count: u64,
    pub(super) cause: String,
}

impl Hooks {
    pub(super) fn parse(answer: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(answer)
    }

    pub(super) fn add(&mut self, more: Self) {
        self.refills.extend(more.refills);
        self.waited.extend(more.waited);
        self.dropped.extend(more.dropped);
    }

    /// Returns how many numbers the successful refills brought.
    pub(super) fn n_brought(&self) -> u64 {
        let brought = self.refills.iter().filter(|refill| refill.is_ok());
        brought.map(|refill| refill.count).sum()
    }

    pub(super) fn n_dropped(&self) -> u64 {
        self.dropped.iter().map(|dropped| dropped.count).sum()
    }

    /// Returns how many refills got no reply: the connection failed, or the time was over.
    pub(super) fn n_unanswered(&self) -> usize {
        self.n_with(&["connection", "timeout"])
    }

    /// Returns how many refills had one of these outcomes.
    pub(super) fn n_with(&self, outcomes: &[&str]) -> usize {
        let with = |refill: &&Refill| outcomes.contains(&refill.outcome.as_str());
        self.refills.iter().filter(with).count()
    }
}

impl Refill {
    pub(super) fn is_ok(&self) -> bool {
        ["ok", "resized"].contains(&self.outcome.as_str())
    }
}

#[test]
fn the_answers_of_a_driver_are_read() {
    let given = Given::parse("given 1-3,7,10-11").expect("an answer");
    assert_eq!(given.values(), [1, 2, 3, 7, 10, 11]);
    assert_eq!((given.n_numbers(), &given.error), (6, &None));
    for (answer, n_numbers) in [("given 5 error empty", 1), ("given  error empty", 0)] {
        let given = Given::parse(answer).expect("an answer");
        assert_eq!(
            (given.n_numbers(), given.error.as_deref()),
            (n_numbers, Some("empty"))
        );
    }
    assert_eq!(Given::parse("given"), Some(Given::default()));
    for bad in [
        "done",
        "given 3-1",
        "given 1-x",
        "given 1 error",
        "given 1 2",
        "given error a b",
    ] {
        assert_eq!(Given::parse(bad), None, "{bad}");
    }
    assert_eq!(left_in("left 99 rate 12.5"), Some(99));
    assert_eq!(left_in("left 99"), None);
}
