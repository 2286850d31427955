//! What those who run Odometer rely on: start, stop, schema, log, metrics, idle sequences.

mod configuration;
mod idle;
mod journal;
mod loading;
mod log;
mod metrics;
mod migrations;
mod next_schema;
mod shutdown;
mod start_up;
