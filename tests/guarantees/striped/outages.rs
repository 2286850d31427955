//! Databases that share a sequence are killed one after the other, and then all together, under
//! load from two replicas.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use super::{KINDS, LIMIT, N, configured, n_twice, residue};
use crate::support::{Client, Options, Program, Server, TestDatabase, dice, run, settings, wait};

const SEQUENCE: &str = "shared";
const N_REPLICAS: usize = 2;
const N_CALLERS: usize = 16;
/// The most numbers that one call asks for.
const MAX_AT_ONCE: u64 = 50;
const AFTER_A_REFUSAL: Duration = Duration::from_millis(2);
/// How many reservations in all databases are counted for their spread.
const N_SPREAD: i64 = 300;
/// How far the spread may be from even, as a ratio.
const UNEVEN: f64 = 0.2;
/// The least number of numbers that are issued in an outage.
const MIN_CALLS: u64 = 100;
/// The time after the return of all databases within which everything works again.
const RECOVERY: Duration = Duration::from_secs(3);

#[test]
fn databases_killed_in_turn_fail_no_call_and_repeat_no_number() {
    run(async {
        let size = settings::at_size(
            Size {
                n_numbers: 100_000,
                one: Duration::from_secs(4),
                all: Duration::from_secs(3),
            },
            Size {
                n_numbers: 1_000_000,
                one: Duration::from_secs(10),
                all: Duration::from_secs(5),
            },
        );
        let mut stage = Stage::start(Program::options()).await;
        let (mut seen, spread) = stage.spread().await;
        let load = stage.load();
        for k in 0..KINDS.len() {
            stage.kill_one(&load, k, size.one).await;
        }
        let silence = stage.kill_all(&load, size.all).await;
        wait::until("all are given", settings::test_limit(), async || {
            (load.notes.n_given.load(Ordering::Relaxed) >= size.n_numbers).then_some(())
        })
        .await;
        seen.add(load.stop().await);
        seen.check(silence);
        seen.check_against(&stage.databases).await;
        let even = to_float(spread.iter().sum::<i64>()) / to_float(N);
        for n in &spread {
            let off = (to_float(*n) - even).abs();
            assert!(off <= UNEVEN * even, "uneven: {spread:?}");
        }
        println!(
            "{} numbers, 0 twice, {} refused while all were away, reservations {spread:?}",
            seen.values.len(),
            seen.failures.len()
        );
    });
}

#[test]
fn without_their_offsets_databases_that_share_a_sequence_repeat_numbers() {
    run(async {
        let options = Program::options().without_guards("no-offset");
        let stage = Stage::start(options).await;
        let load = stage.load();
        wait::until("some are given", LIMIT, async || {
            (load.notes.n_given.load(Ordering::Relaxed) >= 5_000).then_some(())
        })
        .await;
        let seen = load.stop().await;
        assert!(n_twice(&seen.values) > 0, "the check finds nothing");
    });
}

struct Size {
    n_numbers: u64,
    /// How long each database is away.
    one: Duration,
    /// How long all databases are away.
    all: Duration,
}

struct Stage {
    servers: Vec<Server>,
    databases: Vec<TestDatabase>,
    programs: Vec<Program>,
}

impl Stage {
    async fn start(options: Options) -> Self {
        let (mut servers, mut databases) = (Vec::new(), Vec::new());
        for kind in KINDS {
            let server = Server::start(kind).await;
            databases.push(TestDatabase::empty_on(&server).await);
            servers.push(server);
        }
        let urls: Vec<&str> = databases.iter().map(|it| it.url.as_str()).collect();
        let migrated = configured(Program::options(), &urls).run(&["migrate"]);
        assert_eq!(migrated.code, Some(0), "migrate: {migrated}");
        let options = configured(options, &urls)
            .env("ODOMETER_DEFAULT__BLOCK__MIN", 10)
            .env("ODOMETER_DEFAULT__BLOCK__MAX", 200);
        let mut programs = Vec::new();
        for _ in 0..N_REPLICAS {
            programs.push(options.start_ready().await);
        }
        Self {
            servers,
            databases,
            programs,
        }
    }

    fn load(&self) -> Load {
        let notes = Arc::new(Notes::default());
        let clients: Vec<Client> = self.programs.iter().map(Program::client).collect();
        let start = |_| tokio::spawn(call_until_over(clients.clone(), Arc::clone(&notes)));
        Load {
            callers: (0..N_CALLERS).map(start).collect(),
            notes,
        }
    }

    /// Returns how many reservations each database has made. Callers who share a reservation get
    /// several blocks of it.
    async fn n_reservations(&self) -> Vec<i64> {
        let query = format!("SELECT version FROM counter WHERE sequence = '{SEQUENCE}'");
        let mut n_reservations = Vec::new();
        for database in &self.databases {
            n_reservations.push(database.number(&query).await.unwrap_or(0));
        }
        n_reservations
    }

    /// Returns what was issued while all databases were there, and how the reservations were spread
    /// over the databases. A database that is slow by itself is passed over, and then the count
    /// starts again.
    async fn spread(&self) -> (Seen, Vec<i64>) {
        let mut seen = Seen::default();
        let spread = wait::until("none is passed over", settings::test_limit(), async || {
            let n_passed_over = self.n_passed_over();
            let before = self.n_reservations().await;
            let load = self.load();
            wait::until("enough is reserved", LIMIT, async || {
                let spread = difference(&self.n_reservations().await, &before);
                (spread.iter().sum::<i64>() >= N_SPREAD).then_some(())
            })
            .await;
            seen.add(load.stop().await);
            let spread = difference(&self.n_reservations().await, &before);
            (self.n_passed_over() == n_passed_over).then_some(spread)
        });
        let spread = spread.await;
        (seen, spread)
    }

