//! Shows this replica as its memory knows it, also while the database is away.

use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use odometer_core::runway::Runway;
use odometer_core::{
    definition::{Kind, Order},
    period::PeriodKind,
};
use odometer_sequence::description::{BlockState, LiveSequence, StoreHealth, StoreKind};
use serde::Serialize;
use utoipa::ToSchema;

use super::payload::{
    self,
    parameters::{PageQuery, PartQuery, SequencePath, ShownPeriodQuery, SortQuery},
    values,
};
use super::sequences::{HeldBlock, LeaseReply};
use super::state::Http;
use super::text::{moment, rfc_3339};
use super::{evidence, parse};
use crate::access::right::Right;
use crate::calls::problem::Problem;
use crate::calls::readiness::why_not_ready;

/// One running process.
#[derive(Serialize, ToSchema)]
pub(crate) struct Replica {
    /// What the journal calls this process.
    #[schema(example = "host-4711-f27ed21c")]
    holder: String,
    /// The version of the program.
    #[schema(example = "0.1.0")]
    version: &'static str,
    /// When the process began to listen.
    started: values::Timestamp,
    /// What `/readyz` says.
    ready: bool,
    /// Why the replica is not ready; null if it is.
    #[schema(example = "This replica is stopping.")]
    why: Option<&'static str>,
    /// Names in memory, and periods of them.
    #[schema(example = 17)]
    live_sequences: usize,
    /// Whether changes need `Authorization: Bearer` here.
    token_needed: bool,
    /// Whether this address only shows. Numbers and changes are at another address then, `listen`.
    shows_only: bool,
    /// A change of a sequence holds here at once, and at the other replicas within this time.
    #[schema(example = 10.0)]
    definition_refresh_seconds: f64,
    /// The stores, in the order of the configuration.
    stores: Vec<StoreReply>,
}

/// A store, as this replica sees it now.
#[derive(Serialize, ToSchema)]
#[schema(as = ReplicaStore)]
pub(crate) struct StoreReply {
    name: values::StoreName,
    #[schema(value_type = values::StoreKind)]
    kind: StoreKind,
    /// The databases, in the order of the configuration.
    databases: Vec<DatabaseReply>,
    /// The Redis servers, in the order of the configuration; empty if Redis does not count.
    redis: Vec<RedisReply>,
}

/// A database of a store.
#[derive(Serialize, ToSchema)]
#[schema(as = ReplicaDatabase)]
pub(crate) struct DatabaseReply {
    /// The URL without user, password and parameters.
    #[schema(example = "postgres://db.example:5432/odometer")]
    database: String,
    /// Whether the database answers.
    up: bool,
    /// Whether the database was found to have gone back to an earlier state.
    went_back: bool,
    /// The last recovery of the database; null if there was none, or if this replica has not
    /// reached the database yet.
    recovery: Option<RecoveryReply>,
}

/// A recovery: every counter was raised above what lost commits can have given.
#[derive(Serialize, ToSchema)]
#[schema(as = DatabaseRecovery)]
pub(crate) struct RecoveryReply {
    /// When the recovery was made.
    at: values::Timestamp,
    /// Commits since then may be lost; null if an operator said what was lost.
    lost_since: Option<values::Timestamp>,
    /// The largest rise of a counter.
    #[schema(example = 10_000_000)]
    highest_rise: u64,
    /// The replica that made the recovery; null if `odometer recover` made it.
    #[schema(example = "host-4711-f27ed21c")]
    holder: Option<String>,
}

/// A Redis server of a store.
#[derive(Serialize, ToSchema)]
#[schema(as = ReplicaRedis)]
pub(crate) struct RedisReply {
    /// The URL without user, password and parameters.
    #[schema(example = "redis://redis.example:6379")]
    server: String,
    /// Whether the server answers.
    up: bool,
}

/// A page of the names in this replica's memory.
#[derive(Serialize, ToSchema)]
#[schema(as = LiveSequencePage)]
pub(crate) struct LivePageReply {
    /// The sequences, in the order of `sort`.
    sequences: Vec<LiveSequenceReply>,
    /// The `after` of the next page; null on the last page. A page may be short, even empty, and
    /// not be the last.
    next: Option<values::SequenceName>,
}

