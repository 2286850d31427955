//! The database servers that every promise holds on, and which of them a test meets.

use std::{
    cell::Cell,
    fmt,
    hash::{DefaultHasher, Hash, Hasher},
};

use super::{Backend, settings};

/// A server of one version.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Product {
    /// What this machine's package has.
    Postgres15,
    Postgres18,
    MariaDb,
    MySql,
}

impl Product {
    pub const ALL: [Self; 4] = [
        Self::Postgres15,
        Self::Postgres18,
        Self::MariaDb,
        Self::MySql,
    ];

    /// The one that this test meets of the servers of `backend`.
    ///
    /// # Panics
    /// For SQLite, which has none.
    pub fn drawn(backend: Backend) -> Self {
        let drawn = DRAWN.get();
        match backend {
            Backend::Postgres => drawn.postgres,
            Backend::MariaDb => drawn.mariadb,
            Backend::Sqlite => panic!("SQLite has no server"),
        }
    }

    pub fn backend(self) -> Backend {
        match self {
            Self::Postgres15 | Self::Postgres18 => Backend::Postgres,
            Self::MariaDb | Self::MySql => Backend::MariaDb,
        }
    }

    /// As it begins the name of a directory.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Postgres15 => "postgres15",
            Self::Postgres18 => "postgres18",
            Self::MariaDb => "mariadb",
            Self::MySql => "mysql",
        }
    }
}

impl Product {
    /// Where MariaDB and MySQL tell of their sessions. MySQL's other list fails if a statement that
    /// runs in any of them has bytes that are no text.
    pub fn sessions(self) -> &'static str {
        match self {
            Self::MySql => "performance_schema.processlist",
            Self::MariaDb | Self::Postgres15 | Self::Postgres18 => "information_schema.processlist",
        }
    }
}

impl fmt::Display for Product {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Postgres15 => "PostgreSQL 15",
            Self::Postgres18 => "PostgreSQL 18",
            Self::MariaDb => "MariaDB",
            Self::MySql => "MySQL",
        })
    }
}

/// One server of each kind.
#[derive(Clone, Copy)]
pub(super) struct Drawn {
    postgres: Product,
    mariadb: Product,
}

/// What is met outside of tests: the servers of this machine's packages.
const PACKAGED: Drawn = Drawn {
    postgres: Product::Postgres15,
    mariadb: Product::MariaDb,
};

thread_local! {
    static DRAWN: Cell<Drawn> = const { Cell::new(PACKAGED) };
}

impl Drawn {
    /// By the seed of the run and the test's name, which libtest gives its thread.
    pub(super) fn for_this_test() -> Self {
        let thread = std::thread::current();
        let name = thread.name().expect("libtest names the thread of a test");
        let seed = settings::seed();
        let mut hasher = DefaultHasher::new();
        (seed, name).hash(&mut hasher);
        let mut bits = hasher.finish();
        if settings::meets_the_other_servers() {
            bits = !bits;
        }
        let drawn = Self {
            postgres: [Product::Postgres15, Product::Postgres18][usize::from(bits & 1 == 1)],
            mariadb: [Product::MariaDb, Product::MySql][usize::from(bits & 2 == 2)],
        };
        // Shown when the test fails.
        println!(
            "seed {seed}: where this test meets a server, it is {} or {}",
            drawn.postgres, drawn.mariadb
        );
        drawn
    }

    /// What this thread meets from now on.
    pub(super) fn meet(self) {
        DRAWN.set(self);
    }
}
