//! A floor is raised, and a sequence is retired and restored, while three replicas serve it.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{
    Answer, Backend, Client, Ledger, Options, Program, Range, Scrape, TestDatabase, dice,
    for_each_backend, for_each_server, settings, wait,
};

const N_REPLICAS: usize = 3;
const N_CALLERS: usize = 9;
const MAX_AT_ONCE: u64 = 20;
/// How far a floor is raised above all issued numbers. Blocks are larger, so memory holds numbers
/// below the floor.
const RAISE: i64 = 1_000;
/// How soon a change holds everywhere. A replica polls twice in this time, so a poll may be late by
/// half of it.
const REFRESH: Duration = Duration::from_secs(6);
/// The size of a block in the controls. Callers cannot use up such a block, so only the floor can
/// bring memory above the floor.
const HUGE: i64 = 1_000_000;
/// How many calls must be answered on each side of each change.
const MIN_CALLS: u64 = 50;

for_each_server!(nothing_below_a_floor_and_nothing_of_a_retired_sequence_is_issued);

async fn nothing_below_a_floor_and_nothing_of_a_retired_sequence_is_issued(backend: Backend) {
    let n_rounds = settings::at_size(2, 100);
    let database = TestDatabase::prepared(backend).await;
    let outcome = run(&database, &Program::options(), n_rounds, Life::Whole, None).await;
    assert_eq!(outcome.violations, Vec::<String>::new());
    assert_eq!(outcome.refusals, Vec::<String>::new());
    assert_eq!(outcome.ledger.n_duplicates(), 0, "numbers given twice");
    assert!(
        outcome.n_cut > 0.0,
        "vacuous: no number was in memory below a floor"
    );
    println!(
        "{backend:?}: {n_rounds} rounds, {} numbers, 0 twice, {} cut from memory",
        outcome.ledger.n_numbers(),
        outcome.n_cut
    );
}

for_each_server!(without_closing_the_cursor_numbers_below_a_floor_are_found);

async fn without_closing_the_cursor_numbers_below_a_floor_are_found(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let options = Program::options().without_guards("floor-unheld");
    let outcome = run(&database, &options, 1, Life::FloorsOnly, None).await;
    assert!(!outcome.violations.is_empty(), "the check finds nothing");
}

for_each_server!(nothing_below_the_floor_of_a_period_is_issued);

async fn nothing_below_the_floor_of_a_period_is_issued(backend: Backend) {
    let n_rounds = settings::at_size(2, 100);
    let database = TestDatabase::prepared(backend).await;
    let options = Program::options();
    let outcome = run(&database, &options, n_rounds, Life::Whole, Some("eod-7")).await;
    assert_eq!(outcome.violations, Vec::<String>::new());
    assert_eq!(outcome.refusals, Vec::<String>::new());
    assert_eq!(outcome.ledger.n_duplicates(), 0, "numbers given twice");
    assert!(
        outcome.n_cut > 0.0,
        "vacuous: no number was in memory below a floor"
    );
}

for_each_server!(without_closing_the_cursor_numbers_below_the_floor_of_a_period_are_found);

async fn without_closing_the_cursor_numbers_below_the_floor_of_a_period_are_found(
    backend: Backend,
) {
    let database = TestDatabase::prepared(backend).await;
    let options = Program::options().without_guards("floor-unheld");
    let outcome = run(&database, &options, 1, Life::FloorsOnly, Some("eod-7")).await;
    assert!(!outcome.violations.is_empty(), "the check finds nothing");
}

for_each_backend!(what_a_returned_block_has_above_a_floor_is_still_issued);

async fn what_a_returned_block_has_above_a_floor_is_still_issued(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let options = Program::options()
        .database(&database.url)
        .env("ODOMETER_DEFAULT__BLOCK__MIN", 100);
    let program = options.start_ready().await;
    assert_eq!(program.client().next("floors").await, 1);
    program.stop().await;
    let program = options.start_ready().await;
    let client = program.client();
    let body = json!({"floor": "50"});
    let reply = change(&client, Method::POST, "/advance", Some(&body)).await;
    assert_eq!(reply["advanced"], true, "{reply}");
    assert_eq!(client.next("floors").await, 50);
    // The numbers 2 to 49 were returned, and lie below the floor.
    let abandoned = "odometer_abandoned_numbers_total";
    let n_cut = Scrape::of(&client)
        .await
        .sum(abandoned, &[("cause", "advanced")]);
    assert_eq!(n_cut, 48.0);
    program.stop().await;
}

/// Whether sequences are also retired and restored. If not, memory holds more numbers than the
/// callers take.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Life {
    Whole,
    FloorsOnly,
}

struct Outcome {
    ledger: Ledger,
    /// Numbers that were issued although a rule forbade them.
    violations: Vec<String>,
    /// Calls that got no number for another reason than a retirement.
    refusals: Vec<String>,
    n_cut: f64,
}

