//! Runs one statement within its bounds, and says whether it certainly did not commit.
//!
//! It knows no sequences, no tables, no migrations and no names of metrics.
//!
//! Read first:
//!
//! - [`connection`]: the pool, and how long a statement on it is waited for.
//! - [`failure`]: what a failed statement may have done, and what was behind it.
//! - [`monitor`]: who finds out that the database is away, and that it is back.
//! - [`session`]: what a statement is run by, with a pooler in between as well.
//! - [`target`]: which database a URL means.
//!
//! | Module | Owns |
//! |---|---|
//! | [`backoff`] | the pauses between two attempts |
//! | [`bounds`] | what a server is told of each session |
//! | [`code`] | what the error codes of servers mean |
//! | [`complaint`] | how often the log says the same |
//! | [`database_clock`] | the database's clock, as statements read it |
//! | [`file_lock`] | the locks of a SQLite file |
//! | [`fitness`] | what a look at a database found |
//! | [`label`] | a database as sentences name it |
//! | [`pool`] | connections, and the runtime that they live on |
//! | [`probe`] | one connection, to learn whether and how a server can be reached |
//! | [`reused_pool`] | connections to PostgreSQL that are kept for the next statement |
//! | [`route`] | whether a pooler is in between |
//! | [`settings`] | what statements and connections are bounded by |
//! | [`start_error`] | why a program cannot start |
//! | `stranger` | what listens where no database does |
//! | [`tls`] | TLS as a URL asks for it |

pub mod backoff;
pub mod bounds;
pub mod code;
pub mod complaint;
pub mod connection;
pub mod database_clock;
pub mod failure;
pub mod file_lock;
pub mod fitness;
pub mod label;
pub mod monitor;
pub mod pool;
pub mod probe;
pub mod reused_pool;
pub mod route;
pub mod session;
pub mod settings;
pub mod start_error;
mod stranger;
pub mod target;
pub mod tls;
