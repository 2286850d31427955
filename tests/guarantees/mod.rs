//! What Odometer promises under faults, each with a control that finds the fault
//! when the guards are out.

mod changes;
mod chaos;
mod crowd;
mod cuts;
mod directory;
mod explain;
mod fairness;
mod first_refill;
mod floors;
mod frozen;
mod keys;
mod leases;
mod lost_replies;
mod order;
mod outage;
mod panics;
mod periods;
mod periods_recovered;
mod periods_removed;
mod redis;
mod refresh;
mod reserve;
mod rolling_restart;
mod snowflake;
mod stores;
mod strict;
mod strict_changes;
mod striped;
mod turns;
mod went_back;
