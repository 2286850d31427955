//! Leases worker ids to programs with a snowflake library of their own, renews leases, and takes
//! ids back.

use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use odometer_core::name::SequenceName;
use odometer_sequence::audit;
use odometer_sequence::workers::{LeaseGrant, LeaseKey, LeaseRow};
use serde::Serialize;
use utoipa::ToSchema;

use super::payload::{
    bodies::{WorkerLeaseRequest, WorkerRenewalRequest, WorkerReturnRequest},
    parameters::{ForceQuery, LeaseHeader, PoolPath, ShownLeaseHeader, WorkerPath, WorkersQuery},
    values,
};
use super::state::{Call, Http};
use super::{body, evidence, parse};
use crate::access::right::Right;
use crate::calls::problem::Problem;
use crate::calls::quotas;

/// A worker id that you hold. Use only ticks that lie wholly in [`from_ms`, `until_ms`).
#[derive(Serialize, ToSchema)]
#[schema(as = WorkerLease)]
pub(crate) struct LeasedWorkerReply {
    /// The pool of the worker id.
    #[schema(example = "billing")]
    pool: values::SequenceName,
    #[schema(value_type = values::WorkerId)]
    worker: u32,
    /// Send it as `Odometer-Lease` to renew or return the worker id. Keep it secret.
    token: values::LeaseToken,
    /// The first time that you may use; 0 for an id that was never leased.
    #[schema(example = 1_795_000_000_000_i64)]
    from_ms: values::UnixMilliseconds,
    /// Use times before this one only.
    until_ms: values::UnixMilliseconds,
    /// Renew the lease after this time, in milliseconds.
    #[schema(example = 10_000)]
    renew_after_ms: u64,
}

/// The worker ids of a pool that were ever leased.
#[derive(Serialize, ToSchema)]
#[schema(as = WorkerPage)]
pub(crate) struct WorkerPageReply {
    /// The pool.
    #[schema(example = "billing")]
    pool: values::SequenceName,
    /// Width of the pool's worker ids; null if none was ever leased.
    #[schema(minimum = 1, maximum = 22, example = 10)]
    bits: Option<u32>,
    /// The worker ids, in ascending order.
    workers: Vec<Worker>,
    /// The `after` of the next page; null on the last page.
    #[schema(value_type = Option<values::WorkerId>)]
    next: Option<u32>,
}

/// A worker id of a pool.
#[derive(Serialize, ToSchema)]
pub(crate) struct Worker {
    #[schema(value_type = values::WorkerId)]
    worker: u32,
    /// Who holds the worker id, or held it last.
    #[schema(example = "billing-7")]
    holder: String,
    /// The last holder uses no time before this one.
    #[schema(example = 1_795_000_000_000_i64)]
    from_ms: values::UnixMilliseconds,
    /// No holder has used this time or a later one; the next holder begins here.
    until_ms: values::UnixMilliseconds,
    /// When the lease ends, by the database's clock.
    expires_ms: values::UnixMilliseconds,
    /// Whether the worker id is held, by the database's clock.
    held: bool,
}

/// Leases a worker id that nobody else holds, with time that nobody else stamps.
#[utoipa::path(
    post,
    path = "/v1/workers",
    operation_id = "leaseWorker",
    tag = "workers",
    request_body = WorkerLeaseRequest,
    responses((status = 201, description = "Leased.", body = LeasedWorkerReply))
)]
pub(crate) async fn lease((request, payload, http): Call) -> Result<HttpResponse, Problem> {
    parse::no_idempotency_key(request.headers())?;
    parse::no_query(request.uri().query())?;
    let caller = http
        .access
        .identify(&evidence::of(&request), Right::Lease)
        .await?;
    let body = body::json(&request, payload, http.body).await?;
    let wanted = parse::workers::lease(&body)?;
    let pool = wanted.pool.name().clone();
    caller.check(Right::Lease, &pool)?;
    let is_new = http.access.has_roles() && is_new(&http, &pool).await;
    let held = quotas::lease(&http, &caller, wanted).await?;
    if is_new {
        audit::note_new_pool(&caller.author(&evidence::of(&request)), &pool);
    }
    Ok(HttpResponse::Created().json(leased(held)))
}

/// Renews a lease: `from_ms` stays, `until_ms` rises and never falls.
#[utoipa::path(
    post,
    path = "/v1/workers/{pool}/{worker}/renew",
    operation_id = "renewWorker",
    tag = "workers",
    params(PoolPath, WorkerPath, LeaseHeader),
    request_body(content = WorkerRenewalRequest, content_type = "application/json",
        description = "For how long, if it is to be another time than before."),
    responses((status = 200, description = "Renewed; the token stays the same.",
        body = LeasedWorkerReply))
)]
pub(crate) async fn renew((request, payload, http): Call) -> Result<HttpResponse, Problem> {
    parse::no_query(request.uri().query())?;
    let (key, ttl) = shown_lease(&request, payload, &http, parse::workers::renewal).await?;
    let lease = http.directory.renew_worker(&key, ttl).await?;
    Ok(HttpResponse::Ok().json(leased(lease)))
}

