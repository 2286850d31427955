//! Measures the ways in which a database server itself gives numbers, in its own protocol.

use odometer_tests::{Backend, Server};

use super::{native::Native, pgbench::Pgbench, sysbench::Sysbench};
use crate::cores::Cores;

const DATABASE: &str = "bench";
const N_CONNECTIONS: u32 = 64;

/// A way to get one number from one server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// A sequence that writes each number on its own. PostgreSQL writes every 32nd number.
    Cache1,
    /// A sequence that keeps a thousand numbers. In PostgreSQL each connection keeps them, in
    /// MariaDB the whole server.
    Cache1000,
    /// One row of a plain table, which each number raises by one.
    Table,
}

/// Creates on `server` what all ways need.
pub(crate) async fn prepare(server: &Server) {
    server
        .administrate(&format!("CREATE DATABASE {DATABASE}"))
        .await;
    for statement in [
        "CREATE SEQUENCE one CACHE 1",
        "CREATE SEQUENCE thousand CACHE 1000",
        "CREATE TABLE numbers (name varchar(64) PRIMARY KEY, value bigint NOT NULL)",
        "INSERT INTO numbers VALUES ('orders', 0)",
    ] {
        server.administrate_in(DATABASE, statement).await;
    }
}

/// Returns a contender: 64 connections that take numbers from a prepared `server` in one way.
pub(crate) fn contender(cores: &Cores, server: &Server, way: Way) -> Native {
    let name = name(server.backend(), way);
    match (server.backend(), way) {
        (Backend::Postgres, way) => {
            let statement = match way {
                Way::Cache1 => "SELECT nextval('one')",
                Way::Cache1000 => "SELECT nextval('thousand')",
                Way::Table => {
                    "UPDATE numbers SET value = value + 1 WHERE name = 'orders' RETURNING value"
                }
            };
            let tool = Pgbench::new(server, DATABASE, statement, N_CONNECTIONS);
            Native::new(name, cores, server.id(), tool)
        }
        (Backend::MariaDb, way) => {
            let statement = match way {
                Way::Cache1 => "SELECT NEXTVAL(one)",
                Way::Cache1000 => "SELECT NEXTVAL(thousand)",
                // The reply to this statement has the number.
                Way::Table => {
                    "UPDATE numbers SET value = LAST_INSERT_ID(value + 1) WHERE name = 'orders'"
                }
            };
            let tool = Sysbench::new(server, DATABASE, statement, N_CONNECTIONS);
            Native::new(name, cores, server.id(), tool)
        }
        (Backend::Sqlite, _) => panic!("SQLite has no server"),
    }
}

/// Returns the name of a way in the table.
pub(crate) fn name(backend: Backend, way: Way) -> &'static str {
    match (backend, way) {
        (Backend::Postgres, Way::Cache1) => "PostgreSQL nextval, cache 1",
        (Backend::Postgres, Way::Cache1000) => "PostgreSQL nextval, cache 1000",
        (Backend::Postgres, Way::Table) => "sequence table on PostgreSQL",
        (Backend::MariaDb, Way::Cache1) => "MariaDB NEXTVAL, cache 1",
        (Backend::MariaDb, Way::Cache1000) => "MariaDB NEXTVAL, cache 1000",
        (Backend::MariaDb, Way::Table) => "sequence table on MariaDB",
        (Backend::Sqlite, _) => panic!("SQLite has no server"),
    }
}
