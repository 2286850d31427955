//! A crowd of callers arrives at one name.

use std::time::Duration;

use serde_json::json;

use crate::support::{
    Answer, Backend, Client, Ledger, Options, Program, Range, Scrape, TestDatabase,
    for_each_backend, for_each_server, wait,
};

const N_CALLERS: usize = 1_000;
/// The most reservations for a crowd: one for the first caller, one for all the others, and those
/// ahead of need. With a reservation for each caller there would be a thousand.
const MAX_RESERVATIONS: f64 = 10.0;

for_each_backend!(a_thousand_callers_of_a_new_name_share_its_refills);

async fn a_thousand_callers_of_a_new_name_share_its_refills(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let program = patient().database(&database.url).start_ready().await;
    let client = program.client();
    let mut ledger = Ledger::default();
    for answer in crowd(&database, &client, &singles()).await {
        ledger.record("crowd", &given(answer));
    }

    assert_eq!(ledger.n_numbers(), 1_000);
    // The numbers follow each other from the first on: none is repeated, and none is lost.
    assert_eq!(ledger.gaps("crowd", Range::between(1, 1_000)), []);
    let scrape = Scrape::of(&client).await;
    let n_reservations = n_reservations(&scrape);
    assert!(
        (1.0..=MAX_RESERVATIONS).contains(&n_reservations),
        "{n_reservations} reservations for {N_CALLERS} callers"
    );
    assert_eq!(scrape.n_reservations("conflict"), 0.0);
    assert_eq!(scrape.n_abandoned(), 0.0);
    assert!(database.next_value("crowd").await > Some(1_000));
    program.stop().await;
}

for_each_backend!(a_thousand_callers_who_want_blocks_share_their_writes);

async fn a_thousand_callers_who_want_blocks_share_their_writes(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let program = patient().database(&database.url).start_ready().await;
    let client = program.client();
    let sizes: Vec<i64> = (1..=20).cycle().take(N_CALLERS).collect();
    let answers = crowd(&database, &client, &blocks(&sizes)).await;

    let mut ledger = Ledger::default();
    for (answer, size) in answers.into_iter().zip(&sizes) {
        let block = given(answer);
        assert_eq!(block.len(), 1, "{block:?}");
        assert_eq!(i64::try_from(block[0].count), Ok(*size));
        ledger.record("crowd", &block);
    }
    let n_numbers: i64 = sizes.iter().sum();
    let whole = Range::between(1, n_numbers);
    assert_eq!(ledger.n_duplicates(), 0);
    assert_eq!(ledger.gaps("crowd", whole), []);
    let scrape = Scrape::of(&client).await;
    let n_reservations = n_reservations(&scrape);
    assert!(
        (1.0..=MAX_RESERVATIONS).contains(&n_reservations),
        "{n_reservations} reservations for {N_CALLERS} callers"
    );
    assert_eq!(scrape.n_abandoned(), 0.0);
    program.stop().await;
    // Each caller has a row of its own, no matter which callers shared the write.
    let journal = database.journal("crowd").await;
    let n_handed_over = journal.iter().filter(|row| row.fate == "spent").count();
    assert_eq!(n_handed_over, N_CALLERS);
}

for_each_backend!(callers_who_want_much_of_what_is_left_are_served_one_by_one);

async fn callers_who_want_much_of_what_is_left_are_served_one_by_one(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let program = patient().database(&database.url).start_ready().await;
    let client = program.client();
    // A block may have 100 numbers at first, and 99 when the others come.
    let few = json!({"max": 409_600});
    client.define("crowd", &few).await;
    let sizes = [40, 40, 40, 100, 40, 99];
    let answers = crowd(&database, &client, &blocks(&sizes)).await;
    let mut ledger = Ledger::default();
    let mut n_refused: u32 = 0;
    for (answer, size) in answers.into_iter().zip(sizes) {
        match answer {
            Answer::Given(block) => ledger.record("crowd", &block),
            Answer::Refused(reply) => {
                assert_eq!(reply.code().as_deref(), Some("invalid_count"), "{reply:?}");
                assert_eq!(size, 100, "{reply:?}");
                n_refused += 1;
            }
            Answer::NoReply(error) => panic!("no reply: {error:?}"),
        }
    }
    // Only the caller who comes first can get the hundred numbers.
    assert!(n_refused <= 1, "{n_refused}");
    let n_reserved = Scrape::of(&client).await.n_reservations("reserved");
    // There may be one more reservation, ahead of need.
    assert!(n_reserved >= f64::from(6 - n_refused), "{n_reserved}");
    assert_eq!(ledger.n_duplicates(), 0);
    assert_eq!(ledger.n_numbers(), 359 - 100 * u64::from(n_refused));
    program.stop().await;
}

for_each_backend!(a_reservation_for_each_caller_is_found_out);

async fn a_reservation_for_each_caller_is_found_out(backend: Backend) {
    for (fault, paths) in [
        ("refill-for-each", singles()),
        ("write-for-each-block", blocks(&[10; N_CALLERS])),
    ] {
        until_each_has_its_own(backend, fault, &paths).await;
    }
}

