//! What those who run Odometer rely on: start, stop, schema, log, metrics, idle sequences,
//! and what a number costs.

mod apply;
mod collector;
mod commands;
mod configuration;
mod connections;
mod costs;
mod durability;
mod files;
mod idle;
mod journal;
mod loading;
mod log;
mod messages;
mod metrics;
mod migrations;
mod mysql_login;
mod next_schema;
mod periods_store;
mod pooler;
mod refusals;
mod shutdown;
mod slow_refills;
mod start_up;
mod stores;
mod templates;
mod tls;
mod traces;
