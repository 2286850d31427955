//! The journal from an operator's view: the program checks, prunes and shows it.

use std::time::Duration;

use serde_json::json;

use crate::support::{
    Backend, Client, Options, Program, Scrape, TestDatabase, for_each_backend, for_each_server,
    wait,
};

/// The promised time until an overlap is reported.
const REPORT_LIMIT: Duration = Duration::from_secs(60);
const LIMIT: Duration = Duration::from_secs(60);

fn options(database: &TestDatabase) -> Options {
    in_blocks_of_a_hundred(&Program::options(), database)
}

/// Adds options with which a replica holds one block at a time. A reserve for one second is far
/// smaller than the rest of the block.
fn in_blocks_of_a_hundred(options: &Options, database: &TestDatabase) -> Options {
    options
        .clone()
        .database(&database.url)
        .env("ODOMETER_DEFAULT__BLOCK__MIN", 100)
        .env("ODOMETER_DEFAULT__BLOCK__HOLD", "1s")
        .env("ODOMETER_DEFAULT__BLOCK__REFILL", "1s")
}

/// Returns an SQL expression for an id that no row has.
fn fresh_id(backend: Backend) -> &'static str {
    match backend {
        Backend::Sqlite => "randomblob(16)",
        Backend::Postgres => "gen_random_uuid()",
        Backend::MariaDb => "UNHEX(REPLACE(UUID(), '-', ''))",
    }
}

async fn n_overlaps(client: &Client) -> f64 {
    let scrape = Scrape::of(client).await;
    assert!(scrape.has("odometer_journal_overlaps"));
    scrape.sum("odometer_journal_overlaps", &[])
}

async fn n_checks(client: &Client) -> f64 {
    let scrape = Scrape::of(client).await;
    scrape.sum("odometer_journal_checks_total", &[])
}

/// Waits until the journal of `sequence` has a row with this fate.
async fn has_row(database: &TestDatabase, sequence: &str, fate: &str) {
    wait::until("the row is written", LIMIT, async || {
        let journal = database.journal(sequence).await;
        journal.iter().any(|row| row.fate == fate).then_some(())
    })
    .await;
}

/// Writes a second block that begins with the last number of the first one.
async fn plant_overlap(database: &TestDatabase, backend: Backend, client: &Client) {
    assert_eq!(client.next("doubled").await, 1);
    has_row(database, "doubled", "held").await;
    let id = fresh_id(backend);
    let plant = format!(
        "INSERT INTO block SELECT {id}, sequence, period, last, last + 10, step, 'planted', \
         reserved_at, 'spent', last + 11 FROM block WHERE sequence = 'doubled' AND first = 1"
    );
    database.execute(&plant).await;
}

for_each_backend!(a_planted_overlap_is_reported_within_a_minute);

async fn a_planted_overlap_is_reported_within_a_minute(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let program = options(&database).start_ready().await;
    let client = program.client();
    plant_overlap(&database, backend, &client).await;
    wait::until("the overlap is reported", REPORT_LIMIT, async || {
        (n_overlaps(&client).await > 0.0).then_some(())
    })
    .await;
    let reports = |program: &Program| -> Vec<String> {
        let lines = program.log_lines();
        let reports = lines.into_iter().filter(|line| line.contains("overlap"));
        reports.collect()
    };
    let said = wait::until("it is told", LIMIT, async || {
        let said = reports(&program);
        let is_told = said.iter().any(|line| line.contains("planted"));
        is_told.then_some(said)
    })
    .await;
    assert!(said.iter().all(|line| line.contains("ERROR")), "{said:?}");

    // The overlap is reported once, and no longer counted when it is gone.
    let n_before = n_checks(&client).await;
    wait::until("it was looked again", LIMIT, async || {
        (n_checks(&client).await > n_before).then_some(())
    })
    .await;
    assert_eq!(reports(&program), said);
    database
        .execute("DELETE FROM block WHERE holder = 'planted'")
        .await;
    wait::until("the overlap is gone", LIMIT, async || {
        (n_overlaps(&client).await == 0.0).then_some(())
    })
    .await;
    program.stop().await;
}

for_each_server!(the_queue_of_the_journal_is_bounded_for_blocks_handed_over);

