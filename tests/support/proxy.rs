//! A TCP proxy between the program and its database, which cuts connections at a point that the
//! test chooses.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
};

use super::callers;

/// The treatment of the bytes of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Link {
    /// Both directions are open.
    Whole,
    /// Statements reach the database, but replies do not come back. Neither side gets an error.
    RepliesLost,
    /// The proxy accepts connections, swallows their bytes and never answers. These connections
    /// stay silent after the black hole has ended, as in a network that forgot them.
    BlackHole,
    /// The proxy closes every connection, and closes new ones at once.
    Cut,
}

/// The point at which the connection of one request is cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CutPoint {
    /// The request never reaches the database.
    BeforeForwarding,
    /// The database has answered, but no byte of the reply comes back.
    BeforeReply,
    /// This number of bytes of the reply comes back.
    WithinReply(usize),
}

/// The proxy, which stops when it is dropped.
pub struct Proxy {
    port: u16,
    state: Arc<State>,
    accepting: tokio::task::JoinHandle<()>,
}

struct State {
    ways: watch::Sender<Ways>,
    /// How many requests pass before the next cut, and the point of this cut.
    next_cut: Mutex<Option<(usize, CutPoint)>>,
    n_cuts: AtomicUsize,
    /// The delay of each piece of a reply.
    delay: watch::Sender<Duration>,
    /// The delay before a new connection is forwarded.
    connecting: watch::Sender<Duration>,
    /// Connections that the program holds open.
    n_open: AtomicUsize,
}

/// The treatment of a caller's bytes, and the port that they go to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Way {
    link: Link,
    port: u16,
}

/// The ways of all callers.
#[derive(Clone, Debug)]
struct Ways {
    all: Way,
    /// The ways of the processes that have a way of their own.
    own: BTreeMap<u32, Way>,
}

impl Ways {
    fn of(&self, caller: Option<u32>) -> Way {
        let own = caller.and_then(|process| self.own.get(&process));
        own.copied().unwrap_or(self.all)
    }

    fn change(&mut self, process: u32, change: impl FnOnce(&mut Way)) {
        change(self.own.entry(process).or_insert(self.all));
    }
}

impl Proxy {
    /// Starts a proxy on a free port of loopback that forwards to `port` of loopback.
    pub async fn to(port: u16) -> Self {
        Self::new(port, false).await
    }

    /// Starts a proxy that distinguishes the processes of this run. All of these processes know the
    /// server by the same address. The test may cut one of them off from the server, or lead it to
    /// another one.
    pub async fn by_caller(port: u16) -> Self {
        Self::new(port, true).await
    }

    async fn new(port: u16, tells_apart: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let own_port = listener.local_addr().expect("it is bound").port();
        let state = Arc::new(State {
            ways: watch::Sender::new(Ways {
                all: Way {
                    link: Link::Whole,
                    port,
                },
                own: BTreeMap::new(),
            }),
            next_cut: Mutex::new(None),
            n_cuts: AtomicUsize::new(0),
            delay: watch::Sender::new(Duration::ZERO),
            connecting: watch::Sender::new(Duration::ZERO),
            n_open: AtomicUsize::new(0),
        });
        let shared = Arc::clone(&state);
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let state = Arc::clone(&shared);
                state.n_open.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(async move {
                    let caller = tells_apart
                        .then(|| callers::of(&client, own_port))
                        .flatten();
                    forward(client, caller, &state).await;
                    state.n_open.fetch_sub(1, Ordering::Relaxed);
                });
            }
        });
        Self {
            port: own_port,
            state,
            accepting,
        }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn set(&self, link: Link) {
        self.state.ways.send_modify(|ways| ways.all.link = link);
    }

    /// Forwards callers to `port` of loopback from now on, and ends connections to another port.
    pub fn lead_to(&self, port: u16) {
        self.state.ways.send_modify(|ways| ways.all.port = port);
    }

    /// Sets the link of one process only.
    pub fn set_for(&self, process: u32, link: Link) {
        let change = |ways: &mut Ways| ways.change(process, |way| way.link = link);
        self.state.ways.send_modify(change);
    }

    /// Forwards only one process to `port` from now on.
    pub fn lead_to_for(&self, process: u32, port: u16) {
        let change = |ways: &mut Ways| ways.change(process, |way| way.port = port);
        self.state.ways.send_modify(change);
    }

    /// Makes all callers go the same way again.
    pub fn make_no_difference(&self) {
        self.state.ways.send_modify(|ways| ways.own.clear());
    }

    /// Delays each reply from now on.
    pub fn delay_replies(&self, by: Duration) {
        self.state.delay.send_replace(by);
    }

    /// Delays each new connection from now on.
    pub fn delay_connections(&self, by: Duration) {
        self.state.connecting.send_replace(by);
    }

    /// Lets `n_passed` requests pass and cuts the connection of the next request.
    pub fn cut_after(&self, n_passed: usize, point: CutPoint) {
        *self.state.next_cut() = Some((n_passed, point));
    }

    /// Returns how many requests have met their cut.
    pub fn n_cuts(&self) -> usize {
        self.state.n_cuts.load(Ordering::Relaxed)
    }

    /// Returns how many connections the program holds open.
    pub fn n_open(&self) -> usize {
        self.state.n_open.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.set(Link::Cut);
    }
}

