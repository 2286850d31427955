//! What Odometer promises under faults, each with a control that finds the fault
//! when the guards are out.

mod chaos;
mod crowd;
mod directory;
mod explain;
mod first_refill;
mod floors;
mod lost_replies;
mod outage;
mod panics;
mod refresh;
mod rolling_restart;
