//! Numbers that were reserved before `odometer recover` are neither issued nor adopted after it.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{
    Answer, Backend, Client, Ledger, Options, Program, Range, TestDatabase, for_each_server,
    settings, wait,
};

const LIMIT: Duration = Duration::from_secs(60);
/// How soon replicas must see a recovery. Here they look every second; by default they look every
/// 10 s.
const SEEN_LIMIT: Duration = Duration::from_secs(9);
const NAME: &str = "orders";
/// A sequence with a format.
const BILLS: &str = "bills";
/// The size of each block.
const BLOCK: i64 = 10_000;
/// How many numbers were issued in the state that is lost. They may be issued again before the
/// recovery.
const LOST: i64 = 700;
/// How many steps `recover` skips.
const SKIP: i64 = 1_000_000;
/// How far ahead the clock is with which the first of two recoveries runs.
const AHEAD_MS: i64 = 240_000;
/// How many names have blocks that are returned at once.
const N_NAMES: usize = 40;

for_each_server!(nothing_reserved_before_a_recovery_is_issued_once_it_is_seen);

async fn nothing_reserved_before_a_recovery_is_issued_once_it_is_seen(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let outcome = issued_after(&database, &options(&database), true).await;
    assert_eq!(outcome.n_duplicates(), 0, "{outcome:?}");
    let highest = outcome.highest(NAME).expect("numbers were given");
    assert!(highest > SKIP, "vacuous: {outcome:?}");
}

for_each_server!(blocks_that_outlive_a_recovery_in_memory_repeat_numbers);

async fn blocks_that_outlive_a_recovery_in_memory_repeat_numbers(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let options = options(&database).without_guards("recovery-keeps-memory");
    let outcome = issued_after(&database, &options, false).await;
    assert!(outcome.n_duplicates() > 0, "nothing is found: {outcome:?}");
}

for_each_server!(nothing_reserved_before_a_recovery_is_returned_after_it);

async fn nothing_reserved_before_a_recovery_is_returned_after_it(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let outcome = adopted_after(&database, &options(&database)).await;
    assert_eq!(outcome.n_duplicates(), 0, "{outcome:?}");
    let highest = outcome.highest(NAME).expect("numbers were given");
    assert!(highest > SKIP, "vacuous: {outcome:?}");
}

for_each_server!(blocks_that_are_returned_after_a_recovery_repeat_numbers);

async fn blocks_that_are_returned_after_a_recovery_repeat_numbers(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let options = options(&database).without_guards("recovery-keeps-memory");
    let outcome = adopted_after(&database, &options).await;
    assert!(outcome.n_duplicates() > 0, "nothing is found: {outcome:?}");
}

for_each_server!(a_format_changes_after_a_recovery_only_if_that_is_confirmed);

async fn a_format_changes_after_a_recovery_only_if_that_is_confirmed(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let options = options(&database);
    let (program, _given) = forget_a_format(&database, &options).await;
    let client = program.client();
    let lettered = json!({"format": "B-{value:b36}"});
    refuses_unconfirmed(&client, &lettered).await;
    // This is not the first change, but the first change of the format.
    assert_eq!(
        client
            .define(BILLS, &json!({"max": 5_000_000}))
            .await
            .status,
        200
    );
    let advance = json!({"floor": "2000", "confirm": true});
    let advanced = client
        .send(
            Method::POST,
            "/v1/sequences/bills/advance",
            &[("content-type", "application/json")],
            Some(advance.to_string().into_bytes()),
        )
        .await
        .expect("a reply");
    assert_eq!(advanced.status, 200, "{advanced:?}");
    refuses_unconfirmed(&client, &lettered).await;
    let mut confirmed = lettered.clone();
    confirmed["confirm"] = json!(true);
    assert_eq!(client.define(BILLS, &confirmed).await.status, 200);
    // From here on all formats are known.
    let next = json!({"format": "C-{value}"});
    assert_eq!(client.define(BILLS, &next).await.status, 200);
    // The formats of a sequence that is created after the recovery were always known.
    client.next("created-later").await;
    assert_eq!(client.define("created-later", &lettered).await.status, 200);
    program.stop().await;
}

for_each_server!(after_a_third_recovery_a_format_needs_to_be_confirmed_as_well);

/// Checks a definition that changed between two recoveries. It is older than the second recovery,
/// even if that recovery comes soon after others.
async fn after_a_third_recovery_a_format_needs_to_be_confirmed_as_well(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let options = options(&database);
    for _ in 0..2 {
        recover(&options);
    }
    let definition = json!({"format": "A-{value}"});
    let (program, _given) = forget_format_of(&database, &options, &definition, true).await;
    let client = program.client();
    refuses_unconfirmed(&client, &json!({"format": "B-{value:b36}"})).await;
    program.stop().await;
}

