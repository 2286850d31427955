//! The form of `cases.json`: what the replicas answer, what the driver does, and what must come of
//! it.

use std::{collections::BTreeSet, sync::LazyLock};

use serde::Deserialize;
use serde_json::{Map, Value};

static CASES: LazyLock<Vec<Case>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../cases.json"))
        .unwrap_or_else(|error| panic!("tests/clients/cases.json: {error}"))
});

/// One test of each language.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Case {
    pub(super) name: String,
    /// The number of the rule of the contract.
    pub(super) rule: String,
    /// Options of the driver, without its endpoints.
    #[serde(default)]
    pub(super) driver: Map<String, Value>,
    #[serde(default)]
    pub(super) sequence: Numbers,
    /// The answers to calls for the definition. After the last one the definition is given.
    #[serde(default)]
    pub(super) definition: Vec<Answer>,
    /// The answers of each replica to calls for numbers, in the order in which the library first
    /// calls the replicas. After its last answer a replica gives numbers.
    pub(super) replicas: Vec<Vec<Answer>>,
    pub(super) steps: Vec<Step>,
    /// The first calls that replicas get, in this order. Calls for the definition count only if
    /// one of them is named.
    #[serde(default)]
    pub(super) calls: Vec<WantedCall>,
    /// Whether no other calls may follow.
    #[serde(default)]
    pub(super) no_more_calls: bool,
    /// The most numbers that nobody may ever get.
    #[serde(default)]
    pub(super) may_lose: u64,
    /// Whether the library drops numbers or sets them aside, so that later numbers come before.
    #[serde(default)]
    pub(super) drops: bool,
    /// Whether several calls for numbers may be under way at once.
    #[serde(default)]
    pub(super) overlaps: bool,
    /// Whether numbers must come twice: the case is a control.
    #[serde(default)]
    pub(super) repeats: bool,
}

impl Case {
    /// Returns whether the library may not look at the definition, and so cannot know the format.
    pub(super) fn is_hidden(&self) -> bool {
        let is_refusal =
            |answer: &Answer| matches!(answer, Answer::Problem(problem) if problem.status == 403);
        let mut answers = self.definition.iter();
        answers.any(|answer| matches!(answer, Answer::Always(inner) if is_refusal(inner)))
    }

    /// Returns how many steps fork.
    pub(super) fn n_forks(&self) -> usize {
        let tasks = self.steps.iter().filter_map(|step| step.task.as_deref());
        tasks.filter(|task| task.starts_with("fork ")).count()
    }

    pub(super) fn named(name: &str) -> &'static Self {
        let found = CASES.iter().find(|case| case.name == name);
        found.unwrap_or_else(|| panic!("tests/clients/cases.json has no case {name}"))
    }

    pub(super) fn all_names() -> BTreeSet<&'static str> {
        let names: BTreeSet<&str> = CASES.iter().map(|case| case.name.as_str()).collect();
        assert_eq!(names.len(), CASES.len(), "two cases have one name");
        names
    }

    pub(super) fn all_rules() -> BTreeSet<&'static str> {
        CASES.iter().map(|case| case.rule.as_str()).collect()
    }
}

/// The numbers of the scripted replicas, which they give out together.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Numbers {
    pub(super) name: String,
    pub(super) start: i64,
    pub(super) step: i64,
    pub(super) max: i64,
    /// An id is this prefix and the number, with zeros in front up to `width` digits.
    pub(super) prefix: String,
    pub(super) width: usize,
    /// Fields of the definition that are not the default.
    pub(super) definition: Map<String, Value>,
}

impl Default for Numbers {
    fn default() -> Self {
        Self {
            name: "orders".to_owned(),
            start: 1,
            step: 1,
            max: i64::MAX - 1,
            prefix: String::new(),
            width: 0,
            definition: Map::new(),
        }
    }
}

