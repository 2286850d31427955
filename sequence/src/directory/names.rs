//! Holds the names in memory: those in use with their issuers, and those that are parked.
//!
//! A name goes from one map to the other under one lock, so each number of it is in one place. It
//! is put into its new map before it leaves its old one. So a reader, who takes no lock, finds it if
//! it looks at the first map once more. A caller for a number finds a name in use without any lock,
//! too.

use std::{
    hash::RandomState,
    sync::Arc,
    time::{Duration, Instant},
};

use odometer_core::name::SequenceName;
use papaya::{HashMapRef, LocalGuard};
use parking_lot::Mutex;

use crate::{
    issuer::memory::{ActorLink, Issuer},
    issuer::ownership::Ownership,
    issuer::parked_name::ParkedName,
    issuer::state::IssuerState,
};

/// The names in use, held still for one call.
pub(crate) type PinnedNames<'a> =
    HashMapRef<'a, SequenceName, Arc<Issuer>, RandomState, LocalGuard<'a>>;

/// The names in memory.
#[derive(Default)]
pub(crate) struct Names {
    /// The issuer under each name. If the sequence counts in periods, this issuer leads to theirs.
    in_use: papaya::HashMap<SequenceName, Arc<Issuer>>,
    parked: papaya::HashMap<SequenceName, ParkedName>,
    /// Held while a name goes from one map to the other.
    moving: Mutex<()>,
}

