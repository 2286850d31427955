//! The behaviour that operators rely on: start, stop, schema, log, metrics, idle sequences, and the
//! cost of a number.

mod apply;
mod collector;
mod commands;
mod configuration;
mod connections;
mod costs;
mod durability;
mod files;
mod https;
mod idle;
mod journal;
mod loading;
mod log;
mod messages;
mod metrics;
mod migrations;
mod mysql_login;
mod next_schema;
mod operations_listener;
mod periods_store;
mod pooler;
mod refusals;
mod remote;
mod shutdown;
mod slow_refills;
mod start_up;
mod stores;
mod templates;
mod text_commands;
mod tls;
mod traces;
