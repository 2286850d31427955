//! Sends commands to the actor of an issuer, and starts an actor if none runs.

use std::sync::Arc;

use actix::Actor;
use tokio::sync::oneshot;

use crate::{
    actor::command::Command,
    actor::sequence_actor::SequenceActor,
    directory::shared::{BETWEEN_TWO_ACTORS, Shared},
    issuer::memory::{ActorLink, Issuer},
    issuer::ownership::Ownership,
};

/// Names the log target of the events in this file.
const TARGET: &str = "odometer::sequence::shared";

impl Shared {
    /// Sends a command to the actor of `issuer`, and starts an actor if none runs.
    ///
    /// If the issuer has left memory or was parked, the command is dropped together with its channel
    /// for the answer. The sender then finds the channel closed.
    pub(crate) fn tell(self: &Arc<Self>, issuer: &Arc<Issuer>, command: Command) {
        let sequence = issuer.key.sequence.as_str();
        tracing::trace!(target: TARGET, sequence, "a command is sent to the actor");
        let mut link = issuer.actor.lock();
        match &*link {
            ActorLink::Parked | ActorLink::Gone => {}
            ActorLink::Live(actor) if actor.connected() => actor.do_send(command),
            ActorLink::Live(_) | ActorLink::Idle => {
                if matches!(&*link, ActorLink::Live(_)) {
                    self.metrics.actor_restarts.increment(1);
                    tracing::error!(target: TARGET, sequence, "an actor died and is started again");
                }
                let Some(ownership) = Ownership::take_over(issuer, issuer.terms.current()) else {
                    // Another actor became the owner first. A sender that waits for an answer asks
                    // again.
                    return;
                };
                let actor = SequenceActor::new(ownership, Arc::clone(self));
                let address = SequenceActor::start_in_arbiter(&self.arbiter, |_| actor);
                address.do_send(command);
                *link = ActorLink::Live(address.recipient());
                drop(link);
                self.enter_active(issuer);
            }
        }
    }

    /// Sends a command until an actor answers. An actor that stops or dies loses the command.
    /// Returns `None` if the issuer has left memory, if its name was parked, or if `is_over`.
    pub(crate) async fn tell_until_answered<T>(
        self: &Arc<Self>,
        issuer: &Arc<Issuer>,
        command: impl Fn(oneshot::Sender<T>) -> Command,
        is_over: impl Fn() -> bool,
    ) -> Option<T> {
        loop {
            let (answer, waiting) = oneshot::channel();
            self.tell(issuer, command(answer));
            if let Ok(answer) = waiting.await {
                return Some(answer);
            }
            if is_over() || issuer.has_left() {
                return None;
            }
            tokio::time::sleep(BETWEEN_TWO_ACTORS).await;
        }
    }
}