impl Names {
    /// Holds the names in use still.
    #[inline]
    pub(crate) fn pin(&self) -> PinnedNames<'_> {
        self.in_use.pin()
    }

    /// Returns what a name leads to. A parked name is in use from now on.
    ///
    /// Takes no lock if the name is not parked. May miss a name that is woken and parked again
    /// meanwhile, which [`Self::find_surely`] finds.
    pub(crate) fn find(&self, name: &str) -> Option<Arc<Issuer>> {
        let in_use = || self.in_use.pin().get(name).cloned();
        in_use().or_else(|| match self.parked.pin().contains_key(name) {
            true => self.find_surely(name),
            // The name may have come into use meanwhile.
            false => in_use(),
        })
    }

    /// Does what [`Self::find`] does, and misses no name.
    pub(crate) fn find_surely(&self, name: &str) -> Option<Arc<Issuer>> {
        let _moving = self.moving.lock();
        self.wake(name)
    }

    /// Returns what a name leads to, for a reader. A parked name stays parked: its reader gets an
    /// issuer of its own, from which no number may be taken.
    pub(crate) fn look(&self, name: &SequenceName) -> Option<Arc<Issuer>> {
        let in_use = || self.in_use.pin().get(name).cloned();
        let parked = || {
            let parked = self.parked.pin();
            Some(Arc::new(parked.get(name)?.reader(name.clone())))
        };
        // The name may have come into use meanwhile.
        in_use().or_else(parked).or_else(in_use)
    }

    /// Does what [`Self::find_surely`] does, under the lock.
    fn wake(&self, name: &str) -> Option<Arc<Issuer>> {
        let (in_use, parked) = (self.in_use.pin(), self.parked.pin());
        if let Some(issuer) = in_use.get(name) {
            return Some(Arc::clone(issuer));
        }
        let (name, left) = parked.get_key_value(name)?;
        let issuer = left.issuer(name.clone());
        in_use.insert(name.clone(), Arc::clone(&issuer));
        parked.remove(name);
        Some(issuer)
    }

    /// Wakes all names. A name that is being parked meanwhile is parked before, so it is woken, too.
    pub(crate) fn wake_all(&self) {
        let _moving = self.moving.lock();
        let names: Vec<SequenceName> = self.parked.pin().keys().cloned().collect();
        for name in names {
            let _woken = self.wake(name.as_str());
        }
    }

    /// Brings an issuer in under its name, which is not in memory.
    pub(crate) fn admit(&self, issuer: Issuer) -> Arc<Issuer> {
        let issuer = Arc::new(issuer);
        let name = issuer.key.sequence.clone();
        self.in_use.pin().insert(name, Arc::clone(&issuer));
        issuer
    }

    /// Parks the name of an issuer on behalf of its owner, if `may_park`. Callers that hold the
    /// issuer then look the name up again. Returns false, and leaves the numbers in the issuer, if
    /// the name cannot be parked now.
    pub(crate) fn park(&self, issuer: &Ownership, may_park: impl FnOnce() -> bool) -> bool {
        let _moving = self.moving.lock();
        let in_use = self.in_use.pin();
        let name = &issuer.key.sequence;
        let is_there = in_use
            .get(name)
            .is_some_and(|found| Arc::ptr_eq(found, issuer.issuer()));
        if !is_there || !may_park() {
            return false;
        }
        // A command that comes from here on finds that the name is parked. If an actor was started
        // before, that actor is the owner. A reader who holds the link sees all numbers in the
        // issuer, or all in the parked name.
        let mut link = issuer.actor.lock();
        let Some(left) = issuer.park() else {
            return false;
        };
        self.parked.pin().insert(name.clone(), left);
        *link = ActorLink::Parked;
        in_use.remove(name);
        true
    }

    /// Removes an issuer, if its name still leads to it.
    pub(crate) fn remove(&self, issuer: &Issuer) -> bool {
        let is_this =
            |_: &SequenceName, found: &Arc<Issuer>| std::ptr::eq(&raw const **found, issuer);
        let in_use = self.in_use.pin();
        let removed = in_use.remove_if(&issuer.key.sequence, is_this);
        matches!(removed, Ok(Some(_)))
    }

    /// Returns the issuers of the names in use.
    pub(crate) fn in_use(&self) -> Vec<Arc<Issuer>> {
        self.in_use.pin().values().cloned().collect()
    }

    /// Returns the names that are parked, were not used for `idle`, and live in a store that `is_up`.
    pub(crate) fn parked_for(
        &self,
        idle: Duration,
        is_up: impl Fn(&str) -> bool,
    ) -> Vec<SequenceName> {
        let (now, parked) = (Instant::now(), self.parked.pin());
        let rested = parked
            .iter()
            .filter(|(_, left)| left.idle_for(now) >= idle && is_up(left.store()));
        rested.map(|(name, _)| name.clone()).collect()
    }

    /// Calls `visit` with an issuer of each parked name, to read it.
    pub(crate) fn for_each_parked(&self, mut visit: impl FnMut(&Issuer)) {
        for (name, left) in &self.parked.pin() {
            visit(&left.reader(name.clone()));
        }
    }

    /// Returns all names, in byte order.
    pub(crate) fn all(&self) -> Vec<SequenceName> {
        let (in_use, parked) = (self.in_use.pin(), self.parked.pin());
        // A name that is parked or woken meanwhile is there at least once.
        let keys = in_use.keys().chain(parked.keys()).chain(in_use.keys());
        let mut names: Vec<_> = keys.cloned().collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Returns whether numbers of a parked name are in memory.
    pub(crate) fn has_parked_numbers(&self) -> bool {
        self.parked.pin().values().any(ParkedName::has_numbers)
    }

    /// Changes the state of every name, of `issuers` too, while no name is parked. Returns the
    /// issuers whose state `change` returned true for. Parked ones of them are in use from now on.
    pub(crate) fn change_all(
        &self,
        issuers: impl FnOnce() -> Vec<Arc<Issuer>>,
        mut change: impl FnMut(&SequenceName, &mut IssuerState) -> bool,
    ) -> Vec<Arc<Issuer>> {
        let _moving = self.moving.lock();
        let mut chosen = issuers();
        chosen.retain(|issuer| change(&issuer.key.sequence, &mut issuer.memory.lock()));
        let parked = self.parked.pin();
        let names: Vec<SequenceName> = parked.keys().cloned().collect();
        for name in names {
            let Some(left) = parked.get(&name) else {
                continue;
            };
            let (changed, is_chosen) = left.changed(|state| change(&name, state));
            parked.insert(name.clone(), changed);
            if is_chosen {
                chosen.extend(self.wake(name.as_str()));
            }
        }
        chosen
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use std::{
        collections::BTreeSet,
        sync::{
            Barrier,
            atomic::{AtomicU64, Ordering::Relaxed},
        },
    };

    use odometer_core::{block::Block, period::CounterKey};
    use odometer_process::metrics::Metrics;
    use odometer_store::{KeptNumbers, Resolved, SeenRecovery, Source};

    use super::*;
    use crate::issuer::held_blocks::LEAVES_CURSORS_OPEN;

    const N_NUMBERS: u64 = 20_000;

    fn name() -> SequenceName {
        SequenceName::parse("orders").unwrap()
    }

    /// Names with one issuer, which has the numbers from 1 to [`N_NUMBERS`].
    fn names() -> Names {
        let names = Names::default();
        let key = CounterKey::whole(name());
        let issuer = names.admit(Issuer::for_tests(key.clone()));
        let block = Block::new(1, N_NUMBERS, 1).unwrap();
        let block = Issuer::block_for_tests(key, block, Arc::new(Metrics::new()));
        let owner = owner(&issuer);
        owner.add_block(&owner.publish(block).unwrap());
        owner.refill_cursor();
        names
    }

    fn owner(issuer: &Arc<Issuer>) -> Ownership {
        Ownership::take_over(issuer, issuer.terms.current()).unwrap()
    }

    fn park(names: &Names) -> bool {
        let issuer = names.find("orders").unwrap();
        names.park(&owner(&issuer), || true)
    }

    fn take(names: &Names) -> Option<i64> {
        let issuer = names.find("orders")?;
        Some(issuer.cursor()?.take()?.value)
    }

    #[test]
    fn a_parked_name_goes_on_where_it_was() {
        let names = names();
        assert_eq!(take(&names), Some(1));
        let earlier = names.find("orders").unwrap();
        assert!(park(&names));
        // The former issuer gives no number and takes no command.
        assert!(earlier.cursor().unwrap().take().is_none());
        assert!(matches!(&*earlier.actor.lock(), ActorLink::Parked));
        assert!(!names.park(&owner(&earlier), || true));
        // A reader does not wake the name.
        let read = names.look(&name()).unwrap();
        assert_eq!(read.remaining(), N_NUMBERS - 1);
        assert_eq!(names.in_use().len(), 0);
        assert!(names.has_parked_numbers());
        assert_eq!(names.all(), [name()]);
        assert_eq!(take(&names), Some(2));
        assert_eq!(names.in_use().len(), 1);
        assert_eq!(names.all(), [name()]);
        let woken = names.find("orders").unwrap();
        let rows = owner(&woken).clear();
        assert_eq!(rows.len(), 1);
        assert_eq!((rows[0].0.block.first(), rows[0].1), (1, Some(3)));
    }

    #[test]
    fn names_are_in_byte_order_in_use_or_parked() {
        let names = Names::default();
        for (n, text) in ["b", "B", "a-1", "a", "10", "9"].into_iter().enumerate() {
            let name = SequenceName::parse(text).unwrap();
            let issuer = names.admit(Issuer::for_tests(CounterKey::whole(name)));
            issuer.memory.lock().known = Some(Resolved::default());
            assert!(n % 2 == 0 || names.park(&owner(&issuer), || true));
        }
        assert!(!names.parked.pin().is_empty());
        let all = names.all();
        let all: Vec<&str> = all.iter().map(SequenceName::as_str).collect();
        assert_eq!(all, ["10", "9", "B", "a", "a-1", "b"]);
    }

    /// Takes all numbers on four threads, while a fifth one parks the name again and again, and
    /// tries to take a number from each former issuer. Returns what was taken, and how often the
    /// name was parked.
    fn taken_while_parked(leaves_cursors_open: bool) -> (Vec<i64>, u64) {
        let names = names();
        let (start, n_taken, n_parked) = (Barrier::new(5), AtomicU64::new(0), AtomicU64::new(0));
        // Takers that are too fast wait for the next time that the name is parked.
        let is_fast = || n_taken.load(Relaxed) > (n_parked.load(Relaxed) + 1) * 500;
        let deadline = Instant::now() + Duration::from_secs(20);
        let is_left = || n_taken.load(Relaxed) < N_NUMBERS && Instant::now() < deadline;
        let taken: Vec<_> = std::thread::scope(|scope| {
            let takers: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        let mut taken = Vec::new();
                        start.wait();
                        while is_left() {
                            if is_fast() {
                                std::thread::yield_now();
                                continue;
                            }
                            let number = take(&names);
                            n_taken.fetch_add(u64::from(number.is_some()), Relaxed);
                            taken.extend(number);
                        }
                        taken
                    })
                })
                .collect();
            let parker = scope.spawn(|| {
                LEAVES_CURSORS_OPEN.set(leaves_cursors_open);
                let mut taken = Vec::new();
                start.wait();
                while is_left() {
                    let former = names.find("orders").unwrap();
                    let is_parked = names.park(&owner(&former), || true);
                    n_parked.fetch_add(u64::from(is_parked), Relaxed);
                    let number = former.cursor().unwrap().take();
                    n_taken.fetch_add(u64::from(number.is_some()), Relaxed);
                    taken.extend(number.map(|number| number.value));
                }
                taken
            });
            let threads = takers.into_iter().chain([parker]);
            threads.map(|thread| thread.join().unwrap()).collect()
        });
        (taken.concat(), n_parked.into_inner())
    }

    fn n_repeated(taken: &[i64]) -> usize {
        let different: BTreeSet<&i64> = taken.iter().collect();
        taken.len() - different.len()
    }

    #[test]
    fn each_number_is_taken_once_while_the_name_is_parked_again_and_again() {
        let (taken, n_parked) = taken_while_parked(false);
        assert_eq!(n_repeated(&taken), 0, "a number was taken twice");
        assert_eq!(taken.len() as u64, N_NUMBERS, "a number was lost");
        assert!(n_parked >= 30, "the name was parked {n_parked} times");
    }

    /// The control: the numbers of a cursor that stays open are in two places.
    #[test]
    fn a_name_parked_with_an_open_cursor_is_found_out() {
        let (taken, n_parked) = taken_while_parked(true);
        assert!(n_parked > 0, "vacuous");
        assert!(n_repeated(&taken) > 0, "no number was taken twice");
    }

    #[test]
    fn a_former_owner_parks_nothing() {
        let names = names();
        let issuer = names.find("orders").unwrap();
        let former = owner(&issuer);
        let _present = owner(&issuer);
        assert!(!names.park(&former, || true));
        assert!(!names.park(&owner(&issuer), || false));
        assert_eq!(take(&names), Some(1));
    }

    #[test]
    fn no_name_is_parked_whose_actor_was_started_after_the_look_for_it() {
        let names = names();
        let issuer = names.find("orders").unwrap();
        let term = issuer.term_without_actor().unwrap();
        let actor = owner(&issuer);
        // What the sweep does with the term that it saw.
        assert!(Ownership::take_over(&issuer, term).is_none());
        assert!(actor.is_current());
        // The control: with the present term, the name is taken away from its actor.
        let sweep = Ownership::take_over(&issuer, issuer.terms.current()).unwrap();
        assert!(names.park(&sweep, || true));
        assert!(!actor.is_current());
    }

    #[test]
    fn an_issuer_with_an_actor_or_out_of_memory_has_no_term_to_go_on_from() {
        let names = names();
        let issuer = names.find("orders").unwrap();
        assert!(park(&names));
        assert_eq!(issuer.term_without_actor(), None);
        *issuer.actor.lock() = ActorLink::Gone;
        assert_eq!(issuer.term_without_actor(), None);
    }

    #[test]
    fn a_woken_name_gives_no_number_that_a_change_may_forbid() {
        type Change = fn(&mut IssuerState);
        let changes: [Change; 3] = [
            |state| state.floor = 2,
            |state| state.is_retired = true,
            |state| state.must_reload = true,
        ];
        for change in changes {
            let names = names();
            change(&mut names.find("orders").unwrap().memory.lock());
            assert!(park(&names));
            assert_eq!(take(&names), None);
            // Its actor has the numbers, and looks at them first.
            let woken = names.find("orders").unwrap();
            assert_eq!(woken.remaining(), N_NUMBERS);
        }
    }

    #[test]
    fn a_recovery_reaches_parked_names() {
        let names = names();
        assert!(park(&names));
        let distrust = |source: Source, kept: &KeptNumbers| {
            let of_store = |_: &str| true;
            let seen = SeenRecovery {
                source,
                n_recoveries: 1,
                kept: kept.clone(),
            };
            names.change_all(Vec::new, |name, state| {
                state.distrust(name, &seen, of_store)
            })
        };
        let other = Source {
            database: 7,
            ..Source::default()
        };
        assert!(distrust(other, &KeptNumbers::None).is_empty());
        // That another sequence was recovered changes nothing here.
        let others = |name: &str| KeptNumbers::AllBut(vec![name.into()]);
        assert!(distrust(Source::default(), &others("few")).is_empty());
        assert_eq!(names.in_use().len(), 0);
        // The name holds a block of this database, so its issuer must give the block back.
        let holders = distrust(Source::default(), &others("orders"));
        assert_eq!(holders.len(), 1);
        assert!(holders[0].take_must_reload());
        assert!(!holders[0].memory.lock().known.as_ref().unwrap().trusted);
    }
}
