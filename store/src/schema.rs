//! Checks whether the schema fits this program, and brings it up to date.

use std::time::Duration;

use migration::{Installed, Migrated, OLDEST_SCHEMA, SCHEMA_VERSION};
use odometer_database::{
    failure::{Cause, StatementFailure},
    fitness::{DatabaseFitness, fitness_of},
    probe, session,
    start_error::StartError,
    target::Target,
};
use odometer_process::faults::{self, Fault};
use sea_orm::{Database, DatabaseConnection, DbErr};

/// Brings the schema of `target` up to this program, on a connection of its own.
pub(crate) async fn migrate(target: &Target, acquire: Duration) -> Result<Migrated, StartError> {
    let reached = probe::reach(target, acquire).await;
    reached.map_err(|failure| fitness_of(&failure))?;
    // On PostgreSQL, migrations run in one transaction, which a pooler leaves on one connection. So
    // their statements may be prepared there.
    let options = target.single(acquire, target.route.is_pooled());
    let database = Box::pin(Database::connect(options))
        .await
        .map_err(|error| fitness_of(&error.into()))?;
    let outcome = migrate_on(&database).await;
    // Closing loses nothing: no work is left on the connection.
    let _closed = database.close().await;
    let migrated = outcome.map_err(|error| fitness_of_migration(&error.into()))?;
    match unfit_schema(migrated.after) {
        // A newer version was here, and left a schema that this program cannot work with.
        Some(reason) => Err(StartError::Configuration(reason)),
        None => Ok(migrated),
    }
}

/// Makes the schema in an empty database in memory, which has only this connection.
pub(crate) async fn create(database: session::DatabaseConnection) -> Result<(), DbErr> {
    let session::DatabaseConnection::Prepared(made) = database else {
        return Err(DbErr::Custom(
            "only SQLite has databases in memory".to_owned(),
        ));
    };
    migrate_on(&made).await.map(|_migrated| ())
}

async fn migrate_on(database: &DatabaseConnection) -> Result<Migrated, DbErr> {
    #[cfg(feature = "sabotage")]
    if faults::is(Fault::NextSchema) {
        return migration::run_next(database).await;
    }
    migration::run(database).await
}

/// Returns what a failure to change the schema means for the database.
fn fitness_of_migration(failure: &StatementFailure) -> DatabaseFitness {
    if matches!(failure.cause(), Cause::Denied(_)) {
        return DatabaseFitness::Wrong(format!(
            "ODOMETER_DATABASE_URL: this user may not create or change tables ({}): give \
             `odometer migrate` the URL of one that may",
            failure.cause().text()
        ));
    }
    fitness_of(failure)
}

/// Says in a sentence from which version to which version a migration brought the schema.
pub(crate) fn migrated_sentence(migrated: Migrated) -> String {
    let version = |installed: Option<Installed>| installed.map(|it| it.schema_version);
    match (version(migrated.before), version(migrated.after)) {
        (None, Some(after)) => format!("the schema was created, at version {after}"),
        (Some(before), Some(after)) if before != after => {
            format!("the schema was brought from version {before} to version {after}")
        }
        (_, Some(after)) => format!("the schema is at version {after} already: nothing to do"),
        (_, None) => "there is no schema".to_owned(),
    }
}

pub(crate) fn unfit_schema(installed: Option<Installed>) -> Option<String> {
    let Some(installed) = installed else {
        return Some(
            "the database has no schema of Odometer: run `odometer migrate`, or `odometer serve --migrate`"
                .to_owned(),
        );
    };
    if faults::is(Fault::AnySchema) {
        return None;
    }
    if installed.schema_version < OLDEST_SCHEMA {
        return Some(format!(
            "the schema is at version {}, too old for this program, which needs {OLDEST_SCHEMA}: \
             run `odometer migrate`",
            installed.schema_version
        ));
    }
    let is_exact = faults::is(Fault::ExactSchema);
    if installed.compatible_from > SCHEMA_VERSION
        || (is_exact && installed.schema_version > SCHEMA_VERSION)
    {
        return Some(format!(
            "the schema is at version {} and works with programs from schema version {} on; \
             this program knows {SCHEMA_VERSION}: start a newer Odometer",
            installed.schema_version, installed.compatible_from
        ));
    }
    None
}
