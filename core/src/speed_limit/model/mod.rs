//! Models one counter in databases that fail over to copies which lag behind, at random, and looks
//! for a number that is given on two branches.
//!
//! Replicas know what they have met: one that lives through all failovers, one that meets some
//! branches only, and fresh ones. A replica that meets a branch which does not follow from what it
//! knows fences the database on top, while others use it. Operators skip numbers, and such a recovery
//! may be lost. They say that no counter was lost, if that is true. Clocks jump within their bound,
//! and the counter may come from a time when the clock was far ahead. The limit may be raised or
//! lowered.
//!
//! Each control takes one rule out, and finds such a number. Whether a word about new counters ends
//! in time shows too seldom: a test of its own does that.

mod draw;
mod operator;
mod state;

use std::collections::BTreeMap;

use self::draw::Draw;
use self::state::{Copy, Knowledge, Server, State};
use super::fence::{CLOCK_MARGIN_US, Fence, for_births, missing};
use super::{Paced, SpeedLimit};
use crate::tests::seed_for;

/// Bounds how long a statement may last after it has read the clock.
const STATEMENT_US: i64 = 6_000_000;
/// Bounds how far ahead the clock was before it was set right.
const FAR_AHEAD_US: i64 = 600_000_000;
/// Counts the steps of one tree of branches.
const N_STEPS: u32 = 200;
/// Counts the trees of the model: ten million steps together.
const N_TREES: u32 = 50_000;

/// A rule that a control takes out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Without {
    Nothing,
    /// Heartbeats are written in a copy before its fence.
    GuardOfHeartbeats,
    /// A fence leaves the bucket as the copy has it.
    EmptyBucket,
    /// A fence does not add the time by which clocks may be apart.
    Margin,
    /// The last heartbeat of a copy counts as later than each lost statement.
    TimeOfStatements,
    /// A replica that lived through fences which the copy does not know ignores them.
    KnownFences,
    /// A replica forgets what operators have skipped in recoveries which the copy does not know.
    SkippedSteps,
    /// The same, if they have skipped them for one sequence.
    StepsOfOne,
    /// A counter that is used up to far ahead of the last heartbeat counts as paid for.
    KnownLine,
    /// Each copy that lacks a fence counts as further ahead than that fence's copy.
    OrderOfCopies,
    /// A name that is not in the copy begins at its start.
    FencesOfBirths,
    /// A former primary gives what it likes.
    EndOfFormer,
}

/// A tree of branches of one counter.
struct Tree {
    without: Without,
    draw: Draw,
    now_us: i64,
    primary: Server,
    /// A former primary that lives on, and the number of steps that it may reach.
    former: Option<(Server, u64)>,
    copies: Vec<Copy>,
    /// How many steps there are yet before the name's first use.
    n_unused: u64,
    /// The last copy of the present branch.
    last: Option<usize>,
    /// Whether one replica lives through all failovers. Then any copy may be promoted. If not, each
    /// failover takes a copy of the present branch.
    lives_through: bool,
    /// The replica that lives through all failovers, and one that meets some branches only.
    known: [Knowledge; 2],
    last_id: u128,
    n_servers: u64,
    /// The first number and the end of each block that was given.
    given: BTreeMap<u64, u64>,
    /// How many commits were lost.
    n_lost: u64,
}

impl Tree {
    fn new(without: Without, seed: u64) -> Self {
        let mut draw = Draw(seed);
        let limit = SpeedLimit {
            rate: 1 + u32::try_from(draw.below(1000)).unwrap_or(0),
            burst: 1 + draw.below(20_000),
        };
        let now_us = 1_000_000_000;
        // The clock was far ahead when the counter was used last.
        let used_long_ago = draw.is_one_in(4).then(|| Paced {
            n_reserved: 0,
            paced_until_us: now_us + limit.capacity_us() + draw.up_to(FAR_AHEAD_US),
        });
        let state = State {
            counter: used_long_ago,
            is_stopped: false,
            limit,
            youngest_us: now_us,
            stamped: 0,
            branch: 0,
            recoveries: Vec::new(),
            n_ended: 0,
        };
        let primary = Server {
            id: 0,
            ahead_us: draw.within(CLOCK_MARGIN_US),
            state,
        };
        Self {
            without,
            now_us,
            primary,
            former: None,
            copies: Vec::new(),
            n_unused: match draw.is_one_in(4) {
                true => 20 + draw.below(100),
                false => 0,
            },
            last: None,
            lives_through: draw.is_one_in(2),
            known: Default::default(),
            last_id: 0,
            n_servers: 1,
            given: BTreeMap::new(),
            n_lost: 0,
            draw,
        }
    }

