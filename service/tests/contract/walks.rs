//! Compares the walks of `ARCHITECTURE.md` with the functions that calls really pass.
//!
//! A call's span goes wherever its work goes: it is cloned before each hop to another task or
//! actor. So the stacks of these moments, and those of the statements, show the whole way.

use std::backtrace::Backtrace;
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};

use reqwest::Method;
use serde_json::json;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};
use tracing_core::span::Current;
use tracing_subscriber::Registry;

use crate::support::{Backend, Client, Program, TestDatabase, run};

/// The log target of each statement that is sent.
const STATEMENTS: &str = "odometer::database::statement";
/// The log target of the commands to actors.
const COMMANDS: &str = "odometer::sequence::shared";
/// The log target of the spans of calls.
const CALLS: &str = "odometer::always";
/// The header whose value names the span of a call.
const NAME: &str = "X-Request-Id";
/// What such a name begins with.
const PREFIX: &str = "walk-";

/// The most functions that a call passes on its way from the directory to a statement.
const MAX_FUNCTIONS: usize = 20;

/// The walks that are compared: a walk's title, the call, its body, and the folder that the walk
/// leads through.
const WALKS: [(&str, Method, &str, &str, &str); 3] = [
    (
        "a refill",
        Method::POST,
        "orders/next?count=50",
        "",
        "store/src/reservation/",
    ),
    (
        "a change",
        Method::PUT,
        "orders",
        r#"{"max": "5000000000000"}"#,
        "store/src/change/",
    ),
    (
        "a worker lease",
        Method::POST,
        "second/next",
        "",
        "store/src/worker_lease/",
    ),
];

/// The fewest functions of such a way. A way with fewer was not recorded whole.
const MIN_FUNCTIONS: usize = 8;

#[test]
fn each_walk_lists_the_functions_that_a_call_passes() {
    run(async {
        let one = walks_of(1).await;
        let several = walks_of(3).await;
        for ((title, ..), (one, several)) in WALKS.iter().zip(one.iter().zip(&several)) {
            let listed = listed(title);
            let shown = passed_in(one, several).join("\n");
            assert_eq!(
                compared(one, several, &listed),
                Ok(()),
                "{title}: a call passes\n{shown}\n"
            );
            // The control: a call really passes each line, so a list without it is refused.
            for (at, line) in listed.iter().enumerate() {
                let mut shorter = listed.clone();
                shorter.remove(at);
                let passed = Some(line.clone());
                let listed = shorter.get(at).cloned();
                let found = compared(one, several, &shorter);
                assert_eq!(found, Err(Mismatch::Line { passed, listed }), "{title}");
            }
        }
    });
}

/// Returns a walk of so many functions, and its list.
fn walk_of(n_functions: usize) -> Stack {
    let functions = 0..n_functions;
    functions.map(|n| format!("store/src/a.rs: f{n}")).collect()
}

/// Compares a list with a walk that a call takes in a store of one database and in one of several.
fn compared_with_both(walk: &Stack, listed: &[String]) -> Result<(), Mismatch> {
    let ways = std::slice::from_ref(walk);
    compared(ways, ways, listed)
}

#[test]
fn a_walk_that_is_not_as_listed_is_refused() {
    let listed = walk_of(12);
    assert_eq!(compared_with_both(&listed, &listed), Ok(()));
    let line = |passed: &str, listed: &str| {
        let shown = |it: &str| (!it.is_empty()).then(|| it.to_owned());
        let (passed, listed) = (shown(passed), shown(listed));
        Err(Mismatch::Line { passed, listed })
    };
    for at in 0..listed.len() {
        let mut more = listed.clone();
        more.insert(at, "store/src/b.rs: more".to_owned());
        let expected = line("store/src/b.rs: more", &listed[at]);
        assert_eq!(compared_with_both(&more, &listed), expected);
        let mut less = listed.clone();
        less.remove(at);
        let next = less.get(at).map_or("", String::as_str);
        let expected = line(next, &listed[at]);
        assert_eq!(compared_with_both(&less, &listed), expected);
        let mut moved = listed.clone();
        moved.rotate_left(at);
        let expected = match at {
            0 => Ok(()),
            _ => line(&listed[at], &listed[0]),
        };
        assert_eq!(compared_with_both(&moved, &listed), expected);
    }
    let mut more = listed.clone();
    more.push("store/src/b.rs: more".to_owned());
    let expected = line("store/src/b.rs: more", "");
    assert_eq!(compared_with_both(&more, &listed), expected);
    // Only a call in a store of several databases passes one function more.
    let expected = line("store/src/b.rs: more (several)", "");
    let one = std::slice::from_ref(&listed);
    assert_eq!(compared(one, &[more], &listed), expected);
}

