//! Stamps databases: `odometer migrate` writes into each member of a store which numbers it has.

use odometer_core::definition::{MAX_STRIPES, Stripe};
use odometer_database::{
    failure::StatementFailure,
    file_lock::FileLock,
    fitness::{DatabaseFitness, fitness_of},
    session::DatabaseConnection,
    start_error::StartError,
    target::Target,
};

use crate::{
    identity::DatabaseIdentity,
    installation_id::{self, InstallationId},
    settings::DatabaseSettings,
};

/// Stamps the members of one store that are not stamped yet, in their order. Returns how many it
/// stamped.
///
/// All members must be there, with a schema. Only then is it known that none of them belongs to
/// another store. If it is interrupted, the next run continues.
///
/// # Errors
/// Why it could not be done, with the name of the database.
pub(crate) async fn stamp(databases: &[DatabaseSettings]) -> Result<usize, StartError> {
    check_count(databases)?;
    let mut found = Vec::with_capacity(databases.len());
    for settings in databases {
        let identity = &settings.identity;
        let stamp = Box::pin(on(settings, async |database| {
            installation_id::read(database).await
        }));
        found.push((identity.clone(), stamp.await?));
    }
    let cluster_id = installation_id::agreed(&found)?;
    let mut n_stamped = 0;
    for (settings, (identity, stamp)) in databases.iter().zip(&found) {
        if !matches!(
            installation_id::misplaced(identity, stamp),
            Some(DatabaseFitness::Schema(_))
        ) {
            continue;
        }
        let writing = on(settings, async |database| {
            installation_id::write(database, identity, &cluster_id).await?;
            installation_id::read(database).await
        });
        check(identity, &Box::pin(writing).await?)?;
        n_stamped += 1;
    }
    Ok(n_stamped)
}

/// Checks that each member can have numbers of its own.
pub(crate) fn check_count(databases: &[DatabaseSettings]) -> Result<(), StartError> {
    let has_own = databases
        .iter()
        .all(|settings| settings.identity.stripe != Stripe::WHOLE);
    if has_own {
        return Ok(());
    }
    Err(StartError::Configuration(format!(
        "stores: at most {MAX_STRIPES} databases share a store"
    )))
}

/// Checks that no other run has written another stamp meanwhile.
fn check(identity: &DatabaseIdentity, stamp: &InstallationId) -> Result<(), StartError> {
    match installation_id::misplaced(identity, stamp) {
        None => Ok(()),
        Some(unfit) => Err(StartError::from(unfit).of(&identity.label)),
    }
}

/// Runs `work` on a connection of its own.
async fn on<T>(
    settings: &DatabaseSettings,
    work: impl AsyncFnOnce(&DatabaseConnection) -> Result<T, sea_orm::DbErr>,
) -> Result<T, StartError> {
    let working = async {
        let target = Target::parse(&settings.url)?;
        let _lock = target.file.as_deref().map(FileLock::take).transpose()?;
        let bounds = &settings.bounds.statement;
        let (acquire, longest) = (bounds.acquire, Some(bounds.timeout));
        let done = DatabaseConnection::once(&target, acquire, longest, Target::single, work);
        let done = done.await?.map_err(StatementFailure::from);
        done.map_err(|failure| StartError::from(fitness_of(&failure)))
    };
    working
        .await
        .map_err(|error| error.of(&settings.identity.label))
}
