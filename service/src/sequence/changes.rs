//! What was changed in the store takes effect in memory: here at once, from other replicas as the
//! store's news arrive.

use std::sync::{Arc, Weak};

use tokio::sync::{mpsc, oneshot};

use super::{
    directory::BETWEEN_TWO_ACTORS,
    issuer::{Issuer, Link},
    messages::Change,
    shared::Shared,
};
use crate::store::{Changed, News};

/// Runs until the store or the directory is gone.
pub(super) async fn follow(mut news: mpsc::Receiver<News>, shared: Weak<Shared>) {
    while let Some(news) = news.recv().await {
        let Some(shared) = shared.upgrade() else {
            return;
        };
        match news {
            News::Changed(all) => {
                for changed in all {
                    shared.apply(changed).await;
                }
            }
            News::Recovered => shared.distrust_all(),
        }
    }
}

impl Shared {
    /// Resolves when nothing that the change forbids can be issued here any more.
    pub(super) async fn apply(self: &Arc<Self>, changed: Changed) {
        // A name of its own is no share of another sequence's any more.
        self.aliases.pin().remove(&changed.name);
        let issuer = self.issuers.pin().get(&changed.name).cloned();
        let Some(head) = issuer else {
            return;
        };
        let periods = head.periods();
        self.apply_to(&head, &changed).await;
        for member in periods.iter().flat_map(|periods| periods.members()) {
            self.apply_to(&member, &changed).await;
        }
    }

    async fn apply_to(self: &Arc<Self>, issuer: &Arc<Issuer>, changed: &Changed) {
        // Known before the actor is told, so that it holds even if that one dies of it.
        issuer.note_changed(changed);
        loop {
            let (done, waiting) = oneshot::channel();
            let change = Change {
                changed: changed.clone(),
                done,
            };
            self.tell(issuer, change);
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
