//! Plays a case: starts its replicas and a driver, does the steps, and compares what came.

use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use super::{
    checks,
    script::{Case, Expected, Step},
    stage::Stage,
};
use crate::clients::{
    driver::{Driver, Given, Hooks, left_in},
    language::Language,
};

/// How long an expected event may take.
const LIMIT: Duration = Duration::from_secs(30);
const BETWEEN_TWO_LOOKS: Duration = Duration::from_millis(20);
/// How long callers wait for a number, unless a case is about that. A busy machine may be slow.
const DEADLINE_MS: u64 = 20_000;

/// What a case has led to up to now.
pub(super) struct Played {
    pub(super) stage: Stage,
    pub(super) driver: Driver,
    /// All numbers that callers got, in this order.
    pub(super) given: Vec<i64>,
    /// All ids that callers got, in this order.
    pub(super) ids: Vec<String>,
    pub(super) hooks: Hooks,
    /// Whether a step had callers that got numbers at the same time.
    pub(super) is_shared: bool,
    /// Whether a step forked. What the hooks of the child report is lost. The child may be a second
    /// process.
    is_forked: bool,
    /// The step whose answer is still to come.
    sent: Option<String>,
}

/// Plays the case `name` with the library of a language.
///
/// # Panics
/// If a step or the case does not end as expected. The message names the case and the step, what
/// was expected and what came, and lists the calls that the replicas got.
pub(in crate::clients) async fn play(name: &str, language: Language) {
    let case = Case::named(name);
    let stage = Stage::start(case).await;
    let options = options(case, stage.endpoints());
    let driver = Driver::start(language, &options).await;
    let mut played = Played {
        stage,
        driver,
        given: Vec::new(),
        ids: Vec::new(),
        hooks: Hooks::default(),
        is_shared: false,
        is_forked: false,
        sent: None,
    };
    let outcome = played.play(case, language).await;
    if let Err(complaint) = outcome {
        let calls: Vec<String> = {
            let log = played.stage.log();
            log.calls.iter().map(|call| call.shown()).collect()
        };
        panic!(
            "{} ({}) with {language:?}: {complaint}\nthe calls:\n{}\nthe hooks: {:?}",
            case.name,
            case.rule,
            calls.join("\n"),
            played.hooks
        );
    }
    played.driver.exit().await;
}

/// Returns the options of a driver for these endpoints. Those of the case win over the defaults.
pub(super) fn options(case: &Case, endpoints: &[String]) -> Value {
    let mut options = Map::new();
    options.insert("deadline_ms".to_owned(), Value::from(DEADLINE_MS));
    options.insert(
        "sequence".to_owned(),
        Value::from(case.sequence.name.as_str()),
    );
    options.extend(case.driver.clone());
    options.insert("endpoints".to_owned(), json!(endpoints));
    Value::Object(options)
}

impl Played {
    async fn play(&mut self, case: &Case, language: Language) -> Result<(), String> {
        let lacks_hook = case.driver.contains_key("without_fork_hook") && !language.can_fork();
        for (index, step) in case.steps.iter().enumerate() {
            let task = step.task.as_ref().or(step.send.as_ref());
            if let Some(task) = task.filter(|task| lacks_hook && task.starts_with("fork ")) {
                // A library without a hook to take out has no more to show.
                let answer = self.driver.ask(task).await?;
                return match answer.as_str() {
                    "unsupported" => Ok(()),
                    _ => Err(format!("`{task}` is not supported, but answered: {answer}")),
                };
            }
            let done = self.take_step(step).await;
            done.map_err(|complaint| format!("step {} ({step:?}):\n{complaint}", index + 1))?;
        }
        checks::numbers(self, case)?;
        checks::calls(&self.stage.log(), case, language)?;
        self.lose_little(case).await?;
        self.account_for_all().await
    }

