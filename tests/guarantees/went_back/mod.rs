//! An older dump is restored under two live replicas. They notice the loss and refuse. After
//! `odometer recover` has run, they go on above all numbers.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use reqwest::Method;
use serde_json::{Value, json};

use notes::{Notes, Outcome};

use crate::support::{
    Answer, Backend, Client, Dump, Options, Program, Scrape, TestDatabase, for_each_backend,
    for_each_server, settings, wait,
};

mod notes;

/// The limit for events that take two polls of a second each.
const LIMIT: Duration = Duration::from_secs(90);
/// The names that both replicas use all the time.
const BUSY: [&str; 3] = ["busy-0", "busy-1", "busy-2"];
/// The start of the names with a block that is returned in the dump, and that the first replica
/// then adopts.
const ADOPTED: &str = "adopted-";
/// The start of the names that are unloaded when the dump is restored.
const UNLOADED: &str = "unloaded-";
/// How many steps `recover` skips. This is above all that is reserved in one round.
const SKIP: u64 = 1_000_000;
/// Lets heartbeats and counters alone show what was lost.
const NO_STAMP: &str = "no-stamp";
/// The size of a block that is returned.
const BLOCK: u64 = 50;

for_each_server!(a_restored_dump_repeats_no_number_before_and_after_recovery);

async fn a_restored_dump_repeats_no_number_before_and_after_recovery(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    repeats_nothing(&database, &options(&database)).await;
}

for_each_server!(heartbeats_alone_show_that_a_dump_was_restored);

/// On PostgreSQL and MariaDB, the stamp shows that, too.
async fn heartbeats_alone_show_that_a_dump_was_restored(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let options = options(&database).without_guards(NO_STAMP);
    repeats_nothing(&database, &options).await;
}

async fn repeats_nothing(database: &TestDatabase, options: &Options) {
    let n_rounds = settings::at_size(2, 20);
    let outcome = rounds(database, options, n_rounds, true).await;
    assert_eq!(outcome.unexpected, BTreeMap::new());
    assert_eq!(outcome.ledger.n_duplicates(), 0, "{outcome:?}");
    assert!(outcome.n_went_back >= 20 * n_rounds, "vacuous: {outcome:?}");
    let n_given = outcome.ledger.n_numbers();
    assert!(n_given >= 1000 * n_rounds, "vacuous: {n_given} numbers");
    println!(
        "{:?}: {n_rounds} rounds, {n_given} numbers, {} refusals",
        database.backend, outcome.n_went_back
    );
}

for_each_server!(without_its_checks_a_restored_dump_repeats_numbers);

async fn without_its_checks_a_restored_dump_repeats_numbers(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let options = options(&database).without_guards("no-went-back-checks");
    let outcome = rounds(&database, &options, 1, false).await;
    assert!(
        outcome.ledger.n_duplicates() > 0,
        "the check finds nothing: {outcome:?}"
    );
}

for_each_server!(a_recovery_that_keeps_returned_blocks_repeats_numbers);

async fn a_recovery_that_keeps_returned_blocks_repeats_numbers(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let options = options(&database).without_guards("recover-keeps-returned,no-stamp");
    let outcome = rounds(&database, &options, 1, true).await;
    let twice = outcome.twice();
    let has = |prefix: &str| twice.keys().any(|name| name.starts_with(prefix));
    assert!(has(ADOPTED), "nothing is found: {twice:?}");
    // On a slow machine the other name is also unloaded before the dump, and its block returned.
    let is_returned = |name: &String| name.starts_with(ADOPTED) || name.starts_with(UNLOADED);
    assert!(twice.keys().all(is_returned), "{twice:?}");
}

for_each_server!(a_replica_whose_row_is_gone_refuses_names_it_never_used);

