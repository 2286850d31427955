//! Reads what callers ask about worker ids.

use std::time::Duration;

use actix_web::HttpRequest;
use actix_web::http::header::{HeaderMap, HeaderName};
use odometer_core::name::SequenceName;
use odometer_sequence::workers::{
    LONGEST_TTL, LeaseWanted, MAX_BITS, MAX_LISTED, WorkerChoice, WorkerPool,
};

use super::{Code, Parameters, Problem, digits, invalid_parameter, object, segment, single};
use crate::http::payload::{
    bodies::{Whole, WorkerLeaseRequest, WorkerRenewalRequest, WorkerReturnRequest},
    parameters::WorkersQuery,
};

/// The header with which a holder proves its lease.
const TOKEN: HeaderName = HeaderName::from_static("odometer-lease");
/// The shortest time that a lease lasts.
const MIN_TTL: Duration = Duration::from_secs(1);
/// The most characters of a holder's name.
const MAX_OF_HOLDER: usize = 128;

/// An example of the body that asks for a lease.
const LEASE: &str = r#"{"pool": "billing", "bits": 10, "ttl_ms": 30000, "holder": "billing-7"}"#;

/// Reads the body that asks for a lease.
pub(crate) fn lease(body: &[u8]) -> Result<LeaseWanted, Problem> {
    let fields: WorkerLeaseRequest = object(body, LEASE)?;
    let pool = SequenceName::parse(&fields.pool).map_err(|error| {
        let detail = format!("`pool` is named as sequences are. {error}");
        Problem::new(Code::InvalidName, detail)
    })?;
    let bits = u32::try_from(fields.bits.0).ok();
    let bits = bits
        .filter(|bits| (1..=MAX_BITS).contains(bits))
        .ok_or_else(|| {
            invalid_parameter(format!("`bits` is a whole number from 1 to {MAX_BITS}."))
        })?;
    let is_holder = (1..=MAX_OF_HOLDER).contains(&fields.holder.len())
        && fields
            .holder
            .bytes()
            .all(|byte| matches!(byte, b' '..=b'~'));
    if !is_holder {
        let detail = format!("`holder` is 1 to {MAX_OF_HOLDER} printable ASCII characters.");
        return Err(invalid_parameter(detail));
    }
    Ok(LeaseWanted {
        pool: WorkerPool::Named(pool),
        bits,
        holder: fields.holder.into(),
        ttl: ttl(fields.ttl_ms.0)?,
        choice: WorkerChoice::Any,
        usable_by_ms: None,
    })
}

