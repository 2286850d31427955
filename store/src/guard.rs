//! The guard of a statement: a condition that it takes effect only in the database that this process
//! knows, and only if that database has lost nothing.

use std::sync::Arc;

use entity::replica;
use odometer_core::name::SequenceName;
use odometer_process::faults::{self, Fault};
use sea_orm::{
    ColumnTrait, FromQueryResult,
    sea_query::{Expr, ExprTrait, Query, SelectStatement},
};

use crate::{
    fences::Recoveries,
    lineage::StampGuard,
    set_aside::{is_aside_from, is_kept},
};

/// A condition for statements: the database's stamp fits, and this replica's heartbeat has not
/// fallen.
#[derive(Clone, Debug)]
pub(crate) struct HeartbeatGuard {
    pub(crate) holder: Arc<str>,
    /// The least value of this replica's heartbeat. `None` if this process has no row.
    pub(crate) least: Option<i64>,
    /// `None` if the server gives no marks.
    pub(crate) stamp: Option<StampGuard>,
    /// How many recoveries this process had seen when the guard was made.
    pub(crate) n_recoveries: u64,
    /// The last recovery that this process had seen when the guard was made.
    pub(crate) recovered_at: Option<i64>,
    /// All recoveries that it had seen.
    pub(crate) recoveries: Arc<Recoveries>,
}

impl HeartbeatGuard {
    /// Returns the last recovery of this sequence that the process had seen when the guard was made.
    /// Numbers that the guarded statement reserves belong to this recovery or to a later one, never
    /// to an earlier one.
    pub(crate) fn recovered_at(&self, name: &SequenceName) -> Option<i64> {
        Ord::max(self.recovered_at, self.recoveries.last_at_of(name))
    }

    /// Returns the condition for a statement: the stamp fits, and this replica's row is there and
    /// has not gone back.
    pub(crate) fn holds(&self) -> Expr {
        let least = self.least.filter(|_| !faults::is(Fault::NoWentBackChecks));
        let mut query = Query::select().expr(Expr::val(1)).to_owned();
        if let Some(stamp) = &self.stamp {
            stamp.narrow(&mut query);
        }
        if let Some(least) = least {
            query
                .from(replica::Entity)
                .and_where(replica::Column::Holder.eq(&*self.holder))
                .and_where(replica::Column::Beat.gte(least).or(is_aside_from(least)));
        }
        if self.stamp.is_none() && least.is_none() {
            return Expr::val(1).eq(1);
        }
        Expr::exists(query)
    }

    /// Makes a query of `meta` also read what [`HeartbeatGuard::check`] needs.
    pub(crate) fn read_in(&self, query: &mut SelectStatement) {
        let own_row = Expr::col((replica::Entity, replica::Column::Holder)).eq(&*self.holder);
        let branch = match &self.stamp {
            Some(stamp) => Expr::SubQuery(None, Box::new(stamp.select_branch().into())),
            None => Expr::cust("CAST(NULL AS CHAR)"),
        };
        query
            .column((replica::Entity, replica::Column::Beat))
            .expr_as(branch, "branch_if_it_fits")
            .left_join(replica::Entity, own_row);
    }

    /// Compares what was read with what the guard demands.
    pub(crate) fn check(&self, read: GuardRead) -> GuardVerdict {
        let least = self.least.filter(|_| !faults::is(Fault::NoWentBackChecks));
        // A heartbeat in a copy says nothing of the database that was copied.
        if self.stamp.is_some() && read.branch_if_it_fits.is_none() {
            GuardVerdict::StampDoesNotFit
        } else if !least.is_none_or(|least| is_kept(read.beat, least)) {
            GuardVerdict::HeartbeatFell
        } else {
            GuardVerdict::Holds
        }
    }
}

/// What a read says of a guard.
#[derive(Clone, Copy, Debug, Default, FromQueryResult)]
pub(crate) struct GuardRead {
    /// This replica's heartbeat. `None` if its row is gone.
    beat: Option<i64>,
    /// `None` if the stamp does not fit, or is not compared.
    branch_if_it_fits: Option<i64>,
}

/// Whether a guard would have held when it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GuardVerdict {
    Holds,
    /// This replica's row is gone, or older than it was.
    HeartbeatFell,
    /// A look at the stamp tells why.
    StampDoesNotFit,
}
