//! Very many counters, some at rest and some in use, and the line that each of them is raised to.

use std::{
    collections::BTreeMap,
    time::{SystemTime, UNIX_EPOCH},
};

use odometer_store::{FenceRequest, Loss};
use odometer_tests::Backend;

use crate::{
    fence::ARM,
    for_each_backend,
    restart::change_stamp,
    stage::{Stage, recover_by},
};

/// More than one page of names, each with two counters.
const N_SEQUENCES: i64 = 1_200;
/// Bounds the rows of one statement.
const N_TOGETHER: usize = 400;
const SECOND_US: i64 = 1_000_000;
/// How long a number takes at the default speed limit.
const NUMBER_US: i64 = 10;
/// How long the default burst takes.
const BURST_US: i64 = 100 * SECOND_US;
/// A counter that is paid for further ahead than the burst and this had a clock that was set back.
const SET_BACK_US: i64 = 60 * SECOND_US;

/// How old the copy is.
const AGE_US: i64 = 120 * SECOND_US;

/// The high-water mark of a counter, and the time up to which it is paid for.
type Counters = BTreeMap<(String, String), (i64, i64)>;

/// Fills the database with counters that were used from half a minute before the age of the copy on,
/// or are paid for up to minutes after it.
async fn fill(stage: &Stage) -> Counters {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now_us = i64::try_from(now.expect("it is after 1970").as_micros()).expect("a time");
    let window = match stage.database.backend {
        Backend::MariaDb => "`window`",
        Backend::Postgres | Backend::Sqlite => "\"window\"",
    };
    let counters: Counters = (0..2 * N_SEQUENCES)
        .map(|i| {
            // A name has two counters that are far apart.
            let (name, period) = (format!("n{:04}", i % N_SEQUENCES), i / N_SEQUENCES);
            let paced_us = now_us - AGE_US - 30 * SECOND_US + i * SECOND_US / 10;
            ((name, format!("p{period}")), (i + 1, paced_us))
        })
        .collect();
    let names: Vec<String> = (0..N_SEQUENCES)
        .map(|i| format!("SELECT 'n{i:04}' AS name"))
        .collect();
    for names in names.chunks(N_TOGETHER) {
        let names = names.join(" UNION ALL ");
        let copy = format!(
            "INSERT INTO sequence (name, definition, state, periods_removed_through, version, \
             created_at, changed_at) SELECT names.name, o.definition, o.state, \
             o.periods_removed_through, o.version, o.created_at, o.changed_at \
             FROM sequence o, ({names}) names WHERE o.name = 'orders'"
        );
        stage.database.execute(&copy).await;
    }
    let rows: Vec<String> = counters
        .iter()
        .map(|((name, period), (next_value, paced_us))| {
            format!(
                "('{name}', '{period}', {next_value}, 1, 'live', 0, 1, 0, FALSE, 0, 1, 2, \
                 {paced_us}, FALSE)"
            )
        })
        .collect();
    for rows in rows.chunks(N_TOGETHER) {
        let rows = rows.join(", ");
        let insert = format!(
            "INSERT INTO counter (sequence, period, next_value, floor, state, rate, \
             stripe_count, {window}, window_open, window_leased_until, revision, version, \
             paced_until_us, must_recover) VALUES {rows}"
        );
        stage.database.execute(&insert).await;
    }
    counters
}

/// The counters that gave numbers after the fence, as they are in the database.
async fn raised(stage: &Stage) -> Counters {
    let raised = "SELECT sequence, period, next_value, paced_until_us FROM counter \
                  WHERE must_recover = FALSE AND sequence LIKE 'n%' AND revision > 1000000 \
                  AND version > revision AND floor = 1";
    let rows = stage.database.query(raised).await;
    rows.iter()
        .map(|row| {
            let text = |column| row.try_get("", column).expect("a text");
            let number = |column| row.try_get("", column).expect("a number");
            let key = (text("sequence"), text("period"));
            (key, (number("next_value"), number("paced_until_us")))
        })
        .collect()
}

for_each_backend!(each_of_very_many_counters_is_raised_to_its_own_line);

async fn each_of_very_many_counters_is_raised_to_its_own_line(backend: Backend) {
    let mut stage = Stage::impatient(backend).await;
    stage.is_born("orders").await;
    stage.stop().await;
    let before = fill(&stage).await;
    stage.database.execute(ARM).await;
    for (row, time) in [("replica", "beat_at"), ("lineage", "stamped_at")] {
        let earlier = format!("UPDATE {row} SET {time} = {time} - {}", AGE_US / 1000);
        stage.database.execute(&earlier).await;
    }
    change_stamp(&stage, "server").await;
    let fenced = recover_by(&stage.settings, Loss::Computed(FenceRequest::default())).await;
    let fenced = fenced.expect("it is fenced");
    let since_us = stage.number("SELECT since_us FROM fence").await;
    let until_us = stage.number("SELECT until_us FROM fence").await;
    let (known, unknown): (Counters, Counters) = before
        .into_iter()
        .partition(|(_, (_, paced_us))| *paced_us <= since_us + BURST_US + SET_BACK_US);
    let n_resting = known
        .values()
        .filter(|(_, paced_us)| *paced_us <= since_us)
        .count();
    assert!(n_resting > 100, "{n_resting} rest");
    assert!(
        known.len() > n_resting + 1_000 && unknown.len() > 100,
        "{}",
        unknown.len()
    );
    let expected: Counters = known
        .iter()
        .map(|(key, (next_value, paced_us))| {
            let from_us = *Ord::max(paced_us, &since_us);
            let free_us = until_us + BURST_US - from_us;
            // What is paid for ahead of the burst leaves nothing that can have been lost.
            let length = Ord::max(0, free_us + NUMBER_US - 1) / NUMBER_US;
            (
                key.clone(),
                (next_value + length, from_us + length * NUMBER_US),
            )
        })
        .collect();
    let found = raised(&stage).await;
    assert!(
        found == expected,
        "{:?}",
        first_difference(&found, &expected)
    );
    let longest = (until_us + BURST_US - since_us + NUMBER_US - 1) / NUMBER_US;
    assert_eq!(fenced.highest_rise, longest);
    // None is touched twice.
    let revisions = "SELECT COUNT(DISTINCT revision) FROM counter WHERE sequence LIKE 'n%'";
    assert_eq!(stage.number(revisions).await, 1);
    // A counter that is stopped stays where it was.
    let stopped = "SELECT COUNT(*) FROM counter WHERE must_recover = TRUE AND next_value <= 2400";
    let n_stopped = i64::try_from(unknown.len()).expect("a count");
    assert_eq!(stage.number(stopped).await, n_stopped);
    assert_eq!(
        i64::try_from(fenced.n_unknown),
        Ok(n_stopped),
        "each has a name of its own"
    );
    stage.stop().await;
}

fn first_difference<'a>(
    found: &'a Counters,
    expected: &'a Counters,
) -> impl std::fmt::Debug + use<'a> {
    let other = expected
        .iter()
        .find(|(key, counter)| found.get(*key) != Some(*counter));
    other.map(|(key, counter)| (key, counter, found.get(key)))
}
