//! Changes sequences, polls for the changes of other replicas, and recovers databases that went
//! back.

pub(crate) mod alter;
mod births;
mod changed_rows;
pub(crate) mod counters;
pub(crate) mod decision;
pub(crate) mod disarming;
pub(crate) mod fencing;
pub(crate) mod leases;
pub(crate) mod merged_counter;
pub(crate) mod participant;
pub(crate) mod prepared;
pub(crate) mod recover;
pub(crate) mod refresh;
pub(crate) mod request;
pub(crate) mod rise;
pub(crate) mod rules;
pub(crate) mod self_fencing;
pub(crate) mod transaction;
pub(crate) mod writing;
