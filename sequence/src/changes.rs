//! What was changed in the store takes effect in memory: here at once, from other replicas as the
//! store's news arrive.

use std::{
    collections::HashMap,
    future::pending,
    pin::pin,
    sync::{Arc, Weak},
};

use futures_util::{StreamExt, stream};
use odometer_core::period::{Period, PeriodKind};
use odometer_store::{Changed, Following, News, SeenRecovery, Source};
use tokio::sync::{mpsc, oneshot};

use crate::{
    command::Command,
    issuer::{ActorLink, Issuer},
    shared::{BETWEEN_TWO_ACTORS, Shared},
};

/// Periods that are looked at in the store side by side.
const LOOKED_AT_ONCE: usize = 16;

/// Runs until the store or the directory is gone.
pub(crate) async fn follow(following: Following, shared: Weak<Shared>) {
    let Following {
        mut news,
        recoveries,
    } = following;
    let mut heard_of = Recoveries {
        recoveries,
        n_of_each: HashMap::new(),
    };
    loop {
        let heard = tokio::select! {
            // What is told of a recovery undoes what is told of changes, so it comes first.
            biased;
            source = heard_of.next() => Err(source),
            heard = news.recv() => Ok(heard),
        };
        let Some(shared) = shared.upgrade() else {
            return;
        };
        match heard {
            Err(source) => shared.start_over(source),
            Ok(Some(heard)) => shared.apply_all(&heard, &mut heard_of).await,
            Ok(None) => return,
        }
    }
}

/// Which recoveries were heard of, and where the next ones arrive.
struct Recoveries {
    recoveries: mpsc::UnboundedReceiver<SeenRecovery>,
    /// How many each database has had.
    n_of_each: HashMap<Source, u64>,
}

impl Recoveries {
    /// Waits for the next one.
    async fn next(&mut self) -> Source {
        let Some(seen) = self.recoveries.recv().await else {
            return pending().await;
        };
        self.n_of_each.insert(seen.source, seen.n_recoveries);
        seen.source
    }

    /// Whether the database was recovered after it told this.
    fn undoes(&self, news: &News) -> bool {
        let n_recoveries = self.n_of_each.get(&news.source);
        n_recoveries.is_some_and(|n| news.n_recoveries < *n)
    }
}

/// Of which periods of its sequence a change says what it forbids.
#[derive(Clone, Copy)]
pub(crate) enum Concerns<'a> {
    /// None of them: no floor was touched.
    None,
    /// The one whose floor it tells, and whether that one is removed.
    One(&'a Period, Removed),
    /// Not known: each has to be looked at.
    Unknown,
}

#[derive(Clone, Copy)]
pub(crate) struct Removed(pub(crate) bool);

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
    pub(crate) async fn apply(self: &Arc<Self>, changed: &Changed, concerns: Concerns<'_>) {
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
            self.tell(issuer, Command::Change { done });
            let is_done = waiting.await.is_ok();
            // Where the name is unloaded there is nothing in memory either, and after a drain
            // nothing leaves it.
            let is_gone = self.is_drained() || matches!(&*issuer.actor.lock(), ActorLink::Gone);
            if is_done || is_gone {
                return;
            }
            tokio::time::sleep(BETWEEN_TWO_ACTORS).await;
        }
    }

    /// Applies all of it, unless its database is recovered meanwhile.
    async fn apply_all(self: &Arc<Self>, news: &News, heard_of: &mut Recoveries) {
        let mut applying = pin!(async {
            for changed in &news.changed {
                self.apply(changed, Concerns::Unknown).await;
            }
        });
        while !heard_of.undoes(news) {
            tokio::select! {
                biased;
                source = heard_of.next() => self.start_over(source),
                () = &mut applying => return,
            }
        }
    }

    /// A database was recovered: from the return of this on every sequence is read before anything is
    /// reserved of it next, and a task drops what the database gave before.
    fn start_over(self: &Arc<Self>, source: Source) {
        let mut holders = self.all_issuers();
        let is_of = |store: &str| self.store.has(source, store);
        holders.retain(|issuer| issuer.memory.lock().distrust(source, is_of));
        let shared = Arc::clone(self);
        actix::spawn(async move { shared.obey_all(holders).await });
    }

    async fn obey_all(self: &Arc<Self>, issuers: Vec<Arc<Issuer>>) {
        stream::iter(issuers)
            .for_each_concurrent(LOOKED_AT_ONCE, |issuer| async move {
                self.obey(&issuer).await;
            })
            .await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_a_database_told_before_its_recovery_does_not_count() {
        let (tell, recoveries) = mpsc::unbounded_channel();
        let mut heard_of = Recoveries {
            recoveries,
            n_of_each: HashMap::new(),
        };
        let (one, other) = (
            Source::default(),
            Source {
                database: 1,
                ..Source::default()
            },
        );
        let news = |source, n_recoveries| News {
            source,
            n_recoveries,
            changed: Vec::new(),
        };
        assert!(!heard_of.undoes(&news(one, 0)));
        let seen = SeenRecovery {
            source: one,
            n_recoveries: 1,
        };
        assert!(tell.send(seen).is_ok());
        assert_eq!(heard_of.next().await, one);
        assert!(heard_of.undoes(&news(one, 0)));
        assert!(!heard_of.undoes(&news(one, 1)));
        assert!(!heard_of.undoes(&news(other, 0)));
    }
}
