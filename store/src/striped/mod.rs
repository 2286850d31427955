//! Offers a store of several databases that share their sequences.

pub(crate) mod agreement;
pub(crate) mod assign_installation;
pub(crate) mod change;
pub(crate) mod claims;
pub(crate) mod create;
pub(crate) mod decision;
pub(crate) mod health;
pub(crate) mod leases;
pub(crate) mod memory;
pub(crate) mod queries;
pub(crate) mod refill;
pub(crate) mod repair;
pub(crate) mod store;
