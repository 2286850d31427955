//! What a process of Odometer has once: its clock, its name, its metrics, the targets of its log,
//! and the faults that a test gives it.
//!
//! It knows no SQL and no actors, and not what a metric counts.
//!
//! Read first:
//!
//! - [`metrics`]: all metrics are registered there, and handed out as handles.
//! - [`faults`]: which guards a test can take out.
//! - [`log`]: what is logged under a name of its own.
//! - [`log_throttle`]: what is logged now and then, however often it happens.
//! - [`clock`]: the time of day; [`host`]: what this machine is called.

pub mod clock;
pub mod faults;
pub mod host;
pub mod log;
pub mod log_throttle;
pub mod metrics;
