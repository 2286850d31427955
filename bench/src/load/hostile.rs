//! Holds connections of callers that never end a request, or that read no reply.
//!
//! Each connection first makes a call and reads its reply, as a client does that keeps its
//! connection. Then it waits, writing a little now and then, until the server ends it. After that
//! a new connection takes its place.

use std::{
    collections::BTreeMap,
    io,
    pin::pin,
    time::{Duration, Instant},
};

use odometer_tests::raw;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpStream, tcp::ReadHalf},
    sync::mpsc,
    task::JoinSet,
    time::timeout_at,
};

/// The connections of each kind.
pub(crate) const N_EACH: usize = 10;
/// The sequence that these callers use.
pub(crate) const SEQUENCE: &str = "hostile";

const NEXT: &str = "POST /v1/sequences/hostile/next HTTP/1.1\r\nHost: localhost\r\n\r\n";
/// Calls whose body, which is chunked, never ends. One of them has no body as a rule, and one has
/// no route.
const ENDLESS: [&str; 4] = [
    "POST /v1/sequences/hostile/next",
    "PUT /v1/sequences/hostile",
    "GET /livez",
    "POST /nowhere",
];
const LARGE: &str = "GET /livez HTTP/1.1\r\nHost: localhost\r\nX-Large: ";
/// The bytes of a large head, and of its parts if it comes in parts. They take 6 s to come.
const LARGE_BYTES: usize = 120_000;
const PART_BYTES: usize = 4_000;

/// The time between two writes on a connection. All connections together write some 200 times a
/// second, so this costs their client hardly any time.
const BETWEEN_WRITES: Duration = Duration::from_millis(200);
/// The time until a new connection takes the place of one that has ended.
const UNTIL_NEXT: Duration = Duration::from_millis(50);

/// What the callers of a connection do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum HostileKind {
    /// They send one byte of a request.
    OneByte,
    /// They send the head of a request byte by byte.
    DrippedHead,
    /// They send a chunked body that never ends.
    EndlessBody,
    /// They ask a hundred times for 10,000 numbers, and read no reply.
    UnreadReplies,
    /// They send a large head at once.
    LargeHead,
    /// They send a large head in parts.
    LargeHeadInParts,
}

impl HostileKind {
    pub(crate) const ALL: [Self; 6] = [
        Self::OneByte,
        Self::DrippedHead,
        Self::EndlessBody,
        Self::UnreadReplies,
        Self::LargeHead,
        Self::LargeHeadInParts,
    ];

    /// Returns what comes at once. `at` is the number of the connection among those of its kind.
    fn start(self, at: usize) -> String {
        match self {
            Self::OneByte | Self::DrippedHead => "P".to_owned(),
            Self::EndlessBody => format!(
                "{} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
                 Transfer-Encoding: chunked\r\n\r\n",
                ENDLESS[at % ENDLESS.len()]
            ),
            Self::UnreadReplies => NEXT.replace("/next", "/next?count=10000").repeat(100),
            Self::LargeHead => format!("{LARGE}{}\r\n\r\n", "a".repeat(LARGE_BYTES)),
            Self::LargeHeadInParts => LARGE.to_owned(),
        }
    }

    /// Returns what comes again and again after the start.
    fn drip(self) -> Option<String> {
        match self {
            Self::OneByte | Self::LargeHead => None,
            Self::DrippedHead => Some("O".to_owned()),
            Self::EndlessBody => Some("1\r\n \r\n".to_owned()),
            // A caller that does not read finds out by a write that the connection has ended.
            Self::UnreadReplies => Some(NEXT.to_owned()),
            Self::LargeHeadInParts => Some("a".repeat(PART_BYTES)),
        }
    }

    /// Returns whether the connection ended as it should, with `answer` as the reply to what never
    /// ended.
    fn expects(self, answer: &str) -> bool {
        match self {
            Self::EndlessBody => {
                answer.starts_with("HTTP/1.1 400 ") && answer.contains("\"invalid_body\"")
            }
            Self::OneByte
            | Self::DrippedHead
            | Self::UnreadReplies
            | Self::LargeHead
            | Self::LargeHeadInParts => answer.is_empty(),
        }
    }