for_each_server!(a_format_of_periods_that_were_lost_needs_to_be_confirmed);

/// Checks a restored state without any period, so that no counter shows that numbers were issued.
async fn a_format_of_periods_that_were_lost_needs_to_be_confirmed(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let options = options(&database);
    let definition = json!({"period": "day", "format": "A{period}-{value}"});
    let (program, given) = forget_format_of(&database, &options, &definition, false).await;
    let periods = "SELECT COUNT(*) FROM counter WHERE sequence = 'bills' AND period > ''";
    assert_eq!(database.number(periods).await, Some(0), "vacuous");
    assert!(given[0].starts_with("A2"), "vacuous: {given:?}");
    let client = program.client();
    let lettered = json!({"format": "C{period}-{value}"});
    refuses_unconfirmed(&client, &lettered).await;
    // The confirmation of an overflow does not confirm the next format.
    let widened = json!({"overflow": "widen", "confirm": true});
    assert_eq!(client.define(BILLS, &widened).await.status, 200);
    refuses_unconfirmed(&client, &lettered).await;
    let mut confirmed = lettered.clone();
    confirmed["confirm"] = json!(true);
    assert_eq!(client.define(BILLS, &confirmed).await.status, 200);
    // The former format is known, although no counter showed that it had numbers.
    let repeating = json!({"format": "A{period}-{value:b36}"});
    let path = format!("/v1/sequences/{BILLS}");
    let refused = client.put(&path, &repeating).await.expect("a reply");
    assert_eq!(refused.status, 409, "{refused:?}");
    assert_eq!(refused.code().as_deref(), Some("immutable_field"));
    program.stop().await;
}

for_each_server!(a_format_that_changes_unconfirmed_after_a_recovery_prints_an_id_twice);

async fn a_format_that_changes_unconfirmed_after_a_recovery_prints_an_id_twice(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let options = options(&database).without_guards("formats-forgotten");
    let (program, given) = forget_a_format(&database, &options).await;
    let client = program.client();
    let changed = client
        .define(BILLS, &json!({"format": "B-{value:b36}"}))
        .await;
    assert_eq!(changed.status, 200, "{changed:?}");
    let now = printed(&client, 200).await;
    let n_twice = now.iter().filter(|id| given.contains(id)).count();
    assert!(n_twice > 0, "nothing is found: {given:?}, {now:?}");
    program.stop().await;
}

for_each_server!(a_return_that_was_refused_half_way_is_not_written_again);

async fn a_return_that_was_refused_half_way_is_not_written_again(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let outcome = returned_half_way(&database, &options(&database), false).await;
    let outcome = outcome.expect("a batch is written whole");
    assert_eq!(outcome.n_duplicates(), 0, "{outcome:?}");
    let rests = (0..N_NAMES).filter(|n| {
        let given = outcome.given(&name(*n));
        given.iter().any(|range| range.first == 2)
    });
    let n_adopted = rests.count();
    assert_eq!(n_adopted, N_NAMES, "vacuous: not all rests were adopted");
}

for_each_server!(a_return_that_is_written_in_parts_repeats_numbers);

async fn a_return_that_is_written_in_parts_repeats_numbers(backend: Backend) {
    let outcome = wait::until("a part is written", settings::test_limit(), async || {
        let database = TestDatabase::prepared(backend).await;
        let options = options(&database).without_guards("journal-in-parts");
        returned_half_way(&database, &options, true).await
    });
    let outcome = outcome.await;
    assert!(outcome.n_duplicates() > 0, "nothing is found: {outcome:?}");
}

for_each_server!(a_recovery_by_a_slower_clock_ends_the_refusal_as_well);

/// Checks a second recovery whose clock is behind the clock of the first one. The restored state
/// does not know of the first recovery.
async fn a_recovery_by_a_slower_clock_ends_the_refusal_as_well(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    ends_the_refusal(&database, &options(&database)).await;
}

for_each_server!(a_recovery_by_a_slower_clock_is_known_without_a_stamp);

/// Checks the same by what the recovery itself left, without the branch of the stamp.
async fn a_recovery_by_a_slower_clock_is_known_without_a_stamp(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let options = options(&database).without_guards("no-stamp");
    ends_the_refusal(&database, &options).await;
}

