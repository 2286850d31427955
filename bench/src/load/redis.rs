//! Measures servers that speak the protocol of Redis.
//!
//! The client is our own, because `redis-benchmark` needs more processor time for most requests than
//! the servers here. A server that waits for its client looks at its sockets more often, and then a
//! request costs it more.

use std::{
    io::{ErrorKind, Read as _, Write as _},
    net::SocketAddr,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use mio::{Events, Interest, Poll, Token, net::TcpStream};
use odometer_tests::{keeper, ports};

use crate::{
    cores::{Cores, Side},
    pace::Contender,
    process::Process,
    reading::{Latency, Reading},
    usage::Meter,
};

/// As many connections as `redis-benchmark` opens by default.
const N_CONNECTIONS: usize = 50;
/// The most bytes of one read. It is more than a connection waits for at any time.
const MAX_READ_BYTES: usize = 16 * 1024;
/// A server that sends nothing on any connection for so long has failed.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// Starts a server that writes nothing to a disk.
pub(crate) async fn start(cores: &Cores) -> Process {
    let port = ports::free();
    let mut command = std::process::Command::new("redis-server");
    command
        .args(["--bind", "127.0.0.1", "--port", &port.to_string()])
        .args(["--save", "", "--appendonly", "no"])
        .current_dir(keeper::run_directory());
    Process::start(cores, Side::Server, &mut command, port).await
}

/// The request that a connection sends again and again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// The next number of one key.
    One,
    /// The next hundred numbers of one key.
    Hundred,
}

impl Step {
    /// Returns how many numbers the request gives.
    pub(crate) fn n_numbers(self) -> u32 {
        match self {
            Self::One => 1,
            Self::Hundred => 100,
        }
    }

    /// Returns the bytes of the request.
    fn request(self) -> &'static [u8] {
        match self {
            Self::One => b"*2\r\n$4\r\nINCR\r\n$6\r\norders\r\n",
            Self::Hundred => b"*3\r\n$6\r\nINCRBY\r\n$6\r\norders\r\n$3\r\n100\r\n",
        }
    }
}

/// Returns a contender that sends `step` for one key, with `depth` requests at a time on each
/// connection.
pub(crate) fn contender(
    name: &str,
    cores: &Cores,
    server: &Process,
    step: Step,
    depth: u32,
) -> Redis {
    contender_at(name, cores, (server.id(), server.port()), (step, depth))
}

/// Does the same for another process that speaks the protocol of Redis on a port.
pub(crate) fn contender_at(
    name: &str,
    cores: &Cores,
    (process, port): (u32, u16),
    (step, depth): (Step, u32),
) -> Redis {
    Redis {
        name: name.to_owned(),
        cores: *cores,
        process,
        port,
        step,
        depth: usize::try_from(depth).expect("a few requests"),
        callers: None,
    }
}

/// A server and the requests that it gets. The value is requests a second.
pub(crate) struct Redis {
    name: String,
    cores: Cores,
    /// The process of the server. Its processor time counts.
    process: u32,
    port: u16,
    step: Step,
    /// Requests that a connection sends before it reads the first reply.
    depth: usize,
    /// The connections, from the first measurement on.
    callers: Option<Callers>,
}

#[async_trait(?Send)]
impl Contender for Redis {
    fn name(&self) -> &str {
        &self.name
    }

    async fn measure(&mut self, length: Duration) -> Reading {
        let (port, depth) = (self.port, self.depth);
        let requests = self.step.request().repeat(depth);
        let callers = self.callers.get_or_insert_with(|| Callers::open(port));
        let servers = [self.process];
        let meter = Meter::start(&servers, &[]);
        let asking = async { callers.ask(&requests, depth, length) };
        let asked = self.cores.start(Side::Load, asking).await;
        let used = meter.used_when_quiet().await;
        Reading {
            cpu_us: Some(used.server.as_secs_f64() * 1e6 / asked.n_requests as f64),
            busy: Some(used.busy(asked.took, 1.0)),
            // The time of requests that are sent together is not the time of one.
            latency: (depth == 1).then(|| Latency::of(asked.micros)),
            n_requests: asked.n_requests,
            ..Reading::of(asked.n_requests as f64 / asked.took.as_secs_f64())
        }
    }
}

/// What connections were asked.
struct Asked {
    n_requests: u64,
    took: Duration,
    /// From the write of requests until their last reply was read, in microseconds.
    micros: Vec<f64>,
}

