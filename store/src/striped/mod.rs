//! Lets several databases of a store share their sequences.
//!
//! # The problem
//!
//! One database is a single point of failure. Several ordinary databases should stand in for one
//! another, without a cluster between them.
//!
//! # The naive way, and why it fails
//!
//! A reservation could be written to a majority of the databases. Every refill would then be as
//! slow as the slower ones, and no refill would succeed without a majority. Or one database could
//! be the leader. That needs agreement on who leads: if two replicas disagree for a moment, two
//! databases give the same numbers.
//!
//! # What Odometer does
//!
//! Each database has numbers of its own. Database *k* of *N*, from 0, counts *m* = 0, 1, 2, …, and
//! its number is `start + step · (m · N + k)`. Two databases never have a number in common,
//! whatever replicas believe about them, so a refill needs only one database (`refill.rs`).
//!
//! All databases must agree on the grid of a name: its kind, start, step, order, store and
//! periods. A name is decided if more than half of them have a row of the same grid, and nothing
//! is reserved before that (`agreement.rs`). A database that lacks a decided name is repaired
//! before it serves the name (`repair.rs`). A change is written in all databases under one version
//! and then committed in each (`change.rs`). If it stops between two commits, the others get it
//! before they serve the name.
//!
//! A database that was away has counted less than the others. Before its first use, and when it
//! comes back, its counter catches up: it goes on above everything that the others are known to
//! have reserved. The same conditional update does that, so it costs no further write. The numbers
//! in between are a gap. They are paid for within the speed limit, so a long way is made with
//! several blocks. A counter that would be at its end by that goes on where it is.
//!
//! Which member is asked is decided in `health.rs` and in `walk.rs`; refills and leases go round
//! the members in the same way. What all members must agree on is in `agreement.rs`, `create.rs`,
//! `claims.rs`, `repair.rs` and `change.rs`. What the members know together is in `memory.rs` and
//! `queries.rs`.
//!
//! The decision is ADR 16.

pub(crate) mod agreement;
pub(crate) mod assign_installation;
pub(crate) mod change;
pub(crate) mod claims;
pub(crate) mod create;
pub(crate) mod health;
pub(crate) mod memory;
pub(crate) mod queries;
pub(crate) mod refill;
pub(crate) mod repair;
pub(crate) mod walk;
