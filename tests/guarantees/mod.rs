//! What Odometer promises under faults, each with a control that finds the fault
//! when the guards are out.

mod chaos;
mod crowd;
mod cuts;
mod directory;
mod fairness;
mod first_refill;
mod frozen;
mod lost_replies;
mod outage;
mod panics;
mod reserve;
mod rolling_restart;