    async fn take_step(&mut self, step: &Step) -> Result<(), String> {
        let expected = step.expect.as_ref();
        if let Some(task) = &step.task {
            let asked = Instant::now();
            let answer = self.driver.ask(task).await?;
            let took = asked.elapsed();
            self.compare(task, &answer, expected)?;
            return in_time(took, expected);
        }
        if let Some(task) = &step.send {
            self.sent = Some(task.clone());
            return self.driver.send(task);
        }
        if step.receive {
            let task = self.sent.take().ok_or("no step was sent")?;
            let answer = self.driver.answer().await?;
            return self.compare(&task, &answer, expected);
        }
        if let Some(task) = &step.repeat {
            return self.repeat(task, expected).await;
        }
        if let Some(n_calls) = step.until_calls {
            return self.wait_for_calls(n_calls).await;
        }
        if let Some(n_answers) = step.release {
            self.stage.release(n_answers);
            return Ok(());
        }
        let pause_ms = step.pause_ms.ok_or("a step that says nothing")?;
        tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        Ok(())
    }

    async fn wait_for_calls(&self, n_calls: usize) -> Result<(), String> {
        let started = Instant::now();
        loop {
            let n_now = self.stage.log().n_calls_for_numbers();
            if n_now >= n_calls {
                return Ok(());
            }
            if started.elapsed() > LIMIT {
                return Err(format!("{n_now} calls for numbers came within {LIMIT:?}"));
            }
            tokio::time::sleep(BETWEEN_TWO_LOOKS).await;
        }
    }

    /// Repeats a step until its answer is as expected. Numbers of other answers count as given.
    async fn repeat(&mut self, task: &str, expected: Option<&Expected>) -> Result<(), String> {
        let started = Instant::now();
        loop {
            let answer = self.driver.ask(task).await?;
            let compared = self.compare(task, &answer, expected);
            if compared.is_ok() || started.elapsed() > LIMIT {
                return compared;
            }
            tokio::time::sleep(BETWEEN_TWO_LOOKS).await;
        }
    }

    /// Notes an answer, and says how it differs from what is expected.
    fn compare(
        &mut self,
        task: &str,
        answer: &str,
        expected: Option<&Expected>,
    ) -> Result<(), String> {
        let none = Expected::default();
        let expected = expected.unwrap_or(&none);
        let complain = |what: &str| Err(format!("`{task}` answered `{answer}`: {what}"));
        if expected
            .answer
            .as_ref()
            .is_some_and(|whole| whole != answer)
        {
            return complain("it is another answer");
        }
        match task.split(' ').next().unwrap_or_default() {
            "hooks" => {
                let more = Hooks::parse(answer).map_err(|error| format!("{error}: {answer}"))?;
                self.hooks.add(more);
                let complaint = checks::hooks(&self.hooks, &self.stage, expected);
                complaint.map_or(Ok(()), |what| complain(&what))
            }
            "readings" => match left_in(answer) {
                Some(left) if expected.left.is_none_or(|least| left >= least) => Ok(()),
                Some(_) => complain("too little is left"),
                None => complain("no readings"),
            },
            "ids" => {
                let (ids, error) = ids_in(answer);
                self.ids.extend(ids.clone());
                let n_numbers = u64::try_from(ids.len()).unwrap_or_default();
                let complaint = checks::count_and_error(n_numbers, error.as_deref(), expected);
                complaint.map_or(Ok(()), |what| complain(&what))
            }
            "warm" | "forget" => match (answer.strip_prefix("error "), &expected.error) {
                (None, None) if answer == "done" => Ok(()),
                (Some(code), Some(codes)) if codes.split('|').any(|it| it == code) => Ok(()),
                _ => complain("it is another answer"),
            },
            word => {
                let Some(given) = Given::parse(answer) else {
                    return complain("no numbers");
                };
                self.is_shared |= ["threads", "async", "fork"].contains(&word);
                self.is_forked |= word == "fork";
                self.given.extend(given.values());
                let complaint = checks::given(&given, answer, &self.stage, expected);
                complaint.map_or(Ok(()), |what| complain(&what))
            }
        }
    }