/// One call for numbers, and its outcome.
struct Call {
    replica: usize,
    sent: Instant,
    answered: Instant,
    ranges: Vec<Range>,
}

/// A rule about the numbers that may no longer be issued.
struct Rule {
    /// The replica on which the rule holds from `here` on. On the others it holds from `everywhere`
    /// on.
    replica: usize,
    here: Instant,
    everywhere: Instant,
    /// The rule holds for calls that were answered before this moment.
    until: Option<Instant>,
    /// The rule forbids numbers below the floor; `None` forbids all numbers.
    floor: Option<i64>,
}

#[derive(Default)]
struct Stage {
    /// The key of all calls; `None` if the sequence has no periods.
    key: Option<&'static str>,
    over: AtomicBool,
    n_calls: AtomicU64,
    calls: Mutex<Vec<Call>>,
    refusals: Mutex<Vec<String>>,
}

async fn run(
    database: &TestDatabase,
    options: &Options,
    n_rounds: usize,
    life: Life,
    key: Option<&'static str>,
) -> Outcome {
    let (least, most) = match life {
        Life::Whole => (2 * RAISE, 4 * RAISE),
        Life::FloorsOnly => (HUGE, HUGE),
    };
    let refresh = format!("{}s", REFRESH.as_secs());
    let options = options
        .clone()
        .database(&database.url)
        .env("ODOMETER_DEFINITION_REFRESH", refresh)
        .without_speed_limit()
        .env("ODOMETER_DEFAULT__BLOCK__MIN", least)
        .env("ODOMETER_DEFAULT__BLOCK__MAX", most);
    let mut programs = Vec::new();
    for _ in 0..N_REPLICAS {
        programs.push(options.start_ready().await);
    }
    let clients: Vec<Client> = programs.iter().map(Program::client).collect();
    if key.is_some() {
        clients[0]
            .define("floors", &json!({"period": "keyed"}))
            .await;
    }
    let stage = Arc::new(Stage {
        key,
        ..Stage::default()
    });
    let callers: Vec<_> = (0..N_CALLERS)
        .map(|caller| {
            let replica = caller % N_REPLICAS;
            let client = clients[replica].clone();
            tokio::spawn(call_until_over(Arc::clone(&stage), client, replica))
        })
        .collect();
    let mut rules = Vec::new();
    for _round in 0..n_rounds {
        stage.goes_on().await;
        let replica = dice::roll(0..N_REPLICAS);
        rules.push(raise_floor(&stage, &clients[replica], replica).await);
        if life == Life::Whole {
            let replica = dice::roll(0..N_REPLICAS);
            rules.extend(retire_and_restore(database, &stage, &clients, replica).await);
        }
    }
    stage.goes_on().await;
    stage.over.store(true, Ordering::Relaxed);
    for caller in callers {
        caller.await.expect("a caller does not panic");
    }
    let mut n_cut = 0.0;
    for client in &clients {
        let abandoned = "odometer_abandoned_numbers_total";
        n_cut += Scrape::of(client)
            .await
            .sum(abandoned, &[("cause", "advanced")]);
    }
    let calls = std::mem::take(&mut *stage.calls.lock().expect("nobody panics with it"));
    let refusals = std::mem::take(&mut *stage.refusals.lock().expect("nobody panics with it"));
    let mut ledger = Ledger::default();
    for call in &calls {
        ledger.record("floors", &call.ranges);
    }
    Outcome {
        ledger,
        violations: broken(&rules, &calls),
        refusals,
        n_cut,
    }
}

/// Raises the floor above all issued numbers, and above numbers in the memory of some replica.
async fn raise_floor(stage: &Stage, client: &Client, replica: usize) -> Rule {
    let highest = {
        let calls = stage.calls.lock().expect("nobody panics with it");
        let ranges = calls.iter().flat_map(|call| &call.ranges);
        ranges.map(Range::last).max().expect("numbers were given")
    };
    let mut body = json!({"floor": (highest + RAISE).to_string(), "confirm": true});
    if let Some(key) = stage.key {
        body["period"] = key.into();
    }
    let reply = change(client, Method::POST, "/advance", Some(&body)).await;
    let here = Instant::now();
    assert_eq!(reply["advanced"], true, "{reply}");
    let everywhere = moment(&reply["everywhere_by"]);
    tokio::time::sleep_until(everywhere.into()).await;
    stage.goes_on().await;
    Rule {
        replica,
        here,
        everywhere,
        until: None,
        floor: Some(Range::identifier(&reply["floor"])),
    }
}