#[test]
fn a_walk_that_is_too_deep_or_was_not_recorded_whole_is_refused() {
    for (n_functions, expected) in [
        (
            MIN_FUNCTIONS - 1,
            Err(Mismatch::TooShort(MIN_FUNCTIONS - 1)),
        ),
        (MIN_FUNCTIONS, Ok(())),
        (MAX_FUNCTIONS, Ok(())),
        (MAX_FUNCTIONS + 1, Err(Mismatch::TooDeep(MAX_FUNCTIONS + 1))),
    ] {
        let walk = walk_of(n_functions);
        assert_eq!(compared_with_both(&walk, &walk), expected, "{n_functions}");
    }
    // Of several ways to statements, each one is looked at.
    let ways = [walk_of(12), walk_of(MAX_FUNCTIONS + 1)];
    let found = compared(&ways, &ways, &walk_of(MAX_FUNCTIONS + 1));
    assert_eq!(found, Err(Mismatch::TooDeep(MAX_FUNCTIONS + 1)));
    assert_eq!(compared(&[], &[], &[]), Err(Mismatch::TooShort(0)));
}

/// What is wrong with a list of a walk, or with what was recorded of the walk.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Mismatch {
    /// A way passes more than [`MAX_FUNCTIONS`].
    TooDeep(usize),
    /// A way passes fewer than [`MIN_FUNCTIONS`], or there is no way.
    TooShort(usize),
    /// The first line that differs, as a call passes it and as it is listed.
    Line {
        passed: Option<String>,
        listed: Option<String>,
    },
}

/// Compares a list with the ways to the statements of a call, as they were recorded in a store of
/// one database and in a store of several.
fn compared(one: &[Stack], several: &[Stack], listed: &[String]) -> Result<(), Mismatch> {
    let lengths = || one.iter().chain(several).map(Stack::len);
    let deepest = lengths().max().unwrap_or(0);
    if deepest > MAX_FUNCTIONS {
        return Err(Mismatch::TooDeep(deepest));
    }
    let shortest = lengths().min().unwrap_or(0);
    if shortest < MIN_FUNCTIONS {
        return Err(Mismatch::TooShort(shortest));
    }
    let passed = passed_in(one, several);
    let n_lines = passed.len().max(listed.len());
    let differs = (0..n_lines).find(|at| passed.get(*at) != listed.get(*at));
    differs.map_or(Ok(()), |at| {
        Err(Mismatch::Line {
            passed: passed.get(at).cloned(),
            listed: listed.get(at).cloned(),
        })
    })
}

/// Returns the lines that a list must have for these ways.
fn passed_in(one: &[Stack], several: &[Stack]) -> Stack {
    merged(&functions_of(one), &functions_of(several))
}

/// The functions of one stack that are ours, each as `file: function`, the outermost first.
type Stack = Vec<String>;

/// What was seen of one call.
#[derive(Clone, Default)]
struct Seen {
    /// The stacks of all moments, in their order.
    stacks: Vec<Stack>,
    /// Which of the stacks end in a statement.
    statements: Vec<usize>,
}

/// Records the stacks of calls whose name was asked for.
struct Recorder {
    registry: Registry,
    names: Mutex<HashMap<u64, String>>,
    seen: Mutex<HashMap<String, Seen>>,
}

impl Recorder {
    fn get() -> &'static Self {
        static RECORDER: OnceLock<&'static Recorder> = OnceLock::new();
        RECORDER.get_or_init(|| {
            let recorder: &'static Self = Box::leak(Box::new(Self {
                registry: tracing_subscriber::registry(),
                names: Mutex::default(),
                seen: Mutex::default(),
            }));
            tracing::subscriber::set_global_default(recorder)
                .expect("nobody else listens to the log");
            recorder
        })
    }

    /// Keeps the stack of this moment, if the span belongs to a call of interest.
    fn note(&self, span: &Id, is_statement: bool) {
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(name) = names.get(&span.into_u64()).cloned() else {
            return;
        };
        drop(names);
        let mut stack = our_functions(&Backtrace::force_capture().to_string());
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(seen) = seen.get_mut(&name) {
            if is_statement {
                // The last one writes the event.
                stack.pop();
                seen.statements.push(seen.stacks.len());
            }
            seen.stacks.push(stack);
        }
    }
}

