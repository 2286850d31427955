//! Stamping: `odometer migrate` says to each database of a store which numbers it has.

use odometer_core::definition::{MAX_STRIPES, Stripe};

use crate::store::{
    connection::{
        session::DatabaseConnection,
        stamp::{self, Misplaced, Stamp},
        startup,
        target::Target,
    },
    error::{Failure, StartError},
    file_lock::FileLock,
    settings::{DatabaseSettings, Place},
};

/// Stamps the databases of one store, in their order, where that is not done; how many it did.
///
/// All have to be there, with a schema: only then is it known that none of them is another
/// store's. Interrupted, it is gone on with by the next run.
///
/// # Errors
/// Why it could not be done, naming the database.
pub(in crate::store) async fn stamp(databases: &[DatabaseSettings]) -> Result<usize, StartError> {
    check_count(databases)?;
    let mut found = Vec::with_capacity(databases.len());
    for settings in databases {
        let place = &settings.place;
        let stamp = Box::pin(on(settings, async |database| stamp::read(database).await));
        found.push((place.clone(), stamp.await?));
    }
    let cluster_id = stamp::agreed(&found)?;
    let mut n_stamped = 0;
    for (settings, (place, stamp)) in databases.iter().zip(&found) {
        if !matches!(
            stamp::misplaced(place, stamp),
            Some(Misplaced::Unstamped(_))
        ) {
            continue;
        }
        let writing = on(settings, async |database| {
            stamp::write(database, place, &cluster_id).await?;
            stamp::read(database).await
        });
        check(place, &Box::pin(writing).await?)?;
        n_stamped += 1;
    }
    Ok(n_stamped)
}

/// That each of them can have numbers of its own.
pub(super) fn check_count(databases: &[DatabaseSettings]) -> Result<(), StartError> {
    let has_own = databases
        .iter()
        .all(|settings| settings.place.stripe != Stripe::WHOLE);
    if has_own {
        return Ok(());
    }
    Err(StartError::Configuration(format!(
        "stores: at most {MAX_STRIPES} databases share a store"
    )))
}

/// That another run was not faster with something else.
fn check(place: &Place, stamp: &Stamp) -> Result<(), StartError> {
    match stamp::misplaced(place, stamp) {
        None => Ok(()),
        Some(Misplaced::Unstamped(reason) | Misplaced::Wrong(reason)) => {
            Err(StartError::Configuration(reason).of(place))
        }
    }
}

/// Runs something on a connection of its own.
async fn on<T>(
    settings: &DatabaseSettings,
    work: impl AsyncFnOnce(&DatabaseConnection) -> Result<T, sea_orm::DbErr>,
) -> Result<T, StartError> {
    let outcome = on_target(settings, work).await;
    outcome.map_err(|error| error.of(&settings.place))
}

async fn on_target<T>(
    settings: &DatabaseSettings,
    work: impl AsyncFnOnce(&DatabaseConnection) -> Result<T, sea_orm::DbErr>,
) -> Result<T, StartError> {
    let target = Target::parse(&settings.url)?;
    let _lock = target.file.as_deref().map(FileLock::take).transpose()?;
    let (acquire, longest) = (settings.bounds.acquire, Some(settings.bounds.timeout));
    let reached = DatabaseConnection::reach(&target, acquire, longest, |it| it.single(acquire));
    let database = Box::pin(reached).await.map_err(StartError::from)?;
    let outcome = work(&database).await;
    // Nothing was left on the connection that closing could lose.
    let _closed = database.close().await;
    outcome.map_err(|error| startup::verdict_of(&Failure::from(error)).into())
}
