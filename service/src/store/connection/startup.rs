//! What is checked of a database before anything is issued from it.

use migration::{Installed, OLDEST_SCHEMA, SCHEMA_VERSION};
use sea_orm::{ConnectionTrait, DbBackend, DbErr, Statement};

use crate::store::{
    connection::session::DatabaseConnection,
    connection::stamp::{self, Misplaced},
    error::{Cause, Failure},
    settings::Place,
};

/// What a first look at a database found.
#[derive(Debug)]
pub(in crate::store) enum Verdict {
    /// It can be used; each warning is a sentence for the operator.
    Good { warnings: Vec<String> },
    /// It cannot be used yet, and may become usable by itself: a standby, a read-only server.
    Away(String),
    /// Its schema does not fit this binary yet.
    Schema(String),
    /// It will not become usable by waiting.
    Wrong(String),
}

/// Looks at schema, stamp, durability and tables; changes nothing.
pub(in crate::store) async fn inspect(
    database: DatabaseConnection,
    place: Place,
) -> Result<Verdict, DbErr> {
    if let Some(reason) = refuses_writes(&database).await? {
        return Ok(Verdict::Away(reason));
    }
    if lacks_rights(&database).await? {
        return Ok(Verdict::Wrong(MAY_NOT_USE.to_owned()));
    }
    if let Some(reason) = unfit_schema(Installed::read(&database).await?) {
        return Ok(Verdict::Schema(reason));
    }
    match stamp::misplaced(&place, &stamp::read(&database).await?) {
        Some(Misplaced::Unstamped(reason)) => return Ok(Verdict::Schema(reason)),
        Some(Misplaced::Wrong(reason)) => return Ok(Verdict::Wrong(reason)),
        None => {}
    }
    if let Some(reason) = unfit_tables(&database).await? {
        return Ok(Verdict::Wrong(reason));
    }
    Ok(Verdict::Good {
        warnings: weak_durability(&database).await?,
    })
}

/// Whether all that a database lacks is its stamp.
pub(in crate::store) async fn is_to_be_stamped(
    database: &DatabaseConnection,
    place: &Place,
) -> Result<bool, DbErr> {
    if unfit_schema(Installed::read(database).await?).is_some() {
        return Ok(false);
    }
    let stamp = stamp::read(database).await?;
    let misplaced = stamp::misplaced(place, &stamp);
    Ok(matches!(misplaced, Some(Misplaced::Unstamped(_))))
}

/// What a failure to reach the database means for the start.
pub(in crate::store) fn verdict_of(failure: &Failure) -> Verdict {
    let text = failure.cause().text();
    if matches!(failure.cause(), Cause::Refused(_)) {
        Verdict::Wrong(format!("ODOMETER_DATABASE_URL: {text}"))
    } else if matches!(failure.cause(), Cause::Denied(_)) {
        Verdict::Wrong(format!("{MAY_NOT_USE} ({text})"))
    } else {
        Verdict::Away(format!("the database cannot be reached: {text}"))
    }
}

/// What a failure to change the schema means.
pub(in crate::store) fn verdict_of_migration(failure: &Failure) -> Verdict {
    if matches!(failure.cause(), Cause::Denied(_)) {
        return Verdict::Wrong(format!(
            "ODOMETER_DATABASE_URL: this user may not create or change tables ({}): give \
             `odometer migrate` the URL of one that may",
            failure.cause().text()
        ));
    }
    verdict_of(failure)
}

/// Of a user that lacks rights on the tables.
const MAY_NOT_USE: &str = "ODOMETER_DATABASE_URL: this user may not read or write the tables of \
                           Odometer: grant it SELECT, INSERT, UPDATE and DELETE on all of them";

pub(in crate::store) fn unfit_schema(installed: Option<Installed>) -> Option<String> {
    let Some(installed) = installed else {
        return Some(
            "the database has no schema of Odometer: run `odometer migrate`, or `odometer serve --migrate`"
                .to_owned(),
        );
    };
    if installed.schema_version < OLDEST_SCHEMA {
        return Some(format!(
            "the schema is at version {}, too old for this program, which needs {OLDEST_SCHEMA}: \
             run `odometer migrate`",
            installed.schema_version
        ));
    }
    if installed.compatible_from > SCHEMA_VERSION {
        return Some(format!(
            "the schema is at version {} and works with programs from schema version {} on; \
             this program knows {SCHEMA_VERSION}: start a newer Odometer",
            installed.schema_version, installed.compatible_from
        ));
    }
    None
}

