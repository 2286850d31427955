//! Replicas that answer by the script of a case, and note every call.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{Semaphore, watch},
    task::JoinHandle,
};

use super::{
    call::Call,
    counter::Counter,
    script::{Answer, CallKind, Case, Problem},
};
use crate::support::raw;

/// The replicas of one case, which stop when the stage is dropped.
pub(super) struct Stage {
    shared: Arc<Shared>,
    endpoints: Vec<String>,
    accepting: Vec<JoinHandle<()>>,
}

struct Shared {
    sequence: String,
    log: Mutex<Log>,
    /// One permit for each held answer that may go on.
    held: Semaphore,
    doors: Vec<Door>,
}

/// The state of a listener.
#[derive(Default)]
struct Door {
    is_to_close: watch::Sender<bool>,
    is_closed: watch::Sender<bool>,
}

/// What the replicas know together.
pub(super) struct Log {
    pub(super) calls: Vec<Call>,
    pub(super) counter: Counter,
    /// The most calls for numbers that were under way at once.
    pub(super) max_under_way: usize,
    n_under_way: usize,
    /// The answers that are left of each replica, in the order of their first calls.
    answers: Vec<Script>,
    definition: Script,
    /// For each endpoint, which replica of the script it became at its first call.
    replicas: Vec<Option<usize>>,
    n_connections: usize,
    last_answer: Option<Instant>,
}

/// Answers that are used one after the other.
struct Script {
    left: VecDeque<Answer>,
    /// Whether an answer that is for all calls was used.
    is_used: bool,
}

impl Script {
    fn of(answers: &[Answer]) -> Self {
        Self {
            left: answers.iter().cloned().collect(),
            is_used: false,
        }
    }

    fn next(&mut self) -> Answer {
        if let Some(Answer::Always(answer)) = self.left.front() {
            self.is_used = true;
            return (**answer).clone();
        }
        self.left.pop_front().unwrap_or(Answer::Give)
    }

    /// Returns the answers that no call has met.
    fn unused(&self) -> Vec<&Answer> {
        let is_used = |answer: &&Answer| matches!(answer, Answer::Always(_)) && self.is_used;
        self.left.iter().filter(|answer| !is_used(answer)).collect()
    }
}

/// What happens on a connection after an answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    GoesOn,
    Closes,
    StaysSilent,
    /// The listener closes before the answer is sent.
    Leaves,
}

impl Stage {
    pub(super) async fn start(case: &Case) -> Self {
        let n_replicas = case.replicas.len();
        let shared = Arc::new(Shared {
            sequence: case.sequence.name.clone(),
            log: Mutex::new(Log {
                calls: Vec::new(),
                counter: Counter::new(&case.sequence),
                max_under_way: 0,
                n_under_way: 0,
                answers: case.replicas.iter().map(|it| Script::of(it)).collect(),
                definition: Script::of(&case.definition),
                replicas: vec![None; n_replicas],
                n_connections: 0,
                last_answer: None,
            }),
            held: Semaphore::new(0),
            doors: (0..n_replicas).map(|_| Door::default()).collect(),
        });
        let mut stage = Self {
            shared,
            endpoints: Vec::new(),
            accepting: Vec::new(),
        };
        for endpoint in 0..n_replicas {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
            let address = listener.local_addr().expect("it is bound");
            stage.endpoints.push(format!("http://{address}"));
            let accepting = accept(listener, endpoint, Arc::clone(&stage.shared));
            stage.accepting.push(tokio::spawn(accepting));
        }
        stage
    }

    pub(super) fn endpoints(&self) -> &[String] {
        &self.endpoints
    }

    pub(super) fn log(&self) -> MutexGuard<'_, Log> {
        self.shared.log()
    }

    pub(super) fn release(&self, n_answers: usize) {
        self.shared.held.add_permits(n_answers);
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        for accepting in &self.accepting {
            accepting.abort();
        }
    }
}