async fn until_each_has_its_own(backend: Backend, fault: &str, paths: &[String]) {
    let database = TestDatabase::prepared(backend).await;
    let program = patient()
        .without_guards(fault)
        .database(&database.url)
        .start_ready()
        .await;
    let client = program.client();
    // This test does not check the answers. A thousand reservations of one counter prevent each
    // other from ending in time.
    crowd(&database, &client, paths).await;
    // The reservations end one after the other, long after the callers got their answers.
    wait::until(
        "the check finds them",
        Duration::from_secs(60),
        async || {
            let n_reservations = n_reservations(&Scrape::of(&client).await);
            (n_reservations > MAX_RESERVATIONS).then_some(())
        },
    )
    .await;
    program.stop().await;
}

for_each_server!(callers_above_the_bound_who_wait_are_found_out);

/// The control of `a_waiter_beyond_the_bound_is_refused_and_burns_nothing`, which checks the
/// refusals at the directory.
async fn callers_above_the_bound_who_wait_are_found_out(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let program = patient()
        .database(&database.url)
        .env("ODOMETER_LIMITS__WAITERS", 10)
        .without_guards("no-bounds")
        .start_ready()
        .await;
    let client = program.client();
    // All callers wait at the same time.
    crowd(&database, &client, &singles()).await;
    let scrape = Scrape::of(&client).await;
    assert_eq!(scrape.sum("odometer_waiters_refused_total", &[]), 0.0);
}

for_each_server!(replicas_that_use_a_new_name_at_once_create_it_once);

async fn replicas_that_use_a_new_name_at_once_create_it_once(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let options = Program::options().database(&database.url);
    let programs = replicas(&options).await;
    for round in 0..10 {
        let ledger = use_at_once(&programs, &format!("creation-{round}")).await;
        assert_eq!(ledger.n_numbers(), 12);
        assert_eq!(ledger.n_duplicates(), 0, "{ledger:?}");
    }
    let created = "SELECT COUNT(*) FROM sequence WHERE name LIKE 'creation-%'";
    assert_eq!(database.number(created).await, Some(10));
}

for_each_server!(names_that_are_created_again_are_found_out);

async fn names_that_are_created_again_are_found_out(backend: Backend) {
    const MAX_ROUNDS: usize = 100;
    let database = TestDatabase::prepared(backend).await;
    let options = Program::options().database(&database.url);
    let programs =
        replicas(&options.without_guards("creation-overwrites,no-went-back-checks")).await;
    for round in 0..MAX_ROUNDS {
        let ledger = use_at_once(&programs, &format!("creation-{round}")).await;
        if ledger.n_duplicates() > 0 {
            return;
        }
    }
    panic!("no number was given twice in {MAX_ROUNDS} rounds");
}

async fn replicas(options: &Options) -> Vec<Program> {
    let mut programs = Vec::new();
    for _ in 0..3 {
        programs.push(options.start_ready().await);
    }
    programs
}

/// Uses a new name with twelve calls at once, spread over the replicas. Returns the issued numbers.
async fn use_at_once(programs: &[Program], sequence: &str) -> Ledger {
    let path = format!("/v1/sequences/{sequence}/next");
    let clients = programs.iter().map(Program::client).cycle();
    let calls: Vec<_> = clients
        .take(12)
        .map(|client| {
            let path = path.clone();
            tokio::spawn(async move { client.ask(&path).await })
        })
        .collect();
    let mut ledger = Ledger::default();
    for call in calls {
        ledger.record(sequence, &given(call.await.expect("no panic")));
    }
    ledger
}

/// Returns the number of reservations with any outcome. If each caller has a reservation of its
/// own, most of these meet a conflict or the deadline.
fn n_reservations(scrape: &Scrape) -> f64 {
    scrape.sum("odometer_reservations_total", &[])
}

/// Returns options that give a slow machine enough time for a thousand waiters.
fn patient() -> Options {
    Program::options()
        .env("ODOMETER_REFILL__DEADLINE", "25s")
        .env("ODOMETER_STORE__TIMEOUT", "25s")
}

/// Returns one call for each caller, for one number each.
fn singles() -> Vec<String> {
    vec!["/v1/sequences/crowd/next".to_owned(); N_CALLERS]
}

/// Returns calls for blocks of these sizes.
fn blocks(sizes: &[i64]) -> Vec<String> {
    let path = |size: &i64| format!("/v1/sequences/crowd/blocks?size={size}");
    sizes.iter().map(path).collect()
}

/// Makes one call for each path. The store can answer only after all callers wait.
async fn crowd(database: &TestDatabase, client: &Client, paths: &[String]) -> Vec<Answer> {
    let frozen = database.freeze().await;
    let calls: Vec<_> = paths
        .iter()
        .map(|path| {
            let (client, path) = (client.clone(), path.clone());
            tokio::spawn(async move { client.ask(&path).await })
        })
        .collect();
    let n_callers = f64::from(u32::try_from(paths.len()).expect("not that many"));
    wait::until("all wait", Duration::from_secs(20), async || {
        let n_waiting = Scrape::of(client).await.sum("odometer_waiters", &[]);
        (n_waiting >= n_callers).then_some(())
    })
    .await;
    frozen.thaw().await;
    let mut answers = Vec::with_capacity(paths.len());
    for call in calls {
        let answer = tokio::time::timeout(Duration::from_secs(120), call);
        answers.push(answer.await.expect("all are answered").expect("no panic"));
    }
    answers
}

fn given(answer: Answer) -> Vec<Range> {
    match answer {
        Answer::Given(ranges) => ranges,
        Answer::Refused(reply) => panic!("refused: {reply:?}"),
        Answer::NoReply(error) => panic!("no reply: {error:?}"),
    }
}
