//! The library against the real program on real databases: replicas are killed, drained and cut
//! off, and the database is away.

mod endpoints;
mod forks;
mod https;
mod load;
mod outages;
mod processes;
mod refusals;
mod restarts;
mod stampers;

use serde_json::{Value, json};

use crate::support::{Options, Program, TestDatabase, ports};

/// The sequence of these tests, unless a test needs several.
const SEQUENCE: &str = "orders";
/// How long callers wait for a number. It is longer than any fault of these tests.
const DEADLINE_MS: u64 = 40_000;

/// Returns the options of a driver for these endpoints.
fn options(endpoints: &[String]) -> Value {
    json!({"endpoints": endpoints, "sequence": SEQUENCE, "deadline_ms": DEADLINE_MS})
}

/// Replicas of one database. Each of them keeps its port when it is started again.
struct Replicas {
    options: Vec<Options>,
    ports: Vec<u16>,
    programs: Vec<Program>,
}

impl Replicas {
    /// Starts replicas, and defines the sequence.
    async fn start(database: &TestDatabase, wanted: usize) -> Self {
        let mut replicas = Self {
            options: Vec::new(),
            ports: Vec::new(),
            programs: Vec::new(),
        };
        for _ in 0..database.backend.replicas(wanted) {
            let port = ports::free();
            let options = Program::options()
                .database(&database.url)
                .without_speed_limit()
                .env("ODOMETER_LISTEN", format!("127.0.0.1:{port}"))
                .env("ODOMETER_SHUTDOWN__READY_WAIT", "1s");
            replicas.programs.push(options.start_ready().await);
            replicas.options.push(options);
            replicas.ports.push(port);
        }
        let client = replicas.programs[0].client();
        client.define(SEQUENCE, &json!({})).await;
        replicas
    }

    fn endpoints(&self) -> Vec<String> {
        self.programs.iter().map(Program::url).collect()
    }

    fn kill(&mut self, replica: usize) {
        self.programs[replica].kill();
    }

    /// Stops a replica in order.
    async fn drain(&mut self, replica: usize) {
        let program = &mut self.programs[replica];
        program.terminate();
        assert_eq!(program.end().await, Some(0), "{}", program.log());
    }

    async fn start_again(&mut self, replica: usize) {
        self.programs[replica] = self.options[replica].start_ready().await;
    }
}

/// Starts a program on SQLite, which has no other replica.
async fn sole_program(database: &TestDatabase) -> Program {
    let options = Program::options().database(&database.url);
    options.start_ready().await
}
