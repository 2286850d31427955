//! A store with Redis before its database, for strict order.

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