async fn ends_the_refusal(database: &TestDatabase, options: &Options) {
    let program = options.start_ready().await;
    let client = program.client();
    client.next(NAME).await;
    let dump = database.dump();
    recover(&options.clone().clock_ahead(AHEAD_MS));
    wait::until("the first recovery is seen", LIMIT, async || {
        (client.next(NAME).await > SKIP).then_some(())
    })
    .await;
    let first = recovered_at(database).await.expect("a recovery");
    // A restore of MariaDB replaces one table after the other.
    database.execute("DELETE FROM replica").await;
    database.restore(&dump);
    assert_eq!(recovered_at(database).await, None, "vacuous");
    recover(options);
    assert!(recovered_at(database).await > Some(first));
    wait::until(
        "a name that is not in memory is served",
        LIMIT,
        async || {
            let answer = client.ask("/v1/sequences/other/next").await;
            matches!(answer, Answer::Given(_)).then_some(())
        },
    )
    .await;
    program.stop().await;
}

async fn recovered_at(database: &TestDatabase) -> Option<i64> {
    let query = "SELECT last_recovery_at FROM meta WHERE last_recovery_at IS NOT NULL";
    database.number(query).await
}

/// Prints ids in a format that a restored dump does not know, and recovers the store.
async fn forget_a_format(database: &TestDatabase, options: &Options) -> (Program, Vec<String>) {
    let definition = json!({"format": "A-{value}"});
    forget_format_of(database, options, &definition, true).await
}

/// Does the same with a definition of its own. The dump knows an id of the sequence only if
/// `is_known` is set. Otherwise ids in the first format are printed after the dump.
async fn forget_format_of(
    database: &TestDatabase,
    options: &Options,
    definition: &Value,
    is_known: bool,
) -> (Program, Vec<String>) {
    let program = options.start_ready().await;
    let client = program.client();
    let mut definition = definition.clone();
    // The blocks are small, so that numbers after the recovery are low enough to look like lost
    // numbers.
    definition["block"] = json!({"min": 1, "max": 100});
    client.define(BILLS, &definition).await;
    if is_known {
        client.next(BILLS).await;
    }
    program.stop().await;
    let dump = database.dump();
    let program = options.start_ready().await;
    let client = program.client();
    let mut given = Vec::new();
    if !is_known {
        given = printed(&client, 2).await;
    }
    let format = definition["format"].as_str().expect("a format");
    let lost = format.replace('A', "B");
    client.define(BILLS, &json!({ "format": lost })).await;
    given.append(&mut printed(&client, 200).await);
    program.stop().await;
    database.restore(&dump);
    let finished = options.run(&["recover", "--skip", "100", "--yes"]);
    assert_eq!(finished.code, Some(0), "{finished}");
    (options.start_ready().await, given)
}

/// Returns the ids of the next numbers.
async fn printed(client: &Client, count: u32) -> Vec<String> {
    let path = format!("/v1/sequences/{BILLS}/next?count={count}");
    let reply = client.post(&path).await.expect("a reply");
    let ids = reply.json()["ids"].clone();
    serde_json::from_value(ids).unwrap_or_else(|_| panic!("{reply:?}"))
}

async fn refuses_unconfirmed(client: &Client, change: &Value) {
    let path = format!("/v1/sequences/{BILLS}");
    let refused = client.put(&path, change).await.expect("a reply");
    assert_eq!(refused.status, 409, "{refused:?}");
    assert_eq!(refused.code().as_deref(), Some("confirm_needed"));
}

fn options(database: &TestDatabase) -> Options {
    Program::options()
        .database(&database.url)
        .env("ODOMETER_DEFINITION_REFRESH", "1s")
        .env("ODOMETER_DEFAULT__BLOCK__MIN", BLOCK)
        .env("ODOMETER_DEFAULT__BLOCK__MAX", BLOCK)
}

/// Loses reservations under a replica that lives through it. Another replica starts afterwards, and
/// reserves before the recovery. Returns the numbers that were issued before the loss, and after
/// both replicas have seen the recovery.
async fn issued_after(database: &TestDatabase, options: &Options, drops_memory: bool) -> Ledger {
    let mut ledger = Ledger::default();
    let old = options.start_ready().await;
    lose(database, &old.client(), &mut ledger).await;
    let young = options.start_ready().await;
    // The number may be a repeated one: nobody can know this before the recovery.
    young.client().next(NAME).await;
    recover(options);
    for program in [&old, &young] {
        wait::until("the recovery is seen", SEEN_LIMIT, async || {
            let log = program.log();
            log.contains("the store was recovered").then_some(())
        })
        .await;
        let client = program.client();
        if drops_memory {
            until_memory_is_dropped(&client, &mut ledger).await;
        }
        take(&client, NAME, LOST / 10, &mut ledger).await;
    }
    old.stop().await;
    young.stop().await;
    ledger
}

/// Waits until memory is dropped, and records the first number after that. Numbers that are issued
/// until then do not count.
async fn until_memory_is_dropped(client: &Client, ledger: &mut Ledger) {
    let first = wait::until("memory is dropped", SEEN_LIMIT, async || {
        let number = client.next(NAME).await;
        (number > SKIP).then_some(number)
    })
    .await;
    ledger.record(NAME, &[Range::single(first)]);
}