    /// Waits until no more numbers are lost than the case allows.
    async fn lose_little(&mut self, case: &Case) -> Result<(), String> {
        if case.drops || case.overlaps || case.repeats {
            return Ok(());
        }
        let n_given = self.n_given()?;
        let started = Instant::now();
        loop {
            let left = self.left().await?;
            let n_taken = self.stage.log().counter.n_taken();
            let n_lost = n_taken.saturating_sub(n_given + left);
            if n_lost <= case.may_lose && n_given + left <= n_taken {
                return Ok(());
            }
            if started.elapsed() > LIMIT {
                return Err(format!(
                    "{n_taken} numbers were taken, {n_given} given and {left} are left: {n_lost} \
                     are lost instead of {} at most",
                    case.may_lose
                ));
            }
            tokio::time::sleep(BETWEEN_TWO_LOOKS).await;
        }
    }

    /// Waits until the hooks account for every number that came: a caller got it, or it is left, or
    /// it was dropped.
    async fn account_for_all(&mut self) -> Result<(), String> {
        if self.is_forked {
            return Ok(());
        }
        let n_given = self.n_given()?;
        let started = Instant::now();
        loop {
            let answer = self.driver.ask("hooks").await?;
            let more = Hooks::parse(&answer).map_err(|error| format!("{error}: {answer}"))?;
            self.hooks.add(more);
            let left = self.left().await?;
            let (n_dropped, n_brought) = (self.hooks.n_dropped(), self.hooks.n_brought());
            if n_given + left + n_dropped == n_brought {
                return Ok(());
            }
            if started.elapsed() > LIMIT {
                return Err(format!(
                    "the hooks say that {n_brought} numbers came, but {n_given} were given, {left} \
                     are left, and {n_dropped} were dropped"
                ));
            }
            tokio::time::sleep(BETWEEN_TWO_LOOKS).await;
        }
    }

    /// Returns how many numbers and ids callers got.
    fn n_given(&self) -> Result<u64, String> {
        let n_given = self.given.len() + self.ids.len();
        u64::try_from(n_given).map_err(|error| error.to_string())
    }

    /// Returns how many numbers are buffered.
    async fn left(&mut self) -> Result<u64, String> {
        let readings = self.driver.ask("readings").await?;
        left_in(&readings).ok_or_else(|| format!("readings: {readings}"))
    }
}

/// Says that an answer took longer than it may.
fn in_time(took: Duration, expected: Option<&Expected>) -> Result<(), String> {
    let limit = expected.and_then(|expected| expected.within_ms);
    match limit.map(Duration::from_millis) {
        Some(limit) if took > limit => Err(format!("it took {took:?} instead of {limit:?}")),
        Some(_) | None => Ok(()),
    }
}

/// Reads `ids ID ID … error CODE`, in which the ids and the error may be missing.
fn ids_in(answer: &str) -> (Vec<String>, Option<String>) {
    let mut words = answer.split_whitespace().skip(1);
    let ids: Vec<String> = words
        .by_ref()
        .take_while(|word| *word != "error")
        .map(str::to_owned)
        .collect();
    (ids, words.next().map(str::to_owned))
}

#[test]
fn ids_are_read_with_their_error() {
    let (ids, error) = ids_in("ids INV-1 INV-2 error deadline");
    assert_eq!(
        (ids.join(","), error.as_deref()),
        ("INV-1,INV-2".to_owned(), Some("deadline"))
    );
    assert_eq!(ids_in("ids A").1, None);
}

#[test]
fn an_answer_that_takes_too_long_is_told() {
    let expected = Expected {
        within_ms: Some(100),
        ..Expected::default()
    };
    let took = Duration::from_millis(101);
    assert!(in_time(took, Some(&expected)).is_err());
    assert_eq!(in_time(Duration::from_millis(100), Some(&expected)), Ok(()));
    assert_eq!(in_time(took, None), Ok(()));
}
