//! Decides whether a server that was started again still has all commits.
//!
//! A server that comes back with its own disk has them, and one that comes back with a snapshot of
//! that disk has not. Both say the same of themselves. What tells them apart is what replicas wrote
//! before the start. So each replica that used the database lately must have
//!
//! - vouched for this start: it lived through it, and finds its own heartbeat as it left it, or
//! - ended in order: the database has the end, so it has all that was written before.
//!
//! One replica is not enough: it knows nothing of what another one wrote after the snapshot. A
//! replica that was killed cannot vouch, so the server is not trusted.
//!
//! All this must have been a short time ago. An older heartbeat may be that of last night's
//! snapshot.

use std::time::Duration;

use entity::replica;
use odometer_database::session::DatabaseConnection;
use odometer_process::faults::{self, Fault};
use sea_orm::{ColumnTrait, DbErr, DerivePartialModel, EntityTrait, QueryFilter};

/// What is known of the last heartbeat of a process.
#[derive(Clone, Debug, PartialEq, Eq, DerivePartialModel)]
#[sea_orm(entity = "replica::Entity")]
pub(crate) struct LastBeat {
    /// By the database's clock (Unix ms).
    beat_at: i64,
    ended: bool,
    vouches: Option<String>,
}

impl LastBeat {
    /// Reads those of all processes that were heard since a time of the database's clock (Unix ms).
    pub(crate) async fn read_since(
        database: DatabaseConnection,
        since_ms: i64,
    ) -> Result<Vec<Self>, DbErr> {
        replica::Entity::find()
            .filter(replica::Column::Beat.gte(0))
            .filter(replica::Column::BeatAt.gte(since_ms))
            .into_partial_model()
            .all(&database)
            .await
    }
}

/// By what a server that was started again is judged.
#[derive(Clone, Debug)]
pub(crate) struct Vouching {
    /// The start of the server.
    pub(crate) started: Option<String>,
    /// How long ago a replica may have been heard last.
    pub(crate) within: Duration,
    /// How far the clocks of two servers may be apart.
    pub(crate) clock_margin: Duration,
}

impl Vouching {
    /// Returns since when heartbeats count, at a time of the database's clock (both Unix ms).
    pub(crate) fn since_ms(&self, now_ms: i64) -> i64 {
        now_ms.saturating_sub(millis(self.within))
    }

    /// Returns whether the database has all commits, as these heartbeats say. `beats` are all that
    /// count at this time of the database's clock (Unix ms).
    pub(crate) fn is_whole(&self, beats: &[LastBeat], now_ms: i64) -> bool {
        // A heartbeat after the present time is of a clock that says nothing of how long ago it
        // was.
        let latest_ms = now_ms.saturating_add(millis(self.clock_margin));
        let vouches = |beat: &LastBeat| self.started.is_some() && beat.vouches == self.started;
        let has_ended = |beat: &LastBeat| beat.ended && beat.beat_at <= latest_ms;
        if faults::is(Fault::OneVoucher) && beats.iter().any(vouches) {
            return true;
        }
        !beats.is_empty() && beats.iter().all(|beat| vouches(beat) || has_ended(beat))
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_MS: i64 = 1_000_000;

    const START: &str = "start";

    fn beat(age_ms: i64) -> LastBeat {
        LastBeat {
            beat_at: NOW_MS - age_ms,
            ended: false,
            vouches: None,
        }
    }

    fn end(age_ms: i64) -> LastBeat {
        LastBeat {
            ended: true,
            ..beat(age_ms)
        }
    }

    fn vouching(start: &str) -> LastBeat {
        LastBeat {
            vouches: Some(start.to_owned()),
            ..beat(60_000)
        }
    }

    fn is_whole(beats: &[LastBeat]) -> bool {
        let vouching = Vouching {
            started: Some(START.to_owned()),
            within: Duration::from_secs(900),
            clock_margin: Duration::from_secs(2),
        };
        vouching.is_whole(beats, NOW_MS)
    }

    #[test]
    fn each_replica_has_vouched_for_this_start_or_ended_in_order() {
        assert!(is_whole(&[vouching(START)]));
        assert!(is_whole(&[vouching(START), vouching(START), end(10_000)]));
        assert!(is_whole(&[end(60_000), end(10_000)]));
        assert!(!is_whole(&[vouching(START), beat(60_000)]));
        assert!(!is_whole(&[vouching(START), vouching("another start")]));
        assert!(!is_whole(&[end(60_000), beat(10_000)]));
        // No heartbeat is younger than what counts.
        assert!(!is_whole(&[]));
    }

    #[test]
    fn a_server_that_does_not_say_when_it_was_started_is_not_vouched_for() {
        let vouching = Vouching {
            started: None,
            within: Duration::from_secs(900),
            clock_margin: Duration::from_secs(2),
        };
        assert!(!vouching.is_whole(&[beat(1000)], NOW_MS));
    }

    #[test]
    fn an_end_counts_unless_it_is_after_the_present_time() {
        // The clock was set back since.
        assert!(is_whole(&[end(-2000)]));
        assert!(!is_whole(&[end(-2001)]));
    }
}
