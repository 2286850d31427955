//! The way of a command to the actor of an issuer, which is started where none runs.

use std::sync::Arc;

use actix::Actor;

use crate::{
    actor::SequenceActor,
    command::Command,
    issuer::{ActorLink, Issuer},
    ownership::Ownership,
    shared::Shared,
};

/// By which the log calls what happens here.
const TARGET: &str = "odometer::sequence::shared";

impl Shared {
    /// Sends a command to the actor of `issuer`, starting one where none runs.
    ///
    /// To an unloaded issuer nothing is sent: the command is dropped, and with it the way to
    /// answer, by which the sender knows.
    pub(crate) fn tell(self: &Arc<Self>, issuer: &Arc<Issuer>, command: Command) {
        let mut link = issuer.actor.lock();
        match &*link {
            ActorLink::Gone => {}
            ActorLink::Live(actor) if actor.connected() => actor.do_send(command),
            ActorLink::Live(_) | ActorLink::Parked => {
                if matches!(&*link, ActorLink::Live(_)) {
                    self.metrics.actor_restarts.increment(1);
                    tracing::error!(
                        target: TARGET,
                        sequence = issuer.key.sequence.as_str(),
                        "an actor died and is started anew"
                    );
                }
                let Some(ownership) = Ownership::take_over(issuer, issuer.terms.current()) else {
                    // Another one was faster: the sender asks again if it waits for an answer.
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
}
