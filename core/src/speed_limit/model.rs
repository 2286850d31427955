//! Models one counter in databases that fail over to copies which lag behind, at random, and looks
//! for a number that is given on two branches.
//!
//! Each control takes one rule out, and finds such a number.

use std::collections::BTreeMap;

use super::fence::{CLOCK_MARGIN_US, Fence, missing};
use super::{Paced, SpeedLimit};
use crate::tests::seed_for;

/// Bounds how long a statement may last after it has read the clock.
const STATEMENT_US: i64 = 6_000_000;
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
    /// Each copy that lacks a fence counts as further ahead than that fence's copy.
    OrderOfCopies,
    /// A name that is not in the copy begins at its start.
    FencesOfBirths,
    /// A former primary gives what it likes.
    EndOfFormer,
}

/// Draws numbers: xorshift64*, by S. Vigna.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) % bound
    }

    fn up_to(&mut self, most: i64) -> i64 {
        let bound = most.unsigned_abs().saturating_add(1);
        i64::try_from(self.below(bound)).unwrap_or(0)
    }

    fn is_one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// What a database has committed.
#[derive(Clone, Debug)]
struct State {
    /// `None` before the name's first use.
    counter: Option<Paced>,
    /// The youngest heartbeat or stamp, by the clock of the server that wrote it.
    youngest_us: i64,
    /// The server that is stamped.
    stamped: u64,
    fences: Vec<Fence>,
}

/// A copy, and the copy on its branch before it.
#[derive(Clone, Debug)]
struct Copy {
    state: State,
    before: Option<usize>,
}

/// A database server.
#[derive(Clone, Debug)]
struct Server {
    id: u64,
    /// Its clock minus the true time: 0 to [`CLOCK_MARGIN_US`].
    ahead_us: i64,
    state: State,
}

impl Server {
    fn is_stamped(&self) -> bool {
        self.state.stamped == self.id
    }
}

