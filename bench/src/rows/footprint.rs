//! Measures what Odometer needs besides time: memory for a name, the start, and the program's size.

use std::{
    net::TcpStream,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use odometer_tests::{
    Backend, Program, Scrape, TestDatabase, directory, keeper, ports, raw::Connection, server::pid,
    settings, wait,
};

use rustix::process::{Signal, kill_process};
use tokio::task::JoinSet;

use crate::{
    cores::Side,
    pace::Pace,
    reading::Reading,
    row::{Bound, Row, Series, Unit},
    stage::Stage,
    usage,
};

const N_CALLERS: u32 = 16;
const N_STARTS: usize = 10;
const START_LIMIT: Duration = Duration::from_secs(20);
const PARK_LIMIT: Duration = Duration::from_secs(120);
const NO_LIMIT: &str = "1h";
const SETTLE_LIMIT: Duration = Duration::from_secs(120);

/// About how many first calls a second are made. Each first call is a reservation on SQLite.
const N_FIRST_CALLS: u32 = 900;

/// Returns the number of names. A replica may hold more, but each name must be called once first.
fn n_names(pace: Pace) -> u32 {
    pace.of(100_000, 2000)
}

pub(crate) fn memory_estimate(pace: Pace) -> Duration {
    let calls = Duration::from_secs(u64::from(n_names(pace) / N_FIRST_CALLS));
    // Two programs are each asked for all names once.
    2 * (Duration::from_secs(3) + calls + 2 * still_for(pace))
}

/// Returns for how long the memory of a program must not fall before it is measured. The allocator
/// gives freed pages back to the system within 10 s.
fn still_for(pace: Pace) -> Duration {
    pace.of(Duration::from_secs(12), Duration::from_millis(500))
}

/// Measures the bytes of a name on one replica after one call for each name: parked, and with its
/// actor.
pub(crate) async fn memory(stage: &Stage, pace: Pace) -> Vec<Row> {
    let n_names = n_names(pace);
    let database = TestDatabase::prepared(Backend::Sqlite).await;
    insert_names(&database, n_names).await;
    let live = per_name(stage, &database, pace, NO_LIMIT).await;
    let parked = per_name(stage, &database, pace, "1s").await;
    [
        ("memory-parked", "parked", parked, 512.0),
        ("memory-live", "live", live, 2048.0),
    ]
    .map(|(name, state, reading, limit)| {
        let title = format!("memory a name, {state}, of {n_names}");
        Row::new(name, &title, Unit::Bytes)
            .series(vec![Series::new("Odometer", vec![reading])])
            .limit(Bound::AtMost(limit))
            .note("Measured when the program had given freed pages back to the system.")
    })
    .into()
}

/// Asks for one number of each name. Returns how many calls got no number.
async fn call_each(address: &str, n_names: u32) -> u64 {
    let mut callers = JoinSet::new();
    for caller in 0..N_CALLERS {
        let address = address.to_owned();
        callers.spawn(async move {
            let mut connection = Connection::open(&address).await;
            let mut n_failed = 0;
            for name in (caller..n_names).step_by(N_CALLERS as usize) {
                let path = format!("/v1/sequences/n{name}/next");
                n_failed += u64::from(!asked(&mut connection, &path).await);
            }
            n_failed
        });
    }
    callers.join_all().await.iter().sum()
}

/// Asks for `path`. Returns whether the call got a number.
async fn asked(connection: &mut Connection, path: &str) -> bool {
    let request = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    connection.exchange(request.as_bytes()).await.status == 200
}

/// Inserts the names `n0`, `n1` … into `database`, each as the program itself would store the name.
async fn insert_names(database: &TestDatabase, n_names: u32) {
    let options = Program::options().database(&database.url);
    let program = options.start_ready().await;
    assert_eq!(program.client().next("n0").await, 1);
    program.stop().await;
    let others = format!(
        "WITH RECURSIVE other(at) AS \
         (SELECT 1 UNION ALL SELECT at + 1 FROM other WHERE at < {} - 1)",
        n_names
    );
    for (table, key, rest) in [
        (
            "sequence",
            "name",
            "definition, state, periods_removed_through, version, created_at, changed_at",
        ),
        (
            "counter",
            "sequence",
            "period, next_value, floor, state, rate, stripe_count, \"window\", window_open, \
             window_leased_until, revision, version",
        ),
    ] {
        let copy = format!(
            "INSERT INTO {table} ({key}, {rest}) {others} \
             SELECT 'n' || at, {rest} FROM other, {table} WHERE {key} = 'n0'"
        );
        database.execute(&copy).await;
    }
}

/// Returns the bytes of a process in memory, once they have stopped falling.
async fn settled_bytes(process: u32, pace: Pace) -> u64 {
    let (mut least, mut since) = (u64::MAX, Instant::now());
    wait::until("freed memory is given back", SETTLE_LIMIT, async || {
        let now = usage::resident_bytes(process);
        if now < least {
            (least, since) = (now, Instant::now());
        }
        (since.elapsed() >= still_for(pace)).then_some(least)
    })
    .await
}

/// Returns the bytes that each name adds after one call. A name without a call for `park` is parked.
async fn per_name(stage: &Stage, database: &TestDatabase, pace: Pace, park: &str) -> Reading {
    let n_names = n_names(pace);
    let options = Program::options()
        .database(&database.url)
        .env("ODOMETER_IDLE__PARK", park);
    let program = stage.cores.start(Side::Server, options.start_ready()).await;
    let before = settled_bytes(program.id(), pace).await;
    let started = Instant::now();
    let n_failed = call_each(program.address(), n_names).await;
    let took = started.elapsed();
    let client = program.client();
    wait::until("all names are in that state", PARK_LIMIT, async || {
        let scrape = Scrape::of(&client).await;
        let n_actors = scrape.sum("odometer_actors", &[]);
        let is_in_state = match park {
            NO_LIMIT => n_actors >= f64::from(n_names),
            _ => n_actors == 0.0,
        };
        // A name that was unloaded takes no memory, and would look like a parked name.
        let all_held = scrape.sum("odometer_live_sequences", &[]) >= f64::from(n_names);
        (is_in_state && all_held).then_some(())
    })
    .await;
    let after = settled_bytes(program.id(), pace).await;
    let bytes = after.saturating_sub(before) as f64 / f64::from(n_names);
    Reading {
        n_requests: u64::from(n_names),
        n_failed,
        ..Reading::of(bytes)
    }
    .figure(
        "first_calls_per_second",
        f64::from(n_names) / took.as_secs_f64(),
    )
}

pub(crate) fn start_estimate(_: Pace) -> Duration {
    Duration::from_secs(5)
}

/// Measures the time from the start of the program to its first number. The program starts on a
/// known file, and in an empty directory.
pub(crate) async fn start(stage: &Stage, _: Pace) -> Vec<Row> {
    let known = directory("start");
    first_number(stage, known.path()).await;
    let mut on_known = Vec::new();
    let mut on_empty = Vec::new();
    for _ in 0..N_STARTS {
        on_known.push(first_number(stage, known.path()).await);
        let empty = directory("start");
        on_empty.push(first_number(stage, empty.path()).await);
    }
    [
        ("start", "start to first number, SQLite file", on_known),
        (
            "start-empty",
            "start to first number, no file yet",
            on_empty,
        ),
    ]
    .map(|(name, title, readings)| {
        Row::new(name, title, Unit::Milliseconds).series(vec![Series::new("Odometer", readings)])
    })
    .into()
}

async fn first_number(stage: &Stage, directory: &Path) -> Reading {
    let address = format!("127.0.0.1:{}", ports::free());
    let mut command = Command::new(settings::shipped_program());
    command
        .env_clear()
        .env("TESTS_RUN_DIRECTORY", keeper::run_directory())
        .env("ODOMETER_LISTEN", &address)
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let started = Instant::now();
    let spawned = stage.cores.start(Side::Server, async { command.spawn() });
    let mut process = spawned.await.expect("the program starts");
    keeper::end_with_the_run(process.id(), "KILL");
    while TcpStream::connect(&address).is_err() {
        assert!(started.elapsed() < START_LIMIT, "it does not listen");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let mut connection = Connection::open(&address).await;
    let has_number = asked(&mut connection, "/v1/sequences/orders/next").await;
    let took = started.elapsed();
    drop(connection);
    let asked_to_end = kill_process(pid(process.id()), Signal::TERM);
    asked_to_end.expect("our child can be sent a signal");
    process.wait().expect("our child can be waited for");
    keeper::has_ended(process.id());
    Reading {
        n_requests: 1,
        n_failed: u64::from(!has_number),
        ..Reading::of(took.as_secs_f64() * 1e3)
    }
}

/// Measures the bytes of the program as it is built, and without what only a debugger reads.
pub(crate) async fn binary(_: &Stage, _: Pace) -> Vec<Row> {
    let built = settings::shipped_program();
    let directory = directory("binary");
    let stripped = directory.path().join("odometer");
    let mut strip = Command::new("strip");
    let status = strip.arg("-o").args([&stripped, &built]).status();
    let status = status.expect("binutils come with the C compiler");
    assert!(status.success(), "strip: {status}");
    [
        ("binary", "size of the program, stripped", stripped),
        ("binary-symbols", "size of the program, with symbols", built),
    ]
    .map(|(name, title, path)| {
        let size = std::fs::metadata(&path).expect("it is there").len();
        let series = Series::new("Odometer", vec![Reading::of(size as f64)]);
        Row::new(name, title, Unit::Bytes).series(vec![series])
    })
    .into()
}