/// Reads the body of a renewal: nothing, or how long the lease lasts.
pub(crate) fn renewal(body: &[u8]) -> Result<Option<Duration>, Problem> {
    if body.is_empty() {
        return Ok(None);
    }
    let fields: WorkerRenewalRequest = object(body, r#"{"ttl_ms": 30000}"#)?;
    fields.ttl_ms.map(|Whole(ttl_ms)| ttl(ttl_ms)).transpose()
}

/// Reads the body of a return: nothing, or the time from which on no time was used.
pub(crate) fn end(body: &[u8]) -> Result<Option<i64>, Problem> {
    if body.is_empty() {
        return Ok(None);
    }
    let fields: WorkerReturnRequest = object(body, r#"{"unused_from_ms": 1795000000000}"#)?;
    Ok(fields.unused_from_ms.map(|Whole(unix_ms)| unix_ms))
}

/// Reads whether an administrator releases a worker id, without the token of its lease.
pub(crate) fn is_forced(request: &HttpRequest) -> Result<bool, Problem> {
    let given = Parameters::read(request.uri().query(), &["force"])?;
    let is_forced = given.flag("force")?.unwrap_or(false);
    if is_forced && request.headers().contains_key(TOKEN) {
        return Err(invalid_parameter(
            "Give `Odometer-Lease` to return the worker id as its holder, or `force=true` to \
             release it as an administrator, not both.",
        ));
    }
    Ok(is_forced)
}

/// Reads the query of a list of worker ids.
pub(crate) fn listed(query: Option<&str>) -> Result<WorkersQuery, Problem> {
    let given = Parameters::read(query, &["after", "limit"])?;
    let limit = given.up_to("limit", MAX_LISTED)?.unwrap_or(MAX_LISTED);
    let after = given.get("after").map(|text| {
        let after = digits(text).and_then(|after| u32::try_from(after).ok());
        after.ok_or_else(|| invalid_parameter("`after` is a worker id."))
    });
    Ok(WorkersQuery {
        after: after.transpose()?,
        limit,
    })
}

/// Reads the worker id from the path as it was sent: `/v1/workers/{pool}/{worker}…`.
pub(crate) fn worker(raw_path: &str) -> Result<u32, Problem> {
    let decoded = segment(raw_path, 4);
    let worker = decoded.as_deref().filter(|text| !text.is_empty());
    let worker = worker.and_then(digits).map(u32::try_from);
    worker.and_then(Result::ok).ok_or_else(|| {
        invalid_parameter("The worker id in the path is a whole number, as a lease has it.")
    })
}

/// Reads the token with which a holder proves its lease.
pub(crate) fn token(headers: &HeaderMap) -> Result<&str, Problem> {
    single(headers, &TOKEN)?.ok_or_else(|| {
        invalid_parameter("`Odometer-Lease` has to give the token that the lease came with.")
    })
}

fn ttl(ttl_ms: i64) -> Result<Duration, Problem> {
    let ttl = u64::try_from(ttl_ms).ok().map(Duration::from_millis);
    let within = ttl.filter(|ttl| (MIN_TTL..=LONGEST_TTL).contains(ttl));
    within.ok_or_else(|| {
        let (least, most) = (MIN_TTL.as_millis(), LONGEST_TTL.as_millis());
        invalid_parameter(format!(
            "`ttl_ms` is a whole number from {least} to {most}."
        ))
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn refused(change: impl Fn(&mut Value)) -> Option<Code> {
        let mut body: Value = serde_json::from_str(LEASE).unwrap();
        change(&mut body);
        lease(body.to_string().as_bytes())
            .err()
            .map(|problem| problem.code())
    }

    #[test]
    fn a_lease_is_read_whole() {
        let wanted = lease(LEASE.as_bytes()).unwrap();
        assert_eq!((wanted.pool.name().as_str(), wanted.bits), ("billing", 10));
        assert_eq!((wanted.ttl.as_secs(), &*wanted.holder), (30, "billing-7"));
        for (bits, ttl_ms) in [
            (json!(1), json!(1000)),
            (json!(22), json!(3_600_000)),
            (json!(10.0), json!(3e4)),
        ] {
            let set = |body: &mut Value| {
                body["bits"] = json!(bits);
                body["ttl_ms"] = json!(ttl_ms);
                body["holder"] = json!("~".repeat(128));
            };
            assert_eq!(refused(set), None, "{bits} {ttl_ms}");
        }
    }

    #[test]
    fn what_is_out_of_bounds_is_refused() {
        for (field, value) in [
            ("bits", json!(0)),
            ("bits", json!(23)),
            ("bits", json!(-1)),
            ("ttl_ms", json!(999)),
            ("ttl_ms", json!(3_600_001)),
            ("ttl_ms", json!(-1)),
            ("holder", json!("")),
            ("holder", json!("a".repeat(129))),
            ("holder", json!("a\tb")),
            ("holder", json!("ä")),
        ] {
            let code = refused(|body| body[field] = value.clone());
            assert_eq!(code, Some(Code::InvalidParameter), "{field} {value}");
        }
        for pool in ["", "/orders", "a b", &"a".repeat(129)] {
            let code = refused(|body| body["pool"] = json!(pool));
            assert_eq!(code, Some(Code::InvalidName), "{pool}");
        }
    }

    #[test]
    fn what_is_no_lease_is_refused() {
        for (field, value) in [
            ("bits", json!("10")),
            ("bits", json!(1.5)),
            ("ttl_ms", json!(null)),
            ("ttl_ms", json!(30000.5)),
            ("ttl_ms", json!(1e300)),
            ("holder", json!(7)),
            ("worker", json!(3)),
        ] {
            let code = refused(|body| body[field] = value.clone());
            assert_eq!(code, Some(Code::InvalidBody), "{field} {value}");
        }
        for body in ["", "[]", "{}", "nonsense"] {
            let code = lease(body.as_bytes()).err().map(|problem| problem.code());
            assert_eq!(code, Some(Code::InvalidBody), "{body}");
        }
    }

    #[test]
    fn renewals_and_ends_may_say_nothing() {
        assert_eq!(renewal(b"").unwrap(), None);
        assert_eq!(renewal(b"{}").unwrap(), None);
        let renewed = renewal(br#"{"ttl_ms": 2000}"#).unwrap();
        assert_eq!(renewed, Some(Duration::from_secs(2)));
        assert!(renewal(br#"{"ttl_ms": 1}"#).is_err());
        assert!(renewal(br#"{"ttl": 1000}"#).is_err());
        assert_eq!(end(b"").unwrap(), None);
        assert_eq!(end(br#"{"unused_from_ms": 5}"#).unwrap(), Some(5));
        assert!(end(br#"{"unused_from_ms": "5"}"#).is_err());
    }

    #[test]
    fn a_worker_id_is_a_number_of_the_path() {
        assert_eq!(worker("/v1/workers/billing/17").unwrap(), 17);
        assert_eq!(worker("/v1/workers/billing/17/renew").unwrap(), 17);
        for path in [
            "/v1/workers/billing/",
            "/v1/workers/billing/x",
            "/v1/workers/billing/-1",
            "/v1/workers/billing/4294967296",
        ] {
            assert!(worker(path).is_err(), "{path}");
        }
    }
}
