//! What was changed in the store takes effect in memory: here at once, from other replicas as the
//! store's news arrive.

use std::sync::{Arc, Weak};

use futures_util::{StreamExt, stream};
use odometer_core::{definition::PeriodKind, period::Period};
use tokio::sync::{mpsc, oneshot};

use super::{
    directory::BETWEEN_TWO_ACTORS,
    issuer::{Issuer, Link},
    messages::Change,
    shared::Shared,
};
use crate::store::{Changed, News};

/// Periods that are looked at in the store side by side.
const LOOKED_AT_ONCE: usize = 16;

/// Runs until the store or the directory is gone.
pub(super) async fn follow(mut news: mpsc::Receiver<News>, shared: Weak<Shared>) {
    while let Some(news) = news.recv().await {
        let Some(shared) = shared.upgrade() else {
            return;
        };
        match news {
            News::Changed(all) => {
                for changed in &all {
                    shared.apply(changed, Concerns::Unknown).await;
                }
            }
            News::Recovered => shared.distrust_all(),
        }
    }
}

/// Of which periods of its sequence a change says what it forbids.
#[derive(Clone, Copy)]
pub(super) enum Concerns<'a> {
    /// None of them: no floor was touched.
    None,
    /// The one whose floor it tells, and whether that one is removed.
    One(&'a Period, Removed),
    /// Not known: each has to be looked at.
    Unknown,
}

#[derive(Clone, Copy)]
pub(super) struct Removed(pub(super) bool);

/// Of a sequence that counts in periods the floor is that of one of them.
fn floor_of_head(changed: &Changed) -> i64 {
    let definition = changed.definition.as_ref();
    match definition.map(|definition| definition.period) {
        Some(PeriodKind::None) | None => changed.floor,
        Some(_) => i64::MIN,
    }
}

impl Shared {
    /// Resolves when nothing that the change forbids can be issued here any more.
    pub(super) async fn apply(self: &Arc<Self>, changed: &Changed, concerns: Concerns<'_>) {
        // A name of its own is no share of another sequence's any more.
        self.aliases.pin().remove(&changed.name);
        let issuer = self.issuers.pin().get(&changed.name).cloned();
        let Some(head) = issuer else {
            return;
        };
        // Known before the actor is told, so that it holds even if that one dies of it.
        head.note_changed(changed, floor_of_head(changed));
        self.obey(&head).await;
        let members = head.periods().map(|periods| periods.members());
        stream::iter(members.unwrap_or_default())
            .for_each_concurrent(LOOKED_AT_ONCE, |member| async move {
                self.apply_to(&member, changed, concerns).await;
            })
            .await;
    }

    async fn apply_to(
        self: &Arc<Self>,
        member: &Arc<Issuer>,
        changed: &Changed,
        concerns: Concerns<'_>,
    ) {
        // It may be retired, or be printed in another way, whatever becomes of its floor.
        member.note_changed(changed, i64::MIN);
        match concerns {
            Concerns::One(period, Removed(is_removed)) if *period == member.key.period => {
                member.note_floor(changed, changed.floor);
                if is_removed {
                    member.note_forbidden(changed.version);
                }
            }
            Concerns::Unknown if member.may_be_touched_by(changed) => {
                match self.store.floor_of(&member.key).await {
                    Ok(Some(floor)) => member.note_floor(changed, floor),
                    Ok(None) | Err(_) => member.note_forbidden(changed.version),
                }
            }
            Concerns::None | Concerns::One(..) | Concerns::Unknown => {}
        }
        self.obey(member).await;
    }

    /// Resolves when memory obeys what is known of changes.
    async fn obey(self: &Arc<Self>, issuer: &Arc<Issuer>) {
        loop {
            let (done, waiting) = oneshot::channel();
            self.tell(issuer, Change { done });
            let is_done = waiting.await.is_ok();
            // Where the name is unloaded there is nothing in memory either, and after a drain
            // nothing leaves it.
            let is_gone = self.is_drained() || matches!(&*issuer.actor.lock(), Link::Gone);
            if is_done || is_gone {
                return;
            }
            tokio::time::sleep(BETWEEN_TWO_ACTORS).await;
        }
    }

    /// Every sequence is read before anything is reserved of it next.
    fn distrust_all(&self) {
        for issuer in self.all_issuers() {
            issuer.memory.lock().distrust();
        }
    }
}