/// Loses reservations. A replica that starts afterwards reserves, and is told to end before it has
/// seen the recovery. Returns the numbers that were issued before the loss, and by a replica that starts
/// after the recovery.
async fn adopted_after(database: &TestDatabase, options: &Options) -> Ledger {
    let mut ledger = Ledger::default();
    let mut old = options.start_ready().await;
    lose(database, &old.client(), &mut ledger).await;
    // If this replica stopped in order, it would return its blocks, and the young one would adopt
    // them.
    old.kill();
    let looks_seldom = options.clone().env("ODOMETER_DEFINITION_REFRESH", "1h");
    let young = looks_seldom.start_ready().await;
    young.client().next(NAME).await;
    recover(options);
    // It hears of the recovery by what it writes at its end, if not before.
    young.stop().await;
    let next = options.start_ready().await;
    take(&next.client(), NAME, LOST / 10, &mut ledger).await;
    next.stop().await;
    ledger
}

/// Issues numbers, and loses the counter that knows of them, as if its table alone were restored.
/// The stamp does not show that, and a replica that starts afterwards reserves before the recovery.
async fn lose(database: &TestDatabase, client: &Client, ledger: &mut Ledger) {
    take(client, NAME, 1, ledger).await;
    // The numbers that follow reach into blocks that the restored counter does not know, no matter
    // how far ahead the replica had reserved.
    let reserved = database.next_value(NAME).await.expect("a counter");
    take(client, NAME, reserved + LOST, ledger).await;
    database.execute("DELETE FROM replica").await;
    let restored = format!("UPDATE counter SET next_value = {reserved} WHERE sequence = '{NAME}'");
    database.execute(&restored).await;
}

fn recover(options: &Options) {
    let finished = options.run(&["recover", "--skip", &SKIP.to_string(), "--yes"]);
    assert_eq!(finished.code, Some(0), "{finished}");
}

async fn take(client: &Client, name: &str, n_numbers: i64, ledger: &mut Ledger) {
    let mut left = n_numbers;
    while left > 0 {
        let count = left.min(100);
        let path = format!("/v1/sequences/{name}/next?count={count}");
        match client.ask(&path).await {
            Answer::Given(ranges) => ledger.record(name, &ranges),
            answer @ (Answer::Refused(_) | Answer::NoReply(_)) => panic!("{name}: {answer:?}"),
        }
        left -= count;
    }
}

fn name(n: usize) -> String {
    format!("returned-{n:02}")
}

/// Stops a replica while the journal takes no new row, and three of its blocks have no row.
/// Meanwhile another replica uses the same names, and rows of adopted blocks are deleted. A third
/// replica adopts the returned blocks. Returns the issued numbers.
///
/// Returns `None` if batches are written in parts and the refused batch has no other part. The
/// blocks of that batch depend on the order of the returns.
async fn returned_half_way(
    database: &TestDatabase,
    options: &Options,
    is_in_parts: bool,
) -> Option<Ledger> {
    let mut ledger = Ledger::default();
    let patient = options.clone().env("ODOMETER_SHUTDOWN__DEADLINE", "60s");
    let mut first = patient.start_ready().await;
    for n in 0..N_NAMES {
        take(&first.client(), &name(n), 1, &mut ledger).await;
    }
    wait::until("each block has its row", LIMIT, async || {
        let n_held = database.number("SELECT COUNT(*) FROM block WHERE fate = 'held'");
        (n_held.await == Some(40)).then_some(())
    })
    .await;
    database
        .execute(
            "DELETE FROM block \
             WHERE sequence IN ('returned-03', 'returned-17', 'returned-31')",
        )
        .await;
    database.refuse_journal_rows().await;
    first.terminate();
    wait::until("a return is refused", LIMIT, async || {
        let log = first.log();
        log.contains("the journal cannot be written").then_some(())
    })
    .await;
    let n_returned = database.number("SELECT COUNT(*) FROM block WHERE fate = 'returned'");
    if is_in_parts && n_returned.await == Some(0) {
        first.kill();
        return None;
    }
    let second = options.start_ready().await;
    for n in 0..N_NAMES {
        take(&second.client(), &name(n), 10, &mut ledger).await;
    }
    database
        .execute("DELETE FROM block WHERE fate = 'adopted'")
        .await;
    database.take_journal_rows_again().await;
    assert_eq!(first.end().await, Some(0), "{}", first.log());
    let third = options.start_ready().await;
    for n in 0..N_NAMES {
        take(&third.client(), &name(n), 10, &mut ledger).await;
    }
    third.stop().await;
    second.stop().await;
    Some(ledger)
}
