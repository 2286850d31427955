//! Tests that the documents are true. Commands are run, tables are compared, and names are looked
//! up.

mod answers;
mod book;
mod codes;
mod command_line;
mod commands;
mod configuration;
mod dashboards;
mod expressions;
mod failures;
mod faulty;
mod http_api;
mod map;
pub(crate) mod markdown;
mod metrics;
mod names;
mod prose;
mod reader;
mod rules;
mod runbook;
mod servers;
mod stage;