async fn a_replica_whose_row_is_gone_refuses_names_it_never_used(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    // With this option a used name stays in memory, no matter how long the rest takes.
    let program = options(&database)
        .env("ODOMETER_IDLE__UNLOAD", "1h")
        .start_ready()
        .await;
    let client = program.client();
    assert_eq!(client.next("used").await, 1);
    // A poll may raise the row at any moment, but never creates it again.
    database.execute("DELETE FROM replica").await;
    assert_eq!(refusal(&client, "never-used").await, "store_went_back");
    let defined = client.put("/v1/sequences/never-defined", &json!({})).await;
    let code = defined.expect("a reply").code();
    assert_eq!(code.as_deref(), Some("store_went_back"));
    // Numbers in memory were reserved before.
    assert_eq!(client.next("used").await, 2);
    assert_eq!(went_back_metric(&client).await, 1.0);
    assert_eq!(database.next_value("never-used").await, None);
    assert_eq!(
        count_in(&program.log(), "the store went back to an earlier state"),
        1
    );

    recover(&options(&database), 10);
    serves_again(&client, "never-used").await;
    // A name that is created after a recovery may have been there before it.
    assert_eq!(
        database.next_value("never-used").await.map(|n| n > 11),
        Some(true)
    );
    assert_eq!(went_back_metric(&client).await, 0.0);
    program.stop().await;
}

for_each_server!(a_change_just_after_a_recovery_reaches_every_replica);

async fn a_change_just_after_a_recovery_reaches_every_replica(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    // Memory has more numbers than are taken before the poll reports the change.
    let options = Program::options()
        .database(&database.url)
        .env("ODOMETER_DEFINITION_REFRESH", "4s")
        .env("ODOMETER_DEFAULT__BLOCK__MIN", 1_000_000)
        .env("ODOMETER_DEFAULT__BLOCK__MAX", 1_000_000);
    let (here, there) = (options.start_ready().await, options.start_ready().await);
    assert_eq!(here.client().next("orders").await, 1);
    assert_eq!(there.client().next("orders").await, 1_000_001);
    assert_eq!(here.client().next("retired").await, 1);
    assert_eq!(there.client().next("retired").await, 1_000_001);

    recover(&options, 10);
    let body = json!({"floor": "1500000"}).to_string().into_bytes();
    let headers = [("content-type", "application/json")];
    let path = "/v1/sequences/orders/advance";
    let administrator = here.client();
    let advanced = administrator.send(Method::POST, path, &headers, Some(body));
    let advanced = advanced.await.expect("a reply");
    assert_eq!(advanced.status, 200, "{advanced:?}");
    let path = "/v1/sequences/retired";
    let retired = administrator.send(Method::DELETE, path, &[], None).await;
    assert_eq!(retired.expect("a reply").status, 204);

    let client = there.client();
    wait::until("the floor holds there", LIMIT, async || {
        (client.next("orders").await >= 1_500_000).then_some(())
    })
    .await;
    wait::until("the retirement holds there", LIMIT, async || {
        let reply = client.post("/v1/sequences/retired/next").await;
        (reply.expect("a reply").status == 410).then_some(())
    })
    .await;
}

for_each_server!(too_small_a_recovery_keeps_refusing_the_names_concerned);

async fn too_small_a_recovery_keeps_refusing_the_names_concerned(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let options = options(&database).without_guards(NO_STAMP);
    let program = options.start_ready().await;
    let client = program.client();
    client.next("little").await;
    client.next("much").await;
    let dump = database.dump();
    next_beats(&database).await;
    client.next("gone").await;
    for name in ["much", "gone"] {
        take(&client, name, 5_000).await;
    }
    database.restore(&dump);
    for name in ["little", "much", "gone"] {
        refuses(&client, name).await;
    }
    recover(&options, 1_000);
    serves_again(&client, "little").await;
    for name in ["much", "gone"] {
        refuses(&client, name).await;
        assert_eq!(went_back_metric(&client).await, 1.0);
    }
    assert!(program.log().contains("larger --skip"), "{}", program.log());
    recover(&options, 100_000);
    for name in ["much", "gone"] {
        assert!(serves_again(&client, name).await > 5_000, "{name}");
    }
    wait::until("the recovery is seen", LIMIT, async || {
        (went_back_metric(&client).await == 0.0).then_some(())
    })
    .await;
    program.stop().await;
}

for_each_backend!(a_dry_recovery_changes_nothing);