    fn n_passed_over(&self) -> usize {
        let lines = self.programs.iter().flat_map(Program::log_lines);
        lines
            .filter(|line| line.contains("a database is passed over"))
            .count()
    }

    /// Kills one database for `length`, and waits until it gives numbers again.
    async fn kill_one(&mut self, load: &Load, k: usize, length: Duration) {
        self.servers[k].kill();
        let killed = Instant::now();
        let n_before = load.notes.n_given.load(Ordering::Relaxed);
        tokio::time::sleep_until((killed + length).into()).await;
        let n_meanwhile = load.notes.n_given.load(Ordering::Relaxed) - n_before;
        assert!(
            n_meanwhile >= MIN_CALLS,
            "vacuous: {n_meanwhile} numbers without {k}"
        );
        self.servers[k].start_again().await;
        let before = self.n_reservations().await[k];
        wait::until("it gives numbers again", LIMIT, async || {
            (self.n_reservations().await[k] > before).then_some(())
        })
        .await;
    }

    /// Kills all databases for `length`. Returns from when to when calls may be refused.
    async fn kill_all(&mut self, load: &Load, length: Duration) -> (Instant, Instant) {
        let killed = Instant::now();
        for server in &mut self.servers {
            server.kill();
        }
        let all_killed = Instant::now();
        tokio::time::sleep_until((all_killed + length).into()).await;
        for server in &mut self.servers {
            server.start_again().await;
        }
        let back = Instant::now() + RECOVERY;
        load.goes_on(1_000).await;
        (killed, back)
    }
}

/// The notes of all callers together.
#[derive(Default)]
struct Notes {
    n_given: AtomicU64,
    over: AtomicBool,
}

struct Load {
    callers: Vec<tokio::task::JoinHandle<Seen>>,
    notes: Arc<Notes>,
}

impl Load {
    async fn goes_on(&self, n_numbers: u64) {
        let wanted = self.notes.n_given.load(Ordering::Relaxed) + n_numbers;
        wait::until("numbers are given", LIMIT, async || {
            (self.notes.n_given.load(Ordering::Relaxed) >= wanted).then_some(())
        })
        .await;
    }

    async fn stop(self) -> Seen {
        self.notes.over.store(true, Ordering::Relaxed);
        let mut all = Seen::default();
        for caller in self.callers {
            all.add(caller.await.expect("a caller does not panic"));
        }
        all
    }
}

/// A call that got no number.
struct Failure {
    sent: Instant,
    answered: Instant,
    said: String,
}

#[derive(Default)]
struct Seen {
    values: Vec<i64>,
    failures: Vec<Failure>,
}

impl Seen {
    fn add(&mut self, other: Self) {
        self.values.extend(other.values);
        self.failures.extend(other.failures);
    }

    fn check(&self, (from, to): (Instant, Instant)) {
        let outside = self
            .failures
            .iter()
            .filter(|failure| failure.answered < from || failure.sent > to);
        let outside: Vec<&String> = outside.map(|failure| &failure.said).take(10).collect();
        assert_eq!(outside, Vec::<&String>::new(), "while a database lived");
        assert_eq!(n_twice(&self.values), 0, "numbers given twice");
    }

    /// Checks that every number was given by its database.
    async fn check_against(&self, databases: &[TestDatabase]) {
        for (k, database) in databases.iter().enumerate() {
            let next_value = database.next_value(SEQUENCE).await.expect("it was created");
            assert_eq!(residue(next_value), k, "{next_value} in database {k}");
            let own = self.values.iter().filter(|value| residue(**value) == k);
            let highest = own.max().expect("every database gave some");
            assert!(
                *highest < next_value,
                "{highest} of {k}, which is at {next_value}"
            );
            for row in database.journal(SEQUENCE).await {
                assert_eq!(residue(row.first), k, "{row:?} in database {k}");
            }
        }
    }
}

async fn call_until_over(clients: Vec<Client>, notes: Arc<Notes>) -> Seen {
    let mut seen = Seen::default();
    while !notes.over.load(Ordering::Relaxed) {
        let client = &clients[dice::roll(0..clients.len())];
        let n = dice::roll(1..=MAX_AT_ONCE);
        let path = match dice::roll(0..3) {
            0 => format!("/v1/sequences/{SEQUENCE}/next"),
            1 => format!("/v1/sequences/{SEQUENCE}/next?count={n}"),
            _ => format!("/v1/sequences/{SEQUENCE}/blocks?size={n}"),
        };
        let sent = Instant::now();
        let reply = client.post(&path).await;
        let answered = Instant::now();
        let said = match reply {
            Ok(reply) if reply.status == 200 => {
                let values = reply.values();
                let n_given = u64::try_from(values.len()).expect("a count fits");
                notes.n_given.fetch_add(n_given, Ordering::Relaxed);
                seen.values.extend(values);
                continue;
            }
            Ok(reply) => format!("{path}: {reply:?}"),
            Err(error) => format!("{path}: {error:?}"),
        };
        seen.failures.push(Failure {
            sent,
            answered,
            said,
        });
        tokio::time::sleep(AFTER_A_REFUSAL).await;
    }
    seen
}

/// Returns how much each number has grown.
fn difference(now: &[i64], before: &[i64]) -> Vec<i64> {
    now.iter().zip(before).map(|(now, old)| now - old).collect()
}

fn to_float(n: i64) -> f64 {
    f64::from(i32::try_from(n).expect("a small number"))
}
