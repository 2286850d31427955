//! Checks that `explain` says only what is true, in a run with kills, stops and callers that hang
//! up.

use std::{
    collections::{BTreeMap, HashSet},
    sync::{
        Arc, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::support::{
    Answer, Backend, Client, Ledger, Options, Program, Range, TestDatabase, dice, for_each_backend,
    settings, wait,
};

const N_CALLERS: usize = 8;
const N_SEQUENCES: usize = 4;
/// How many numbers are issued between two faults.
const BETWEEN_FAULTS: u64 = 1_000;
/// The most numbers that one call asks for.
const MAX_AT_ONCE: u64 = 20;
/// The distance from the high-water mark within which most held and returned numbers lie.
const NEAR: i64 = 400;
const LIMIT: Duration = Duration::from_secs(60);
/// Names with one history each, in addition to those of the run.
const HELD: &str = "still-held";
const RETURNED: &str = "given-back";
const LOST: &str = "died-with-its-holder";

for_each_backend!(explain_never_says_what_is_not_so);

async fn explain_never_says_what_is_not_so(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let outcome = explained(&database, &Program::options()).await;
    assert_eq!(outcome.not_so, Vec::<String>::new());
    let n_asked_at_once = outcome.n_asked_at_once;
    println!(
        "{backend:?}: {n_asked_at_once} asked at once, {:?}",
        outcome.n_said
    );
    assert!(n_asked_at_once >= 20, "vacuous: {n_asked_at_once}");
    let mut wanted = vec![
        ("not_reserved, not given", 5),
        ("held, not given", 20),
        ("issued_or_lost, given", 30),
        ("issued_or_lost, not given", 10),
    ];
    if backend != Backend::Sqlite {
        wanted.push(("returned, not given", 10));
    }
    for (said, least) in wanted {
        let n_said = outcome.n_said.get(said).copied().unwrap_or_default();
        assert!(n_said >= least, "vacuous: {n_said} × {said}");
    }
}

for_each_backend!(an_explanation_that_guesses_is_found_out);

async fn an_explanation_that_guesses_is_found_out(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let options = Program::options().without_guards("explain-guesses");
    let outcome = explained(&database, &options).await;
    let is_guess = |claim: &String| claim.contains("said to be issued,");
    assert!(
        outcome.not_so.iter().any(is_guess),
        "the check finds nothing: {:?}",
        outcome.n_said
    );
}

#[derive(Default)]
struct Outcome {
    /// Claims that are wrong.
    not_so: Vec<String>,
    /// How many questions were about a number that was issued a moment ago.
    n_asked_at_once: usize,
    n_said: BTreeMap<String, usize>,
}

/// One claim about one number.
struct Said {
    sequence: String,
    value: i64,
    fate: String,
}

async fn explained(database: &TestDatabase, options: &Options) -> Outcome {
    let options = options
        .clone()
        .database(&database.url)
        .env("ODOMETER_DEFAULT__BLOCK__MIN", 20)
        .env("ODOMETER_DEFAULT__BLOCK__MAX", 100);
    let mut run = Run::start(database, options).await;
    for round in 0..settings::at_size(4, 40) {
        run.wait_for_load().await;
        if round % 3 == 2 {
            run.stop_and_replace(0).await;
        } else {
            run.kill_and_replace(0).await;
        }
    }
    let (ledger, calls) = run.end_of_calls().await;
    let ledger = run.tell_stories(ledger).await;
    run.let_the_living_beat().await;

    let mut outcome = Outcome {
        not_so: calls.not_so,
        n_asked_at_once: calls.n_asked_at_once,
        n_said: BTreeMap::new(),
    };
    let mut said = Vec::new();
    let clients: Vec<Client> = run.programs.iter().map(Program::client).collect();
    for (sequence, value) in run.questions().await {
        let client = &clients[dice::roll(0..clients.len())];
        let fate = ask(client, &sequence, value).await;
        said.push(Said {
            sequence,
            value,
            fate,
        });
    }
    let marks = run.high_water_marks().await;
    for claim in &said {
        let is_given = ledger
            .given(&claim.sequence)
            .iter()
            .any(|range| range.values().contains(&claim.value));
        let given = if is_given { "given" } else { "not given" };
        let key = format!("{}, {given}", claim.fate);
        *outcome.n_said.entry(key).or_default() += 1;
        outcome.note(claim, is_given, marks[&claim.sequence]);
    }
    // Numbers that live replicas still hold become visible when the replicas stop.
    let rests = run.stop_all().await;
    for claim in &said {
        let is_left = rests.contains(&(claim.sequence.clone(), claim.value));
        if is_left && ["issued_or_lost", "issued", "abandoned"].contains(&&*claim.fate) {
            outcome
                .not_so
                .push(claim.called("and was given back since"));
        }
    }
    outcome
}

impl Said {
    fn called(&self, but: &str) -> String {
        let Self {
            sequence,
            value,
            fate,
        } = self;
        format!("{value} of {sequence} was said to be {fate}, {but}")
    }
}

impl Outcome {
    /// Adds the claim to `not_so` if it is wrong. `mark` was read after the claim, so the numbers
    /// from
    /// `mark` on were not reserved at the time of the claim.
    fn note(&mut self, claim: &Said, is_given: bool, mark: i64) {
        let is_free = claim.value >= mark;
        let wrong = match claim.fate.as_str() {
            "not_reserved" | "returned" | "abandoned" if is_given => Some("but a caller has it"),
            "issued" if !is_given => Some("but nobody was given it"),
            "not_reserved" if claim.value < mark - NEAR => Some("but lies far below the mark"),
            "not_reserved" => None,
            _ if is_free => Some("but nobody has reserved it"),
            _ => None,
        };
        self.not_so.extend(wrong.map(|but| claim.called(but)));
    }
}

async fn ask(client: &Client, sequence: &str, value: i64) -> String {
    let path = format!("/v1/sequences/{sequence}/explain?id={value}");
    let reply = client.get(&path).await.expect("a reply");
    assert_eq!(reply.status, 200, "{reply:?}");
    let reply = reply.json();
    assert_eq!(Range::identifier(&reply["value"]), value);
    let fate = reply["fate"].as_str().expect("a fate").to_owned();
    let has_row = !matches!(fate.as_str(), "not_reserved" | "no_record");
    for field in ["holder", "reserved_at", "block"] {
        assert_eq!(reply[field].is_null(), !has_row, "{reply}");
    }
    fate
}

/// One start of a replica, from the callers' view.
struct Incarnation {
    client: Client,
    is_ending: AtomicBool,
}

struct Stage {
    replicas: Vec<RwLock<Arc<Incarnation>>>,
    n_given: AtomicU64,
    over: AtomicBool,
}

struct Run<'a> {
    database: &'a TestDatabase,
    options: Options,
    programs: Vec<Program>,
    stage: Arc<Stage>,
    callers: Vec<tokio::task::JoinHandle<(Ledger, Outcome)>>,
}

impl<'a> Run<'a> {
    async fn start(database: &'a TestDatabase, options: Options) -> Self {
        let mut programs = Vec::new();
        for _ in 0..database.backend.replicas(3) {
            programs.push(options.start_ready().await);
        }
        let replicas = programs.iter().map(|p| RwLock::new(incarnation(p)));
        let stage = Arc::new(Stage {
            replicas: replicas.collect(),
            n_given: AtomicU64::new(0),
            over: AtomicBool::new(false),
        });
        let callers = (0..N_CALLERS).map(|_| tokio::spawn(call_until_over(Arc::clone(&stage))));
        Self {
            database,
            options,
            programs,
            callers: callers.collect(),
            stage,
        }
    }

    async fn wait_for_load(&self) {
        let before = self.stage.n_given.load(Ordering::Relaxed);
        wait::until("numbers are given", LIMIT, async || {
            let now = self.stage.n_given.load(Ordering::Relaxed);
            (now >= before + BETWEEN_FAULTS).then_some(())
        })
        .await;
    }

    async fn kill_and_replace(&mut self, replica: usize) {
        self.stage.end(replica);
        self.programs[replica].kill();
        self.programs[replica] = self.options.start_ready().await;
        self.stage.replace(replica, &self.programs[replica]);
    }

    async fn stop_and_replace(&mut self, replica: usize) {
        self.stage.end(replica);
        // The order of the replicas does not matter, so the new one comes last.
        self.programs.swap_remove(replica).stop().await;
        self.programs.push(self.options.start_ready().await);
        for (at, program) in self.programs.iter().enumerate() {
            self.stage.replace(at, program);
        }
    }

    async fn end_of_calls(&mut self) -> (Ledger, Outcome) {
        self.stage.over.store(true, Ordering::Relaxed);
        let mut ledger = Ledger::default();
        let mut outcome = Outcome::default();
        for caller in self.callers.drain(..) {
            let (given, told) = caller.await.expect("a caller does not panic");
            ledger.merge(given);
            outcome.not_so.extend(told.not_so);
            outcome.n_asked_at_once += told.n_asked_at_once;
        }
        (ledger, outcome)
    }

    /// Makes three histories: a block that a live replica holds, a block that was returned, and a
    /// block that was lost with its holder.
    async fn tell_stories(&mut self, mut ledger: Ledger) -> Ledger {
        let mut take = async |program: &Program, name: &str| {
            let value = program.client().next(name).await;
            ledger.record(name, &[Range::single(value)]);
        };
        let dying = self.programs.last().expect("one lives");
        take(dying, LOST).await;
        wait::until("its row is written", LIMIT, async || {
            let journal = self.database.journal(LOST).await;
            journal.iter().any(|row| row.fate == "held").then_some(())
        })
        .await;
        let mut dying = self.programs.pop().expect("one lives");
        dying.kill();
        // This heartbeat is older than any allowed silence.
        self.database
            .execute(&format!(
                "UPDATE replica SET beat_at = 0 WHERE holder IN \
                 (SELECT holder FROM block WHERE sequence = '{LOST}')"
            ))
            .await;
        let stopping = self.options.start_ready().await;
        take(&stopping, RETURNED).await;
        stopping.stop().await;
        if self.programs.is_empty() {
            self.programs.push(self.options.start_ready().await);
        }
        take(&self.programs[0], HELD).await;
        ledger
    }

    /// Makes sure that each live replica has a row in `replica`.
    async fn let_the_living_beat(&self) {
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed();
        let now = now.expect("it is later than 1970").as_millis();
        for (at, program) in self.programs.iter().enumerate() {
            let client = program.client();
            let name = format!("lives-{at}");
            let value = client.next(&name).await;
            let path = format!("/v1/sequences/{name}/explain?id={value}");
            let reply = client.get(&path).await.expect("a reply").json();
            let holder = reply["holder"].as_str().expect("it is held").to_owned();
            let known = format!("SELECT COUNT(*) FROM replica WHERE holder = '{holder}'");
            if self.database.number(&known).await == Some(0) {
                let beat = format!(
                    "INSERT INTO replica (holder, beat, beat_at) VALUES ('{holder}', 1, {now})"
                );
                self.database.execute(&beat).await;
            }
        }
    }

    async fn high_water_marks(&self) -> BTreeMap<String, i64> {
        let mut marks = BTreeMap::new();
        for sequence in names() {
            let mark = self.database.next_value(&sequence).await;
            marks.insert(sequence, mark.expect("it was used"));
        }
        marks
    }

    /// Returns random numbers of all sequences, half of them near the high-water mark. Adds all
    /// numbers of the three histories.
    async fn questions(&self) -> Vec<(String, i64)> {
        let marks = self.high_water_marks().await;
        let mut questions = Vec::new();
        for n in 0..settings::at_size(300, 1_000) {
            let sequence = name(dice::roll(0..N_SEQUENCES));
            let mark = marks[&sequence];
            let from = if n % 2 == 0 { 1 } else { (mark - NEAR).max(1) };
            questions.push((sequence, dice::roll(from..mark + NEAR / 4)));
        }
        for story in [HELD, RETURNED, LOST] {
            let all = 1..marks[story] + 2;
            questions.extend(all.map(|value| (story.to_owned(), value)));
        }
        questions
    }

    /// Stops all replicas, and returns every number that they returned to the store.
    async fn stop_all(self) -> HashSet<(String, i64)> {
        for program in self.programs {
            program.stop().await;
        }
        let mut rests = HashSet::new();
        for sequence in names() {
            for row in self.database.journal(&sequence).await {
                if row.fate == "returned" {
                    let rest = row.next_unissued..=row.last;
                    rests.extend(rest.map(|value| (sequence.clone(), value)));
                }
            }
        }
        rests
    }
}

fn names() -> Vec<String> {
    let stories = [HELD, RETURNED, LOST].map(str::to_owned);
    (0..N_SEQUENCES).map(name).chain(stories).collect()
}

fn name(number: usize) -> String {
    format!("explained-{number}")
}

fn incarnation(program: &Program) -> Arc<Incarnation> {
    Arc::new(Incarnation {
        client: program.client(),
        is_ending: AtomicBool::new(false),
    })
}

impl Stage {
    fn current(&self, replica: usize) -> Arc<Incarnation> {
        let current = self.replicas[replica].read();
        Arc::clone(&current.expect("nobody panics with it"))
    }

    fn end(&self, replica: usize) {
        let current = self.current(replica);
        current.is_ending.store(true, Ordering::SeqCst);
    }

    fn replace(&self, replica: usize, by: &Program) {
        let current = self.replicas[replica].write();
        *current.expect("nobody panics with it") = incarnation(by);
    }
}

async fn call_until_over(stage: Arc<Stage>) -> (Ledger, Outcome) {
    let mut ledger = Ledger::default();
    let mut outcome = Outcome::default();
    while !stage.over.load(Ordering::Relaxed) {
        let replica = stage.current(dice::roll(0..stage.replicas.len()));
        if replica.is_ending.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(1)).await;
            continue;
        }
        let sequence = name(dice::roll(0..N_SEQUENCES));
        let n = dice::roll(1..=MAX_AT_ONCE);
        let path = match dice::roll(0..4) {
            0 | 1 => format!("/v1/sequences/{sequence}/next"),
            2 => format!("/v1/sequences/{sequence}/next?count={n}"),
            _ => format!("/v1/sequences/{sequence}/blocks?size={n}"),
        };
        // One call in five hangs up before its reply can be there, or just when the reply comes.
        let patience = if dice::roll(0..5) == 0 {
            Duration::from_micros(dice::roll(0..2_000))
        } else {
            LIMIT
        };
        let answer = tokio::time::timeout(patience, replica.client.ask(&path)).await;
        if let Ok(Answer::Given(ranges)) = answer {
            let n_given = ranges.iter().map(|range| range.count).sum();
            stage.n_given.fetch_add(n_given, Ordering::Relaxed);
            ledger.record(&sequence, &ranges);
            if dice::roll(0..10) == 0 {
                let last = ranges.last().expect("numbers were given").last();
                stage.ask_at_once(&sequence, last, &mut outcome).await;
            }
        }
    }
    (ledger, outcome)
}

impl Stage {
    /// Asks any replica about a number that a caller has just got. A replica that is ending need
    /// not answer.
    async fn ask_at_once(&self, sequence: &str, value: i64, outcome: &mut Outcome) {
        let replica = self.current(dice::roll(0..self.replicas.len()));
        let path = format!("/v1/sequences/{sequence}/explain?id={value}");
        let Ok(reply) = replica.client.get(&path).await else {
            return;
        };
        if reply.status != 200 {
            return;
        }
        outcome.n_asked_at_once += 1;
        let reply = reply.json();
        let claim = Said {
            sequence: sequence.to_owned(),
            value,
            fate: reply["fate"].as_str().expect("a fate").to_owned(),
        };
        if ["not_reserved", "returned", "abandoned"].contains(&claim.fate.as_str()) {
            outcome
                .not_so
                .push(claim.called("but a caller had just been given it"));
        }
    }
}
