//! Lets a replica fence its database by itself, and arms the database for that.
//!
//! A fence is right only if all programs that use the database pay for their numbers. So the first
//! replica that finds no older program arms the database: older programs are kept out from then on.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use entity::{meta, replica};
use odometer_database::{
    bounds::longest_on_server, connection::Connection, database_clock, failure::StatementFailure,
    session::DatabaseConnection, start_error::StartError, target::Target,
};
use sea_orm::{
    ColumnTrait, ConnectionTrait, DbErr, EntityTrait, QueryFilter, QuerySelect,
    sea_query::{Expr, Query},
};

use super::{
    fencing::{FenceRequest, LONGEST_MARGINS},
    recover::{self, Loss, Recovered},
};
use crate::{
    database::Database,
    heartbeat::Heartbeat,
    identity::DatabaseIdentity,
    meta_row,
    settings::{FailoverLimits, StoreLimits},
};

/// Names the log target of the events in this file.
const TARGET: &str = "odometer::store::change::fence";

/// Sets how long an older program must be silent before the database is armed.
const SILENCE: Duration = Duration::from_secs(60);

/// Bounds the fence of a replica.
const LONGEST_FENCE: Duration = Duration::from_secs(300);

/// Why a replica did not fence its database, as a sentence.
#[derive(Debug)]
pub(crate) enum FencingError {
    /// What was lost cannot be known. An operator must say it.
    Refused(String),
    /// The database failed. It says nothing of what was lost.
    Failed(String),
}

/// What a replica needs to fence one database.
pub(crate) struct SelfFencing {
    target: Target,
    identity: DatabaseIdentity,
    limits: StoreLimits,
    silence: Silence,
    /// Whether a line of the log has said that the database is disarmed.
    is_told: bool,
}

impl SelfFencing {
    pub(crate) fn of(database: &Database, target: Target) -> Self {
        Self {
            target,
            identity: database.identity.clone(),
            limits: database.settings.clone(),
            silence: Silence::default(),
            is_told: false,
        }
    }

    /// Raises all counters above what the database may have lost, unless another replica has done
    /// so. The database is that of the installation `cluster_id`.
    ///
    /// # Errors
    /// Why the database is not fenced.
    pub(crate) async fn raise(
        &self,
        heartbeat: &Heartbeat,
        cluster_id: &str,
    ) -> Result<(), FencingError> {
        if self.target.file.is_some() {
            let why = "nobody fails over to a SQLite file: it is restored";
            return Err(FencingError::Refused(why.to_owned()));
        }
        let request = FenceRequest::of(heartbeat, cluster_id, self.limits.failover.within);
        let fencing = recover::recover_at(
            &self.target,
            heartbeat.file.as_deref(),
            (&self.identity, &self.limits),
            (Loss::Computed(request), false, &|_n_sequences| {}),
        );
        // If it is given up here, the server may still commit it, and the next look finds it.
        let fenced = tokio::time::timeout(LONGEST_FENCE, fencing).await;
        let recovered = match fenced {
            Ok(Ok(recovered)) => recovered,
            Ok(Err(StartError::Configuration(why) | StartError::Held(why))) => {
                return Err(FencingError::Refused(why));
            }
            Ok(Err(StartError::Other(why))) => return Err(FencingError::Failed(why)),
            Err(_) => return Err(FencingError::Failed("it took too long".to_owned())),
        };
        self.tell(&recovered);
        Ok(())
    }

    /// Names what the row of a fence does not.
    fn tell(&self, recovered: &Recovered) {
        if recovered.n_at_their_end > 0 || recovered.n_unknown > 0 {
            tracing::warn!(
                target: TARGET,
                store = &*self.identity.label.store,
                exhausted = ?recovered.at_their_end,
                must_recover = ?recovered.unknown,
                "a fence has used up sequences, or stopped them until an operator says what they \
                 have lost"
            );
        }
    }

