//! This replica as its memory knows it, with the database away too: for those who watch.

use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use odometer_core::definition::{Kind, Order, PeriodKind};
use odometer_core::runway::Runway;
use serde::Serialize;
use utoipa::ToSchema;

use super::problem::Problem;
use super::sequences::{HeldBlock, WorkerLease, moment, rfc_3339};
use super::{Http, health, openapi, parse, serving};
use crate::sequence::description::{BlockState, LivePage, LiveSequence, Moment, StoreHealth};

/// One running process.
#[derive(Serialize, ToSchema)]
pub(super) struct Replica {
    /// What the journal calls it.
    #[schema(example = "host-4711-f27ed21c")]
    holder: String,
    #[schema(example = "0.1.0")]
    version: &'static str,
    /// When it began to listen (RFC 3339).
    started: String,
    /// What `/readyz` says.
    ready: bool,
    /// Why it is not ready.
    why: Option<&'static str>,
    /// Names in memory, and periods of them.
    #[schema(example = 17)]
    live_sequences: usize,
    /// Whether changes need `Authorization: Bearer` here.
    token_needed: bool,
    /// In the order of the configuration.
    stores: Vec<Store>,
}

/// A store, as this replica sees it now.
#[derive(Serialize, ToSchema)]
#[schema(as = ReplicaStore)]
pub(super) struct Store {
    name: String,
    /// `database`; `striped` where several share each sequence; `redis` where that counts for
    /// sequences with strict order.
    kind: &'static str,
    /// In the order of the configuration.
    databases: Vec<Database>,
    /// The same; none but where Redis counts.
    redis: Vec<Server>,
}

/// A database of a store.
#[derive(Serialize, ToSchema)]
#[schema(as = ReplicaDatabase)]
pub(super) struct Database {
    /// Its URL without user, password and parameters.
    database: String,
    /// Whether it answers.
    up: bool,
    /// Whether it was found to have gone back to an earlier state.
    went_back: bool,
}

/// A Redis server of a store.
#[derive(Serialize, ToSchema)]
#[schema(as = ReplicaRedis)]
pub(super) struct Server {
    /// Its URL without user, password and parameters.
    server: String,
    /// Whether it answers.
    up: bool,
}

/// A page of the names in this replica's memory.
#[derive(Serialize, ToSchema)]
pub(super) struct LiveListing {
    sequences: Vec<Live>,
    /// The following page's `after`; null on the last page. A page may be short, even empty, and
    /// not be the last.
    next: Option<String>,
}

/// A sequence, as this replica's memory knows it.
#[derive(Serialize, ToSchema)]
pub(super) struct Live {
    /// Its name.
    #[schema(example = "orders")]
    sequence: String,
    #[schema(value_type = String, example = "block")]
    kind: Kind,
    #[schema(value_type = String, example = "relaxed")]
    order: Order,
    /// In what it counts from its start again.
    #[schema(value_type = String, example = "none")]
    counts_by: PeriodKind,
    /// Its store.
    #[schema(example = "default")]
    store: String,
    /// As far as this replica has heard.
    retired: bool,
    /// The period that the rest is said of; null where it counts without, and of keys.
    period: Option<String>,
    /// When that period ends (RFC 3339); null where it is none of a calendar.
    period_ends: Option<String>,
    /// Periods in memory; null where it counts without.
    periods: Option<usize>,
    /// Numbers in memory, of all blocks.
    remaining: u64,
    /// What is being issued from.
    block: Option<HeldBlock>,
    /// The part of it that is issued, 0 to 1.
    utilization: Option<f64>,
    /// What is issued from next.
    next_block: Option<HeldBlock>,
    /// The worker id that ids are stamped with here, where they are time-ordered.
    lease: Option<WorkerLease>,
    /// Numbers a second, averaged over five minutes; of keys, over all of them.
    rate: f64,
    /// How long what is in memory lasts at that rate, or the last second's where that is higher; null
    /// at rate 0. Of a time-ordered sequence, how long its lease lasts.
    reserve_seconds: Option<f64>,
    /// For how long it should last at least: `block.hold` of the definition.
    #[schema(example = 900)]
    hold_seconds: u64,
    /// How the size of the last block was chosen.
    why: Option<String>,
    /// How long the numbers that nobody has reserved yet last, as of the last refill.
    #[schema(value_type = Option<openapi::Runway>)]
    runway: Option<Runway>,
}

/// What this replica's memory knows of one name, with its last minutes.
#[derive(Serialize, ToSchema)]
pub(super) struct Watched {
    /// The name.
    #[schema(example = "orders")]
    sequence: String,
    /// Null where it is not in memory, though it may exist.
    live: Option<Live>,
    /// At most the last 300 seconds that this replica has watched it, the oldest first; empty where
    /// it has not been used in them, or where 1000 other ones were in use before.
    history: Vec<Second>,
}

/// One second.
#[derive(Serialize, ToSchema)]
pub(super) struct Second {
    /// Numbers issued a second.
    rate: f32,
    /// How long what was in memory would have lasted; null where that is not known.
    reserve_seconds: Option<f32>,
}

