//! Programs that stamp ids themselves, by the library for Rust: they are stopped past their lease,
//! their clocks step, the service is away, and they fork. No id is stamped twice, and none outside
//! a lease.

use std::time::{Duration, Instant};

use odometer_core::snowflake::Layout;
use serde_json::{Value, json};

use super::options;
use crate::{
    clients::{
        driver::{Driver, Given},
        language::Language,
    },
    support::{
        Backend, Client, Ledger, Options, Program, SteppedClock, TestDatabase, clock, ports, run,
        wait,
    },
};

const POOL: &str = "billing";
const SHORT_TTL_MS: i64 = 3_000;
const LONG_TTL_MS: i64 = 20_000;
const HOUR_MS: i64 = 3_600_000;
const LIMIT: Duration = Duration::from_secs(60);
/// More ids than a worker id has in a tenth of a second, so that two programs that stamp at the
/// same time meet.
const MANY: &str = "stamp 400000";

/// A program on SQLite, which leases worker ids, and can be started again at its port.
struct Scene {
    options: Options,
    program: Program,
    _database: TestDatabase,
}

/// How a driver stamps.
struct Stamping<'a> {
    high: &'a str,
    holder: &'a str,
    ttl_ms: i64,
    /// The options that take guards out of the library.
    without: &'a [&'a str],
}

/// All guards that end a stamper with its lease.
const LEASE_CHECKS: &[&str] = &["without_lease_end", "without_reserved_time"];

impl Scene {
    async fn start() -> Self {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let listen = format!("127.0.0.1:{}", ports::free());
        let options = Program::options()
            .database(&database.url)
            .env("ODOMETER_LISTEN", listen);
        Self {
            program: options.start_ready().await,
            options,
            _database: database,
        }
    }

    fn client(&self) -> Client {
        self.program.client()
    }

    fn options_of(&self, stamping: &Stamping<'_>) -> Value {
        let mut options = options(&[self.program.url()]);
        options["stamper"] = json!({
            "pool": POOL, "layout": layout_of(stamping.high), "holder": stamping.holder
        });
        options["lease_ttl_ms"] = stamping.ttl_ms.into();
        for guard in stamping.without {
            options[*guard] = true.into();
        }
        options
    }

    async fn driver(&self, stamping: &Stamping<'_>) -> Driver {
        Driver::start(Language::Rust, &self.options_of(stamping)).await
    }

    /// Returns the time that is reserved with a worker id, and whether the id is held.
    async fn lease_of(&self, worker: u32) -> (i64, i64, bool) {
        let page = self.client().get(&format!("/v1/workers/{POOL}")).await;
        let page = page.expect("a reply").json();
        let workers = page["workers"].as_array().expect("a list");
        let row = workers.iter().find(|row| row["worker"] == worker);
        let row = row.unwrap_or_else(|| panic!("worker id {worker}: {page}"));
        let ms = |field: &str| row[field].as_i64().expect("a time");
        (ms("from_ms"), ms("until_ms"), row["held"] == true)
    }
}

/// Returns a layout with two worker ids.
fn layout_of(high: &str) -> Value {
    json!({"high": high, "worker": 1})
}

/// Counts the ids that are not of this worker id, or not of the time in the range.
fn n_outside(high: &str, given: &Given, worker: u32, from_ms: i64, until_ms: i64) -> usize {
    let layout: Layout = serde_json::from_value(layout_of(high)).expect("a layout");
    let is_outside = |id: &i64| {
        let parts = layout.read(*id).expect("an id");
        let (begins, ends) = (parts.tick, parts.tick + 1);
        parts.worker != worker
            || layout.unix_ms_of(begins) < from_ms
            || layout.unix_ms_of(ends) > until_ms
    };
    given.values().iter().filter(|id| is_outside(id)).count()
}

async fn answer_of(driver: &mut Driver) -> Given {
    let answer = driver.answer().await.expect("an answer");
    Given::parse(&answer).unwrap_or_else(|| panic!("no ids: {answer}"))
}

/// Waits until ids are stamped again, and returns those.
async fn stamped_again(driver: &mut Driver) -> Given {
    wait::until("ids are stamped again", LIMIT, async || {
        let given = driver.take("stamp 100").await;
        given.error.is_none().then_some(given)
    })
    .await
}