async fn a_dry_recovery_changes_nothing(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let options = options(&database);
    let program = options.start_ready().await;
    let client = program.client();
    client
        .define("short", &json!({"step": 3, "max": 1_000}))
        .await;
    client.next("short").await;
    client.next("orders").await;
    program.stop().await;
    let before = everything(&database).await;
    let short = database.next_value("short").await.expect("it was used");
    let dry = options.run(&["recover", "--skip", "1000", "--dry-run"]);
    assert_eq!(dry.code, Some(0), "{dry}");
    assert_eq!(everything(&database).await, before);

    let wet = options.run(&["recover", "--yes", "--skip", "1000"]);
    assert_eq!(wet.code, Some(0), "{wet}");
    let lines = |text: &str| -> Vec<String> {
        let lines: Vec<&str> = text.lines().collect();
        // The last two lines say what to do now.
        lines[..lines.len() - 2]
            .iter()
            .map(|&line| line.to_owned())
            .collect()
    };
    assert_eq!(lines(&dry.output), lines(&wet.output));
    for said in [
        "2 sequences go on 1000 steps further",
        "the highest rise is 3000, of short",
        "1 sequences end before that",
        "\n  short\n",
        "returned blocks with ",
        "are given up",
    ] {
        assert!(wet.output.contains(said), "{said}: {wet}");
    }
    assert_eq!(database.next_value("short").await, Some(short + 3_000));
    assert_ne!(everything(&database).await, before);
    // The lost state may have had a higher `max`. If `max` is raised again, the sequence goes on
    // above all numbers that it can have issued.
    let program = options.start_ready().await;
    let client = program.client();
    let exhausted = client.post("/v1/sequences/short/next").await;
    let exhausted = exhausted.expect("a reply");
    assert_eq!(exhausted.code().as_deref(), Some("sequence_exhausted"));
    client.define("short", &json!({"max": 10_000})).await;
    assert_eq!(client.next("short").await, short + 3_000);
    program.stop().await;
    for (loss, code, said) in [
        (&["--yes"][..], 78, "its stamp fits, as if it"),
        (&["--yes", "--skip", "0"][..], 2, "--skip: give N"),
    ] {
        let refused = options.run(&[&["recover"], loss].concat());
        assert_eq!(refused.code, Some(code), "{refused}");
        assert!(refused.errors.contains(said), "{refused}");
    }
}

fn options(database: &TestDatabase) -> Options {
    Program::options()
        .database(&database.url)
        .env("ODOMETER_DEFINITION_REFRESH", "1s")
        .env("ODOMETER_IDLE__PARK", "1s")
        .env("ODOMETER_IDLE__UNLOAD", "1s")
        .env("ODOMETER_DEFAULT__BLOCK__MIN", BLOCK)
        .env("ODOMETER_DEFAULT__BLOCK__MAX", 2 * BLOCK)
}

/// Runs rounds of these steps: dump, serve on, restore under both replicas, recover, serve.
async fn rounds(
    database: &TestDatabase,
    options: &Options,
    n_rounds: u64,
    notices: bool,
) -> Outcome {
    let notes = Arc::new(Notes::default());
    for _ in 0..n_rounds {
        round(database, options, &notes, notices).await;
    }
    let notes = Arc::into_inner(notes).expect("all callers have ended");
    notes.outcome.into_inner().expect("nobody panics with it")
}

/// The names of one round, which no process of an earlier round knows.
struct Names {
    /// A name that the first replica uses before and after the dump. It is unloaded when the dump
    /// is restored.
    unloaded: String,
    /// A name with a block that is returned in the dump, and that the first replica then adopts.
    adopted: String,
    /// A name that is created after the dump, and that the first replica uses.
    created_later: String,
    /// A name that nobody uses before the restore.
    fresh: String,
}

impl Names {
    fn new() -> Self {
        let name = |what: &str| format!("{what}{}", uuid::Uuid::new_v4().simple());
        Self {
            unloaded: name(UNLOADED),
            adopted: name(ADOPTED),
            created_later: name("created-later-"),
            fresh: name("fresh-"),
        }
    }

    fn all(&self) -> impl Iterator<Item = &str> {
        let own = [
            &self.unloaded,
            &self.adopted,
            &self.created_later,
            &self.fresh,
        ];
        BUSY.into_iter().chain(own.map(String::as_str))
    }
}