    /// Does one random step. Returns a number that was given twice, if the step gave one.
    fn step(&mut self) -> Option<u64> {
        self.n_unused = self.n_unused.saturating_sub(1);
        match self.draw.below(43) {
            0..=15 if self.n_unused > 0 => self.pass(),
            0..=15 => return self.reserve_on_primary(),
            16..=19 if self.n_unused > 0 => self.say_that_no_counter_was_lost(),
            16..=19 => return self.reserve_on_former(),
            20..=23 => self.beat(),
            24..=28 => self.copy(),
            29 | 30 => self.promote(),
            31 | 32 => self.fence(),
            33 => self.meet(1),
            34 => self.skip(),
            35 => self.change_limit(),
            36 => self.primary.ahead_us = self.draw.within(CLOCK_MARGIN_US),
            37 => self.switch_back(),
            38 => self.say_that_no_counter_was_lost(),
            _ => self.pass(),
        }
        None
    }

    /// Lets time pass. Replicas that live meanwhile beat.
    fn pass(&mut self) {
        let is_long = self.draw.is_one_in(10);
        let longest_us = if is_long { 60_000_000 } else { 1_000_000 };
        self.now_us += self.draw.up_to(longest_us);
        if is_long {
            self.beat();
        }
    }

    /// Returns the clock of a server, as a statement read it that commits now.
    fn clock_of(&mut self, ahead_us: i64) -> i64 {
        let ago_us = if self.draw.is_one_in(4) {
            self.draw.within(STATEMENT_US)
        } else {
            0
        };
        self.now_us + ahead_us - ago_us
    }

    fn reserve_on_primary(&mut self) -> Option<u64> {
        if !self.primary.is_stamped() || self.primary.state.is_stopped {
            return None;
        }
        let clock_us = self.clock_of(self.primary.ahead_us);
        let before = self.counter_of(&self.primary.state);
        let (n, after) = self.reserve(self.primary.state.limit, before, clock_us)?;
        self.primary.state.counter = Some(after);
        self.give(after.n_reserved - n, n)
    }

    /// Reserves on a primary that does not know that another one was promoted.
    fn reserve_on_former(&mut self) -> Option<u64> {
        let (mut server, end) = self.former.take()?;
        let clock_us = self.clock_of(server.ahead_us);
        let before = self.counter_of(&server.state);
        let reserved = self.reserve(server.state.limit, before, clock_us);
        let reserved = reserved.filter(|_| !server.state.is_stopped);
        let is_free = self.without == Without::EndOfFormer;
        let reserved = reserved.filter(|(_, after)| is_free || after.n_reserved <= end);
        if let Some((_, after)) = reserved {
            server.state.counter = Some(after);
        }
        self.former = Some((server, end));
        let (n, after) = reserved?;
        self.give(after.n_reserved - n, n)
    }

    fn reserve(&mut self, limit: SpeedLimit, before: Paced, clock_us: i64) -> Option<(u64, Paced)> {
        let n_available = limit.n_available(before.paced_until_us, clock_us);
        let n = match self.draw.below(3) {
            0 => n_available,
            1 => 1,
            _ => 1 + self.draw.below(limit.burst),
        };
        if n == 0 {
            return None;
        }
        let after = limit.reserve(before, n, clock_us)?;
        Some((n, after))
    }

    /// Returns the counter of a database, as it is or as it is created now.
    fn counter_of(&self, state: &State) -> Paced {
        if let Some(counter) = state.counter {
            return counter;
        }
        if self.without == Without::FencesOfBirths {
            return Paced::RESTED;
        }
        let raise = |counter, fence| self.raised(state.limit, counter, fence);
        let fences: Vec<Fence> = state.recoveries.iter().map(|it| it.fence).collect();
        let counted = for_births(&fences, state.n_ended).iter();
        counted.copied().fold(Paced::RESTED, raise)
    }

    fn raised(&self, limit: SpeedLimit, counter: Paced, fence: Fence) -> Paced {
        let raised = fence.raise(limit, counter);
        if self.without == Without::EmptyBucket {
            return Paced {
                paced_until_us: counter.paced_until_us,
                ..raised
            };
        }
        raised
    }

    fn give(&mut self, first: u64, n: u64) -> Option<u64> {
        let end = first + n;
        let before = self.given.range(..end).next_back();
        if let Some((_, before_end)) = before
            && *before_end > first
        {
            return Some(first);
        }
        self.given.insert(first, end);
        None
    }

    fn beat(&mut self) {
        if !self.primary.is_stamped() && self.without != Without::GuardOfHeartbeats {
            return;
        }
        let clock_us = self.clock_of(self.primary.ahead_us);
        let state = &mut self.primary.state;
        state.youngest_us = state.youngest_us.max(clock_us);
    }

    /// Lets a standby keep what is committed now.
    fn copy(&mut self) {
        if !self.primary.is_stamped() {
            return;
        }
        self.copies.push(Copy {
            state: self.primary.state.clone(),
            before: self.last,
        });
        self.last = Some(self.copies.len() - 1);
    }