impl Log {
    /// Returns how many calls for numbers came.
    pub(super) fn n_calls_for_numbers(&self) -> usize {
        self.calls
            .iter()
            .filter(|call| call.is_for_numbers())
            .count()
    }

    /// Returns the answers of the script that no call has met. A library that was told the kind may
    /// leave the definition unread.
    pub(super) fn unused(&self, is_kind_told: bool) -> Vec<&Answer> {
        let definition = (!is_kind_told).then_some(&self.definition);
        let scripts = self.answers.iter().chain(definition);
        scripts.flat_map(Script::unused).collect()
    }

    /// Returns which replica of the script an endpoint is.
    fn replica_at(&mut self, endpoint: usize) -> usize {
        let n_known = self.replicas.iter().flatten().count();
        let replica = self.replicas.get_mut(endpoint);
        *replica
            .expect("an endpoint of this stage")
            .get_or_insert(n_known)
    }

    /// Returns the number of a new connection.
    fn open_connection(&mut self) -> usize {
        self.n_connections += 1;
        self.n_connections
    }

    /// Notes a call, and returns its answer.
    fn arrive(&mut self, mut call: Call, endpoint: usize) -> Answer {
        call.replica = self.replica_at(endpoint);
        let answer = if call.is_for_numbers() {
            call.since_answer = self.last_answer.map(|answered| answered.elapsed());
            self.n_under_way += 1;
            self.max_under_way = self.max_under_way.max(self.n_under_way);
            let script = self.answers.get_mut(call.replica);
            script.expect("a replica of this case").next()
        } else {
            self.definition.next()
        };
        self.calls.push(call);
        answer
    }

    /// Answers a call. Returns the bytes of the reply, and what happens after them.
    fn answer(&mut self, call: &Call, answer: &Answer) -> (Vec<u8>, Then) {
        // A reply may be followed by the next call at once, so the call is over before its reply.
        if call.is_for_numbers() {
            self.n_under_way -= 1;
            self.last_answer = Some(Instant::now());
        }
        match answer {
            Answer::Give => (self.give(call, 1, true, ""), Then::GoesOn),
            Answer::GivePieces(n_pieces) => (self.give(call, *n_pieces, true, ""), Then::GoesOn),
            Answer::GiveThenClose => {
                let reply = self.give(call, 1, true, "connection: close\r\n");
                (reply, Then::Closes)
            }
            Answer::GiveThenLeave => (self.give(call, 1, true, ""), Then::Leaves),
            Answer::Lose => {
                self.give(call, 1, false, "");
                (Vec::new(), Then::Closes)
            }
            Answer::LoseHalf => {
                let mut reply = self.give(call, 1, false, "");
                reply.truncate(reply.len() - 10);
                (reply, Then::Closes)
            }
            Answer::Hang => {
                self.give(call, 1, false, "");
                (Vec::new(), Then::StaysSilent)
            }
            Answer::Cut => (Vec::new(), Then::Closes),
            Answer::Problem(problem) => (refusal(problem, ""), Then::GoesOn),
            Answer::ProblemThenClose(problem) => {
                (refusal(problem, "connection: close\r\n"), Then::Closes)
            }
            Answer::Page(status) => {
                let page = "<html><body>not now</body></html>";
                (reply(*status, "text/html", "", page), Then::GoesOn)
            }
            Answer::Hold(inner) | Answer::Always(inner) => {
                unreachable!("an answer within an answer: {inner:?}")
            }
        }
    }

