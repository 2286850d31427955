//! What was changed in the store takes effect in memory: here at once, from other replicas as the
//! store's news arrive.

use std::sync::{Arc, Weak};

use tokio::sync::{mpsc, oneshot};

use super::{messages::Change, shared::Shared};
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
        let issuer = self.issuers.pin().get(&changed.name).cloned();
        let Some(issuer) = issuer else {
            return;
        };
        let (done, waiting) = oneshot::channel();
        self.tell(&issuer, Change { changed, done });
        // Dropped where the name is unloaded: then there is nothing in memory either.
        let _gone = waiting.await;
    }

    /// Every counter is read before it is written next.
    fn distrust_all(&self) {
        for issuer in self.issuers.pin().values() {
            if let Some(known) = &mut issuer.memory.lock().known {
                known.trusted = false;
            }
        }
    }
}