    /// Holds a connection until the server ends it. Returns the reply that came before the end.
    ///
    /// # Errors
    /// The connection was not opened, or the first call got no number.
    async fn hold(self, at: usize, address: &str) -> io::Result<String> {
        let mut stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (mut reader, mut writer) = stream.split();
        writer.write_all(NEXT.as_bytes()).await?;
        read_first_reply(&mut reader).await?;
        let writing = async {
            let mut is_open = writer.write_all(self.start(at).as_bytes()).await.is_ok();
            while is_open {
                tokio::time::sleep(BETWEEN_WRITES).await;
                if let Some(drip) = self.drip() {
                    is_open = writer.write_all(drip.as_bytes()).await.is_ok();
                }
            }
        };
        let mut answer = Vec::new();
        if self == Self::UnreadReplies {
            writing.await;
            return Ok(String::new());
        }
        {
            let mut reading = pin!(reader.read_to_end(&mut answer));
            tokio::select! {
                _ended_or_reset = &mut reading => {}
                // A reply that came before the end can still be read.
                () = writing => drop(reading.await),
            }
        }
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }
}

/// Reads one whole reply, which must be a number.
async fn read_first_reply(reader: &mut ReadHalf<'_>) -> io::Result<()> {
    let mut received = Vec::new();
    while raw::message(&received).is_none() {
        if reader.read_buf(&mut received).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    if received.starts_with(b"HTTP/1.1 200 ") {
        Ok(())
    } else {
        Err(io::Error::other(String::from_utf8_lossy(&received)))
    }
}

/// Ten connections of each kind to one server.
pub(crate) struct HostileConnections {
    /// The server, as `host:port`.
    pub(crate) address: String,
}

impl HostileConnections {
    /// Holds the connections for `length`. If no connection of some kind has ended by then, waits
    /// for one of that kind, for `grace` at most.
    pub(crate) async fn run(&self, length: Duration, grace: Duration) -> Endings {
        let (sender, mut ended) = mpsc::unbounded_channel();
        let mut holding = JoinSet::new();
        for kind in HostileKind::ALL {
            for at in 0..N_EACH {
                let (address, sender) = (self.address.clone(), sender.clone());
                holding.spawn(hold_again(kind, at, address, sender));
            }
        }
        let until = Instant::now() + length;
        let mut endings = Endings::default();
        loop {
            let is_each_ended = endings.missing().is_empty();
            let limit = if is_each_ended { until } else { until + grace };
            match timeout_at(limit.into(), ended.recv()).await {
                Ok(Some((kind, answer))) => endings.note(kind, answer),
                Ok(None) | Err(_) => break,
            }
        }
        holding.shutdown().await;
        endings
    }
}

/// Holds one connection after the other. Tells of each how it ended.
async fn hold_again(
    kind: HostileKind,
    at: usize,
    address: String,
    ended: mpsc::UnboundedSender<(HostileKind, io::Result<String>)>,
) {
    while ended.send((kind, kind.hold(at, &address).await)).is_ok() {
        tokio::time::sleep(UNTIL_NEXT).await;
    }
}

/// How a server ended hostile connections.
#[derive(Clone, Default, Debug)]
pub(crate) struct Endings {
    /// The connections that ended as they should.
    n_ended: BTreeMap<HostileKind, u64>,
    /// How other connections ended.
    unexpected: Vec<String>,
}

impl Endings {
    fn note(&mut self, kind: HostileKind, answer: io::Result<String>) {
        match answer {
            Ok(answer) if kind.expects(&answer) => *self.n_ended.entry(kind).or_default() += 1,
            Ok(answer) => self.unexpected.push(format!("{kind:?}: {answer:?}")),
            Err(error) => self.unexpected.push(format!("{kind:?}: {error}")),
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (kind, n_ended) in &other.n_ended {
            *self.n_ended.entry(*kind).or_default() += n_ended;
        }
        self.unexpected.extend_from_slice(&other.unexpected);
    }

    /// Returns the number of connections that the server ended with a refusal.
    pub(crate) fn n_refused(&self) -> u64 {
        self.n_ended
            .get(&HostileKind::EndlessBody)
            .copied()
            .unwrap_or_default()
    }

    /// Returns the number of connections that the server ended without a reply.
    pub(crate) fn n_cut_off(&self) -> u64 {
        self.n_ended.values().sum::<u64>() - self.n_refused()
    }

    /// Returns the kinds of which no connection has ended.
    fn missing(&self) -> Vec<HostileKind> {
        let is_missing = |kind: &HostileKind| !self.n_ended.contains_key(kind);
        HostileKind::ALL.into_iter().filter(is_missing).collect()
    }

    /// Checks that at least one connection of each kind has ended, and that each connection ended
    /// as it should.
    ///
    /// # Panics
    /// With the kinds or the connections for which this does not hold.
    pub(crate) fn check(&self) {
        let unexpected = &self.unexpected;
        assert!(
            unexpected.is_empty(),
            "{} hostile connections ended in another way: {:?}",
            unexpected.len(),
            unexpected.iter().take(5).collect::<Vec<_>>()
        );
        let missing = self.missing();
        assert!(missing.is_empty(), "vacuous: {missing:?} were never ended");
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    const GIVEN: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    const REFUSED: &str = "HTTP/1.1 400 Bad Request\r\n\r\n{\"code\":\"invalid_body\"}";

    /// Starts a server that answers the first call of each connection. Then `end` returns what the
    /// server answers to the next bytes before it ends the connection, or `None` if it never does.
    async fn server(end: fn(&str) -> Option<&'static str>) -> HostileConnections {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("it listens").to_string();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, end));
            }
        });
        HostileConnections { address }
    }

    async fn serve(mut stream: TcpStream, end: fn(&str) -> Option<&'static str>) -> io::Result<()> {
        let mut received = Vec::new();
        while raw::message(&received).is_none() {
            stream.read_buf(&mut received).await?;
        }
        stream.write_all(GIVEN.as_bytes()).await?;
        // The start of what never ends fits into this, and comes in one piece.
        let mut after = Vec::with_capacity(4096);
        stream.read_buf(&mut after).await?;
        match end(&String::from_utf8_lossy(&after)) {
            Some(answer) => stream.write_all(answer.as_bytes()).await,
            None => std::future::pending().await,
        }
    }

    const LIMIT: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn connections_of_each_kind_are_held_until_they_end() {
        let end = |after: &str| {
            let is_body = after.contains("chunked");
            Some(if is_body { REFUSED } else { "" })
        };
        let endings = server(end).await.run(Duration::ZERO, LIMIT).await;
        endings.check();
        assert!(endings.n_refused() >= 1, "{endings:?}");
        assert!(endings.n_cut_off() >= 5, "{endings:?}");
        let mut twice = endings.clone();
        twice.add(&endings);
        assert_eq!(twice.n_refused(), 2 * endings.n_refused());
        assert_eq!(twice.n_cut_off(), 2 * endings.n_cut_off());
    }

    #[tokio::test]
    #[should_panic(expected = "vacuous: [OneByte, DrippedHead, EndlessBody, ")]
    async fn a_server_that_ends_no_connection_is_found_out() {
        let endings = server(|_| None).await;
        let endings = endings.run(Duration::ZERO, Duration::from_millis(50)).await;
        endings.check();
    }

    #[tokio::test]
    #[should_panic(expected = "ended in another way: [\"EndlessBody: ")]
    async fn another_answer_is_found_out() {
        let end = |after: &str| after.contains("chunked").then_some(GIVEN);
        let endings = server(end).await;
        let endings = endings.run(Duration::ZERO, Duration::from_secs(1)).await;
        endings.check();
    }
}
