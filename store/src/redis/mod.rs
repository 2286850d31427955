//! Counts sequences with strict order in Redis, in front of the store's database.

pub(crate) mod agreement;
pub(crate) mod ahead;
pub(crate) mod counters;
pub(crate) mod lease;
pub(crate) mod new_window;
pub(crate) mod rendezvous;
pub(crate) mod row;
pub(crate) mod scripts;
pub(crate) mod server;
pub(crate) mod store;
pub(crate) mod strict_reservation;
pub(crate) mod window;