/// What two programs stamped with one worker id, the first of which was stopped past its lease.
struct Stopped {
    ledger: Ledger,
    /// What the first one stamped as soon as it went on.
    resumed: Given,
}

async fn stopped(high: &str, without: &[&str]) -> Stopped {
    let scene = Scene::start().await;
    // Of the two worker ids, one is left.
    let other = scene.client().lease(POOL, 1, HOUR_MS, "another").await;
    let left = 1 - other.worker;
    let mut first = scene
        .driver(&Stamping {
            high,
            holder: "first",
            ttl_ms: SHORT_TTL_MS,
            without,
        })
        .await;
    let mut options = scene.options_of(&Stamping {
        high,
        holder: "second",
        ttl_ms: LONG_TTL_MS,
        without: &[],
    });
    // It is told soon that it cannot have the worker id yet.
    options["deadline_ms"] = Value::from(500);
    let mut second = Driver::start(Language::Rust, &options).await;
    let mut ledger = Ledger::default();
    first.obey("lease").await;
    let before = first.take("stamp 5000").await;
    assert_eq!((before.n_numbers(), &before.error), (5000, &None));
    ledger.record(POOL, &before.ranges);
    let refused = second.ask("lease").await;
    assert_eq!(refused.as_deref(), Ok("error no_lease"), "vacuous");

    first.freeze();
    wait::until("the second one has the worker id", LIMIT, async || {
        let answer = second.ask("lease").await;
        (answer.as_deref() == Ok("done")).then_some(())
    })
    .await;
    for driver in [&mut first, &mut second] {
        driver.send(MANY).expect("it is sent");
    }
    first.thaw();
    let resumed = answer_of(&mut first).await;
    let others = answer_of(&mut second).await;
    assert_eq!((others.n_numbers(), &others.error), (400_000, &None));
    let (from_ms, until_ms, _) = scene.lease_of(left).await;
    assert_eq!(n_outside(high, &others, left, from_ms, until_ms), 0);
    for given in [&resumed, &others] {
        ledger.record(POOL, &given.ranges);
    }
    if without.is_empty() {
        second.obey("release").await;
        let again = stamped_again(&mut first).await;
        let (from_ms, until_ms, _) = scene.lease_of(left).await;
        assert_eq!(n_outside(high, &again, left, from_ms, until_ms), 0);
        ledger.record(POOL, &again.ranges);
    }
    first.exit().await;
    second.exit().await;
    Stopped { ledger, resumed }
}

#[test]
fn a_program_that_was_stopped_past_its_lease_stamps_no_id_twice() {
    run(async {
        for high in ["time", "worker"] {
            let outcome = stopped(high, &[]).await;
            let resumed = &outcome.resumed;
            let stamped = (resumed.n_numbers(), resumed.error.as_deref());
            assert_eq!(stamped, (0, Some("no_lease")), "{high}");
            assert_eq!(outcome.ledger.n_duplicates(), 0, "{high}");
        }
    });
}

/// The end of the lease by the program's own clock is a second guard.
#[test]
fn the_reserved_time_alone_lets_a_stopped_program_stamp_no_id_twice() {
    run(async {
        for high in ["time", "worker"] {
            let outcome = stopped(high, &["without_lease_end"]).await;
            assert_eq!(outcome.ledger.n_duplicates(), 0, "{high}");
            // Counted ids go on in the time that was reserved.
            let n_numbers = outcome.resumed.n_numbers();
            assert!(high == "time" || n_numbers > 0, "vacuous: {n_numbers} ids");
        }
    });
}

#[test]
fn without_its_lease_checks_a_stopped_program_stamps_ids_twice() {
    run(async {
        let outcome = stopped("time", LEASE_CHECKS).await;
        assert!(outcome.ledger.n_duplicates() > 0, "the check finds nothing");
    });
}

/// What a program stamped whose clock was stepped.
struct Stepped {
    ledger: Ledger,
    /// How many ids lie outside the time that was reserved.
    n_outside: usize,
    errors: Vec<String>,
}