async fn the_queue_of_the_journal_is_bounded_for_blocks_handed_over(backend: Backend) {
    const BOUND: u32 = 100;
    let database = TestDatabase::prepared(backend).await;
    let options = options(&database)
        .env("ODOMETER_JOURNAL__QUEUE", BOUND)
        .env("ODOMETER_DEFAULT__BLOCK__MAX", 100);
    let program = options.start_ready().await;
    let client = program.client();
    assert_eq!(client.next("ranges").await, 1);
    has_row(&database, "ranges", "held").await;
    let frozen = database.freeze_journal().await;
    for _ in 0..3 * BOUND {
        let path = "/v1/sequences/ranges/blocks?size=1";
        let reply = client.post(path).await.expect("a reply");
        assert_eq!(reply.status, 200, "{reply:?}");
    }
    let scrape = Scrape::of(&client).await;
    let n_queued = scrape.sum("odometer_journal_queue", &[]);
    let n_dropped = scrape.sum("odometer_journal_rows_dropped_total", &[]);
    assert_eq!(n_queued, f64::from(BOUND), "{n_dropped} dropped");
    assert_eq!(n_dropped, f64::from(2 * BOUND));
    for _ in 0..BOUND {
        // The call asks for more than memory has, so a block is reserved for it as well.
        let path = "/v1/sequences/ranges/next?count=10000&contiguous=true&ids=false";
        let reply = client.post(path).await.expect("a reply");
        assert_eq!(reply.status, 200, "{reply:?}");
    }
    let scrape = Scrape::of(&client).await;
    let n_dropped = scrape.sum("odometer_journal_rows_dropped_total", &[]);
    assert!(n_dropped >= f64::from(3 * BOUND), "{n_dropped}");
    let n_queued = scrape.sum("odometer_journal_queue", &[]);
    assert_eq!(n_queued, f64::from(BOUND));
    frozen.thaw().await;
    program.stop().await;
}

for_each_server!(the_queue_of_the_journal_is_bounded_for_blocks_that_end);

/// Checks the bound with blocks of one number each, which come into use and end with each call.
async fn the_queue_of_the_journal_is_bounded_for_blocks_that_end(backend: Backend) {
    const BOUND: u32 = 100;
    let database = TestDatabase::prepared(backend).await;
    let options = options(&database)
        .env("ODOMETER_JOURNAL__QUEUE", BOUND)
        .env("ODOMETER_DEFAULT__BLOCK__MIN", 1)
        .env("ODOMETER_DEFAULT__BLOCK__MAX", 1);
    let program = options.start_ready().await;
    let client = program.client();
    database.refuse_journal_rows().await;
    let mut last = 0;
    for _ in 0..3 * BOUND {
        let next = client.next("ones").await;
        assert!(next > last, "{next} after {last}");
        last = next;
        let scrape = Scrape::of(&client).await;
        let n_queued = scrape.sum("odometer_journal_queue", &[]);
        assert!(n_queued <= f64::from(BOUND), "{n_queued}");
    }
    let scrape = Scrape::of(&client).await;
    assert_eq!(
        scrape.sum("odometer_journal_queue", &[]),
        f64::from(BOUND),
        "vacuous"
    );
    let n_dropped = scrape.sum("odometer_journal_rows_dropped_total", &[]);
    assert!(n_dropped >= f64::from(2 * BOUND), "{n_dropped} dropped");
    database.take_journal_rows_again().await;
    wait::until("all that is queued is written", LIMIT, async || {
        let scrape = Scrape::of(&client).await;
        (scrape.sum("odometer_journal_queue", &[]) == 0.0).then_some(())
    })
    .await;
    program.stop().await;
}

for_each_server!(the_queue_of_the_journal_is_bounded_for_blocks_that_are_returned);

/// Checks the bound with keys that leave memory and return the rest of their blocks.
async fn the_queue_of_the_journal_is_bounded_for_blocks_that_are_returned(backend: Backend) {
    const BOUND: u32 = 20;
    let database = TestDatabase::prepared(backend).await;
    let options = options(&database)
        .env("ODOMETER_JOURNAL__QUEUE", BOUND)
        .env("ODOMETER_LIMITS__LIVE_PERIODS", 1);
    let program = options.start_ready().await;
    let client = program.client();
    client.define("tenants", &json!({"period": "keyed"})).await;
    database.refuse_journal_rows().await;
    let full = [("cause", "journal_full")];
    let mut n_keys = 0;
    wait::until("returned numbers are abandoned", LIMIT, async || {
        let path = format!("/v1/sequences/tenants/next?period=key-{n_keys}");
        n_keys += 1;
        let reply = client.post(&path).await.expect("a reply");
        assert_eq!(reply.status, 200, "{reply:?}");
        let scrape = Scrape::of(&client).await;
        let n_queued = scrape.sum("odometer_journal_queue", &[]);
        // Returned blocks enter the queue until the first row was refused.
        assert!(n_queued <= f64::from(2 * BOUND), "{n_queued}");
        let n_abandoned = scrape.sum("odometer_abandoned_numbers_total", &full);
        (n_abandoned > 0.0 && n_queued >= f64::from(BOUND)).then_some(())
    })
    .await;
    database.take_journal_rows_again().await;
    program.stop().await;
}