async fn refuses_writes(database: &DatabaseConnection) -> Result<Option<String>, DbErr> {
    Ok(match database.get_database_backend() {
        DbBackend::Postgres => {
            let sql = "SELECT pg_is_in_recovery() AS recovery, \
                       current_setting('transaction_read_only') = 'on' AS read_only";
            if flag(database, sql, "recovery").await? {
                Some("the database is a standby in recovery".to_owned())
            } else if flag(database, sql, "read_only").await? {
                Some("the database is read-only (default_transaction_read_only)".to_owned())
            } else {
                None
            }
        }
        DbBackend::MySql => {
            let sql = "SELECT @@global.read_only NOT IN ('0', 'OFF') AS read_only, @@autocommit <> 1 AS manual";
            if flag(database, sql, "read_only").await? {
                Some("the database server is read-only (read_only=ON)".to_owned())
            } else if flag(database, sql, "manual").await? {
                Some("the database server switches autocommit off (init_connect)".to_owned())
            } else {
                None
            }
        }
        DbBackend::Sqlite | _ => None,
    })
}

/// Whether there are tables that this user may not use; MySQL hides such tables, and says so later.
async fn lacks_rights(database: &DatabaseConnection) -> Result<bool, DbErr> {
    const SQL: &str = "SELECT count(*) AS n FROM pg_class WHERE relkind = 'r' \
         AND relname IN ('meta', 'sequence', 'counter', 'block', 'replica', 'worker_lease') \
         AND pg_table_is_visible(oid) AND NOT (has_table_privilege(oid, 'SELECT') \
         AND has_table_privilege(oid, 'INSERT') AND has_table_privilege(oid, 'UPDATE') \
         AND has_table_privilege(oid, 'DELETE'))";
    Ok(database.get_database_backend() == DbBackend::Postgres && number(database, SQL).await? != 0)
}

/// Tables that would forget their rows in a crash, or that lost their primary keys.
async fn unfit_tables(database: &DatabaseConnection) -> Result<Option<String>, DbErr> {
    const TABLES: &str = "('meta', 'sequence', 'counter', 'block', 'worker_lease')";
    let (forgetful, keyed) = match database.get_database_backend() {
        DbBackend::Postgres => (
            format!(
                "SELECT count(*) AS n FROM pg_class WHERE relname IN {TABLES} \
                 AND relkind = 'r' AND relpersistence <> 'p' AND pg_table_is_visible(oid)"
            ),
            format!(
                "SELECT count(*) AS n FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid \
                 WHERE k.contype = 'p' AND c.relname IN {TABLES} AND pg_table_is_visible(c.oid)"
            ),
        ),
        DbBackend::MySql => (
            format!(
                "SELECT count(*) AS n FROM information_schema.tables \
                 WHERE table_schema = DATABASE() AND table_name IN {TABLES} AND engine <> 'InnoDB'"
            ),
            format!(
                "SELECT count(*) AS n FROM information_schema.table_constraints \
                 WHERE table_schema = DATABASE() AND table_name IN {TABLES} \
                 AND constraint_type = 'PRIMARY KEY'"
            ),
        ),
        DbBackend::Sqlite | _ => return Ok(None),
    };
    if number(database, &forgetful).await? != 0 {
        return Ok(Some(
            "a table of Odometer is not crash-safe: make it logged (PostgreSQL) or InnoDB (MySQL)"
                .to_owned(),
        ));
    }
    if number(database, &keyed).await? != 5 {
        return Ok(Some(
            "a table of Odometer has lost its primary key: restore it before numbers are issued"
                .to_owned(),
        ));
    }
    Ok(None)
}

/// Settings under which a crash of the server can forget what it has committed.
async fn weak_durability(database: &DatabaseConnection) -> Result<Vec<String>, DbErr> {
    let checks: &[(&str, &str)] = match database.get_database_backend() {
        DbBackend::Postgres => &[
            (
                "SELECT current_setting('synchronous_commit') = 'off' AS weak",
                "synchronous_commit is off",
            ),
            (
                "SELECT current_setting('fsync') = 'off' AS weak",
                "fsync is off",
            ),
            (
                "SELECT current_setting('full_page_writes') = 'off' AS weak",
                "full_page_writes is off",
            ),
        ],
        DbBackend::MySql => &[(
            "SELECT @@innodb_flush_log_at_trx_commit <> 1 AS weak",
            "innodb_flush_log_at_trx_commit is not 1",
        )],
        DbBackend::Sqlite | _ => &[],
    };
    let mut warnings = Vec::new();
    for (sql, what) in checks {
        if flag(database, sql, "weak").await? {
            warnings.push(format!(
                "{what}: after a crash of the database server numbers can be issued twice"
            ));
        }
    }
    Ok(warnings)
}

async fn flag(database: &DatabaseConnection, sql: &str, column: &str) -> Result<bool, DbErr> {
    let statement = Statement::from_string(database.get_database_backend(), sql);
    let Some(row) = database.query_one_raw(statement).await? else {
        return Ok(false);
    };
    // MySQL has no booleans: a comparison is an integer there.
    if database.get_database_backend() == DbBackend::MySql {
        Ok(row.try_get::<i64>("", column)? != 0)
    } else {
        row.try_get("", column)
    }
}

async fn number(database: &DatabaseConnection, sql: &str) -> Result<i64, DbErr> {
    let statement = Statement::from_string(database.get_database_backend(), sql);
    match database.query_one_raw(statement).await? {
        Some(row) => row.try_get("", "n"),
        None => Ok(0),
    }
}