    /// Takes the numbers of a call, and returns the reply that has them.
    fn give(&mut self, call: &Call, n_pieces: u64, is_delivered: bool, headers: &str) -> Vec<u8> {
        if call.kind == CallKind::Definition {
            let description = self.counter.description();
            return reply(200, "application/json", headers, &description.to_string());
        }
        if !call.faults.is_empty() {
            return refusal(&problem(400, "invalid_parameter"), "");
        }
        // A block is always one range.
        let n_pieces = if call.kind == CallKind::Block {
            1
        } else {
            n_pieces
        };
        let Some(place) = self.counter.take(call.size, n_pieces) else {
            return refusal(&problem(409, "sequence_exhausted"), "");
        };
        if is_delivered {
            self.counter.deliver(place);
        }
        let body: Value = match call.kind {
            CallKind::Block => self.counter.block(place),
            CallKind::Batch => self.counter.batch(place, call.ids),
            CallKind::One | CallKind::Definition | CallKind::Refill => self.counter.one(place),
        };
        reply(200, "application/json", headers, &body.to_string())
    }
}

fn problem(status: u16, code: &str) -> Problem {
    Problem {
        status,
        code: code.to_owned(),
        retry_after: None,
        limit: None,
    }
}

fn refusal(problem: &Problem, more: &str) -> Vec<u8> {
    let headers = problem.retry_after.map_or_else(
        || more.to_owned(),
        |seconds| format!("retry-after: {seconds}\r\n{more}"),
    );
    let mut body = json!({
        "type": format!("/docs/errors/{}", problem.code), "title": "It is refused",
        "status": problem.status, "detail": "The script says so.", "code": problem.code
    });
    if let Some(limit) = problem.limit {
        body["limit"] = Value::from(limit.to_string());
    }
    let body = body.to_string();
    reply(problem.status, "application/problem+json", &headers, &body)
}

fn reply(status: u16, media_type: &str, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status} Scripted\r\ncontent-type: {media_type}\r\ncontent-length: {length}\r\n\
         cache-control: no-store\r\n{headers}\r\n"
    );
    [head.as_bytes(), body.as_bytes()].concat()
}

async fn accept(listener: TcpListener, endpoint: usize, shared: Arc<Shared>) {
    let door = shared.door(endpoint);
    let mut closing = door.is_to_close.subscribe();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { return };
                tokio::spawn(serve(stream, endpoint, Arc::clone(&shared)));
            }
            _ = closing.wait_for(|is_to_close| *is_to_close) => break,
        }
    }
    drop(listener);
    door.is_closed.send_replace(true);
}

/// Answers the calls of one connection, one after the other.
async fn serve(mut stream: TcpStream, endpoint: usize, shared: Arc<Shared>) {
    let _told = stream.set_nodelay(true);
    let connection = shared.log().open_connection();
    let mut received = Vec::new();
    loop {
        let Some((head, body)) = raw::message(&received) else {
            if stream.read_buf(&mut received).await.unwrap_or(0) == 0 {
                return;
            }
            continue;
        };
        let mut call = Call::read(head, body, &shared.sequence);
        call.connection = connection;
        let length = head.len() + 4 + body.len();
        received.drain(..length);
        if *shared.door(endpoint).is_closed.borrow() {
            return;
        }
        let mut answer = shared.log().arrive(call.clone(), endpoint);
        while let Answer::Hold(inner) = answer {
            if let Ok(permit) = shared.held.acquire().await {
                permit.forget();
            }
            answer = *inner;
        }
        let (reply, then) = shared.log().answer(&call, &answer);
        if then == Then::Leaves {
            shared.leave(endpoint).await;
        }
        if stream.write_all(&reply).await.is_err() {
            return;
        }
        match then {
            Then::GoesOn => {}
            Then::Closes | Then::Leaves => return,
            Then::StaysSilent => {
                while let Ok(1..) = stream.read_buf(&mut received).await {}
                return;
            }
        }
    }
}

impl Shared {
    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn door(&self, endpoint: usize) -> &Door {
        self.doors.get(endpoint).expect("an endpoint of this stage")
    }

    /// Closes the listener of an endpoint.
    async fn leave(&self, endpoint: usize) {
        let door = self.door(endpoint);
        let mut closed = door.is_closed.subscribe();
        door.is_to_close.send_replace(true);
        let _closed = closed.wait_for(|is_closed| *is_closed).await;
    }
}
