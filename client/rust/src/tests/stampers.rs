//! Tests ids that are made in the process. `tests/clients` stops programs, steps their clocks and
//! takes the service away.

use std::{
    collections::BTreeSet,
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde_json::{Value, json};
use tracing::{
    Event, Metadata, Subscriber,
    span::{Attributes, Id, Record},
    subscriber::with_default,
};

use super::{
    stub::{Said, Stub, refusal},
    until,
};
use crate::{
    Client, Error, High, Layout, Stamper,
    threads::{Job, spawn},
};

const TTL: Duration = Duration::from_secs(60);

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(since.as_millis()).unwrap()
}

/// Leases worker ids 0, 1, 2 … in turn, for as long as a test says.
#[derive(Clone, Default)]
pub(super) struct Workers {
    next: Arc<AtomicI64>,
    /// How far ahead time is reserved, in milliseconds.
    pub(super) ahead_ms: Arc<AtomicI64>,
    /// When a lease is to be renewed.
    pub(super) renew_after_ms: Arc<AtomicI64>,
    refuses_returns: Arc<AtomicBool>,
    /// What to say instead, once.
    instead: Arc<Mutex<Vec<Said>>>,
}

impl Workers {
    pub(super) fn of(stub: &Stub) -> Self {
        let workers = Self::default();
        workers.ahead_ms.store(60_000, Ordering::Relaxed);
        workers.renew_after_ms.store(20_000, Ordering::Relaxed);
        let answering = workers.clone();
        stub.answer(move |_, call| answering.answer(call));
        workers
    }

    pub(super) fn answer(&self, call: &str) -> Said {
        if let Some(said) = self.instead.lock().unwrap().pop() {
            return said;
        }
        if call.starts_with("DELETE") {
            return if self.refuses_returns.load(Ordering::Relaxed) {
                refusal(503, "store_unavailable")
            } else {
                Said::Reply(204, Value::Null)
            };
        }
        let is_new = call == "POST workers";
        if !is_new && call != "POST renew" {
            return Said::GoOn;
        }
        let worker = self.next.fetch_add(i64::from(is_new), Ordering::Relaxed);
        let now_ms = now_ms();
        let body = json!({
            "pool": "billing",
            "worker": if is_new { worker } else { worker - 1 },
            "token": "secret",
            "from_ms": now_ms - 1_000,
            "until_ms": now_ms + self.ahead_ms.load(Ordering::Relaxed),
            "renew_after_ms": self.renew_after_ms.load(Ordering::Relaxed),
        });
        Said::Reply(if is_new { 201 } else { 200 }, body)
    }

    /// Takes no worker id back from now on.
    pub(super) fn refuse_returns(&self) {
        self.refuses_returns.store(true, Ordering::Relaxed);
    }

    /// Says this to the next call.
    fn say(&self, said: Said) {
        self.instead.lock().unwrap().push(said);
    }
}

fn client(url: &str) -> Client {
    let client = Client::builder().endpoints([url]).lease_ttl(TTL);
    client.build().unwrap()
}

pub(super) fn stamper(client: &Client, layout: Layout) -> Result<Stamper, Error> {
    client.stamper_blocking("billing", layout, "billing-7")
}

pub(super) fn counted() -> Layout {
    Layout {
        high: High::Worker,
        ..Layout::default()
    }
}

/// Takes ids, and waits if those of the present tick are used up.
pub(super) fn taken(stamper: &Stamper, count: usize) -> Vec<i64> {
    let mut ids = Vec::new();
    while ids.len() < count {
        match stamper.take() {
            Ok(id) => ids.push(id),
            Err(Error::ClockBehind { wait }) => std::thread::sleep(wait),
            Err(error) => panic!("{error}"),
        }
    }
    ids
}

#[test]
fn ids_ascend_and_lie_inside_the_lease() {
    for layout in [Layout::default(), counted()] {
        let stub = Stub::start();
        Workers::of(&stub);
        let client = client(&stub.url);
        let ids = stamper(&client, layout).unwrap();
        let (began, found) = (now_ms(), taken(&ids, 20_000));
        assert!(found.is_sorted_by(|one, next| one < next));
        for id in found {
            let parts = layout.read(id).unwrap();
            let stamped_ms = layout.unix_ms_of(parts.tick);
            assert_eq!(parts.worker, 0);
            assert!((began - 1_000..began + 60_000).contains(&stamped_ms));
        }
        assert_eq!((ids.worker(), stub.n_posts()), (Some(0), 1));
    }
}

