//! Starts what the rows of a run need, when a row needs it.

use odometer_tests::{Backend, Options, Program, Server, TestDatabase, ports, settings};

use crate::{
    cores::{Cores, Side},
    process::Process,
};

/// What the rows of a run need. Measured servers run on one core (see [`Cores`]).
pub(crate) struct Stage {
    pub(crate) cores: Cores,
    /// The rows of a table of a study, if `--size` was given.
    pub(crate) n_rows: Option<u64>,
}

/// A running Odometer and its databases.
pub(crate) struct Odometer {
    pub(crate) program: Program,
    /// Keeps the databases, such as a SQLite file, until the end.
    _databases: Vec<TestDatabase>,
}

impl Stage {
    pub(crate) fn new(n_rows: Option<u64>) -> Self {
        Self {
            cores: Cores::of_this_machine(),
            n_rows,
        }
    }

    /// Starts the shipped program with its defaults, but without a speed limit, on an empty database
    /// of `backend`.
    pub(crate) async fn odometer(&self, backend: Backend) -> Odometer {
        self.odometer_with(backend, Side::Server, Program::options())
            .await
    }

    /// Starts the program with `options`, on an empty database of `backend`.
    pub(crate) async fn odometer_with(
        &self,
        backend: Backend,
        side: Side,
        options: Options,
    ) -> Odometer {
        let database = TestDatabase::prepared(backend).await;
        self.odometer_in(database, side, options).await
    }

    /// Starts the shipped program with its defaults, but without a speed limit, on an empty database
    /// of `server`.
    pub(crate) async fn odometer_on(&self, server: &Server) -> Odometer {
        let database = TestDatabase::prepared_on(server).await;
        self.odometer_in(database, Side::Server, Program::options())
            .await
    }

    async fn odometer_in(&self, database: TestDatabase, side: Side, options: Options) -> Odometer {
        let options = options.database(&database.url);
        self.odometer_started(vec![database], side, options).await
    }

    /// Starts the program with `options`, which name its databases.
    pub(crate) async fn odometer_started(
        &self,
        databases: Vec<TestDatabase>,
        side: Side,
        options: Options,
    ) -> Odometer {
        // One core gives more than the default limit allows.
        let options = options.without_speed_limit();
        let program = self.cores.start(side, options.start_ready()).await;
        Odometer {
            program,
            _databases: databases,
        }
    }

    /// Starts a server of the same actix-web that answers a constant body, with `n_workers`
    /// workers.
    pub(crate) async fn constant(&self, side: Side, n_workers: usize) -> Process {
        let port = ports::free();
        let built = settings::repository().join("target/release/examples/constant");
        assert!(
            built.is_file(),
            "{} is missing: bench/run builds it",
            built.display()
        );
        let mut command = std::process::Command::new(built);
        command
            .arg(format!("127.0.0.1:{port}"))
            .arg(n_workers.to_string());
        Process::start(&self.cores, side, &mut command, port).await
    }

    /// Starts a database server. Its processes run on the measured core.
    pub(crate) async fn server(&self, backend: Backend) -> Server {
        self.cores.start(Side::Server, Server::start(backend)).await
    }
}