/// A tree of branches of one counter.
struct Tree {
    without: Without,
    limit: SpeedLimit,
    draw: Draw,
    now_us: i64,
    primary: Server,
    /// A former primary that lives on, and the number of steps that it may reach.
    former: Option<(Server, u64)>,
    copies: Vec<Copy>,
    /// The last copy of the present branch.
    last: Option<usize>,
    /// Whether one replica lives through all failovers. Then any copy may be promoted. If not, each
    /// failover takes a copy of the present branch.
    lives_through: bool,
    /// Whether the replica that fences next is an old one.
    is_old: bool,
    /// The fences that the oldest replica has met, in this order.
    known: Vec<Fence>,
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
        let state = State {
            counter: None,
            youngest_us: now_us,
            stamped: 0,
            fences: Vec::new(),
        };
        let primary = Server {
            id: 0,
            ahead_us: draw.up_to(CLOCK_MARGIN_US),
            state,
        };
        Self {
            without,
            limit,
            now_us,
            primary,
            former: None,
            copies: Vec::new(),
            last: None,
            lives_through: draw.is_one_in(2),
            is_old: false,
            known: Vec::new(),
            given: BTreeMap::new(),
            n_lost: 0,
            draw,
        }
    }

    /// Does one random step. Returns a number that was given twice, if the step gave one.
    fn step(&mut self) -> Option<u64> {
        match self.draw.below(20) {
            0..=7 => return self.reserve_on_primary(),
            8 | 9 => return self.reserve_on_former(),
            10..=12 => self.beat(),
            13..=15 => self.copy(),
            16 => self.promote(),
            17 => self.fence(),
            _ => {
                let longest = if self.draw.is_one_in(10) {
                    60_000_000
                } else {
                    1_000_000
                };
                self.now_us += self.draw.up_to(longest);
            }
        }
        None
    }

    /// Returns the clock of a server, as a statement read it that commits now.
    fn clock_of(&mut self, ahead_us: i64) -> i64 {
        let ago_us = if self.draw.is_one_in(4) {
            self.draw.up_to(STATEMENT_US)
        } else {
            0
        };
        self.now_us + ahead_us - ago_us
    }

    fn reserve_on_primary(&mut self) -> Option<u64> {
        if !self.primary.is_stamped() {
            return None;
        }
        let clock_us = self.clock_of(self.primary.ahead_us);
        let before = self.primary.state.counter;
        let before = before.unwrap_or_else(|| self.born(&self.primary.state.fences));
        let (n, after) = self.reserve(before, clock_us)?;
        self.primary.state.counter = Some(after);
        self.give(after.n_reserved - n, n)
    }

    /// Reserves on a primary that does not know that another one was promoted.
    fn reserve_on_former(&mut self) -> Option<u64> {
        let (mut server, end) = self.former.take()?;
        let clock_us = self.clock_of(server.ahead_us);
        let before = server.state.counter;
        let before = before.unwrap_or_else(|| self.born(&server.state.fences));
        let reserved = self.reserve(before, clock_us);
        let is_free = self.without == Without::EndOfFormer;
        let reserved = reserved.filter(|(_, after)| is_free || after.n_reserved <= end);
        if let Some((_, after)) = reserved {
            server.state.counter = Some(after);
        }
        self.former = Some((server, end));
        let (n, after) = reserved?;
        self.give(after.n_reserved - n, n)
    }

    fn reserve(&mut self, before: Paced, clock_us: i64) -> Option<(u64, Paced)> {
        let n_available = self.limit.n_available(before.paced_until_us, clock_us);
        let n = match self.draw.below(3) {
            0 => n_available,
            1 => 1,
            _ => 1 + self.draw.below(self.limit.burst),
        };
        if n == 0 {
            return None;
        }
        let after = self.limit.reserve(before, n, clock_us)?;
        Some((n, after))
    }

    /// Returns the counter of a name that is not there yet.
    fn born(&self, fences: &[Fence]) -> Paced {
        if self.without == Without::FencesOfBirths {
            return Paced::RESTED;
        }
        let raise = |counter, fence: &Fence| self.raised(counter, *fence);
        fences.iter().fold(Paced::RESTED, raise)
    }

    fn raised(&self, counter: Paced, fence: Fence) -> Paced {
        let raised = fence.raise(self.limit, counter);
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
            id: self.primary.id + 1,
            ahead_us: self.draw.up_to(CLOCK_MARGIN_US),
            state,
        };
        let former = std::mem::replace(&mut self.primary, promoted);
        self.is_old = self.draw.is_one_in(2);
        let is_free = self.lives_through || self.without == Without::OrderOfCopies;
        if !is_free && self.planned_fence().n_levels > 0 {
            // Whether the copy is one of the present branch shows only between two heartbeats. The
            // replica is one that knows nothing of it.
            self.is_old = false;
        }
        // It gives fewer numbers than the fence will skip, whenever the fence comes.
        let end = self.planned_fence();
        let end = self.fenced(end).n_reserved;
        self.former = (former.is_stamped() && self.draw.is_one_in(2)).then_some((former, end));
        self.last = Some(chosen);
    }

    fn fenced(&self, fence: Fence) -> Paced {
        let state = &self.primary.state;
        let counter = state.counter.unwrap_or_else(|| self.born(&state.fences));
        self.raised(counter, fence)
    }

    /// Returns the fence that the primary needs now.
    fn planned_fence(&self) -> Fence {
        let state = &self.primary.state;
        let slow_us = match self.without == Without::TimeOfStatements {
            true => 0,
            false => STATEMENT_US,
        };
        let margin_us = match self.without == Without::Margin {
            true => 0,
            false => CLOCK_MARGIN_US,
        };
        let knows = (self.lives_through || self.is_old) && self.without != Without::KnownFences;
        let known: &[Fence] = if knows { &self.known } else { &[] };
        let planned = Fence::plan(
            self.primary.id.into(),
            known,
            &state.fences,
            state.youngest_us - slow_us,
            self.now_us + self.primary.ahead_us + margin_us,
        );
        let is_any_order = self.without == Without::OrderOfCopies;
        if is_any_order && missing(known, &state.fences).next().is_some() {
            return planned.above(missing(known, &state.fences));
        }
        planned
    }

    /// Raises the counter above all that lost branches can have given, and stamps the primary.
    fn fence(&mut self) {
        if self.primary.is_stamped() {
            return;
        }
        let fence = self.planned_fence();
        let counter = self.fenced(fence);
        let clock_us = self.now_us + self.primary.ahead_us;
        let state = &mut self.primary.state;
        if state.counter.is_some() {
            state.counter = Some(counter);
        }
        state.fences.push(fence);
        state.stamped = self.primary.id;
        state.youngest_us = state.youngest_us.max(clock_us);
        self.known.push(fence);
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
        Without::OrderOfCopies,
        Without::FencesOfBirths,
        Without::EndOfFormer,
    ] {
        let (twice, _) = grow(without, N_TREES);
        assert!(twice.is_some(), "{without:?}: the model finds nothing");
    }
}