#[test]
fn a_lease_is_asked_for_as_the_service_wants_it() {
    let stub = Stub::start();
    Workers::of(&stub);
    let client = client(&stub.url);
    stamper(&client, Layout::default()).unwrap();
    let text = stub.texts().remove(0);
    let (_, body) = text.rsplit_once('\n').unwrap();
    let body: Value = serde_json::from_str(body).unwrap();
    let expected = json!({
        "pool": "billing", "bits": 10, "ttl_ms": 60_000, "holder": "billing-7"
    });
    assert_eq!(body, expected);
}

#[test]
fn threads_share_one_worker_id_and_repeat_no_id() {
    let stub = Stub::start();
    Workers::of(&stub);
    let client = client(&stub.url);
    let ids = stamper(&client, counted()).unwrap();
    let all: Vec<i64> = std::thread::scope(|scope| {
        let take = || taken(&ids, 5_000);
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
        threads
            .into_iter()
            .flat_map(|it| it.join().unwrap())
            .collect()
    });
    let distinct: BTreeSet<i64> = all.iter().copied().collect();
    assert_eq!((all.len(), distinct.len()), (20_000, 20_000));
}

#[test]
fn a_lease_is_renewed_before_it_ends() {
    let stub = Stub::start();
    let workers = Workers::of(&stub);
    workers.renew_after_ms.store(50, Ordering::Relaxed);
    let client = client(&stub.url);
    let ids = stamper(&client, Layout::default()).unwrap();
    let is_renewal = |call: &String| call == "POST renew";
    until("the lease is renewed twice", || {
        stub.calls().iter().filter(|call| is_renewal(call)).count() >= 2
    });
    let renewal = stub.texts().remove(1).to_ascii_lowercase();
    assert!(renewal.contains("odometer-lease: secret\n"), "{renewal}");
    assert_eq!(ids.worker(), Some(0));
}

#[test]
fn no_id_lies_past_the_reserved_time() {
    let stub = Stub::start();
    let workers = Workers::of(&stub);
    workers.ahead_ms.store(300, Ordering::Relaxed);
    let client = client(&stub.url);
    let ids = stamper(&client, Layout::default()).unwrap();
    // No renewal comes any more.
    stub.answer(|_, _| Said::Cut);
    let last_ms = now_ms() + 300;
    let mut stamped_ms = 0;
    until("the time is used up", || match ids.take() {
        Ok(id) => {
            let tick = ids.layout().read(id).unwrap().tick;
            stamped_ms = ids.layout().unix_ms_of(tick);
            false
        }
        Err(error) => error.code() == "past_reserved_time",
    });
    assert!(
        stamped_ms <= last_ms && stamped_ms > 0,
        "{stamped_ms} {last_ms}"
    );
}

#[test]
fn a_lost_lease_stops_ids_and_another_one_is_leased() {
    let stub = Stub::start();
    let workers = Workers::of(&stub);
    workers.renew_after_ms.store(50, Ordering::Relaxed);
    let client = client(&stub.url);
    let ids = stamper(&client, Layout::default()).unwrap();
    assert_eq!(ids.worker(), Some(0));
    workers.say(refusal(409, "lease_lost"));
    until("another worker id is leased", || ids.worker() == Some(1));
    let id = taken(&ids, 1)[0];
    assert_eq!(ids.layout().read(id).unwrap().worker, 1);
}

/// Takes an id for each line of a log. One test alone uses it.
struct NumberedLog;

static LOG_IDS: Mutex<Option<Stamper>> = Mutex::new(None);
static LOG: Mutex<Vec<Result<i64, Error>>> = Mutex::new(Vec::new());

impl Subscriber for NumberedLog {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event()
    }

    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, _event: &Event<'_>) {
        let ids = LOG_IDS.lock().unwrap().clone();
        LOG.lock().unwrap().extend(ids.map(|ids| ids.take()));
    }

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}

fn spawn_with_log(job: Job) -> io::Result<()> {
    spawn(Box::new(move || with_default(NumberedLog, job)))
}