    /// Promotes a copy.
    fn promote(&mut self) {
        let Some(last) = self.last else {
            return;
        };
        if self.lives_through {
            self.meet(0);
        }
        let chosen = if self.lives_through {
            usize::try_from(self.draw.below(self.copies.len() as u64)).unwrap_or(last)
        } else {
            let mut chosen = last;
            while let Some(before) = self.copies[chosen].before
                && self.draw.is_one_in(2)
            {
                chosen = before;
            }
            chosen
        };
        let state = self.copies[chosen].state.clone();
        if state.counter != self.primary.state.counter {
            self.n_lost += 1;
        }
        let promoted = Server {
            id: self.n_servers,
            ahead_us: self.draw.within(CLOCK_MARGIN_US),
            state,
        };
        self.n_servers += 1;
        let former = std::mem::replace(&mut self.primary, promoted);
        // It gives fewer numbers than the fence will skip, whoever fences, whenever, and by whatever
        // clock.
        let state = &self.primary.state;
        let mut end = self.planned(&Knowledge::default());
        end.until_us -= self.primary.ahead_us;
        let end = self.raised(state.limit, self.counter_of(state), end);
        self.former =
            (former.is_stamped() && self.draw.is_one_in(2)).then_some((former, end.n_reserved));
        self.last = Some(chosen);
    }

    /// Lets the road lead back to a former primary that lives on. The replica that lived through the
    /// failover sees it first.
    fn switch_back(&mut self) {
        if !self.lives_through || !self.primary.is_stamped() {
            return;
        }
        self.meet(0);
        if let Some((former, _)) = self.former.take() {
            self.primary = former;
            self.meet(0);
        }
    }

    /// Returns the fence that the primary needs now, as a replica plans it.
    fn planned(&self, known: &Knowledge) -> Fence {
        let state = &self.primary.state;
        let slow_us = match self.without == Without::TimeOfStatements {
            true => 0,
            false => STATEMENT_US,
        };
        let margin_us = match self.without == Without::Margin {
            true => 0,
            false => CLOCK_MARGIN_US,
        };
        let of_one = known.of_one.iter().map(|fence| fence.until_us);
        let until_us = of_one.max().unwrap_or(0);
        let (known, mut in_copy) = self.compared(known);
        let ended = state.recoveries.iter().take(state.n_ended);
        let ended: Vec<Fence> = ended.map(|it| it.fence).collect();
        let planned = Fence::plan(
            self.last_id + 1,
            (&known, &in_copy, &ended),
            // The clock may have jumped back since. That is seldom seen, so no control shows it.
            (state.youngest_us - slow_us - CLOCK_MARGIN_US, false),
            until_us.max(self.now_us + self.primary.ahead_us + margin_us),
        );
        let is_any_order = self.without == Without::OrderOfCopies;
        if is_any_order && missing(&known, &in_copy).next().is_some() {
            return planned.above(missing(&known, &in_copy));
        }
        // Otherwise the replica would fence again and again.
        in_copy.push(planned);
        let uncovered = missing(&known, &in_copy).next();
        assert_eq!(uncovered, None, "{planned:?} does not cover it");
        planned
    }

    /// Returns whether a replica that knows fences may raise counters above their line.
    fn is_any_copy(&self) -> bool {
        self.lives_through || self.without == Without::OrderOfCopies
    }

    /// Returns the fences that a replica knows, and those of the primary.
    fn compared(&self, known: &Knowledge) -> (Vec<Fence>, Vec<Fence>) {
        let (mut known, in_copy) = (known.fences.clone(), self.primary.state.fences(false));
        if self.without == Without::KnownFences {
            known.clear();
        }
        if self.without == Without::SkippedSteps {
            known.iter_mut().for_each(|fence| fence.n_steps = 0);
        }
        (known, in_copy)
    }

    /// Returns whether the primary followed from what a replica knows, as the program decides it.
    fn follows(&self, known: &Knowledge) -> bool {
        let state = &self.primary.state;
        let mut recoveries = state.recoveries.iter();
        let is_named = state.branch == known.branch
            || recoveries.any(|it| it.fence.id == known.branch || it.previous == known.branch);
        let (fences, in_copy) = self.compared(known);
        let is_covered = missing(&fences, &in_copy).next().is_none();
        let is_covered = is_covered && self.lacking_of_one(known).is_empty();
        is_named || (is_covered && !known.fences.is_empty())
    }

    /// Returns the recoveries of this counter's sequence that a replica knows and the primary lacks.
    fn lacking_of_one(&self, known: &Knowledge) -> Vec<Fence> {
        let (mut lacking, in_copy) = (known.of_one.clone(), self.primary.state.fences(true));
        lacking.retain(|fence| in_copy.iter().all(|other| other.id != fence.id));
        if self.without == Without::StepsOfOne {
            lacking.clear();
        }
        lacking
    }