async fn retire_and_restore(
    database: &TestDatabase,
    stage: &Stage,
    clients: &[Client],
    replica: usize,
) -> [Rule; 2] {
    change(&clients[replica], Method::DELETE, "", None).await;
    let here = Instant::now();
    let everywhere = here + REFRESH;
    tokio::time::sleep_until(everywhere.into()).await;
    // The restore ends the rule, and comes from another replica than the retirement.
    stage.goes_on().await;
    let until = Instant::now();
    let restorer = (replica + 1) % N_REPLICAS;
    let reply = change(&clients[restorer], Method::POST, "/restore", None).await;
    let restored = Instant::now();
    assert_eq!(reply["restored"], true, "{reply}");
    let floor = match stage.key {
        None => Range::identifier(&reply["high_water_mark"]),
        Some(key) => {
            let query = format!("SELECT floor FROM counter WHERE period = '{key}'");
            database.number(&query).await.expect("its counter")
        }
    };
    stage.goes_on().await;
    [
        Rule {
            replica,
            here,
            everywhere,
            until: Some(until),
            floor: None,
        },
        Rule {
            replica: restorer,
            here: restored,
            everywhere: restored,
            until: None,
            floor: Some(floor),
        },
    ]
}

async fn change(client: &Client, method: Method, action: &str, body: Option<&Value>) -> Value {
    let path = format!("/v1/sequences/floors{action}");
    let body = body.map(|body| body.to_string().into_bytes());
    let headers: &[(&str, &str)] = match body {
        Some(_) => &[("content-type", "application/json")],
        None => &[],
    };
    let reply = client.send(method, &path, headers, body).await;
    let reply = reply.expect("a reply");
    assert!(matches!(reply.status, 200 | 204), "{path}: {reply:?}");
    if reply.body.is_empty() {
        Value::Null
    } else {
        reply.json()
    }
}

/// Converts an RFC 3339 time of this machine's clock to a moment.
fn moment(time: &Value) -> Instant {
    let time: jiff::Timestamp = time
        .as_str()
        .and_then(|time| time.parse().ok())
        .unwrap_or_else(|| panic!("not a time: {time}"));
    let left = SystemTime::from(time).duration_since(SystemTime::now());
    Instant::now() + left.unwrap_or_default()
}

/// Lists the numbers that were issued although a rule forbade them.
fn broken(rules: &[Rule], calls: &[Call]) -> Vec<String> {
    let mut broken = Vec::new();
    for (n_rule, rule) in rules.iter().enumerate() {
        for call in calls {
            let from = if call.replica == rule.replica {
                rule.here
            } else {
                rule.everywhere
            };
            let applies = call.sent > from && rule.until.is_none_or(|until| call.answered < until);
            let floor = rule.floor.unwrap_or(i64::MAX);
            if let Some(below) = call.ranges.iter().find(|range| range.first < floor)
                && applies
            {
                let late = call.sent - from;
                let replica = call.replica;
                broken.push(format!(
                    "rule {n_rule}: {below:?} below {floor} at replica {replica}, {late:?} late"
                ));
            }
        }
    }
    broken.truncate(10);
    broken
}

impl Stage {
    /// Waits until the callers have made `MIN_CALLS` more calls.
    async fn goes_on(&self) {
        let wanted = self.n_calls.load(Ordering::Relaxed) + MIN_CALLS;
        wait::until("calls are answered", Duration::from_secs(30), async || {
            (self.n_calls.load(Ordering::Relaxed) >= wanted).then_some(())
        })
        .await;
    }
}

async fn call_until_over(stage: Arc<Stage>, client: Client, replica: usize) {
    while !stage.over.load(Ordering::Relaxed) {
        let n = dice::roll(1..=MAX_AT_ONCE);
        let of_period = stage
            .key
            .map_or(String::new(), |key| format!("&period={key}"));
        let path = match dice::roll(0..4) {
            0 => format!("/v1/sequences/floors/blocks?size={n}{of_period}"),
            1 => format!("/v1/sequences/floors/next?ids=false&count={n}{of_period}"),
            _ => format!("/v1/sequences/floors/next{}", of_period.replace('&', "?")),
        };
        let sent = Instant::now();
        match client.ask(&path).await {
            Answer::Given(ranges) => stage.calls.lock().expect("nobody panics").push(Call {
                replica,
                sent,
                answered: Instant::now(),
                ranges,
            }),
            Answer::Refused(reply) if reply.code().as_deref() == Some("sequence_retired") => {}
            Answer::Refused(reply) => stage.refuse(format!("{path}: {reply:?}")),
            Answer::NoReply(error) => stage.refuse(format!("{path}: {error:?}")),
        }
        stage.n_calls.fetch_add(1, Ordering::Relaxed);
        // Each caller makes at most a hundred calls a second, which leaves processor time for the
        // program.
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

impl Stage {
    fn refuse(&self, refusal: String) {
        self.refusals.lock().expect("nobody panics").push(refusal);
    }
}