/// Tells of the replica that answers.
#[utoipa::path(
    get,
    path = "/v1/replica",
    tag = "operation",
    responses((status = 200, description = "This replica, from memory alone.", body = Replica))
)]
pub(super) async fn replica(
    request: HttpRequest,
    http: Data<Http>,
) -> Result<HttpResponse, Problem> {
    parse::no_query(request.uri().query())?;
    let directory = &http.directory;
    let why = health::why_not_ready(directory.readiness());
    Ok(HttpResponse::Ok().json(Replica {
        holder: directory.holder().to_owned(),
        version: env!("CARGO_PKG_VERSION"),
        started: rfc_3339(http.started).unwrap_or_default(),
        ready: why.is_none(),
        why: why.map(|(_, sentence)| sentence),
        live_sequences: directory.n_live(),
        token_needed: !http.administration.is_open(),
        stores: directory.health().into_iter().map(Store::from).collect(),
    }))
}

/// Lists what is in this replica's memory, in the byte order of names.
#[utoipa::path(
    get,
    path = "/v1/replica/sequences",
    tag = "operation",
    params(
        ("contains" = Option<String>, Query, description = "Only names with this in them."),
        ("after" = Option<String>, Query, description = "Only names after this one."),
        ("limit" = Option<u64>, Query, minimum = 1, maximum = 1000,
            description = "How many at most; 100 where it is absent."),
    ),
    responses((status = 200, description = "A page, from memory alone; names that came in the last \
        moments may be missing.", body = LiveListing))
)]
pub(super) async fn list(request: HttpRequest, http: Data<Http>) -> Result<HttpResponse, Problem> {
    let asked = parse::live(request.uri().query())?;
    let limit = usize::try_from(asked.limit).unwrap_or(usize::MAX);
    let directory = &http.directory;
    let page = directory.live(&asked.contains, &asked.after, limit).await;
    Ok(HttpResponse::Ok().json(LiveListing::from(page)))
}

/// Shows what this replica's memory knows of one name, with its last minutes.
#[utoipa::path(
    get,
    path = "/v1/replica/sequences/{name}",
    tag = "operation",
    params(
        ("name" = String, Path, description = "The sequence.",
            min_length = 1, max_length = 128, pattern = "^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$"),
        ("period" = Option<String>, Query,
            description = "The period that is shown; the current one where it is absent."),
    ),
    responses((status = 200, description = "The name, from memory alone.", body = Watched))
)]
pub(super) async fn watch(request: HttpRequest, http: Data<Http>) -> Result<HttpResponse, Problem> {
    let name = parse::live_name(request.uri().path())?;
    let period = parse::period(request.uri().query())?;
    let watched = http.directory.watch(&name, period.as_ref())?;
    let (live, moments) = match watched {
        Some(watched) => (Some(Live::from(watched.sequence)), watched.moments),
        None => (None, Vec::new()),
    };
    Ok(HttpResponse::Ok().json(Watched {
        sequence: name.to_string(),
        live,
        history: moments.into_iter().map(Second::from).collect(),
    }))
}

impl From<StoreHealth> for Store {
    fn from(health: StoreHealth) -> Self {
        let (databases, redis) = (health.databases.into_iter(), health.redis.into_iter());
        Self {
            name: health.store,
            kind: serving::word_of(health.kind),
            databases: databases
                .map(|one| Database {
                    database: one.database,
                    up: one.is_up,
                    went_back: one.went_back,
                })
                .collect(),
            redis: redis
                .map(|one| Server {
                    server: one.server,
                    up: one.is_up,
                })
                .collect(),
        }
    }
}

impl From<LivePage> for LiveListing {
    fn from(page: LivePage) -> Self {
        Self {
            sequences: page.sequences.into_iter().map(Live::from).collect(),
            next: page.next.map(|name| name.to_string()),
        }
    }
}

impl From<LiveSequence> for Live {
    fn from(sequence: LiveSequence) -> Self {
        let (definition, state) = (sequence.definition, sequence.state);
        Self {
            sequence: sequence.name.to_string(),
            kind: definition.kind,
            order: definition.order,
            counts_by: definition.period,
            store: definition.store.clone(),
            retired: sequence.is_retired,
            period: state.period.shown().map(ToOwned::to_owned),
            period_ends: sequence.period_until_ms.and_then(moment),
            periods: sequence.n_periods,
            remaining: sequence.n_remaining,
            utilization: state.block.and_then(BlockState::utilization),
            block: state.block.map(HeldBlock::from),
            next_block: state.next_block.map(HeldBlock::from),
            lease: state.lease.map(WorkerLease::from),
            rate: state.rate,
            reserve_seconds: state.reserve_seconds,
            hold_seconds: definition.block.hold.seconds(),
            why: state.why,
            runway: state.runway,
        }
    }
}

impl From<Moment> for Second {
    fn from(moment: Moment) -> Self {
        Self {
            rate: moment.rate,
            reserve_seconds: moment.reserve_seconds,
        }
    }
}