#[test]
fn a_log_that_takes_ids_hears_of_a_lost_lease_and_holds_up_nobody() {
    let stub = Stub::start();
    let workers = Workers::of(&stub);
    workers.renew_after_ms.store(50, Ordering::Relaxed);
    let builder = Client::builder().endpoints([&stub.url]);
    let (mut settings, hooks) = builder.settings().unwrap();
    settings.spawn = spawn_with_log;
    let client = Client::new(settings, hooks);
    let ids = stamper(&client, Layout::default()).unwrap();
    *LOG_IDS.lock().unwrap() = Some(ids.clone());
    workers.say(refusal(409, "lease_lost"));
    until("another worker id is leased", || ids.worker() == Some(1));
    let log = std::mem::take(&mut *LOG.lock().unwrap());
    let is_refused = matches!(log.as_slice(), [Err(Error::NoLease { .. })]);
    assert!(is_refused, "{log:?}");
    *LOG_IDS.lock().unwrap() = None;
}

#[test]
fn a_renewal_that_fails_is_tried_again_and_ids_go_on() {
    let stub = Stub::start();
    let workers = Workers::of(&stub);
    workers.renew_after_ms.store(50, Ordering::Relaxed);
    let client = client(&stub.url);
    let ids = stamper(&client, Layout::default()).unwrap();
    workers.say(refusal(503, "store_unavailable"));
    workers.say(Said::Cut);
    let n_before = stub.n_posts();
    until("three more calls came", || {
        taken(&ids, 1);
        stub.n_posts() >= n_before + 3
    });
    assert_eq!(ids.worker(), Some(0));
}

#[test]
fn what_was_not_used_is_given_back_at_the_end() {
    let stub = Stub::start();
    Workers::of(&stub);
    let client = client(&stub.url);
    let ids = stamper(&client, Layout::default()).unwrap();
    let last = taken(&ids, 100)[99];
    let clone = ids.clone();
    drop(ids);
    assert!(clone.take().is_ok(), "a clone goes on");
    let end_ms = now_ms();
    drop(clone);
    until("the id is given back", || {
        stub.calls().last().unwrap() == "DELETE 0"
    });
    let text = stub.texts().pop().unwrap();
    assert!(
        text.to_ascii_lowercase()
            .contains("odometer-lease: secret\n"),
        "{text}"
    );
    let unused_ms = stub.unused_from_ms();
    let last_ms = Layout::default().unix_ms_of(Layout::default().read(last).unwrap().tick);
    assert!(
        unused_ms > last_ms && unused_ms <= end_ms + 10,
        "{unused_ms} {end_ms}"
    );
}

#[test]
fn a_refused_lease_is_an_error_and_so_is_none_in_time() {
    let stub = Stub::start();
    stub.answer(|_, _| refusal(409, "immutable_field"));
    let error = stamper(&client(&stub.url), Layout::default()).unwrap_err();
    assert_eq!(error.code(), "immutable_field");
    let dead = Stub::dead();
    let client = Client::builder()
        .endpoints([&dead.url])
        .deadline(Duration::from_millis(100))
        .build()
        .unwrap();
    // The first call may take longer than the deadline.
    until("the cause is told", || {
        let error = stamper(&client, Layout::default()).unwrap_err();
        assert_eq!(error.code(), "no_lease");
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        cause.is_some_and(|cause| cause.contains("gave no reply"))
    });
}

#[test]
fn what_cannot_be_a_layout_or_a_pool_is_refused() {
    let client = client(&Stub::dead().url);
    let wide = Layout {
        time: 63,
        ..Layout::default()
    };
    assert_eq!(stamper(&client, wide).unwrap_err().code(), "client");
    let refused = client.stamper_blocking("no pool", Layout::default(), "a");
    assert_eq!(refused.unwrap_err().code(), "client");
}

#[test]
fn a_forgotten_lease_is_not_given_back_and_another_one_is_leased() {
    let stub = Stub::start();
    Workers::of(&stub);
    let client = client(&stub.url);
    let ids = stamper(&client, Layout::default()).unwrap();
    client.forget();
    until("another worker id is leased", || ids.worker() == Some(1));
    assert!(!stub.calls().iter().any(|call| call.starts_with("DELETE")));
}

#[test]
fn a_clock_before_the_epoch_makes_no_id() {
    let stub = Stub::start();
    Workers::of(&stub);
    let client = client(&stub.url);
    let future = Layout {
        epoch_ms: now_ms() + 3_600_000,
        ..Layout::default()
    };
    let error = stamper(&client, future).unwrap_err();
    assert_eq!(error.code(), "past_reserved_time");
}