for_each_backend!(in_a_long_journal_new_blocks_are_looked_at_first);

async fn in_a_long_journal_new_blocks_are_looked_at_first(backend: Backend) {
    // More rows than several steps of the check look at.
    const DOUBLINGS: usize = 16;
    let database = TestDatabase::prepared(backend).await;
    let program = options(&database).start_ready().await;
    let client = program.client();
    assert_eq!(client.next("a-long-one").await, 1);
    assert_eq!(client.next("new").await, 1);
    for name in ["a-long-one", "new"] {
        has_row(&database, name, "held").await;
    }
    let id = fresh_id(backend);
    let yesterday = 86_400_000;
    for doubling in 0..DOUBLINGS {
        let further = 100 << doubling;
        let double = format!(
            "INSERT INTO block SELECT {id}, sequence, period, first + {further}, last + {further}, \
             step, 'earlier', reserved_at - {yesterday}, 'held', first FROM block \
             WHERE sequence = 'a-long-one'"
        );
        database.execute(&double).await;
    }
    let n_rows = "SELECT COUNT(*) FROM block";
    assert_eq!(database.number(n_rows).await, Some((1 << DOUBLINGS) + 1));
    let n_before = n_checks(&client).await;
    let plant = format!(
        "INSERT INTO block SELECT {id}, sequence, period, last, last + 10, step, 'planted', \
         reserved_at, 'spent', last + 11 FROM block WHERE sequence = 'new'"
    );
    database.execute(&plant).await;
    wait::until("the overlap is reported", REPORT_LIMIT, async || {
        (n_overlaps(&client).await == 1.0).then_some(())
    })
    .await;
    // The check looks at this sequence last in a pass, so no pass has found the overlap.
    assert_eq!(n_checks(&client).await, n_before);
    program.stop().await;
}

for_each_backend!(blocks_returned_and_adopted_are_no_overlap);

async fn blocks_returned_and_adopted_are_no_overlap(backend: Backend) {
    let n_overlaps = overlaps_of_adopted_blocks(backend, &Program::options()).await;
    assert_eq!(n_overlaps, 0.0);
}

for_each_backend!(counting_what_was_given_back_reports_it_as_an_overlap);

async fn counting_what_was_given_back_reports_it_as_an_overlap(backend: Backend) {
    let options = Program::options().without_guards("rests-overlap");
    let n_overlaps = overlaps_of_adopted_blocks(backend, &options).await;
    assert!(n_overlaps > 0.0, "the check finds nothing");
}

/// Returns how many overlaps are reported after blocks were returned and adopted.
async fn overlaps_of_adopted_blocks(backend: Backend, options: &Options) -> f64 {
    let database = TestDatabase::prepared(backend).await;
    let options = in_blocks_of_a_hundred(options, &database);
    for expected in 1..=3 {
        let program = options.start_ready().await;
        assert_eq!(program.client().next("adopted").await, expected);
        assert_eq!(program.client().next("returned").await, expected);
        program.stop().await;
    }
    let program = options.start_ready().await;
    let client = program.client();
    assert_eq!(client.next("adopted").await, 4);
    has_row(&database, "adopted", "held").await;
    let n_before = n_checks(&client).await;
    // The second check from now on begins after all these rows were written.
    wait::until("the journal was looked through", LIMIT, async || {
        (n_checks(&client).await >= n_before + 2.0).then_some(())
    })
    .await;
    let n_overlaps = n_overlaps(&client).await;
    let mut journal = database.journal("adopted").await;
    journal.append(&mut database.journal("returned").await);
    let n = |fate: &str| journal.iter().filter(|row| row.fate == fate).count();
    assert!(
        n("adopted") >= 4 && n("returned") >= 1,
        "vacuous: {journal:?}"
    );
    program.stop().await;
    n_overlaps
}

for_each_backend!(without_the_look_a_planted_overlap_is_not_reported);

async fn without_the_look_a_planted_overlap_is_not_reported(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let options = Program::options().without_guards("overlaps-unseen");
    let program = in_blocks_of_a_hundred(&options, &database)
        .start_ready()
        .await;
    let client = program.client();
    plant_overlap(&database, backend, &client).await;
    let n_before = n_checks(&client).await;
    // The second check from now on begins after the overlap was planted.
    wait::until("the journal was looked through", LIMIT, async || {
        (n_checks(&client).await >= n_before + 2.0).then_some(())
    })
    .await;
    assert_eq!(n_overlaps(&client).await, 0.0);
}