/// A sequence, as this replica's memory knows it.
#[derive(Serialize, ToSchema)]
#[schema(as = LiveSequence)]
pub(crate) struct LiveSequenceReply {
    sequence: values::SequenceName,
    #[schema(value_type = values::SequenceKind)]
    kind: Kind,
    #[schema(value_type = values::SequenceOrder)]
    order: Order,
    #[schema(value_type = values::PeriodKind)]
    counts_by: PeriodKind,
    /// The store that keeps the sequence.
    store: values::StoreName,
    /// Whether the sequence is retired, as far as this replica has heard.
    retired: bool,
    /// The period that the other fields speak of; null if the sequence counts without periods or
    /// by keys.
    period: Option<values::Period>,
    /// When that period ends; null if it is not one of a calendar.
    period_ends: Option<values::Timestamp>,
    /// Periods in memory; null if the sequence counts without periods.
    #[schema(example = 2)]
    periods: Option<usize>,
    /// Numbers in memory, of all blocks.
    #[schema(example = 1400)]
    remaining: u64,
    /// The block that numbers are issued from; null if this replica holds none.
    block: Option<HeldBlock>,
    /// The part of that block that is issued, 0 to 1.
    #[schema(minimum = 0, maximum = 1, example = 0.6)]
    utilization: Option<f64>,
    /// The block that numbers are issued from next; null if this replica holds none.
    next_block: Option<HeldBlock>,
    /// The worker id in the ids that this replica makes, for kind `snowflake`; null if it holds
    /// none.
    lease: Option<LeaseReply>,
    /// Numbers a second, averaged over five minutes. With keys, over all of them.
    #[schema(example = 12.5)]
    rate: f64,
    /// How long the numbers in memory last at that rate, or at the rate of the last second if that
    /// is higher; null at rate 0. For kind `snowflake`, how long the lease lasts.
    #[schema(example = 1800.0)]
    reserve_seconds: Option<f64>,
    /// Whether the numbers in memory last for less than `hold_seconds` only because the sequence
    /// has just become busy. Its blocks were sized for a lower rate, and the next ones are larger.
    /// While the database is away no larger block can come, and this is false.
    #[schema(example = false)]
    warming_up: bool,
    /// How long the numbers in memory should last at least: `block.hold` of the definition.
    #[schema(example = 900)]
    hold_seconds: u64,
    /// How the size of the last block was chosen; null if none came.
    #[schema(example = "1 at first use")]
    why: Option<String>,
    /// How long the numbers last that are not reserved yet, as of the last refill; null before it.
    #[schema(value_type = Option<payload::definition::Runway>)]
    runway: Option<Runway>,
}

/// What this replica's memory knows of one name, with its last minutes.
#[derive(Serialize, ToSchema)]
#[schema(as = WatchedSequence)]
pub(crate) struct WatchedReply {
    sequence: values::SequenceName,
    /// The sequence; null if it is not in memory, though it may exist.
    live: Option<LiveSequenceReply>,
    /// At most the last 300 seconds that this replica has watched the sequence, the oldest first.
    /// Empty if the sequence was not used in them, or if 1000 other sequences were in use before.
    history: Vec<UsageSecondReply>,
}

/// The use of a sequence in one second.
#[derive(Serialize, ToSchema)]
#[schema(as = UsageSecond)]
pub(crate) struct UsageSecondReply {
    /// Numbers issued a second.
    #[schema(example = 12.5)]
    rate: f32,
    /// How long the numbers in memory would have lasted; null if that is not known.
    #[schema(example = 1800.0)]
    reserve_seconds: Option<f32>,
}

/// Describes the replica that answers.
#[utoipa::path(
    get,
    path = "/v1/replica",
    operation_id = "getReplica",
    tag = "operation",
    responses((status = 200, description = "This replica, from memory alone.", body = Replica))
)]
pub(crate) async fn replica(
    request: HttpRequest,
    http: Data<Http>,
) -> Result<HttpResponse, Problem> {
    http.access
        .admit_to_all(&evidence::of(&request), Right::Look)
        .await?;
    parse::no_query(request.uri().query())?;
    let directory = &http.directory;
    let why = why_not_ready(directory.readiness());
    Ok(HttpResponse::Ok().json(Replica {
        holder: directory.holder().to_owned(),
        version: env!("CARGO_PKG_VERSION"),
        started: rfc_3339(http.started).unwrap_or_default(),
        ready: why.is_none(),
        why: why.map(|(_, sentence)| sentence),
        live_sequences: directory.n_live(),
        token_needed: !http.access.is_open(),
        shows_only: !http.role.serves_callers(),
        definition_refresh_seconds: http.definition_refresh.as_secs_f64(),
        stores: directory.health().into_iter().map(store_reply).collect(),
    }))
}