/// Reads the functions of ours from a stack, the outermost first.
fn our_functions(stack: &str) -> Stack {
    let mut functions = Stack::new();
    for line in stack.lines().rev() {
        let Some(place) = line.trim_start().strip_prefix("at ") else {
            continue;
        };
        let mut parts = place.rsplitn(3, ':').skip(1);
        let number = parts.next().and_then(|number| number.parse().ok());
        let (Some(number), Some(file)) = (number, parts.next()) else {
            continue;
        };
        let function = function_at(Path::new(file), number);
        if let Some(function) = function.filter(|it| functions.last() != Some(it)) {
            functions.push(function);
        }
    }
    functions
}

/// Returns `file: function` of a line in a source of ours.
fn function_at(file: &Path, number: usize) -> Option<String> {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let repository = package.parent()?;
    let file = package.join(file.strip_prefix("./").unwrap_or(file));
    let name = file.strip_prefix(repository).ok()?;
    let is_source = name.components().any(|part| part.as_os_str() == "src");
    let source = std::fs::read_to_string(&file).ok().filter(|_| is_source)?;
    let lines: Vec<&str> = source.lines().take(number).collect();
    // The function around a line is the last one that began and has not ended.
    let indent_of = |line: &str| line.len() - line.trim_start().len();
    let mut ended = Vec::new();
    for line in lines.iter().rev() {
        let indent = indent_of(line);
        if let Some(function) = function_of(line).filter(|_| !ended.contains(&indent)) {
            return Some(format!("{}: {function}", name.display()));
        }
        if line.trim() == "}" {
            ended.push(indent);
        }
    }
    None
}

/// Returns the name of the function that begins in a line of source.
fn function_of(line: &str) -> Option<&str> {
    let (before, after) = line.split_once("fn ")?;
    let is_head = before
        .split_whitespace()
        .all(|word| ["async", "const", "pub"].contains(&word) || word.starts_with("pub("));
    let end = after.find(['(', '<'])?;
    is_head.then(|| &after[..end])
}

impl Seen {
    /// Returns the ways to the statements, each from the directory on.
    ///
    /// A task begins in the function that spawned it. So its way is the one of its spawner up to
    /// there. A message to an actor has no such function: its way begins with the last stack.
    fn ways(&self) -> Vec<Stack> {
        let ways = self.statements.iter().map(|index| self.way(*index));
        let is_called = |function: &String| function.starts_with("service/");
        ways.map(|way| way.into_iter().skip_while(is_called).collect())
            .collect()
    }

    fn way(&self, index: usize) -> Stack {
        let stack = &self.stacks[index];
        let Some(first) = stack.first().filter(|_| index > 0) else {
            return stack.clone();
        };
        let spawner = (0..index).rev().find(|it| {
            let known = &self.stacks[*it];
            known.contains(first) && known.first() != Some(first)
        });
        let mut way = match spawner {
            Some(spawner) => self.way(spawner),
            None if first.starts_with("service/") => Stack::new(),
            None => self.way(index - 1),
        };
        let known = way.iter().position(|it| it == first);
        way.truncate(known.unwrap_or(way.len()));
        for function in stack {
            if !way.contains(function) {
                way.push(function.clone());
            }
        }
        way
    }
}

/// Makes one call, and returns what was seen of it.
async fn seen_of(client: &Client, name: &str, method: &Method, path: &str, body: &str) -> Seen {
    let recorder = Recorder::get();
    let seen = || recorder.seen.lock().unwrap_or_else(PoisonError::into_inner);
    seen().insert(name.to_owned(), Seen::default());
    let mut headers = vec![(NAME, name)];
    if !body.is_empty() {
        headers.push(("Content-Type", "application/json"));
    }
    let body = (!body.is_empty()).then(|| body.as_bytes().to_vec());
    let reply = client.send(method.clone(), path, &headers, body).await;
    let reply = reply.expect("a reply");
    assert_eq!(reply.status / 100, 2, "{reply:?}");
    seen().remove(name).expect("it was put there")
}

