//! Tests the calls for the lease of a worker id: when they are made, and how often.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use odometer_core::name::SequenceName;
use serde_json::Value;

use super::{
    highest, lowest,
    stampers::{Workers, counted, stamper, taken},
    stub::{Said, Stub, refusal},
    until,
};
use crate::{
    Client, Error, Layout, boot_clock,
    engine::Shared,
    lease::{LeaseCalls, StamperPlan, nanos},
    random::Uniform,
};

/// Makes a client whose pauses are drawn in this way.
fn client(stub: &Stub, uniform: Uniform, deadline: Duration) -> Client {
    let builder = Client::builder().endpoints([&stub.url]);
    let (mut settings, hooks) = builder.deadline(deadline).settings().unwrap();
    settings.uniform = uniform;
    Client::new(settings, hooks)
}

fn n_calls(stub: &Stub, wanted: &str) -> usize {
    stub.calls().iter().filter(|call| *call == wanted).count()
}

#[test]
fn a_lease_is_not_used_in_its_last_part() {
    let stub = Stub::start();
    Workers::of(&stub);
    for (ttl_ms, margin_ms) in [(2_000, 100), (60_000, 1_000)] {
        let ttl = Duration::from_millis(ttl_ms);
        let builder = Client::builder().endpoints([&stub.url]).lease_ttl(ttl);
        let (settings, hooks) = builder.settings().unwrap();
        let shared = Arc::new(Shared::new(settings, hooks));
        let calls = LeaseCalls {
            engine: shared.engine.with(Arc::clone),
            plan: Arc::new(StamperPlan {
                shared,
                pool: SequenceName::parse("billing").unwrap(),
                layout: Layout::default(),
                holder: "billing-7".to_owned(),
            }),
        };
        let used = nanos(ttl - Duration::from_millis(margin_ms));
        let before = boot_clock::now();
        let lease = calls.lease().unwrap();
        let after = boot_clock::now();
        let possible = before + used..=after + used;
        assert!(possible.contains(&lease.ends), "{ttl:?}");
    }
}

#[test]
fn a_lease_that_is_refused_is_asked_for_again_after_a_pause() {
    let stub = Stub::start();
    stub.answer(|_, _| refusal(503, "store_unavailable"));
    let client = client(&stub, highest, Duration::from_secs(2));
    let error = stamper(&client, Layout::default()).unwrap_err();
    assert_eq!(error.code(), "no_lease");
    // The pauses take 50, 100, 200, 400, 800 and 1,600 ms.
    assert!((2..=7).contains(&stub.n_posts()), "{}", stub.n_posts());
}

#[test]
fn ids_that_are_refused_call_for_one_renewal_a_second() {
    let stub = Stub::start();
    let workers = Workers::of(&stub);
    workers.ahead_ms.store(200, Ordering::Relaxed);
    let client = client(&stub, lowest, Duration::from_secs(10));
    let ids = stamper(&client, Layout::default()).unwrap();
    // The time is used up, and no renewal brings any.
    workers.ahead_ms.store(0, Ordering::Relaxed);
    let began = Instant::now();
    let mut n_refused = 0_u64;
    while began.elapsed() < Duration::from_millis(1_700) {
        n_refused += u64::from(matches!(ids.take(), Err(Error::PastReservedTime)));
    }
    assert!(n_refused > 1_000, "vacuous: {n_refused} ids were refused");
    let n_renewals = u64::try_from(n_calls(&stub, "POST renew")).unwrap();
    assert!(n_renewals >= 1, "vacuous: nothing called for a renewal");
    assert!(n_renewals <= began.elapsed().as_secs() + 1, "{n_renewals}");
}

#[test]
fn a_renewal_that_many_callers_call_for_is_made_once() {
    let stub = Stub::start();
    let workers = Workers::of(&stub);
    workers.renew_after_ms.store(300, Ordering::Relaxed);
    let answering = workers.clone();
    stub.answer(move |_, call| {
        if call == "POST renew" {
            // The calls of callers meet the renewal under way. No other one is due.
            thread::sleep(Duration::from_millis(50));
            answering.renew_after_ms.store(60_000, Ordering::Relaxed);
        }
        answering.answer(call)
    });
    let client = client(&stub, lowest, Duration::from_secs(10));
    let ids = stamper(&client, Layout::default()).unwrap();
    let began = Instant::now();
    let n_renewals = || n_calls(&stub, "POST renew");
    while began.elapsed() < Duration::from_millis(1_800) || n_renewals() == 0 {
        let _taken = ids.take();
    }
    assert_eq!(n_renewals(), 1);
}

#[test]
fn what_was_used_is_not_given_back_although_a_renewal_reserved_less() {
    let stub = Stub::start();
    let workers = Workers::of(&stub);
    workers.renew_after_ms.store(50, Ordering::Relaxed);
    let client = client(&stub, lowest, Duration::from_secs(10));
    let ids = stamper(&client, counted()).unwrap();
    workers.ahead_ms.store(-500, Ordering::Relaxed);
    let n_before = n_calls(&stub, "POST renew");
    until("the lease is renewed", || {
        n_calls(&stub, "POST renew") > n_before
    });
    let last = taken(&ids, 10_000).pop().unwrap();
    let last_ms = counted().unix_ms_of(counted().read(last).unwrap().tick);
    ids.close_blocking();
    assert!(stub.unused_from_ms() > last_ms);
}

#[test]
fn a_worker_id_is_given_back_three_times_at_most() {
    let stub = Stub::start();
    let workers = Workers::of(&stub);
    let client = client(&stub, lowest, Duration::from_secs(10));
    let ids = stamper(&client, Layout::default()).unwrap();
    workers.refuse_returns();
    ids.close_blocking();
    assert_eq!(n_calls(&stub, "DELETE 0"), 3);
}

#[test]
fn a_close_waits_until_the_worker_id_is_given_back() {
    let stub = Stub::start();
    let workers = Workers::of(&stub);
    let is_back = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&is_back);
    stub.answer(move |_, call| {
        if call.starts_with("DELETE") {
            thread::sleep(Duration::from_millis(200));
            seen.store(true, Ordering::Release);
        }
        workers.answer(call)
    });
    let client = client(&stub, lowest, Duration::from_secs(10));
    let ids = stamper(&client, Layout::default()).unwrap();
    let clone = ids.clone();
    ids.close_blocking();
    assert!(is_back.load(Ordering::Acquire));
    assert_eq!(clone.take().unwrap_err().code(), "no_lease");
    // There is nothing more to wait for.
    clone.close_blocking();
    assert_eq!(n_calls(&stub, "DELETE 0"), 1);
}

#[test]
fn a_close_waits_no_longer_than_the_deadline() {
    let stub = Stub::start();
    let workers = Workers::of(&stub);
    let (gate, held) = mpsc::channel::<()>();
    stub.answer(move |_, call| {
        if call.starts_with("DELETE") {
            let _released = held.recv_timeout(Duration::from_secs(10));
            return Said::Reply(204, Value::Null);
        }
        workers.answer(call)
    });
    let client = client(&stub, lowest, Duration::from_millis(1_000));
    let ids = stamper(&client, Layout::default()).unwrap();
    let began = Instant::now();
    ids.close_blocking();
    assert!(began.elapsed() < Duration::from_secs(5));
    drop(gate);
}