/// Lists what is in this replica's memory.
#[utoipa::path(
    get,
    path = "/v1/replica/sequences",
    operation_id = "listLiveSequences",
    tag = "operation",
    params(PartQuery, PageQuery, SortQuery),
    responses((status = 200, description = "A page, from memory alone; names that came in the last \
        moments may be missing.", body = LivePageReply))
)]
pub(crate) async fn list(request: HttpRequest, http: Data<Http>) -> Result<HttpResponse, Problem> {
    http.access
        .admit_to_all(&evidence::of(&request), Right::Look)
        .await?;
    let (asked, sort) = parse::live(request.uri().query())?;
    let limit = usize::try_from(asked.limit).unwrap_or(usize::MAX);
    let directory = &http.directory;
    let page = directory
        .live(&asked.filter, &asked.after, limit, sort)
        .await;
    let sequences = page.sequences.into_iter();
    Ok(HttpResponse::Ok().json(LivePageReply {
        sequences: sequences.map(LiveSequenceReply::from).collect(),
        next: page.next.map(Into::into),
    }))
}

/// Shows what this replica's memory knows of one name, with its last minutes.
#[utoipa::path(
    get,
    path = "/v1/replica/sequences/{name}",
    operation_id = "getLiveSequence",
    tag = "operation",
    params(SequencePath, ShownPeriodQuery),
    responses((status = 200, description = "The name, from memory alone.", body = WatchedReply))
)]
pub(crate) async fn watch(request: HttpRequest, http: Data<Http>) -> Result<HttpResponse, Problem> {
    http.access
        .admit_to_all(&evidence::of(&request), Right::Look)
        .await?;
    let name = parse::live_name(request.uri().path())?;
    let period = parse::period(request.uri().query())?;
    let watched = http.directory.watch(&name, period.as_ref())?;
    let (live, moments) = match watched {
        Some(watched) => (Some(watched.sequence.into()), watched.moments),
        None => (None, Vec::new()),
    };
    let history = moments.into_iter().map(|moment| UsageSecondReply {
        rate: moment.rate,
        reserve_seconds: moment.reserve_seconds,
    });
    Ok(HttpResponse::Ok().json(WatchedReply {
        sequence: name.into(),
        live,
        history: history.collect(),
    }))
}

fn store_reply(health: StoreHealth) -> StoreReply {
    let (databases, redis) = (health.databases.into_iter(), health.redis.into_iter());
    let databases = databases.map(|one| DatabaseReply {
        database: one.database,
        up: one.is_up,
        went_back: one.went_back,
        recovery: one.last_recovery.map(|recovery| RecoveryReply {
            at: moment(recovery.at_ms).unwrap_or_default(),
            lost_since: recovery.lost_since_ms.and_then(moment),
            highest_rise: recovery.highest_rise,
            holder: recovery.made_by,
        }),
    });
    let redis = redis.map(|one| RedisReply {
        server: one.server,
        up: one.is_up,
    });
    StoreReply {
        name: health.store.into(),
        kind: health.kind,
        databases: databases.collect(),
        redis: redis.collect(),
    }
}

impl From<LiveSequence> for LiveSequenceReply {
    fn from(sequence: LiveSequence) -> Self {
        let (definition, state) = (sequence.definition, sequence.state);
        Self {
            sequence: sequence.name.into(),
            kind: definition.kind,
            order: definition.order,
            counts_by: definition.period,
            store: definition.store.as_str().into(),
            retired: sequence.is_retired,
            period: state.period.shown().map(Into::into),
            period_ends: state.period_until_ms.and_then(moment),
            periods: sequence.n_periods,
            remaining: state.n_remaining,
            utilization: state.block.and_then(BlockState::utilization),
            block: state.block.map(HeldBlock::from),
            next_block: state.next_block.map(HeldBlock::from),
            lease: state.lease.map(LeaseReply::from),
            rate: state.rate,
            reserve_seconds: state.reserve_seconds,
            warming_up: state.warming_up,
            hold_seconds: definition.block.hold.seconds(),
            why: state.why,
            runway: state.runway,
        }
    }
}