    fn tell_that_it_is_disarmed(&mut self) {
        if !std::mem::replace(&mut self.is_told, true) {
            tracing::warn!(
                target: TARGET,
                store = &*self.identity.label.store,
                "after a failover the database is left to an operator: `odometer migrate --disarm` \
                 has run; `odometer migrate --arm` takes that back"
            );
        }
    }

    /// Arms the database as soon as no older program uses it, and takes the rows of older programs
    /// that come back later. Without its row such a program reserves nothing.
    ///
    /// A store whose databases are not fenced is not armed, so that it can go back to an older
    /// program. Neither is one that an operator has [disarmed](super::disarming).
    ///
    /// # Errors
    /// The database failed. Call this again.
    pub(crate) async fn arm(
        &mut self,
        connection: &Arc<Connection>,
        meta: &meta::Model,
        has_mark: bool,
    ) -> Result<(), StatementFailure> {
        let bounds = &self.limits.statement;
        let until = Instant::now() + bounds.timeout + bounds.acquire;
        let is_shared = is_shared(meta);
        if meta.armed_at.is_some() {
            let taking = connection.run(until, |database| take_rows_of_older(database, is_shared));
            return taking.await;
        }
        if meta.disarmed {
            self.tell_that_it_is_disarmed();
            return Ok(());
        }
        let is_lossless = self.limits.failover.is_lossless;
        if !has_mark || is_lossless || self.target.file.is_some() {
            return Ok(());
        }
        let older = connection
            .run(until, async move |database| {
                older_beats(&database, is_shared).await
            })
            .await?;
        if self.silence.lasts(&older, Instant::now()) {
            let arming = connection.run(until, |database| arm(database, older));
            arming.await?;
        }
        Ok(())
    }
}

/// Returns which setting makes it impossible to fence any database, and what is wrong with it.
/// Other settings say whether replicas are to fence one.
pub fn unfit_for_fences(
    failover: &FailoverLimits,
    timeout: Duration,
) -> Option<(&'static str, String)> {
    // A fence counts from so long before the last heartbeat.
    let before = longest_on_server(timeout) + failover.clock_margin;
    if before + failover.clock_margin > LONGEST_MARGINS {
        let longest = LONGEST_MARGINS - longest_on_server(Duration::ZERO);
        Some((
            "store.timeout",
            format!(
                "with it nobody can know what a failover lost: give at most {} s, less twice \
                 failover.clock_margin, or leave failovers to an operator by failover.within = \"0s\"",
                longest.as_secs()
            ),
        ))
    } else if failover.within <= before {
        Some((
            "failover.within",
            "each failover takes longer than that: give more than store.timeout, \
             failover.clock_margin and two seconds together, or \"0s\" to leave failovers to an \
             operator"
                .to_owned(),
        ))
    } else {
        None
    }
}

/// The heartbeats of older programs, by their holders.
type OlderBeats = BTreeMap<String, i64>;

/// How long older programs have been silent. It is measured by this process's own clock.
#[derive(Default)]
struct Silence {
    last: OlderBeats,
    since: Option<Instant>,
}

impl Silence {
    /// Notes the heartbeats of older programs. Returns whether none of them has changed for long
    /// enough.
    fn lasts(&mut self, beats: &OlderBeats, now: Instant) -> bool {
        if self.since.is_none() || self.last != *beats {
            self.last.clone_from(beats);
            self.since = Some(now);
        }
        let lasted = self.since.map(|since| now.duration_since(since));
        lasted.is_some_and(|lasted| lasted >= SILENCE)
    }
}

/// Returns whether other databases count together with this one, or Redis counts in front of it.
fn is_shared(meta: &meta::Model) -> bool {
    meta.stripe_n > 1 || meta.redis.is_some()
}

/// Finds the programs that do not know how such a database is fenced.
fn is_older(is_shared: bool) -> Expr {
    match is_shared {
        true => replica::Column::KnowsSharing.eq(false),
        false => replica::Column::KnowsFences.eq(false),
    }
}

