//! A backup of a test's database with the server's own tools, and its restore.

use std::{
    io::Write,
    path::PathBuf,
    process::{Command, Stdio},
};

use super::{Backend, Product, Server, TestDatabase, mariadb, mysql, postgres};

/// How often a restore is tried.
const RESTORES: u32 = 50;

/// The output of a backup.
pub struct Dump {
    form: DumpForm,
    output: Vec<u8>,
}

/// How a backup is made, and how it is restored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DumpForm {
    /// SQL that was read in one transaction. On PostgreSQL one transaction restores it, and else it
    /// restores one table after the other.
    Plain,
    /// PostgreSQL's own form, which `pg_restore --clean` restores in one transaction.
    Custom,
    /// SQL that MariaDB or MySQL reads while it locks all tables. It restores one table after the
    /// other.
    Locked,
    /// The plain form in a new database, which then takes the place of the old one at once.
    Elsewhere,
}

impl TestDatabase {
    /// Makes a backup as the runbook does, while the program goes on.
    pub fn dump(&self) -> Dump {
        self.dump_in(DumpForm::Plain)
    }

    /// Makes a backup in a form, while the program goes on.
    pub fn dump_in(&self, form: DumpForm) -> Dump {
        let mut command = match self.backend {
            Backend::Postgres => {
                let mut command = postgres::program(self.server(), "pg_dump");
                if form == DumpForm::Custom {
                    command.arg("--format=custom");
                } else {
                    command.args(["--clean", "--if-exists"]);
                }
                command
                    .arg("--no-owner")
                    .arg(format!("--dbname={}", self.url));
                command
            }
            Backend::MariaDb => {
                let mut command = self.client("dump");
                if self.server() == Product::MySql {
                    // With these options the rights of the program's account are enough.
                    command.args(["--set-gtid-purged=OFF", "--no-tablespaces"]);
                }
                if form != DumpForm::Locked {
                    command.arg("--single-transaction");
                }
                command.arg(self.name());
                command
            }
            Backend::Sqlite => panic!("SQLite is backed up by copying its file"),
        };
        let output = command
            .stdin(Stdio::null())
            .output()
            .unwrap_or_else(|error| panic!("{command:?} does not start: {error}"));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command:?}: {said}");
        assert!(!output.stdout.is_empty(), "{command:?} wrote nothing");
        Dump {
            form,
            output: output.stdout,
        }
    }

    /// Replaces the present state by an earlier one, as the form of the backup says. The database
    /// is one of `server`.
    pub async fn restore_on(&self, server: &Server, dump: &Dump) {
        if dump.form != DumpForm::Elsewhere {
            return self.restore(dump);
        }
        let new = Self::empty_on(server).await;
        new.restore(dump);
        let (old, new, away) = (self.name(), new.name(), format!("{}_away", self.name()));
        if self.backend == Backend::Postgres {
            // A database that is in use cannot be renamed.
            for statement in [
                format!("ALTER DATABASE {old} WITH ALLOW_CONNECTIONS false"),
                format!(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{old}'"
                ),
                format!("ALTER DATABASE {old} RENAME TO {away}"),
                format!("ALTER DATABASE {new} RENAME TO {old}"),
            ] {
                server.administrate(&statement).await;
            }
            return;
        }
        let tables = format!(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = '{new}'"
        );
        let tables = self.query(&tables).await.into_iter().map(|row| {
            let table: String = row.try_get_by_index(0).expect("a text");
            format!("{old}.{table} TO {away}.{table}, {new}.{table} TO {old}.{table}")
        });
        let renames = tables.collect::<Vec<_>>().join(", ");
        server
            .administrate(&format!("CREATE DATABASE {away}"))
            .await;
        server
            .administrate(&format!("RENAME TABLE {renames}"))
            .await;
    }

    /// Replaces the tables of this database by those of a backup, while the program goes on.
    pub fn restore(&self, dump: &Dump) {
        let mut n_tried = 0;
        while let Err(said) = self.try_restore(dump) {
            // Live replicas take the same locks, so the restore may meet a deadlock. Then nothing
            // was restored, and the restore is tried again.
            n_tried += 1;
            let is_in_the_way = said.contains("deadlock detected");
            assert!(is_in_the_way && n_tried < RESTORES, "not restored: {said}");
        }
    }

    fn try_restore(&self, dump: &Dump) -> Result<(), String> {
        let mut command = match self.backend {
            Backend::Postgres if dump.form == DumpForm::Custom => {
                let mut command = postgres::program(self.server(), "pg_restore");
                command
                    .args([
                        "--clean",
                        "--if-exists",
                        "--no-owner",
                        "--single-transaction",
                    ])
                    .arg(format!("--dbname={}", self.url));
                command
            }
            Backend::Postgres => {
                let mut command = postgres::program(self.server(), "psql");
                command
                    .args(["--single-transaction", "--quiet", "-v", "ON_ERROR_STOP=1"])
                    .arg(format!("--dbname={}", self.url));
                command
            }
            Backend::MariaDb => {
                let mut command = self.client("");
                command.arg(self.name());
                command
            }
            Backend::Sqlite => panic!("SQLite is restored by copying its file"),
        };
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?} does not start: {error}"));
        let mut input = process.stdin.take().expect("standard input is piped");
        // A tool that fails stops to read its input. In this case its error message counts.
        let _broken = input.write_all(&dump.output);
        drop(input);
        let output = process.wait_with_output().expect("it can be waited for");
        if output.status.success() {
            Ok(())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }

    /// Returns the server that this database is on.
    ///
    /// # Panics
    /// If this is SQLite, which has no server.
    pub fn server(&self) -> Product {
        self.product.expect("SQLite has no server")
    }

    /// Returns the folder with the tools of this database's server. Returns `None` for SQLite, and
    /// if the tools are among the usual programs of the machine.
    pub fn tools(&self) -> Option<PathBuf> {
        match self.product? {
            Product::MariaDb => None,
            Product::MySql => Some(mysql::tools()),
            product @ (Product::Postgres15 | Product::Postgres18) => Some(postgres::tools(product)),
        }
    }

    /// Returns the command of MariaDB's or MySQL's client, or of its `dump` tool. The command has
    /// the server and the account of this database.
    fn client(&self, tool: &str) -> Command {
        let parts = || -> Option<(&str, &str, &str)> {
            let (_, rest) = self.url.split_once("://")?;
            let (account, rest) = rest.split_once('@')?;
            let (user, password) = account.split_once(':')?;
            let (_, port) = rest.split_once('/')?.0.split_once(':')?;
            Some((user, password, port))
        };
        let (user, password, port) = parts().expect("the URL that the test made");
        let mut command = match (self.server(), tool) {
            (Product::MySql, "dump") => mysql::program("usr/bin/mysqldump"),
            (Product::MySql, _) => mysql::program("usr/bin/mysql"),
            (_, "dump") => mariadb::program("mariadb-dump"),
            (_, _) => mariadb::program("mariadb"),
        };
        command
            .args(["--no-defaults", "--host=127.0.0.1"])
            .arg(format!("--port={port}"))
            .arg(format!("--user={user}"))
            .env("MYSQL_PWD", password);
        command
    }

    /// Returns the name of this database on its server.
    pub fn name(&self) -> &str {
        self.url.rsplit('/').next().unwrap_or_default()
    }
}