/// What a replica does with one call.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Answer {
    /// Gives the numbers that the call asks for.
    Give,
    /// Gives them in as many ranges, with gaps between them.
    GivePieces(u64),
    /// Gives them with `Connection: close`, and closes the connection.
    GiveThenClose,
    /// Gives them, and is gone: the port refuses connections from then on.
    GiveThenLeave,
    /// Takes the numbers, and closes the connection without a reply.
    Lose,
    /// Takes the numbers, sends half of the reply, and closes the connection.
    LoseHalf,
    /// Takes the numbers, and never answers.
    Hang,
    /// Closes the connection without a reply. No number is taken.
    Cut,
    /// Refuses the call.
    Problem(Problem),
    /// Refuses the call with `Connection: close`, and closes the connection.
    ProblemThenClose(Problem),
    /// Answers by this status and a page, as a balancer does, or another service.
    Page(u16),
    /// Waits for a step `release` before it does this.
    Hold(Box<Self>),
    /// Does this with each call that follows.
    Always(Box<Self>),
}

/// A refusal with a code.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Problem {
    pub(super) status: u16,
    pub(super) code: String,
    /// Seconds.
    pub(super) retry_after: Option<u64>,
    /// The size that would not be refused.
    pub(super) limit: Option<u64>,
}

/// One step: exactly one of the fields that say what to do, and what must come of it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Step {
    /// A step of the driver, with its answer.
    #[serde(rename = "do")]
    pub(super) task: Option<String>,
    /// A step of the driver that may take until the replicas are told something.
    pub(super) send: Option<String>,
    /// Reads the answer to a step that was sent.
    #[serde(default)]
    pub(super) receive: bool,
    /// A step of the driver that is repeated until its answer is as expected.
    pub(super) repeat: Option<String>,
    /// Waits until the replicas have got as many calls for numbers.
    pub(super) until_calls: Option<usize>,
    /// Lets as many held answers go on.
    pub(super) release: Option<usize>,
    /// Lets this time pass.
    pub(super) pause_ms: Option<u64>,
    pub(super) expect: Option<Expected>,
}

/// What an answer of the driver must have. Without `error`, an answer has no error.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Expected {
    /// The whole answer.
    pub(super) answer: Option<String>,
    /// The numbers, as the driver prints them.
    pub(super) given: Option<String>,
    /// How many numbers.
    pub(super) n: Option<u64>,
    /// What every number is above.
    pub(super) above: Option<i64>,
    /// The code of the error. Several that would do have `|` between them.
    pub(super) error: Option<String>,
    /// Whether the numbers are one range without gaps.
    pub(super) unbroken: bool,
    /// The least number that must be buffered.
    pub(super) left: Option<u64>,
    /// Outcomes that the refills of the case had up to now, in any order.
    pub(super) outcomes: Vec<String>,
    /// How many numbers were dropped in the case up to now, at least.
    pub(super) dropped: Option<u64>,
    /// How many callers waited in the case up to now, at least.
    pub(super) waited: Option<usize>,
    /// How many calls for numbers came in the case up to now, at least.
    pub(super) n_calls: Option<usize>,
    /// Whether a replica was asked for more numbers at once than this.
    pub(super) asked_above: Option<u64>,
    /// How long the answer to a step may take. This is far longer than the step takes if it does
    /// not wait, and far shorter than the deadline of a caller that waits.
    pub(super) within_ms: Option<u64>,
}

/// A call that a replica must get.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WantedCall {
    pub(super) call: CallKind,
    /// The replica, in the order in which the library first called them.
    pub(super) replica: Option<usize>,
    /// How many numbers are asked for.
    pub(super) size: Option<u64>,
    /// Whether the printed ids are asked for.
    pub(super) ids: Option<bool>,
    /// The least time since the answer to the call for numbers before.
    pub(super) after_ms: Option<u64>,
}

/// Which call it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum CallKind {
    Definition,
    /// `next` without a count, or with a count of 1.
    One,
    /// `next` with a count.
    Batch,
    Block,
    /// A batch or a block.
    Refill,
}