/// Returns the heartbeats of older programs that have not been silent for weeks.
async fn older_beats(
    database: &impl ConnectionTrait,
    is_shared: bool,
) -> Result<OlderBeats, DbErr> {
    let beats: Vec<(String, i64)> = replica::Entity::find()
        .select_only()
        .columns([replica::Column::Holder, replica::Column::Beat])
        .filter(is_older(is_shared))
        .filter(replica::Column::Beat.gte(0))
        .into_tuple()
        .all(database)
        .await?;
    Ok(beats.into_iter().collect())
}

/// Deletes the rows of older programs. A row that is set aside goes, too: its program could take it
/// back.
///
/// The rows are looked for first: on MySQL and MariaDB a deletion locks each row that it looks at,
/// and reservations wait for that.
async fn take_rows_of_older(database: DatabaseConnection, is_shared: bool) -> Result<(), DbErr> {
    let holders: Vec<String> = replica::Entity::find()
        .select_only()
        .column(replica::Column::Holder)
        .filter(is_older(is_shared))
        .into_tuple()
        .all(&database)
        .await?;
    if holders.is_empty() {
        return Ok(());
    }
    // It may have been disarmed since it was read.
    let is_armed = Query::select()
        .expr(Expr::val(1))
        .from(meta::Entity)
        .and_where(meta::Column::ArmedAt.is_not_null())
        .to_owned();
    replica::Entity::delete_many()
        .filter(is_older(is_shared))
        .filter(replica::Column::Holder.is_in(holders))
        .filter(Expr::exists(is_armed))
        .exec(&database)
        .await?;
    Ok(())
}

/// Arms the database, if the heartbeats of older programs still are as they were.
async fn arm(database: DatabaseConnection, beats: OlderBeats) -> Result<(), DbErr> {
    let transaction = database.begin_read_committed().await?;
    let meta = meta_row::lock_exclusively(&transaction).await?;
    let is_shared = is_shared(&meta);
    let is_silent = older_beats(&transaction, is_shared).await? == beats;
    if meta.armed_at.is_none() && !meta.disarmed && is_silent {
        let of_older = replica::Entity::delete_many().filter(is_older(is_shared));
        of_older.exec(&transaction).await?;
        let now = database_clock::now(transaction.get_database_backend());
        let oldest = match is_shared {
            true => migration::DISARMING,
            false => migration::FENCE,
        };
        let compatible_from = Ord::max(meta.compatible_from, oldest);
        meta::Entity::update_many()
            .col_expr(meta::Column::ArmedAt, now)
            .col_expr(meta::Column::CompatibleFrom, Expr::val(compatible_from))
            .filter(meta::Column::Id.eq(1))
            .exec(&transaction)
            .await?;
    }
    transaction.commit().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_with_which_nothing_is_ever_fenced_are_named() {
        let key = |timeout, within, clock_margin| {
            let failover = FailoverLimits {
                is_lossless: false,
                within: Duration::from_secs(within),
                clock_margin: Duration::from_secs(clock_margin),
            };
            let unfit = unfit_for_fences(&failover, Duration::from_secs(timeout));
            unfit.map(|(key, _problem)| key)
        };
        assert_eq!(key(5, 900, 2), None);
        assert_eq!(key(54, 900, 2), None);
        assert_eq!(key(55, 900, 2), Some("store.timeout"));
        assert_eq!(key(8, 900, 25), None);
        assert_eq!(key(9, 900, 25), Some("store.timeout"));
        assert_eq!(key(5, 9, 2), Some("failover.within"));
        assert_eq!(key(5, 10, 2), None);
    }

    #[test]
    fn older_programs_are_silent_if_no_heartbeat_of_them_changes() {
        let beats = |beat| OlderBeats::from([("older".to_owned(), beat)]);
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut silence = Silence::default();
        assert!(!silence.lasts(&beats(7), start));
        assert!(!silence.lasts(&beats(7), start + SILENCE - second));
        assert!(!silence.lasts(&beats(8), start + SILENCE));
        assert!(!silence.lasts(&beats(8), start + SILENCE + second));
        assert!(silence.lasts(&beats(8), start + SILENCE * 2));
    }
}