impl State {
    fn next_cut(&self) -> MutexGuard<'_, Option<(usize, CutPoint)>> {
        self.next_cut.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the cut that a new request meets, if any.
    fn take_cut(&self) -> Option<CutPoint> {
        let mut next_cut = self.next_cut();
        match next_cut.as_mut() {
            Some((0, point)) => {
                let point = *point;
                *next_cut = None;
                Some(point)
            }
            Some((n_passed, _)) => {
                *n_passed -= 1;
                None
            }
            None => None,
        }
    }

    fn count_cut(&self) {
        self.n_cuts.fetch_add(1, Ordering::Relaxed);
    }

    fn replies_come(&self, caller: Option<u32>) -> bool {
        self.ways.borrow().of(caller).link == Link::Whole
    }
}

async fn forward(client: TcpStream, caller: Option<u32>, state: &State) {
    let mut ways = state.ways.subscribe();
    let _told = client.set_nodelay(true);
    // The halves stay here and are borrowed below. A half that is dropped would tell its peer of
    // the end.
    let (mut from_client, mut to_client) = client.into_split();
    let way = ways.borrow().of(caller);
    if way.link == Link::BlackHole {
        return swallow(&mut from_client, caller, &mut ways).await;
    }
    if way.link == Link::Cut {
        return;
    }
    let connecting = *state.connecting.borrow();
    if !connecting.is_zero() {
        tokio::time::sleep(connecting).await;
    }
    let Ok(server) = TcpStream::connect(("127.0.0.1", way.port)).await else {
        return;
    };
    // A real network does not hold packets back.
    let _told = server.set_nodelay(true);
    let (mut from_server, mut to_server) = server.into_split();
    // The cut that the next reply meets.
    let cut = Mutex::new(None);
    let mut ending = ways.clone();
    let is_swallowed = tokio::select! {
        () = requests(&mut from_client, &mut to_server, state, &cut) => false,
        () = replies(&mut from_server, &mut to_client, caller, state, &cut) => false,
        is_swallowed = async {
            let over = |ways: &Ways| {
                let now = ways.of(caller);
                now.port != way.port || matches!(now.link, Link::Cut | Link::BlackHole)
            };
            let ways = ending.wait_for(over).await;
            ways.is_ok_and(|ways| ways.of(caller).link == Link::BlackHole)
        } => is_swallowed,
    };
    if is_swallowed {
        swallow(&mut from_client, caller, &mut ways).await;
    }
}

/// Reads until the program closes the connection, or until all connections are cut.
async fn swallow(from: &mut OwnedReadHalf, caller: Option<u32>, ways: &mut watch::Receiver<Ways>) {
    let mut buffer = vec![0; 16 * 1024];
    tokio::select! {
        () = async { while let Ok(1..) = from.read(&mut buffer).await {} } => {}
        _ = ways.wait_for(|ways| ways.of(caller).link == Link::Cut) => {}
    }
}

async fn requests(
    from: &mut OwnedReadHalf,
    to: &mut OwnedWriteHalf,
    state: &State,
    cut: &Mutex<Option<CutPoint>>,
) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(n @ 1..) = from.read(&mut buffer).await {
        let point = state.take_cut();
        if point == Some(CutPoint::BeforeForwarding) {
            state.count_cut();
            return;
        }
        if point.is_some() {
            *cut.lock().unwrap_or_else(PoisonError::into_inner) = point;
        }
        if to
            .write_all(buffer.get(..n).unwrap_or_default())
            .await
            .is_err()
        {
            return;
        }
    }
}

async fn replies(
    from: &mut OwnedReadHalf,
    to: &mut OwnedWriteHalf,
    caller: Option<u32>,
    state: &State,
    cut: &Mutex<Option<CutPoint>>,
) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(n @ 1..) = from.read(&mut buffer).await {
        let point = cut.lock().unwrap_or_else(PoisonError::into_inner).take();
        let n_passed = match point {
            Some(CutPoint::WithinReply(n_bytes)) => n_bytes.min(n),
            Some(CutPoint::BeforeForwarding | CutPoint::BeforeReply) => 0,
            None => n,
        };
        let passed = buffer.get(..n_passed).unwrap_or_default();
        let delay = *state.delay.borrow();
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        if state.replies_come(caller) && to.write_all(passed).await.is_err() {
            return;
        }
        if point.is_some() {
            state.count_cut();
            return;
        }
    }
}