impl Subscriber for &'static Recorder {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        [STATEMENTS, COMMANDS, CALLS].contains(&metadata.target())
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let id = self.registry.new_span(attributes);
        let mut name = CallName::default();
        attributes.record(&mut name);
        if name.0.starts_with(PREFIX) {
            let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
            names.insert(id.into_u64(), name.0);
        }
        id
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        self.registry.record(span, values);
    }

    fn record_follows_from(&self, span: &Id, follows: &Id) {
        self.registry.record_follows_from(span, follows);
    }

    fn event(&self, event: &Event<'_>) {
        let is_statement = event.metadata().target() == STATEMENTS;
        if let Some(id) = self.registry.current_span().id() {
            self.note(id, is_statement);
        }
    }

    fn enter(&self, span: &Id) {
        self.registry.enter(span);
    }

    fn exit(&self, span: &Id) {
        self.registry.exit(span);
    }

    fn clone_span(&self, id: &Id) -> Id {
        self.note(id, false);
        self.registry.clone_span(id)
    }

    fn try_close(&self, id: Id) -> bool {
        self.registry.try_close(id)
    }

    fn current_span(&self) -> Current {
        self.registry.current_span()
    }
}

/// Reads the name of a call from its span.
#[derive(Default)]
struct CallName(String);

impl Visit for CallName {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "request_id" {
            value.clone_into(&mut self.0);
        }
    }

    fn record_debug(&mut self, _field: &Field, _value: &dyn std::fmt::Debug) {}
}

/// Makes the calls of [`WALKS`] in a store of so many databases. Returns the ways to the statements
/// of each call.
async fn walks_of(n_databases: usize) -> Vec<Vec<Stack>> {
    Recorder::get();
    let (mut databases, mut urls) = (Vec::new(), Vec::new());
    for _ in 0..n_databases {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        urls.push(database.url.clone());
        databases.push(database);
    }
    let options = Program::options().env("ODOMETER_STORES__DEFAULT__DATABASES", urls.join(","));
    let program = options.start_ready().await;
    let client = program.client();
    let small = json!({"block": {"min": 10, "max": 10}});
    client.define("orders", &small).await;
    // Each database has been asked once, so its counter is known.
    for _ in 0..n_databases {
        let more = "/v1/sequences/orders/next?count=50";
        client.post(more).await.expect("a reply");
    }
    // The first lease of a process reads once what it knows from then on.
    for name in ["first", "second"] {
        client.define(name, &json!({"kind": "snowflake"})).await;
    }
    client
        .post("/v1/sequences/first/next")
        .await
        .expect("a reply");
    let mut walks = Vec::new();
    for (at, (_, method, path, body, folder)) in WALKS.iter().enumerate() {
        let name = format!("{PREFIX}{n_databases}-{at}");
        let path = format!("/v1/sequences/{path}");
        let seen = seen_of(&client, &name, method, &path, body).await;
        let leads_there = |way: &Stack| way.iter().any(|it| it.starts_with(folder));
        walks.push(seen.ways().into_iter().filter(leads_there).collect());
    }
    program.stop().await;
    walks
}

/// Returns all functions of these ways, in the order in which a call first passes them.
fn functions_of(ways: &[Stack]) -> Stack {
    let mut functions = Stack::new();
    for function in ways.iter().flatten() {
        if !functions.contains(function) {
            functions.push(function.clone());
        }
    }
    functions
}

/// Merges what is passed in a store of one database and in a store of several. What only one of
/// them passes is marked.
fn merged(one: &[String], several: &[String]) -> Stack {
    let mut lines = Stack::new();
    let mut rest = several;
    for function in one {
        let Some(at) = rest.iter().position(|it| it == function) else {
            lines.push(format!("{function} (one database)"));
            continue;
        };
        lines.extend(rest[..at].iter().map(|it| format!("{it} (several)")));
        lines.push(function.clone());
        rest = &rest[at + 1..];
    }
    lines.extend(rest.iter().map(|it| format!("{it} (several)")));
    lines
}

/// Reads the list of a walk from the map.
fn listed(title: &str) -> Stack {
    let map = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ARCHITECTURE.md");
    let map = std::fs::read_to_string(map).expect("the map is there");
    let walk = map
        .split("\n## ")
        .find(|it| it.lines().next().is_some_and(|it| it.ends_with(title)));
    let list = walk
        .and_then(|walk| walk.split("```").nth(1))
        .unwrap_or_default();
    list.lines().skip(1).map(str::to_owned).collect()
}
