//! Compares what a connection remembers of its caller with what a fresh decision would say.

#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests may fail loudly"
)]

use std::sync::Arc;

use odometer_core::{glob::Glob, name::SequenceName};
use odometer_tests::fuzz::check;
use proptest::{collection::vec, prelude::*};

use super::caller_memo::{CallerMemo, MemoTime};
use crate::access::right::Right;
use crate::access::role::Role;

/// What calls show. The first stands for no header.
const SHOWN: [&[u8]; 5] = [
    b"",
    b"Bearer odo_a",
    b"bearer odo_a",
    b"Bearer odo_b",
    b"Bearer \xff",
];

const NAMES: [&str; 8] = [
    "orders-1",
    "orders-2",
    "orders",
    "ORDERS-1",
    "orders-%31",
    "invoices",
    "-",
    "",
];

/// Who shows a header now.
#[derive(Clone, Copy, Debug)]
enum Whose {
    Nobody,
    Administrator,
    /// A caller of one of the roles.
    OfRole(usize),
}

/// A change of the callers: who shows one of the headers from now on.
type Renaming = (usize, Whose);

#[derive(Clone, Debug)]
enum Step {
    /// A call, with the changes that come between its decision and the memo of it.
    Call(usize, usize, Option<Renaming>),
    Change(Renaming),
    /// A second passes. The tokens that expired in it are nobody's.
    Tick(Option<usize>),
}

fn renaming() -> impl Strategy<Value = Renaming> {
    let whose = prop_oneof![
        Just(Whose::Nobody),
        Just(Whose::Administrator),
        (0..3_usize).prop_map(Whose::OfRole),
    ];
    (0..SHOWN.len(), whose)
}

fn step() -> impl Strategy<Value = Step> {
    // Few headers and names, so that many calls meet what is remembered.
    let shown = prop_oneof![2 => 0..2_usize, 1 => 0..SHOWN.len()];
    let name = prop_oneof![2 => 0..2_usize, 1 => 0..NAMES.len()];
    let meanwhile = prop_oneof![4 => Just(None), 1 => renaming().prop_map(Some)];
    prop_oneof![
        6 => (shown, name, meanwhile).prop_map(|(shown, name, other)| Step::Call(shown, name, other)),
        1 => renaming().prop_map(Step::Change),
        1 => prop::option::of(0..SHOWN.len()).prop_map(Step::Tick),
    ]
}

/// The callers as they are now.
struct World {
    roles: [Arc<Role>; 3],
    callers: [Whose; SHOWN.len()],
    now: MemoTime,
}

impl World {
    fn new() -> Self {
        let with = |name: &str, globs: &[&str]| {
            let globs = globs.iter().map(|glob| Glob::parse(glob).unwrap());
            Arc::new(Role::new(name).with(Right::Take, globs.collect()))
        };
        Self {
            roles: [
                with("all", &["*"]),
                with("orders", &["orders-?", "invoices"]),
                with("none", &[]),
            ],
            callers: [Whose::OfRole(1); SHOWN.len()],
            now: MemoTime {
                generation: 0,
                tick: 0,
            },
        }
    }

    fn change(&mut self, (shown, whose): Renaming) {
        self.callers[shown] = whose;
        self.now.generation += 1;
    }

    /// Decides freshly whether a call may take numbers.
    fn may_take(&self, shown: usize, name: &str) -> bool {
        match self.callers[shown] {
            Whose::Nobody => false,
            Whose::Administrator => true,
            Whose::OfRole(role) => {
                SequenceName::parse(name).is_ok_and(|name| self.roles[role].may(Right::Take, &name))
            }
        }
    }

    /// Answers a call as the routes do. They read the time of the callers before the callers.
    fn answer(&mut self, memo: &CallerMemo, shown: usize, meanwhile: Option<Renaming>) {
        let (whose, generation) = (self.callers[shown], self.now.generation);
        if let Some(renaming) = meanwhile {
            self.change(renaming);
        }
        let role = match whose {
            Whose::Nobody => return,
            Whose::Administrator => None,
            Whose::OfRole(role) => Some(&self.roles[role]),
        };
        let at = MemoTime {
            generation,
            ..self.now
        };
        memo.remember(header(shown), at, role);
    }
}

fn header(shown: usize) -> Option<&'static [u8]> {
    (shown > 0).then(|| SHOWN[shown])
}

#[test]
fn a_memo_never_lets_a_call_pass_that_a_fresh_decision_would_refuse() {
    check(&vec(step(), 1..60), 4, |steps| {
        let (memo, mut world) = (CallerMemo::default(), World::new());
        let mut has_passed = false;
        for step in steps {
            let (shown, name, meanwhile) = match step {
                Step::Call(shown, name, meanwhile) => (shown, NAMES[name], meanwhile),
                Step::Change(renaming) => {
                    world.change(renaming);
                    continue;
                }
                Step::Tick(expired) => {
                    world.now.tick += 1;
                    if let Some(shown) = expired {
                        world.callers[shown] = Whose::Nobody;
                    }
                    continue;
                }
            };
            let given = header(shown);
            let passes = |world: &World| memo.may_take(given, world.now, name);
            if passes(&world) {
                assert!(world.may_take(shown, name), "{shown} {name}");
                has_passed = true;
                continue;
            }
            let is_certain = meanwhile.is_none() && !matches!(world.callers[shown], Whose::Nobody);
            world.answer(&memo, shown, meanwhile);
            // The call after it finds what is remembered.
            assert!(
                !passes(&world) || world.may_take(shown, name),
                "{shown} {name}"
            );
            assert!(!is_certain || passes(&world) == world.may_take(shown, name));
        }
        has_passed
    });
}