async fn stepped(high: &str, without: &[&str]) -> Stepped {
    let scene = Scene::start().await;
    let clock = SteppedClock::right();
    let stamping = Stamping {
        high,
        holder: "stepped",
        ttl_ms: LONG_TTL_MS,
        without,
    };
    let options = scene.options_of(&stamping);
    let mut driver = Driver::start_in(Language::Rust, &options, &clock.environment()).await;
    driver.obey("lease").await;
    let mut outcome = Stepped {
        ledger: Ledger::default(),
        n_outside: 0,
        errors: Vec::new(),
    };
    for offset_ms in [0, 300, -300, HOUR_MS, 0, -HOUR_MS, 0, 2 * HOUR_MS, -500] {
        clock.step_to(offset_ms);
        for _ in 0..5 {
            let given = driver.take("stamp 2000").await;
            let (from_ms, until_ms, _) = scene.lease_of(0).await;
            outcome.n_outside += n_outside(high, &given, 0, from_ms, until_ms);
            outcome.ledger.record(POOL, &given.ranges);
            outcome.errors.extend(given.error);
        }
    }
    clock.step_to(0);
    if without.is_empty() {
        let again = stamped_again(&mut driver).await;
        outcome.ledger.record(POOL, &again.ranges);
    }
    driver.exit().await;
    outcome
}

#[test]
fn a_program_whose_clock_steps_stamps_no_id_twice_and_none_outside_its_lease() {
    run(async {
        for (high, met) in [
            ("time", &["clock_behind", "past_reserved_time"][..]),
            // Counted ids do not look at the clock.
            ("worker", &[][..]),
        ] {
            let outcome = stepped(high, &[]).await;
            assert_eq!(outcome.ledger.n_duplicates(), 0, "{high}");
            assert_eq!(outcome.n_outside, 0, "{high}");
            let mut errors = outcome.errors.clone();
            errors.sort_unstable();
            errors.dedup();
            assert_eq!(errors, met, "{high}");
            let n_numbers = outcome.ledger.n_numbers();
            assert!(n_numbers > 10_000, "vacuous: {n_numbers} ids");
        }
    });
}

#[test]
fn without_its_lease_checks_a_stepped_clock_stamps_ids_outside_the_lease() {
    run(async {
        let outcome = stepped("time", LEASE_CHECKS).await;
        assert!(outcome.n_outside > 0, "the check finds nothing");
    });
}

/// What a program stamped that lost the service.
struct Lost {
    ledger: Ledger,
    /// How many ids lie past the time that can have been reserved.
    n_outside: usize,
    /// What ended the ids, if anything did.
    error: Option<String>,
}