async fn round(database: &TestDatabase, options: &Options, notes: &Arc<Notes>, notices: bool) {
    let names = Names::new();
    let programs = [options.start_ready().await, options.start_ready().await];
    let clients = programs.each_ref().map(Program::client);
    notes.is_over.store(false, Ordering::SeqCst);
    let callers: Vec<_> = clients
        .iter()
        .flat_map(|client| BUSY.map(|name| (client.clone(), name)))
        .map(|(client, name)| tokio::spawn(call_until_over(client, name, Arc::clone(notes))))
        .collect();
    notes.call(&clients[0], &names.unloaded, "next").await;
    return_a_block(options, notes, &names.adopted).await;
    serve_some(notes, 300).await;
    let returned = rests_with_fate(database, &names.adopted, "returned").await;
    assert!(!returned.is_empty(), "vacuous: nothing was returned");

    let dump = database.dump();
    next_beats(database).await;
    serve_some(notes, 300).await;
    for path in ["next", "next?count=70"] {
        for name in [&names.adopted, &names.unloaded, &names.created_later] {
            notes.call(&clients[0], name, path).await;
        }
    }
    let adopted = rests_with_fate(database, &names.adopted, "adopted").await;
    assert!(
        returned.iter().any(|row| adopted.contains(row)),
        "vacuous: what was returned was not adopted"
    );
    wait_until_unloaded(database, &names.unloaded).await;
    restore(database, &dump, &clients, notes, notices).await;

    for client in &clients {
        for name in names.all() {
            until_it_refuses(notes, client, name, notices).await;
        }
    }
    notes.end_restore();
    if notices {
        recover(options, SKIP);
    }
    for client in &clients {
        for name in names.all() {
            until_it_serves(notes, client, name).await;
        }
    }
    // The replica that never used the name adopts what was returned, if it may.
    for _ in 0..4 {
        notes
            .call(&clients[1], &names.adopted, "next?count=40")
            .await;
    }
    serve_some(notes, 300).await;
    notes.is_over.store(true, Ordering::SeqCst);
    for caller in callers {
        caller.await.expect("a caller does not panic");
    }
    for program in programs {
        program.stop().await;
    }
}

/// Restores the dump under replicas that serve.
async fn restore(
    database: &TestDatabase,
    dump: &Dump,
    clients: &[Client],
    notes: &Notes,
    notices: bool,
) {
    notes.begin_restore(notices);
    if database.backend == Backend::MariaDb {
        // MariaDB's restore replaces one table after the other. The replicas must notice the loss
        // before the first table changes.
        database.execute("DELETE FROM replica").await;
    }
    database.restore(dump);
    settle(clients, notices).await;
    notes.is_restoring.store(false, Ordering::SeqCst);
}

async fn until_it_serves(notes: &Notes, client: &Client, name: &str) {
    let what = format!("{name} is served again");
    wait::until(&what, LIMIT, async || {
        let code = notes.call(client, name, "next?count=10").await;
        code.is_none().then_some(())
    })
    .await;
}

/// Returns the first unissued numbers of the blocks of `name` that have this fate.
async fn rests_with_fate(database: &TestDatabase, name: &str, fate: &str) -> Vec<i64> {
    let rows = database.journal(name).await.into_iter();
    let chosen = rows.filter(|row| row.fate == fate);
    chosen.map(|row| row.next_unissued).collect()
}

/// Lets a third replica use a name and stop in order.
async fn return_a_block(options: &Options, notes: &Notes, name: &str) {
    let program = options.start_ready().await;
    let code = notes.call(&program.client(), name, "next").await;
    assert_eq!(code, None);
    program.stop().await;
}

