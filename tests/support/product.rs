//! The database servers on which every guarantee holds, and the draw of the servers of a test.

use std::{
    cell::Cell,
    fmt,
    hash::{DefaultHasher, Hash, Hasher},
};

use super::{Backend, settings};

/// A server of one version.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Product {
    /// The PostgreSQL of this machine's package.
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

    /// Returns the server of `backend` that this test drew.
    ///
    /// # Panics
    /// If the backend is SQLite, which has no server.
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

    /// Returns the start of the name of the server's directory.
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
    /// Returns the table in which MariaDB or MySQL lists its sessions. MySQL's other list fails if
    /// a running statement of any session has bytes that are not text.
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

/// The servers that are used outside of tests: those of this machine's packages.
const PACKAGED: Drawn = Drawn {
    postgres: Product::Postgres15,
    mariadb: Product::MariaDb,
};

thread_local! {
    static DRAWN: Cell<Drawn> = const { Cell::new(PACKAGED) };
}

impl Drawn {
    /// Draws by the seed of the run and the name of the test, which libtest gives to the test's
    /// thread.
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
        // libtest shows this line if the test fails.
        println!(
            "seed {seed}: where this test meets a server, it is {} or {}",
            drawn.postgres, drawn.mariadb
        );
        drawn
    }

    /// Makes this thread use these servers from now on.
    pub(super) fn meet(self) {
        DRAWN.set(self);
    }
}
