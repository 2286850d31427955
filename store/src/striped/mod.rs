//! A store of several databases that share their sequences.

pub(crate) mod agreement;
pub(crate) mod birth;
pub(crate) mod change;
pub(crate) mod claims;
pub(crate) mod decision;
pub(crate) mod health;
pub(crate) mod leases;
pub(crate) mod memory;
pub(crate) mod mend;
pub(crate) mod reading;
pub(crate) mod refill;
pub(crate) mod stamping;
pub(crate) mod store;
