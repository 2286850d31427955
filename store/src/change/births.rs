//! Runs `odometer recover --births-from-start`: an operator says that no counter was lost.
//!
//! After a recovery a counter that is created begins as far above its start as the recovery can
//! have skipped, because it may be one that was lost. That goes on for good, unless an operator
//! says that no sequence and no period was first used in the lost commits, or that each of them is
//! created again with a higher start.
//!
//! The word is no recovery. It says nothing of what was given of counters that are there. So it has
//! no row in `fence`, begins no branch, and no replica takes it for one. It is one column of
//! `meta`: the branch of the last recovery that no new counter skips any more.
//!
//! - Later recoveries count for new counters, because they come after that row.
//! - A copy that lacks the word counts all its recoveries, so its counters begin too high, not too
//!   low. One that has the word also has the rows before it, and all that was created before it.
//! - A copy may have the word and lack a branch that parted before it. There counters can have
//!   begun above the recoveries that the word has ended here. A replica that knows that branch
//!   fences by levels, or an operator says what was lost. Then the word ends
//!   ([`for_births`](odometer_core::speed_limit::fence::for_births)), and the fence raises the
//!   counters that began after it by what the word had ended
//!   ([`fence`](odometer_core::speed_limit::fence)).
//! - What a replica has seen of a counter stays: if the counter would begin below that, the replica
//!   refuses it.
//!
//! Databases that count together each have a counter of a name, and make it at different times.
//! So a counter may be lost in one of them although the name was used before. There the word is
//! refused.
//!
//! Programs before schema 7 do not know the word. They go by `meta.recovered_skip`, which stays.

use entity::meta;
use odometer_core::speed_limit::fence::{Fence, for_births};
use odometer_database::start_error::StartError;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, sea_query::Expr};

use super::{
    recover::{Recovered, Recovery, is_of_older},
    transaction::TransactionError,
};
use crate::fences::{Recoveries, is_unsettled};

/// Says why nothing can be said of counters that are created in a copy.
const OF_A_COPY: &str = "--births-from-start: this database is a copy, or no replica has used it \
                         since its server was started, or an earlier version recovered it last. \
                         Start a replica, or run `odometer recover` without this word first";
/// Says why nothing can be said of counters in one of several databases.
const OF_SEVERAL: &str = "--births-from-start: other databases count together with this one, which \
                          may have lost counters of sequences that they created earlier. Run \
                          `odometer recover NAME` for each new sequence that waits";

impl Recovery<'_> {
    /// Lets the recoveries up to now count no more for counters that are created.
    pub(super) async fn end_births(
        &self,
        (meta, recoveries): (&meta::Model, &Recoveries),
    ) -> Result<Recovered, TransactionError<StartError>> {
        if meta.stripe_n > 1 {
            return Err(StartError::Configuration(OF_SEVERAL.to_owned()).into());
        }
        if is_of_older(meta) || !self.is_whole(recoveries).await? {
            return Err(StartError::Configuration(OF_A_COPY.to_owned()).into());
        }
        meta::Entity::update_many()
            .col_expr(
                meta::Column::BirthsAfter,
                Expr::val(recoveries.last_branch()),
            )
            .filter(meta::Column::Id.eq(1))
            .exec(self.transaction)
            .await?;
        Ok(Recovered::default())
    }
}

impl Recoveries {
    /// Returns what a counter of this sequence skips if it is created now. An operator has ended
    /// the recoveries up to the branch `births_after` for it.
    pub(crate) fn for_births(&self, name: &str, births_after: Option<i64>) -> Vec<Fence> {
        let name = Some(name);
        let n_ended = self.ended(births_after).concerning(name).stored().len();
        for_births(&self.concerning(name).fences(), n_ended).to_vec()
    }

    /// Returns whether nobody has said what was lost of this sequence, if it is created now and has
    /// no speed limit.
    pub(crate) fn leave_unknown(&self, name: &str, births_after: Option<i64>) -> bool {
        is_unsettled(&self.for_births(name, births_after))
    }

    /// Returns whether a counter that is created now skips what nobody has said, but a fence
    /// computed.
    pub(crate) fn leave_births_unknown(&self, births_after: Option<i64>) -> bool {
        let named = self.stored().iter().filter_map(|it| it.sequence.as_deref());
        // No sequence has the empty name, so it stands for one that no row names.
        let mut names = named.chain([""]);
        names.any(|name| {
            let counted = self.for_births(name, births_after);
            counted.iter().any(|fence| !fence.is_said)
        })
    }
}
