//! The cost of a warm number in instructions and allocations, compared with the accepted costs.
//!
//! valgrind counts on the thread that answers, so a busy machine changes next to nothing.

use std::{
    collections::BTreeMap, env::consts::ARCH, fmt::Display, path::PathBuf, process::Command,
    time::Instant,
};

use odometer::access::token::{hash, make, to_hex};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{
    Backend, Callgrind, Options, Program, RespClient, TestDatabase, directory, raw::Connection,
    run, settings,
};

/// How far a cost may differ from the accepted one, as a ratio.
const TOLERANCE: f64 = 0.10;
/// Allocations by which a cost may differ in any case, because what the service does by the clock
/// allocates, too. An allocation on the way of each call adds 1.
const BY_THE_CLOCK: f64 = 0.3;
/// The one command that replaces the accepted costs.
const RENEW: &str = "ODOMETER_TESTS_RENEW_COSTS=1 tests/run what_a_warm_number_costs";
/// Time-ordered ids of both layouts, with the argument of the program that takes them.
const IDS: [(&str, &str); 4] = [
    ("id by the clock", "time"),
    ("100 ids by the clock", "time-batch"),
    ("id counted", "worker"),
    ("100 ids counted", "worker-batch"),
];
const N_REQUESTS: u32 = 5000;
const N_TAKES: u64 = 10_000;

/// The cost of one take or of one request.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Cost {
    instructions: f64,
    allocations: f64,
}

#[test]
fn what_a_warm_number_costs_is_what_was_accepted() {
    run(async {
        let mut costs = BTreeMap::new();
        costs.insert("take", take("single").await);
        costs.insert("take of 100", take("batch").await);
        for (what, id) in IDS {
            costs.insert(what, take(id).await);
            assert_eq!(costs[what].allocations, 0.0, "{what} allocates");
        }
        costs.insert("request", request("orders/next").await);
        costs.insert("request for 100", request("orders/next?count=100").await);
        costs.insert("command", command(&["INCR orders"]).await);
        costs.insert("command for 100", command(&["INCRBY orders 100"]).await);
        assert_eq!(costs["take"].allocations, 0.0, "a take allocates");
        assert_eq!(costs["take of 100"].allocations, 0.0, "a batch allocates");
        if settings::renews_costs() {
            renew(&costs);
            return;
        }
        let mut found = Vec::new();
        for (what, cost) in costs {
            found.extend(cost.other_than(accepted(what), what));
        }
        let before = accepted_costs();
        assert!(
            found.is_empty(),
            "{}\nThe accepted costs were taken with {}, {} and {}; this is {}, {} and {}.\n\
             If they are right now: {RENEW}",
            found.join("\n"),
            before["rustc"],
            before["libc"],
            before["architecture"],
            rustc(),
            libc(),
            ARCH,
        );
    });
}

/// The control: a take that is known to cost more is found out, in both counts.
#[test]
fn a_lock_and_an_allocation_on_the_way_to_a_number_are_found_out() {
    run(async {
        let accepted = accepted("take");
        let dearer = take("dearer").await;
        assert!(dearer.instructions > accepted.instructions * (1.0 + TOLERANCE));
        assert_eq!(dearer.allocations, 1.0);
        assert!(dearer.other_than(accepted, "take").is_some());
    });
}

/// The control: a name with percent signs is the same name, but the routes answer it.
#[test]
fn a_request_that_leaves_the_warm_path_is_found_out() {
    run(async {
        let accepted = accepted("request");
        let dearer = request("order%73/next").await;
        assert!(dearer.instructions > accepted.instructions * (1.0 + TOLERANCE));
        assert!(dearer.allocations > accepted.allocations * (1.0 + TOLERANCE));
        assert!(dearer.other_than(accepted, "request").is_some());
    });
}

/// The control: a command that is another one than the last on its connection is read.
#[test]
fn a_command_that_is_read_again_is_found_out() {
    run(async {
        let accepted = accepted("command");
        let dearer = command(&["INCR orders", "INCR others"]).await;
        assert!(
            dearer.instructions > accepted.instructions * (1.0 + TOLERANCE),
            "{dearer:?} {accepted:?}"
        );
        assert!(dearer.other_than(accepted, "command").is_some());
    });
}

/// A caller's trace costs a warm number one allocation, for the header of the reply.
#[test]
fn a_trace_costs_a_warm_number_one_allocation() {
    run(async {
        let traceparent =
            "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n";
        // The other request has one header more as well, because any header costs allocations.
        let other = traceparent.replace("traceparent", "x-not-so-far");
        let plain = request_with("orders/next", &other).await;
        let traced = request_with("orders/next", traceparent).await;
        let n_more = traced.allocations - plain.allocations;
        assert!((0.8..=1.2).contains(&n_more), "{plain:?} {traced:?}");
    });
}