/// Gives a worker id back. Without `unused_from_ms` it rests until `until_ms`.
///
/// After you have sent this, stamp nothing, and ask for no renewal. With `force=true` an
/// administrator voids the token of the lease, which then ends when it expires.
#[utoipa::path(
    delete,
    path = "/v1/workers/{pool}/{worker}",
    operation_id = "returnWorker",
    tag = "workers",
    params(PoolPath, WorkerPath, ForceQuery, ShownLeaseHeader),
    request_body(content = WorkerReturnRequest, content_type = "application/json",
        description = "From when on no time was used."),
    responses((status = 204, description = "Given back, now or before."))
)]
pub(crate) async fn give_back((request, payload, http): Call) -> Result<HttpResponse, Problem> {
    if parse::workers::is_forced(&request)? {
        let worker = parse::workers::worker(request.uri().path())?;
        return release((request, payload, http), Some(worker)).await;
    }
    let end = parse::workers::end;
    let (key, unused_from_ms) = shown_lease(&request, payload, &http, end).await?;
    http.directory
        .give_back_worker(&key, unused_from_ms)
        .await?;
    Ok(HttpResponse::NoContent().finish())
}

/// Voids the tokens of all leases of a pool, so that no lease is renewed.
///
/// Each lease ends when it expires, and its worker id rests until `until_ms`. Holders learn of it
/// when they renew. The pool no longer counts among those that there may be.
#[utoipa::path(
    delete,
    path = "/v1/workers/{pool}",
    operation_id = "releasePool",
    tag = "workers",
    params(PoolPath),
    responses((status = 204, description = "No lease of the pool has a token any more."))
)]
pub(crate) async fn release_pool((request, payload, http): Call) -> Result<HttpResponse, Problem> {
    parse::no_query(request.uri().query())?;
    release((request, payload, http), None).await
}

/// Releases the pool in the path, or one of its worker ids, for an administrator.
async fn release(
    (request, payload, http): Call,
    worker: Option<u32>,
) -> Result<HttpResponse, Problem> {
    let pool = parse::name(request.uri().path())?;
    let caller = http
        .access
        .admit(&evidence::of(&request), Right::Define, &pool)
        .await?;
    body::nothing(&request, payload, http.body).await?;
    let author = caller.author(&evidence::of(&request));
    let directory = &http.directory;
    directory.release_workers(pool, worker, author).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// Lists the worker ids of a pool that were ever leased, without tokens.
#[utoipa::path(
    get,
    path = "/v1/workers/{pool}",
    operation_id = "listWorkers",
    tag = "workers",
    params(PoolPath, WorkersQuery),
    responses((status = 200, description = "The ids, the lowest first.", body = WorkerPageReply))
)]
pub(crate) async fn list(request: HttpRequest, http: Data<Http>) -> Result<HttpResponse, Problem> {
    let pool = parse::name(request.uri().path())?;
    http.access
        .admit(&evidence::of(&request), Right::Look, &pool)
        .await?;
    let asked = parse::workers::listed(request.uri().query())?;
    let directory = &http.directory;
    let mut rows = directory
        .workers(&pool, asked.after, asked.limit.saturating_add(1))
        .await?;
    let shown = usize::try_from(asked.limit).unwrap_or(usize::MAX);
    let has_more = rows.len() > shown;
    rows.truncate(shown);
    Ok(HttpResponse::Ok().json(WorkerPageReply {
        pool: pool.into(),
        bits: rows.first().map(|row| row.bits),
        next: rows.last().filter(|_| has_more).map(|row| row.worker),
        workers: rows.into_iter().map(worker_of).collect(),
    }))
}

/// Returns whether no worker id of a pool was ever leased, as far as the database says.
async fn is_new(http: &Http, pool: &SequenceName) -> bool {
    let first = http.directory.workers(pool, None, 1).await;
    first.is_ok_and(|first| first.is_empty())
}

/// Returns the lease whose token a call shows, and what `read` finds in the body of the call.
async fn shown_lease<T>(
    request: &HttpRequest,
    payload: Payload,
    http: &Http,
    read: fn(&[u8]) -> Result<T, Problem>,
) -> Result<(LeaseKey, T), Problem> {
    let path = request.uri().path();
    let (pool, worker) = (parse::name(path)?, parse::workers::worker(path)?);
    http.access
        .admit(&evidence::of(request), Right::Lease, &pool)
        .await?;
    let token = parse::workers::token(request.headers())?;
    let body = body::json_or_nothing(request, payload, http.body).await?;
    let said = read(&body)?;
    let key = http.directory.shown_lease(pool, worker, token)?;
    Ok((key, said))
}

fn leased(lease: LeaseGrant) -> LeasedWorkerReply {
    let renew_after = lease.reach / 3;
    LeasedWorkerReply {
        pool: lease.key.pool.name().into(),
        worker: lease.key.worker,
        token: lease.key.token().into(),
        from_ms: values::UnixMilliseconds(lease.from_ms),
        until_ms: values::UnixMilliseconds(lease.until_ms),
        renew_after_ms: u64::try_from(renew_after.as_millis()).unwrap_or(u64::MAX),
    }
}

fn worker_of(row: LeaseRow) -> Worker {
    Worker {
        worker: row.worker,
        holder: row.holder,
        from_ms: values::UnixMilliseconds(row.from_ms),
        until_ms: values::UnixMilliseconds(row.until_ms),
        expires_ms: values::UnixMilliseconds(row.expires_ms),
        held: row.is_held,
    }
}
