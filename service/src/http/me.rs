//! Says who a caller is to the service, and what this caller may do.

use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use serde::Serialize;
use utoipa::ToSchema;

use super::payload::values;
use super::state::Http;
use super::{evidence, parse};
use crate::access::quotas::{names::NamesQuota, numbers::NumbersQuota, worker_ids::WorkerIdsQuota};
use crate::access::right::Right;
use crate::access::role::Role;
use crate::calls::caller::Caller;
use crate::calls::problem::Problem;

/// Who you are to the service, and what you may do.
#[derive(Serialize, ToSchema)]
#[schema(as = Caller)]
pub(crate) struct CallerReply {
    /// Your name in the file of callers. `anonymous` without a token and a certificate,
    /// `administrator` with the administrator's token. Without roles it is `loopback` or `everybody`.
    #[schema(value_type = values::SequenceName)]
    caller: String,
    /// Your role; null for an administrator, and without roles.
    #[schema(value_type = Option<values::SequenceName>)]
    role: Option<String>,
    /// The globs of the names on which you have each right.
    rights: RightsReply,
    /// How many numbers a second all callers of your role may take from this replica together; null
    /// if there is no bound.
    #[schema(minimum = 1, example = 5000)]
    numbers_per_second: Option<u64>,
    /// Your role creates no more names and keys while there are as many that fit its globs of
    /// `create` and `define`; null if there is no bound.
    #[schema(minimum = 0, example = 1000)]
    names: Option<u64>,
    /// Your role leases no more worker ids while as many are held in pools that fit its globs of
    /// `lease`; null if there is no bound.
    #[schema(minimum = 0, example = 64)]
    workers: Option<u64>,
    /// The part of what a sequence has left that one call may take without `confirm=true`; null if
    /// there is no bound. A call for 100 numbers is always within it.
    #[schema(pattern = "^[0-9]{1,3}(\\.[0-9]{1,2})?%$", example = "1%")]
    share: Option<String>,
}

/// Globs over names, by right. A right without globs is on no name.
#[derive(Serialize, ToSchema)]
#[schema(as = Rights)]
pub(crate) struct RightsReply {
    /// Take numbers.
    take: Vec<values::Glob>,
    /// Reserve blocks.
    block: Vec<values::Glob>,
    /// Use a name or a key for the first time.
    create: Vec<values::Glob>,
    /// Define, advance, retire and restore sequences, remove keys, and release worker ids.
    define: Vec<values::Glob>,
    /// Lease worker ids.
    lease: Vec<values::Glob>,
    /// Read.
    look: Vec<values::Glob>,
}

/// Says who you are to the service, and what you may do.
#[utoipa::path(
    get,
    path = "/v1/me",
    operation_id = "getCaller",
    tag = "operation",
    responses((status = 200, description = "You.", body = CallerReply))
)]
pub(crate) async fn me(request: HttpRequest, http: Data<Http>) -> Result<HttpResponse, Problem> {
    parse::no_query(request.uri().query())?;
    let caller = http.access.identify_itself(&evidence::of(&request)).await?;
    let globs = |right| globs_of(&caller, right);
    let role = caller.role().filter(|_| http.access.has_roles());
    let quotas = role.map(Role::quotas);
    let numbers = quotas.and_then(|quotas| quotas.numbers.as_ref());
    let names = quotas.and_then(|quotas| quotas.names.as_ref());
    let worker_ids = quotas.and_then(|quotas| quotas.worker_ids.as_ref());
    let share = quotas.map(|quotas| quotas.share);
    let share = share.filter(|share| !share.is_all());
    Ok(HttpResponse::Ok().json(CallerReply {
        caller: caller.name().to_owned(),
        role: role.map(|role| role.name().to_string()),
        numbers_per_second: numbers.map(NumbersQuota::rate),
        names: names.map(NamesQuota::most),
        workers: worker_ids.map(WorkerIdsQuota::most),
        share: share.map(|share| share.to_string()),
        rights: RightsReply {
            take: globs(Right::Take),
            block: globs(Right::Block),
            create: globs(Right::Create),
            define: globs(Right::Define),
            lease: globs(Right::Lease),
            look: globs(Right::Look),
        },
    }))
}

fn globs_of(caller: &Caller, right: Right) -> Vec<values::Glob> {
    match caller.role() {
        None => vec!["*".into()],
        Some(role) => role.globs(right).iter().map(values::Glob::from).collect(),
    }
}