/// A caller's token costs a warm number next to nothing, and no allocation. The routes are asked once
/// a second who the caller of a connection is, not at each call. To ask them takes some 20
/// allocations. In the control, two callers take turns on one connection, so it remembers neither.
#[test]
fn a_token_costs_a_warm_number_at_most_three_percent() {
    run(async {
        let takers = Takers::new();
        let [bearer, _] = &takers.bearers;
        let next = "orders/next";
        // A slow machine needs more seconds for the same requests. So this measures a connection that
        // remembers its caller for good.
        let remembering = || Program::options().without_guards("memo-never-stale");
        let shown = request_to(takers.may_take(remembering()), next, &[bearer]).await;
        // A header of the same length that nobody reads.
        let other = bearer.replace("Authorization", "If-None-Match");
        let plain = request_to(remembering(), next, &[&other]).await;
        assert!(
            shown.instructions <= plain.instructions * 1.03,
            "{plain:?} {shown:?}"
        );
        assert!(
            shown.allocations <= plain.allocations + BY_THE_CLOCK,
            "{plain:?} {shown:?}"
        );
        let began = Instant::now();
        let shipped = request_to(takers.may_take(Program::options()), next, &[bearer]).await;
        let a_request = 100.0 * began.elapsed().as_secs_f64() / f64::from(N_REQUESTS);
        let turns = request_to(takers.may_take(Program::options()), next, &takers.bearers).await;
        let most = shown.allocations + a_request;
        assert!(shipped.allocations <= most, "{shipped:?} above {most}");
        assert!(turns.allocations > most, "the control: {turns:?}, {most}");
    });
}

/// Two callers who may take numbers of orders.
struct Takers {
    folder: TempDir,
    /// What each of them sends along.
    bearers: [String; 2],
}

impl Takers {
    fn new() -> Self {
        let (folder, mut sections) = (directory("callers"), String::new());
        let bearers = ["one", "two"].map(|name| {
            let token = make();
            let digits = to_hex(&hash(token.expose()).expect("a token"));
            sections += &format!("[{name}]\nrole = \"taker\"\nsha256 = [\"{digits}\"]\n");
            format!("Authorization: Bearer {}\r\n", token.expose())
        });
        std::fs::write(folder.path().join("callers.toml"), sections).expect("our directory");
        Self { folder, bearers }
    }

    /// Adds to `options` who they are and what they may do.
    fn may_take(&self, options: Options) -> Options {
        let file = self.folder.path().join("callers.toml");
        options
            .env("ODOMETER_ACCESS__CALLERS_FILE", file.display())
            .env("ODOMETER_ACCESS__ROLES__TAKER__TAKE", "order*")
            .env("ODOMETER_ACCESS__ROLES__TAKER__CREATE", "order*")
    }
}

impl Cost {
    /// Returns a message if this cost differs from `accepted` by more than the tolerance. A lower
    /// cost counts as well. Otherwise the cost could rise again without a message.
    fn other_than(self, accepted: Self, what: &str) -> Option<String> {
        let differs = |cost: f64, accepted: f64, least: f64| {
            (cost - accepted).abs() > f64::max(accepted * TOLERANCE, least)
        };
        let is_other = differs(self.instructions, accepted.instructions, 0.0)
            || differs(self.allocations, accepted.allocations, BY_THE_CLOCK);
        is_other.then(|| {
            format!(
                "{what}: {:.0} instructions and {:.2} allocations instead of {:.0} and {:.2}",
                self.instructions, self.allocations, accepted.instructions, accepted.allocations
            )
        })
    }
}

#[test]
fn what_becomes_cheaper_or_dearer_than_the_tolerance_is_told() {
    let cost = |instructions, allocations| Cost {
        instructions,
        allocations,
    };
    let is_told = |other: Cost| other.other_than(cost(1000.0, 10.0), "it").is_some();
    for within in [cost(1099.0, 10.9), cost(901.0, 9.1)] {
        assert!(!is_told(within), "{within:?}");
    }
    for (instructions, allocations) in
        [(1101.0, 10.0), (899.0, 10.0), (1000.0, 11.1), (1000.0, 8.9)]
    {
        assert!(is_told(cost(instructions, allocations)));
    }
    assert!(cost(26.0, 0.5).other_than(cost(26.0, 0.0), "it").is_some());
    assert!(cost(26.0, 0.1).other_than(cost(26.0, 0.0), "it").is_none());
    assert!(cost(26.0, 0.0).other_than(cost(26.0, 0.0), "it").is_none());
}

/// Measures the cost of one take of `what` in a process. The result is the difference between many
/// and few takes, so that the start does not count.
async fn take(what: &str) -> Cost {
    let program = settings::takes();
    let few = Callgrind::run(&program, &[what, &N_TAKES.to_string()]).await;
    let many = Callgrind::run(&program, &[what, &(3 * N_TAKES).to_string()]).await;
    let per_take = |few: u64, many: u64| (many - few) as f64 / (2 * N_TAKES) as f64;
    // The starts of the two runs differ by less than this rounding.
    let rounded = |cost: f64| (cost * 1000.0).round() / 1000.0;
    Cost {
        instructions: rounded(per_take(few.instructions, many.instructions)),
        allocations: rounded(per_take(few.allocations, many.allocations)),
    }
}