/// Connections to one server. Each sends its requests in one write, and the next ones when all
/// replies are there.
struct Callers {
    poll: Poll,
    connections: Vec<TcpStream>,
}

impl Callers {
    /// Connects to a server on loopback.
    ///
    /// # Panics
    /// If a connection cannot be opened.
    fn open(port: u16) -> Self {
        let poll = Poll::new().expect("sockets can be watched");
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let connections = (0..N_CONNECTIONS).map(|at| {
            let opened = std::net::TcpStream::connect(address);
            let opened = opened.unwrap_or_else(|error| panic!("{address}: {error}"));
            let prepared = opened
                .set_nodelay(true)
                .and_then(|()| opened.set_nonblocking(true));
            prepared.expect("options of an open socket");
            let mut connection = TcpStream::from_std(opened);
            poll.registry()
                .register(&mut connection, Token(at), Interest::READABLE)
                .expect("an open socket can be watched");
            connection
        });
        Self {
            connections: connections.collect(),
            poll,
        }
    }

    /// Sends `requests`, which are `depth` requests, on each connection again and again for
    /// `length`.
    ///
    /// # Panics
    /// If a connection breaks, or if a reply is no number.
    fn ask(&mut self, requests: &[u8], depth: usize, length: Duration) -> Asked {
        let started = Instant::now();
        let until = started + length;
        let mut n_missing = vec![depth; self.connections.len()];
        let (mut n_sent, mut micros) = (self.connections.len(), Vec::new());
        let first = self.connections.iter_mut().map(|connection| {
            let now = Instant::now();
            send(connection, requests);
            now
        });
        let mut sent_at: Vec<Instant> = first.collect();
        let mut events = Events::with_capacity(N_CONNECTIONS);
        let mut bytes = vec![0; MAX_READ_BYTES];
        while micros.len() < n_sent {
            self.wait(&mut events);
            for event in &events {
                let at = event.token().0;
                let n_replies = receive(&mut self.connections[at], &mut bytes);
                n_missing[at] -= n_replies;
                if n_missing[at] > 0 || n_replies == 0 {
                    continue;
                }
                let now = Instant::now();
                micros.push((now - sent_at[at]).as_secs_f64() * 1e6);
                if now < until {
                    send(&mut self.connections[at], requests);
                    (n_missing[at], sent_at[at]) = (depth, now);
                    n_sent += 1;
                }
            }
        }
        Asked {
            n_requests: (n_sent * depth) as u64,
            took: started.elapsed(),
            micros,
        }
    }

    /// Waits until a connection can be read.
    fn wait(&mut self, events: &mut Events) {
        match self.poll.poll(events, Some(REPLY_TIMEOUT)) {
            Ok(()) => assert!(!events.is_empty(), "no reply for {REPLY_TIMEOUT:?}"),
            Err(error) if error.kind() == ErrorKind::Interrupted => events.clear(),
            Err(error) => panic!("sockets can be watched: {error}"),
        }
    }
}

fn send(connection: &mut TcpStream, requests: &[u8]) {
    let sent = connection.write_all(requests);
    sent.expect("the server takes what is less than a buffer of the kernel");
}

/// Reads once, and returns how many replies that were. Each is a line with a number.
fn receive(connection: &mut TcpStream, bytes: &mut [u8]) -> usize {
    let n_bytes = match connection.read(bytes) {
        Ok(0) => panic!("the server closed a connection"),
        Ok(n_bytes) => n_bytes,
        Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
        Err(error) => panic!("a connection broke: {error}"),
    };
    count(&bytes[..n_bytes])
}

/// Counts lines that end in `replies`.
///
/// # Panics
/// If one is an error. A number that was given is above 0, so only an error has a `-`.
fn count(replies: &[u8]) -> usize {
    assert!(
        !replies.contains(&b'-'),
        "not only numbers: {}",
        String::from_utf8_lossy(replies)
    );
    replies.iter().filter(|byte| **byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_counts_when_its_line_ends() {
        assert_eq!(count(b":1\r\n:2\r\n:3"), 2);
        assert_eq!(count(b"\r\n"), 1);
        assert_eq!(count(b""), 0);
    }

    #[test]
    #[should_panic(expected = "not only numbers: :1\r\n-ERR no\r\n")]
    fn an_error_is_not_counted_as_a_number() {
        count(b":1\r\n-ERR no\r\n");
    }
}
