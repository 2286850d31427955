//! Finds out where names live, from the answers of several databases. More than half of the members
//! decide a claim, as they decide a creation.

use std::{sync::Arc, time::Instant};

use odometer_core::{definition::Definition, name::SequenceName};

use super::agreement::{Answers, MajorityAnswer, MemberEntry, verdict};
use crate::{claim, error::StoreError, outcome::LocalPlacement, store::Store};

/// The most rounds of one claim, if other replicas are in the way.
const ROUNDS: usize = 12;

impl Store {
    /// Returns what the databases have decided about where a name lives.
    pub(crate) async fn placement_of(
        &self,
        name: &SequenceName,
    ) -> Result<LocalPlacement, StoreError> {
        if let Some(only) = self.only() {
            return only.placement_of(name).await;
        }
        if let Some(agreed) = self.memory.agreed(name) {
            return Ok(LocalPlacement::Here(agreed.definition));
        }
        let until = self.deadline();
        let answers = self.ask_all(name, until).await;
        match verdict(&answers, self.members.len())? {
            MajorityAnswer::Decided(found) | MajorityAnswer::Begun(found) => self.placement(&found),
            MajorityAnswer::Absent => Ok(LocalPlacement::Nowhere),
        }
    }

    /// Writes a claim of a name for the store that its definition names. If an earlier claim or the
    /// name itself is here, this returns the earlier one.
    pub(crate) async fn claim(
        &self,
        name: &SequenceName,
        definition: &Arc<Definition>,
    ) -> Result<LocalPlacement, StoreError> {
        if let Some(only) = self.only() {
            return only.claim(name, definition).await;
        }
        let until = self.deadline();
        for _round in 0..ROUNDS {
            let answers = self.ask_all(name, until).await;
            match verdict(&answers, self.members.len())? {
                MajorityAnswer::Decided(found) => return self.placement(&found),
                MajorityAnswer::Begun(found) if !found.is_claim() => return self.placement(&found),
                MajorityAnswer::Begun(found) => {
                    self.claim_in(name, &found.definition, &answers).await?;
                }
                MajorityAnswer::Absent => self.claim_in(name, definition, &answers).await?,
            }
            if Instant::now() >= until {
                break;
            }
        }
        Err(StoreError::Deadline)
    }

    /// Writes a claim in the members that answered, in their order. It stops at a member that has
    /// the name otherwise.
    pub(crate) async fn claim_in(
        &self,
        name: &SequenceName,
        definition: &Arc<Definition>,
        answers: &Answers,
    ) -> Result<(), StoreError> {
        for k in &answers.answered {
            let member = self.member(*k)?;
            match member.database.claim(name, definition).await {
                Ok(LocalPlacement::Elsewhere(claimed)) if claimed.store == definition.store => {}
                Ok(_) => break,
                Err(error @ StoreError::TooMany { .. }) => return Err(error),
                Err(_) => member.fail(),
            }
        }
        Ok(())
    }

    fn placement(&self, found: &MemberEntry) -> Result<LocalPlacement, StoreError> {
        claim::placement(&found.entry, &self.member(found.k)?.database.identity)
    }
}