/// Measures one warm request to the shipped program, as the mean of many on one connection.
async fn request(path: &str) -> Cost {
    request_with(path, "").await
}

/// Measures one warm request with further headers.
async fn request_with(path: &str, headers: &str) -> Cost {
    request_to(Program::options(), path, &[headers]).await
}

/// Measures one warm request to a program that is started with `options`. The requests take turns
/// with their further headers.
async fn request_to(options: Options, path: &str, headers: &[impl Display]) -> Cost {
    let with =
        |headers| format!("POST /v1/sequences/{path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n");
    let requests: Vec<_> = headers.iter().map(with).collect();
    let counted = CountedProgram::start(options).await;
    let mut connection = Connection::open(counted.program.address()).await;
    let asking = async |n| ask(&mut connection, &requests, n).await;
    counted.cost(asking).await
}

/// Measures one warm command of a client of Redis, as the mean of many on one connection. The
/// commands take turns.
async fn command(lines: &[&str]) -> Cost {
    let counted = CountedProgram::start(Program::options().with_resp()).await;
    let mut client = RespClient::open(&counted.program.resp_address()).await;
    let asking = async |n| {
        for (line, _) in lines.iter().cycle().zip(0..n) {
            let reply = client.ask(line).await;
            assert!(reply.starts_with(':'), "{line}: {reply}");
        }
    };
    counted.cost(asking).await
}

/// The shipped program, whose thread that answers is counted.
struct CountedProgram {
    _database: TestDatabase,
    callgrind: Callgrind,
    program: Program,
}

impl CountedProgram {
    async fn start(options: Options) -> Self {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let callgrind = Callgrind::new();
        let program = options
            .database(&database.url)
            .env("ODOMETER_HTTP__WORKERS", 1)
            // One block is enough for all requests, and the next block is not fetched long before it
            // is needed. So no refill is counted.
            .env("ODOMETER_DEFAULT__BLOCK__MIN", 10_000_000)
            .env("ODOMETER_DEFAULT__BLOCK__HOLD", "1s")
            .env("ODOMETER_DEFAULT__BLOCK__REFILL", "1s")
            .under(&callgrind)
            .start_ready()
            .await;
        Self {
            _database: database,
            callgrind,
            program,
        }
    }

    /// Returns the mean cost of what `ask` asks for as often as it is told.
    async fn cost(self, mut ask: impl AsyncFnMut(u32)) -> Cost {
        // The first requests create what is created only once, so they are not counted.
        ask(200).await;
        self.callgrind.count(self.program.id(), true).await;
        ask(N_REQUESTS).await;
        self.callgrind.count(self.program.id(), false).await;
        self.program.stop().await;
        let counted = self.callgrind.counted();
        assert!(counted.instructions > 0, "nothing was counted");
        Cost {
            instructions: counted.instructions as f64 / f64::from(N_REQUESTS),
            allocations: counted.allocations as f64 / f64::from(N_REQUESTS),
        }
    }
}

/// Asks `n` times in all, with one request after the other.
async fn ask(connection: &mut Connection, requests: &[String], n: u32) {
    for (request, _) in requests.iter().cycle().zip(0..n) {
        let reply = connection.exchange(request.as_bytes()).await;
        assert_eq!(reply.status, 200, "{reply:?}");
    }
}

fn file() -> PathBuf {
    settings::repository().join("tests/operation/costs.json")
}

fn accepted_costs() -> Value {
    let text = std::fs::read_to_string(file()).expect("costs.json is beside this file");
    serde_json::from_str(&text).expect("costs.json is JSON")
}

fn accepted(what: &str) -> Cost {
    let cost = &accepted_costs()["costs"][what];
    let number = |name: &str| {
        let number = cost[name].as_f64();
        number.unwrap_or_else(|| panic!("costs.json lacks {name} of {what}: {RENEW}"))
    };
    Cost {
        instructions: number("instructions"),
        allocations: number("allocations"),
    }
}

fn renew(costs: &BTreeMap<&str, Cost>) {
    let rounded = |cost: f64| (cost * 100.0).round() / 100.0;
    let costs: BTreeMap<_, _> = costs
        .iter()
        .map(|(what, cost)| {
            let cost = json!({
                "instructions": rounded(cost.instructions),
                "allocations": rounded(cost.allocations),
            });
            (what, cost)
        })
        .collect();
    let all = json!({
        "renew": RENEW,
        "rustc": rustc(),
        "libc": libc(),
        "architecture": ARCH,
        "costs": costs,
    });
    let text = serde_json::to_string_pretty(&all).expect("it is JSON");
    std::fs::write(file(), text + "\n").expect("the sources are writable");
}

fn rustc() -> String {
    said(Command::new("rustc").arg("--version"))
}

/// Returns the version of the C library, which copies memory with instructions of its own choice.
fn libc() -> String {
    said(Command::new("getconf").arg("GNU_LIBC_VERSION"))
}

fn said(command: &mut Command) -> String {
    let output = command.output().expect("it is there");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}