async fn call_until_over(client: Client, name: &'static str, notes: Arc<Notes>) {
    while !notes.is_over.load(Ordering::SeqCst) {
        notes.call(&client, name, "next?count=7").await;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Waits until two replicas have raised their rows, or the only one its row. From then on, they
/// notice for all names that earlier commits are lost.
pub(super) async fn next_beats(database: &TestDatabase) {
    let beats = async || -> Vec<i64> {
        let rows = database
            .query("SELECT beat FROM replica ORDER BY holder")
            .await;
        let beats = rows.iter().map(|row| row.try_get_by_index(0));
        beats.collect::<Result<_, _>>().expect("numbers")
    };
    let before = beats().await;
    wait::until("every row is raised", LIMIT, async || {
        let now = beats().await;
        let n_raised = before
            .iter()
            .zip(&now)
            .filter(|(old, new)| new > old)
            .count();
        (n_raised >= 2.min(before.len())).then_some(())
    })
    .await;
}

/// Waits until `n` more numbers were issued.
async fn serve_some(notes: &Notes, n: u64) {
    let enough = notes.n_given.load(Ordering::Relaxed) + n;
    wait::until("more numbers were given", LIMIT, async || {
        (notes.n_given.load(Ordering::Relaxed) >= enough).then_some(())
    })
    .await;
}

/// Waits until the journal has the rest of an unloaded name.
async fn wait_until_unloaded(database: &TestDatabase, name: &str) {
    wait::until("the name is unloaded", LIMIT, async || {
        let rows = database.journal(name).await;
        rows.iter().all(|row| row.fate != "held").then_some(())
    })
    .await;
}

/// Waits until each replica has met the restored store. After that, no answer comes from tables
/// that were away for a moment.
async fn settle(clients: &[Client], notices: bool) {
    for client in clients {
        wait::until("the replica has met the store", LIMIT, async || {
            let scrape = Scrape::of(client).await;
            let is_up = scrape.sum("odometer_store_up", &[]) == 1.0;
            let noticed = scrape.sum("odometer_store_went_back", &[]) == 1.0;
            (is_up && noticed == notices).then_some(())
        })
        .await;
    }
}

/// Uses up the numbers in memory until the name refuses. If nobody notices the loss, a few numbers
/// are enough.
async fn until_it_refuses(notes: &Notes, client: &Client, name: &str, notices: bool) {
    if !notices {
        for _ in 0..5 {
            notes.call(client, name, "next?count=40").await;
        }
        return;
    }
    let what = format!("{name} refuses");
    // The batches get smaller, so that memory holds nothing in the end.
    for path in ["next?count=40", "next?count=5", "next"] {
        wait::until(&what, LIMIT, async || {
            let code = notes.call(client, name, path).await;
            (code.as_deref() == Some("store_went_back")).then_some(())
        })
        .await;
    }
}

fn recover(options: &Options, n_steps: u64) {
    let finished = options.run(&["recover", "--yes", "--skip", &n_steps.to_string()]);
    assert_eq!(finished.code, Some(0), "{finished}");
}

async fn serves_again(client: &Client, name: &str) -> i64 {
    let what = format!("{name} is served again");
    wait::until(&what, LIMIT, async || {
        match client.ask(&format!("/v1/sequences/{name}/next")).await {
            Answer::Given(ranges) => Some(ranges[0].first),
            Answer::Refused(reply) => {
                assert_eq!(
                    reply.code().as_deref(),
                    Some("store_went_back"),
                    "{reply:?}"
                );
                None
            }
            Answer::NoReply(error) => panic!("{name}: {error}"),
        }
    })
    .await
}

/// Takes all numbers in memory until the name refuses.
async fn refuses(client: &Client, name: &str) {
    let notes = Notes::default();
    until_it_refuses(&notes, client, name, true).await;
}

async fn refusal(client: &Client, name: &str) -> String {
    match client.ask(&format!("/v1/sequences/{name}/next")).await {
        Answer::Refused(reply) => reply.code().unwrap_or(reply.body),
        answer @ (Answer::Given(_) | Answer::NoReply(_)) => panic!("{name}: {answer:?}"),
    }
}

async fn take(client: &Client, name: &str, n_numbers: u64) {
    for _ in 0..n_numbers.div_ceil(90) {
        match client
            .ask(&format!("/v1/sequences/{name}/next?count=90"))
            .await
        {
            Answer::Given(_) => {}
            answer @ (Answer::Refused(_) | Answer::NoReply(_)) => panic!("{name}: {answer:?}"),
        }
    }
}

async fn went_back_metric(client: &Client) -> f64 {
    let scrape = Scrape::of(client).await;
    scrape.sum("odometer_store_went_back", &[])
}

fn count_in(log: &str, text: &str) -> usize {
    log.lines().filter(|line| line.contains(text)).count()
}

/// Returns the contents of the tables that a recovery may change.
async fn everything(database: &TestDatabase) -> Vec<Value> {
    let mut all = Vec::new();
    for name in ["short", "orders"] {
        let row = database
            .query(&format!(
                "SELECT next_value, version, revision, rate FROM counter WHERE sequence = '{name}'"
            ))
            .await;
        let numbers = |at: usize| row[0].try_get_by_index::<i64>(at).expect("a number");
        all.push(json!([numbers(0), numbers(1), numbers(2)]));
        let fates: Vec<String> = database
            .journal(name)
            .await
            .into_iter()
            .map(|row| format!("{} {}", row.first, row.fate))
            .collect();
        all.push(json!(fates));
    }
    let meta = database
        .query("SELECT definitions_version, recovered_skip FROM meta")
        .await;
    let numbers = |at: usize| meta[0].try_get_by_index::<i64>(at).expect("a number");
    all.push(json!([numbers(0), numbers(1)]));
    all
}
