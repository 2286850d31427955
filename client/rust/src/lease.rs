//! Leases of worker ids, and the calls that get, renew and end them.

use std::{sync::Arc, time::Duration};

use odometer_core::{name::SequenceName, snowflake::Layout};
use serde_json::{Value, json};
use ureq::http::Method;

use crate::{
    boot_clock,
    engine::{Engine, Shared},
    error::Error,
    service::Answer,
    transport::Call,
};

/// How long before its end a lease is not used: one part in this many of its length, at most
/// [`MAX_MARGIN`]. Clocks may run at different speeds.
const MARGIN_PART: u32 = 20;
const MAX_MARGIN: Duration = Duration::from_secs(1);

/// A worker id, and the time that may be stamped with it. The token is secret, so a lease cannot be
/// printed.
#[derive(Clone)]
pub(crate) struct Lease {
    pub(crate) worker: u32,
    token: String,
    /// The first time that may be stamped (Unix ms). The times end before `until_ms`.
    pub(crate) from_ms: i64,
    pub(crate) until_ms: i64,
    /// When the lease is not used any more, and when it is renewed, by the [boot
    /// clock](boot_clock). Both are counted from before the call.
    pub(crate) ends: u64,
    pub(crate) due: u64,
}

/// What a stamper was made with.
pub(crate) struct StamperPlan {
    pub(crate) shared: Arc<Shared>,
    pub(crate) pool: SequenceName,
    pub(crate) layout: Layout,
    /// The name of the holder, which stays the same over restarts.
    pub(crate) holder: String,
}

/// Makes the calls for the lease of one stamper.
pub(crate) struct LeaseCalls {
    pub(crate) engine: Arc<Engine>,
    pub(crate) plan: Arc<StamperPlan>,
}

impl LeaseCalls {
    /// Leases a worker id.
    ///
    /// # Errors
    /// The errors of a call. An id whose reply was lost rests until its lease ends.
    pub(crate) fn lease(&self) -> Result<Lease, Error> {
        let plan = &self.plan;
        let ttl_ms = u64::try_from(self.ttl().as_millis()).unwrap_or(u64::MAX);
        let body = json!({
            "pool": plan.pool.as_str(),
            "bits": plan.layout.worker,
            "ttl_ms": ttl_ms,
            "holder": plan.holder,
        });
        let call = Call {
            json: Some(body.to_string()),
            ..self.call(Method::POST, "/v1/workers")
        };
        self.ask(&call)
    }

    /// Renews a lease for as long as before.
    ///
    /// # Errors
    /// The errors of a call, such as a refusal with the code `lease_lost`.
    pub(crate) fn renew(&self, lease: &Lease) -> Result<Lease, Error> {
        let path = format!("{}/renew", self.path(lease));
        let call = Call {
            lease: Some(&lease.token),
            ..self.call(Method::POST, &path)
        };
        let mut renewed = self.ask(&call)?;
        // What was reserved before may be used already.
        renewed.until_ms = renewed.until_ms.max(lease.until_ms);
        Ok(renewed)
    }

    /// Ends a lease. From this time on (Unix ms), nothing was stamped.
    ///
    /// # Errors
    /// The errors of a call. The id then rests until its lease ends.
    pub(crate) fn give_back(&self, lease: &Lease, unused_from_ms: i64) -> Result<(), Error> {
        let path = self.path(lease);
        let body = json!({ "unused_from_ms": unused_from_ms });
        let call = Call {
            json: Some(body.to_string()),
            lease: Some(&lease.token),
            ..self.call(Method::DELETE, &path)
        };
        self.engine.service.ask(&call, |_| Ok(()))
    }

    /// Makes a call that brings a lease.
    fn ask(&self, call: &Call<'_>) -> Result<Lease, Error> {
        let sent = boot_clock::now();
        let service = &self.engine.service;
        service.ask(call, |answer| self.read(&answer, sent))
    }

    fn call<'a>(&self, method: Method, path: &'a str) -> Call<'a> {
        Call::new(method, path, self.plan.shared.settings.refill_timeout)
    }

    /// Returns how long a lease lasts.
    fn ttl(&self) -> Duration {
        self.plan.shared.settings.lease_ttl
    }

    fn path(&self, lease: &Lease) -> String {
        format!("/v1/workers/{}/{}", self.plan.pool, lease.worker)
    }

    /// Reads a lease that was asked for at `sent`, by the boot clock.
    fn read(&self, answer: &Answer, sent: u64) -> Result<Lease, Error> {
        let field = |name: &str| answer.body.get(name);
        let read = || {
            let renew_after_ms = field("renew_after_ms")?.as_u64()?;
            let margin = (self.ttl() / MARGIN_PART).min(MAX_MARGIN);
            let worker = field("worker")?.as_u64()?;
            Some(Lease {
                worker: u32::try_from(worker).ok()?,
                token: field("token")?.as_str()?.to_owned(),
                from_ms: field("from_ms").and_then(Value::as_i64)?,
                until_ms: field("until_ms").and_then(Value::as_i64)?,
                ends: sent.saturating_add(nanos(self.ttl().saturating_sub(margin))),
                due: sent.saturating_add(nanos(Duration::from_millis(renew_after_ms))),
            })
        };
        read().ok_or_else(|| Error::invalid_reply(&answer.endpoint, "no lease of a worker id"))
    }
}

/// Returns a time in nanoseconds, as the boot clock counts them.
pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
