//! Makes memory obey the changes in the store. Changes through this replica hold here at once, and
//! changes through other replicas when the news of the store arrives.

use std::{
    collections::HashMap,
    future::pending,
    pin::pin,
    sync::{Arc, Weak},
};

use futures_util::{StreamExt, stream};
use odometer_core::period::{Period, PeriodKind};
use odometer_store::{Changed, Following, News, SeenRecovery, Source};
use tokio::sync::mpsc;

use crate::{
    actor::command::Command,
    directory::period_directory::PeriodDirectory,
    directory::shared::Shared,
    issuer::memory::{ActorLink, Issuer},
};

/// Bounds how many issuers obey a change at the same time. For a period the store may be asked.
const LOOKED_AT_ONCE: usize = 16;

/// Applies the news of the store until the store or the directory is gone.
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
            // A recovery makes earlier news of changes invalid, so it comes first.
            biased;
            seen = heard_of.next() => Err(seen),
            heard = news.recv() => Ok(heard),
        };
        let Some(shared) = shared.upgrade() else {
            return;
        };
        match heard {
            Err(seen) => shared.start_over(seen),
            Ok(Some(heard)) => shared.apply_all(&heard, &mut heard_of).await,
            Ok(None) => return,
        }
    }
}

/// The recoveries that were heard of, and the channel for the next ones.
struct Recoveries {
    recoveries: mpsc::UnboundedReceiver<SeenRecovery>,
    /// How many recoveries each database has had.
    n_of_each: HashMap<Source, u64>,
}

impl Recoveries {
    /// Waits for the next recovery.
    async fn next(&mut self) -> SeenRecovery {
        let Some(seen) = self.recoveries.recv().await else {
            return pending().await;
        };
        self.n_of_each.insert(seen.source, seen.n_recoveries);
        seen
    }

    /// Returns whether the database was recovered after it gave this news.
    fn undoes(&self, news: &News) -> bool {
        let n_recoveries = self.n_of_each.get(&news.source);
        n_recoveries.is_some_and(|n| news.n_recoveries < *n)
    }
}

/// The periods of a sequence for which a change gives the floor.
#[derive(Clone, Copy)]
pub(crate) enum Concerns<'a> {
    /// No period: the change touched no floor.
    None,
    /// The period whose floor the change gives.
    One(&'a Period),
    /// The period that is removed, whose last floor the change gives.
    Removed(&'a Period),
    /// Unknown: the floor of each period must be read.
    Unknown,
}

/// Returns the floor for the issuer under the name. If the sequence counts in periods, the floor of
/// the change belongs to one period, so this issuer gets none.
fn floor_of_top(changed: &Changed) -> i64 {
    let definition = changed.definition.as_ref();
    match definition.map(|definition| definition.period) {
        Some(PeriodKind::None) | None => changed.floor,
        Some(_) => i64::MIN,
    }
}

impl Shared {
    /// Applies a change. Returns when this replica can issue nothing any more that the change
    /// forbids.
    pub(crate) async fn apply(self: &Arc<Self>, changed: &Changed, concerns: Concerns<'_>) {
        let (head, fits) = loop {
            let Some(head) = self.known_for_change(&changed.name) else {
                return;
            };
            // Note the change before the actor gets the command. Then the change holds even if the
            // actor dies of the command.
            let fits = head.note_changed(changed, floor_of_top(changed));
            if self.obey(&head).await {
                break (head, fits);
            }
            // The name was parked meanwhile, and may not have the change.
        };
        let period_issuers = head.periods().map(PeriodDirectory::period_issuers);
        if !fits {
            // Only a recovery gives a sequence other periods.
            self.dismiss_periods(&head);
        }
        stream::iter(period_issuers.unwrap_or_default())
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
        // The sequence may be retired or printed in another way, even if the floor of this period
        // is the same as before.
        let _fits = member.note_changed(changed, i64::MIN);
        match concerns {
            Concerns::One(period) if *period == member.key.period => {
                member.note_floor(changed, changed.floor);
            }
            Concerns::Removed(period) if *period == member.key.period => {
                member.note_floor(changed, changed.floor);
                member.note_forbidden(changed.version);
            }
            Concerns::Unknown if member.may_be_touched_by(changed) => {
                match self.store.floor_of(&member.key).await {
                    Ok(Some(floor)) => member.note_floor(changed, floor),
                    Ok(None) | Err(_) => member.note_forbidden(changed.version),
                }
            }
            Concerns::None | Concerns::One(_) | Concerns::Removed(_) | Concerns::Unknown => {}
        }
        // The issuer of a period is never parked.
        self.obey(member).await;
    }

    /// Returns when memory obeys the changes that are known. Returns false if the name was parked
    /// meanwhile: its next issuer must obey, too.
    async fn obey(self: &Arc<Self>, issuer: &Arc<Issuer>) -> bool {
        if issuer.periods().is_some() {
            // Nothing is issued here.
            return true;
        }
        let change = |done| Command::Change { done };
        // After a drain, no number leaves memory.
        let obeyed = self.tell_until_answered(issuer, change, || self.is_drained());
        // An issuer that was unloaded has no numbers.
        obeyed.await.is_some()
            || self.is_drained()
            || matches!(&*issuer.actor.lock(), ActorLink::Gone)
    }

    /// Applies all changes of the news, unless their database is recovered meanwhile.
    async fn apply_all(self: &Arc<Self>, news: &News, heard_of: &mut Recoveries) {
        let mut applying = pin!(async {
            for changed in &news.changed {
                self.apply(changed, Concerns::Unknown).await;
            }
        });
        while !heard_of.undoes(news) {
            tokio::select! {
                biased;
                seen = heard_of.next() => self.start_over(seen),
                () = &mut applying => return,
            }
        }
    }

    /// Distrusts what a recovered database gave before. When this returns, each of its sequences is
    /// read again before the next reservation. If its numbers are not kept, a task removes the blocks
    /// of the database from memory.
    fn start_over(self: &Arc<Self>, seen: SeenRecovery) {
        let holders = self.distrust(&seen);
        let shared = Arc::clone(self);
        actix::spawn(async move { shared.obey_all(holders).await });
    }

    async fn obey_all(self: &Arc<Self>, issuers: Vec<Arc<Issuer>>) {
        stream::iter(issuers)
            .for_each_concurrent(LOOKED_AT_ONCE, |issuer| async move {
                let mut issuer = issuer;
                while !self.obey(&issuer).await
                    && let Some(next) = self.names.find_surely(issuer.key.sequence.as_str())
                {
                    issuer = next;
                }
            })
            .await;
    }
}

#[cfg(test)]
mod tests {
    use odometer_store::KeptNumbers;

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
            kept: KeptNumbers::None,
        };
        assert!(tell.send(seen).is_ok());
        assert_eq!(heard_of.next().await.source, one);
        assert!(heard_of.undoes(&news(one, 0)));
        assert!(!heard_of.undoes(&news(one, 1)));
        assert!(!heard_of.undoes(&news(other, 0)));
    }
}