async fn lost(high: &str, without: &[&str]) -> Lost {
    let mut scene = Scene::start().await;
    let stamping = Stamping {
        high,
        holder: "lost",
        ttl_ms: SHORT_TTL_MS,
        without,
    };
    let mut driver = scene.driver(&stamping).await;
    driver.obey("lease").await;
    let mut outcome = Lost {
        ledger: Ledger::default(),
        n_outside: 0,
        error: None,
    };
    scene.program.kill();
    let (killed, killed_ms) = (Instant::now(), clock::now_ms());
    // An unchecked program stamps on for longer than its lease.
    while outcome.error.is_none() && killed.elapsed() < Duration::from_secs(4) {
        let given = driver.take("stamp 100").await;
        let until_ms = killed_ms + stamping.ttl_ms;
        outcome.n_outside += n_outside(high, &given, 0, 0, until_ms);
        outcome.ledger.record(POOL, &given.ranges);
        outcome.error = given.error;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    scene.program = scene.options.start_ready().await;
    let again = stamped_again(&mut driver).await;
    outcome.ledger.record(POOL, &again.ranges);
    driver.exit().await;
    outcome
}

#[test]
fn a_program_that_loses_the_service_stamps_until_its_lease_ends() {
    run(async {
        for high in ["time", "worker"] {
            let outcome = lost(high, &[]).await;
            assert_eq!(outcome.error.as_deref(), Some("no_lease"), "{high}");
            assert_eq!(outcome.n_outside, 0, "{high}");
            assert_eq!(outcome.ledger.n_duplicates(), 0, "{high}");
            let n_numbers = outcome.ledger.n_numbers();
            assert!(n_numbers > 300, "{high}: {n_numbers} ids in the outage");
        }
    });
}

#[test]
fn without_its_lease_checks_a_program_stamps_on_without_the_service() {
    run(async {
        let outcome = lost("time", LEASE_CHECKS).await;
        assert_eq!(outcome.error, None);
        assert!(outcome.n_outside > 0, "the check finds nothing");
    });
}

/// Returns what a program and its forked child stamped.
async fn forked(has_hook: bool) -> Ledger {
    let scene = Scene::start().await;
    let mut options = scene.options_of(&Stamping {
        high: "time",
        holder: "forks",
        ttl_ms: LONG_TTL_MS,
        without: &[],
    });
    options["without_fork_hook"] = (!has_hook).into();
    let mut driver = Driver::start(Language::Rust, &options).await;
    driver.obey("lease").await;
    let mut ledger = Ledger::default();
    for step in ["stamp 100", "stamp_in_fork 20000", "stamp 100"] {
        let given = driver.take(step).await;
        assert_eq!(given.error, None, "{step}");
        ledger.record(POOL, &given.ranges);
    }
    // The child has ended by now, and gave nothing back that is its parent's.
    let (.., is_held) = scene.lease_of(0).await;
    assert!(is_held);
    driver.exit().await;
    ledger
}

#[test]
fn a_forked_program_stamps_with_a_worker_id_of_its_own() {
    run(async {
        let ledger = forked(true).await;
        assert_eq!(ledger.n_numbers(), 40_200);
        assert_eq!(ledger.n_duplicates(), 0);
    });
}

#[test]
fn without_its_hook_a_forked_program_stamps_ids_twice() {
    run(async {
        let ledger = forked(false).await;
        assert!(ledger.n_duplicates() > 0, "the check finds nothing");
    });
}

#[test]
fn what_a_program_did_not_stamp_is_given_back() {
    run(async {
        let scene = Scene::start().await;
        let mut driver = scene
            .driver(&Stamping {
                high: "time",
                holder: "gives-back",
                ttl_ms: LONG_TTL_MS,
                without: &[],
            })
            .await;
        driver.obey("lease").await;
        let given = driver.take("stamp 1000").await;
        assert_eq!((given.n_numbers(), &given.error), (1000, &None));
        driver.obey("release").await;
        let until_ms = wait::until("the id is given back", LIMIT, async || {
            let (_, until_ms, is_held) = scene.lease_of(0).await;
            (!is_held).then_some(until_ms)
        })
        .await;
        assert!(until_ms <= clock::now_ms(), "{until_ms}");
        assert_eq!(n_outside("time", &given, 0, 0, until_ms), 0);
        driver.exit().await;
    });
}

#[test]
fn a_program_that_closes_its_stamper_and_ends_at_once_leaves_its_worker_id_free() {
    run(async {
        let scene = Scene::start().await;
        let mut driver = scene
            .driver(&Stamping {
                high: "time",
                holder: "closes",
                ttl_ms: LONG_TTL_MS,
                without: &[],
            })
            .await;
        driver.obey("lease").await;
        let given = driver.take("stamp 1000").await;
        assert_eq!((given.n_numbers(), &given.error), (1000, &None));
        driver.obey("close").await;
        driver.exit().await;
        let (_, until_ms, is_held) = scene.lease_of(0).await;
        assert!(!is_held && until_ms <= clock::now_ms(), "{until_ms}");
        assert_eq!(n_outside("time", &given, 0, 0, until_ms), 0);
    });
}

/// The most times that the threads of a library may wait in a second of refused ids.
const MAX_WAITS: u64 = 1_000;

#[test]
fn ids_that_are_refused_do_not_wake_the_thread_of_the_stamper() {
    run(async {
        let mut scene = Scene::start().await;
        let mut driver = scene
            .driver(&Stamping {
                high: "time",
                holder: "asks",
                ttl_ms: SHORT_TTL_MS,
                without: &[],
            })
            .await;
        driver.obey("lease").await;
        scene.program.kill();
        wait::until("the lease has ended", LIMIT, async || {
            let given = driver.take("stamp 1").await;
            (given.error.as_deref() == Some("no_lease")).then_some(())
        })
        .await;
        let n_before = driver.n_waits();
        let answer = driver.ask("refused 1000").await.expect("an answer");
        let n_waits = driver.n_waits().saturating_sub(n_before);
        let n_refused = answer.strip_prefix("refused ").expect("a count");
        let n_refused: u64 = n_refused.parse().expect("a number");
        assert!(n_refused > 100 * MAX_WAITS, "vacuous: {n_refused}");
        assert!(n_waits < MAX_WAITS, "{n_waits} for {n_refused} ids");
        driver.exit().await;
    });
}
