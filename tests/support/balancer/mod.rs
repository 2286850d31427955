//! A balancer in front of replicas, which honours their readiness and hides no failure.
//!
//! The balancer works like kubelet and a Service of Kubernetes. It asks each replica for `/readyz`
//! at even intervals. After several failed probes in a row it stops using the replica, and after
//! one success it uses the replica again.
//!
//! The balancer sends each request once only. If a request gets no reply, nobody knows whether the
//! replica executed it. A second attempt would take a second number, and would hide that the first
//! number is missing.

mod replica;
mod wire;

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

use replica::{Replica, Use};
use wire::Wire;

/// How long a replica may take for its reply. This is longer than every deadline of the program.
const REPLY_LIMIT: Duration = Duration::from_secs(30);

/// The unit that the balancer assigns to a replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spreads {
    /// Each request, over connections that are kept and shared. A proxy for HTTP works like this.
    Requests,
    /// Each connection of a caller, with all its requests. A Service of Kubernetes works like this.
    /// An open connection stays with its replica until the caller or the replica closes it.
    Connections,
}

/// The balancer, which stops when it is dropped.
pub struct Balancer {
    address: String,
    state: Arc<State>,
    accepting: JoinHandle<()>,
}

struct State {
    spreads: Spreads,
    replicas: Mutex<Vec<Arc<Replica>>>,
    n_chosen: AtomicUsize,
}

/// The reason why a request got no reply from a replica.
enum Unanswered {
    NoneIsReady,
    NotConnected(String),
    NoReply(String),
}

impl Balancer {
    /// Starts a balancer on a free port of loopback, without any replica.
    pub async fn start(spreads: Spreads) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound").to_string();
        let state = Arc::new(State {
            spreads,
            replicas: Mutex::default(),
            n_chosen: AtomicUsize::new(0),
        });
        let shared = Arc::clone(&state);
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&shared)));
            }
        });
        Self {
            address,
            state,
            accepting,
        }
    }

    /// Returns the address as `host:port`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Adds the replica at `address`. The balancer probes the replica from now on, and uses it when
    /// it says that it is ready.
    pub fn add(&self, address: &str) {
        locked(&self.state.replicas).push(Replica::probed(address));
    }

    /// Removes the replica at `address`.
    pub fn remove(&self, address: &str) {
        let mut replicas = locked(&self.state.replicas);
        replicas.retain(|replica| {
            let stays = replica.address() != address;
            if !stays {
                replica.end();
            }
            stays
        });
    }

    /// Returns whether the balancer sends requests to the replica at `address`.
    pub fn uses(&self, address: &str) -> bool {
        self.replica(address).is_ready()
    }

    /// Returns whether the balancer no longer uses the replica at `address` and has no connection
    /// to it.
    pub fn has_left(&self, address: &str) -> bool {
        let replica = self.replica(address);
        !replica.is_ready() && replica.n_uses() == 0
    }

    /// Returns how many requests the balancer sent to the replica at `address`.
    pub fn n_sent_to(&self, address: &str) -> u64 {
        self.replica(address).n_sent()
    }

    fn replica(&self, address: &str) -> Arc<Replica> {
        let replicas = locked(&self.state.replicas);
        let found = replicas.iter().find(|replica| replica.address() == address);
        Arc::clone(found.unwrap_or_else(|| panic!("no replica at {address}")))
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.accepting.abort();
        for replica in locked(&self.state.replicas).drain(..) {
            replica.end();
        }
    }
}

impl State {
    /// Chooses one of the ready replicas, in rotation.
    fn choose(&self) -> Result<Use, Unanswered> {
        let replicas = locked(&self.replicas);
        // Each replica counts as used before its readiness is read. Otherwise a replica that has
        // left could be used once more.
        let uses = replicas.iter().map(|replica| Use::of(Arc::clone(replica)));
        let mut ready: Vec<Use> = uses.filter(|used| used.replica().is_ready()).collect();
        let turn = self.n_chosen.fetch_add(1, Ordering::Relaxed);
        let turn = turn.checked_rem(ready.len());
        turn.map(|turn| ready.swap_remove(turn))
            .ok_or(Unanswered::NoneIsReady)
    }

    /// Returns the reply to `request`, with the connection of the reply if it stays open.
    async fn answer(
        &self,
        request: &[u8],
        own: Option<Wire>,
    ) -> Result<(Vec<u8>, Option<Wire>), Unanswered> {
        let mut wire = match own {
            Some(wire) => wire,
            None => self.choose()?.connection().await?,
        };
        wire.count_sent();
        let reply = tokio::time::timeout(REPLY_LIMIT, async {
            wire.send(request).await?;
            wire.message().await
        });
        match reply.await {
            Ok(Some(reply)) => {
                let is_kept = !wire::says_close(&reply);
                Ok((reply, is_kept.then_some(wire)))
            }
            Ok(None) => Err(Unanswered::NoReply(format!("{} closed", wire.name()))),
            Err(_) => Err(Unanswered::NoReply(format!("{} is silent", wire.name()))),
        }
    }
}

/// Answers the requests of one caller, one after the other, until the connection ends.
async fn serve(stream: TcpStream, state: Arc<State>) {
    let mut caller = Wire::over(stream, None);
    let mut own: Option<Wire> = None;
    loop {
        let request = tokio::select! {
            request = caller.message() => request,
            // If the replica closes the connection, an idle caller learns this, as without a
            // balancer.
            () = ended(own.as_ref()) => None,
        };
        let Some(request) = request else { return };
        let answered = state.answer(&request, own.take()).await;
        let (reply, goes_on) = match answered {
            Ok((reply, wire)) if state.spreads == Spreads::Connections => {
                own = wire;
                (reply, own.is_some())
            }
            Ok((reply, wire)) => {
                if let Some(wire) = wire {
                    wire.put_back();
                }
                (wire::without_connection(&reply), true)
            }
            Err(unanswered) => (unanswered.reply(), false),
        };
        if caller.send(&reply).await.is_none() || !goes_on {
            return;
        }
    }
}

/// Resolves when a replica closes the connection that belongs to one caller alone.
async fn ended(own: Option<&Wire>) {
    match own {
        Some(wire) => wire.ended().await,
        None => std::future::pending().await,
    }
}

impl Unanswered {
    /// Builds the reply that the caller gets instead. Its header `Balancer` distinguishes it from a
    /// reply of a replica.
    fn reply(&self) -> Vec<u8> {
        let (status, word, why) = match self {
            Self::NoneIsReady => ("503 Service Unavailable", "none-ready", ""),
            Self::NotConnected(why) => ("502 Bad Gateway", "not-connected", why.as_str()),
            Self::NoReply(why) => ("502 Bad Gateway", "no-reply", why.as_str()),
        };
        let length = why.len();
        format!(
            "HTTP/1.1 {status}\r\nBalancer: {word}\r\nConnection: close\r\n\
             Content-Length: {length}\r\n\r\n{why}"
        )
        .into_bytes()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