for_each_backend!(old_rows_are_removed_and_what_may_be_issued_stays);

async fn old_rows_are_removed_and_what_may_be_issued_stays(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let (next, holders) = prune(&database, &Program::options()).await;
    let mut expected = vec!["a number may come of it"];
    if backend != Backend::Sqlite {
        // On SQLite no other process can live.
        expected.push("lives");
    }
    assert_eq!(holders, expected);
    assert_eq!(next, 2, "the rest was not adopted");
}

for_each_backend!(pruning_whatever_is_old_is_found_out);

async fn pruning_whatever_is_old_is_found_out(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let options = Program::options().without_guards("prune-all");
    let (next, holders) = prune(&database, &options).await;
    assert_eq!((next, holders), (101, Vec::new()));
}

/// Prunes a journal of old rows. Returns the next number of a sequence with a returned block, and
/// the holders of the rows that are left.
async fn prune(database: &TestDatabase, program: &Options) -> (i64, Vec<String>) {
    let options = in_blocks_of_a_hundred(program, database);
    let program = options.start_ready().await;
    for name in ["kept", "raised"] {
        assert_eq!(program.client().next(name).await, 1);
    }
    program.stop().await;
    let kept = database.journal("kept").await;
    assert_eq!((kept.len(), kept[0].fate.as_str()), (1, "returned"));
    database
        .execute("UPDATE block SET holder = 'a number may come of it' WHERE sequence = 'kept'")
        .await;
    database
        .execute("UPDATE counter SET floor = 101 WHERE sequence = 'raised'")
        .await;
    let id = fresh_id(database.backend);
    let planted = ["spent", "adopted", "abandoned", "held", "lives"];
    for (at, fate) in planted.into_iter().enumerate() {
        let (holder, fate) = match fate {
            "lives" => ("lives", "held"),
            fate => ("has ended", fate),
        };
        let first = 1_000 * (at + 1);
        let last = first + 99;
        let plant = format!(
            "INSERT INTO block VALUES \
             ({id}, 'kept', '', {first}, {last}, 1, '{holder}', 0, '{fate}', {first})"
        );
        database.execute(&plant).await;
    }
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed();
    let now = now.expect("it is later than 1970").as_millis();
    let beat = format!("INSERT INTO replica (holder, beat, beat_at) VALUES ('lives', 1, {now})");
    database.execute(&beat).await;
    database.execute("UPDATE block SET reserved_at = 0").await;

    let program = options.start_ready().await;
    let client = program.client();
    wait::until("the journal was pruned", LIMIT, async || {
        let scrape = Scrape::of(&client).await;
        let n_pruned = scrape.sum("odometer_journal_rows_pruned_total", &[]);
        // These are the returned block below its floor, and the four rows of a holder that has
        // ended.
        (n_pruned >= 5.0).then_some(())
    })
    .await;
    let rows = database
        .query("SELECT DISTINCT holder FROM block WHERE reserved_at = 0 ORDER BY holder")
        .await;
    let holders = rows
        .iter()
        .map(|row| row.try_get_by_index(0).expect("a text"));
    let holders = holders.collect();
    let next = client.next("kept").await;
    program.stop().await;
    (next, holders)
}

for_each_server!(a_description_shows_the_blocks_of_all_replicas);

async fn a_description_shows_the_blocks_of_all_replicas(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let options = options(&database);
    let (one, other) = (options.start_ready().await, options.start_ready().await);
    let first = one.client().next("shared").await;
    let second = other.client().next("shared").await;
    for program in [&one, &other] {
        let blocks = wait::until("both rows are written", LIMIT, async || {
            let shown = program.client().describe("shared").await;
            let blocks = shown["blocks"].as_array().expect("rows").clone();
            (blocks.len() >= 2).then_some(blocks)
        })
        .await;
        let number = |at: usize, field: &str| -> i64 {
            let text = blocks[at][field].as_str().expect("a text");
            text.parse().expect("a number")
        };
        assert_eq!(blocks.len(), 2, "{blocks:?}");
        // The youngest block comes first.
        assert!(number(0, "first") > number(1, "last"), "{blocks:?}");
        for (at, value) in [(0, first.max(second)), (1, first.min(second))] {
            let range = number(at, "first")..=number(at, "last");
            assert!(range.contains(&value), "{value}: {blocks:?}");
        }
        assert_ne!(blocks[0]["holder"], blocks[1]["holder"]);
    }
    one.stop().await;
    other.stop().await;
}