    /// Lets a replica look at the primary. If it did not follow from what the replica knows, the
    /// replica fences it, while others use it.
    fn meet(&mut self, which: usize) {
        if !self.primary.is_stamped() {
            return;
        }
        let known = self.known[which].clone();
        if self.without != Without::KnownFences && !self.follows(&known) {
            let is_above = self.planned(&known).n_levels > 0;
            if self.is_any_copy() || !is_above {
                self.fence_by(&known);
            }
            // Otherwise only the replica that did not live through all failovers knows of it. It is
            // not there any more.
        }
        self.learn(which);
    }

    fn learn(&mut self, which: usize) {
        self.known[which] = Knowledge {
            branch: self.primary.state.branch,
            fences: self.primary.state.fences(false),
            of_one: self.primary.state.fences(true),
        };
    }

    /// Lets a replica make the recoveries again that are lost of this counter's sequence, and then a
    /// fence.
    fn fence_by(&mut self, known: &Knowledge) {
        let fence = self.planned(known);
        for lacking in self.lacking_of_one(known) {
            let state = &mut self.primary.state;
            let again = |counter| lacking.raise(state.limit, counter);
            state.counter = state.counter.map(again);
            state.begin(lacking, true);
        }
        self.write(fence, false);
    }

    /// Lets a replica raise the counter above all that lost branches can have given, and stamp the
    /// primary.
    fn fence(&mut self) {
        if self.primary.is_stamped() {
            return;
        }
        let of_oldest = self.planned(&self.known[0]);
        let is_above = |fence: Fence| fence.n_levels > 0 || fence.n_steps > 0;
        let lacks_one = !self.lacking_of_one(&self.known[0]).is_empty();
        let mut who = match self.draw.below(3) {
            _ if self.lives_through && (is_above(of_oldest) || lacks_one) => Some(0),
            0 if self.lives_through => Some(0),
            1 => Some(1),
            _ => None,
        };
        if !self.is_any_copy() && is_above(self.planned(&self.known[1])) {
            // Whether the copy is one of the present branch shows only between two heartbeats. The
            // replica is one that knows nothing of it.
            who = None;
            self.known[1] = Knowledge::default();
        }
        let known = who.map(|who| self.known[who].clone());
        self.fence_by(&known.unwrap_or_default());
        if let Some(who) = who {
            self.learn(who);
        }
    }

    /// Writes a recovery, which begins a branch.
    fn write(&mut self, fence: Fence, is_of_one: bool) {
        let state = &self.primary.state;
        let counter = self.raised(state.limit, self.counter_of(state), fence);
        let is_known = fence.is_said
            || fence.n_levels > 0
            || self.without == Without::KnownLine
            || state
                .counter
                .is_none_or(|counter| state.limit.knows_line(counter, fence.since_us));
        let clock_us = self.now_us + self.primary.ahead_us;
        let state = &mut self.primary.state;
        if state.counter.is_some() {
            state.counter = Some(counter);
        }
        state.is_stopped = !is_known || (state.is_stopped && !is_of_one);
        state.begin(fence, is_of_one);
        state.stamped = self.primary.id;
        state.youngest_us = state.youngest_us.max(clock_us);
        self.last_id = fence.id;
    }
}

/// Grows trees until a number was given twice. Returns that number and the seed of its tree, and
/// how often commits were lost.
fn grow(without: Without, n_trees: u32) -> (Option<(u64, u64)>, u64) {
    let mut n_lost = 0;
    for which in 0..n_trees {
        let seed = seed_for(which.into());
        let mut tree = Tree::new(without, seed);
        for _ in 0..N_STEPS {
            if let Some(twice) = tree.step() {
                return (Some((twice, seed)), n_lost + tree.n_lost);
            }
        }
        n_lost += tree.n_lost;
    }
    (None, n_lost)
}

#[test]
fn no_number_is_given_on_two_branches() {
    let (twice, n_lost) = grow(Without::Nothing, N_TREES);
    assert_eq!(twice, None);
    assert!(
        n_lost > u64::from(N_TREES),
        "only {n_lost} copies lacked a commit"
    );
}

#[test]
fn without_one_of_the_rules_a_number_is_given_on_two_branches() {
    for without in [
        Without::GuardOfHeartbeats,
        Without::EmptyBucket,
        Without::Margin,
        Without::TimeOfStatements,
        Without::KnownFences,
        Without::SkippedSteps,
        Without::StepsOfOne,
        Without::KnownLine,
        Without::OrderOfCopies,
        Without::FencesOfBirths,
        Without::EndOfFormer,
    ] {
        let (twice, _) = grow(without, N_TREES);
        assert!(twice.is_some(), "{without:?}: the model finds nothing");
    }
}
