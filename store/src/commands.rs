//! Runs the commands on every database of every store, one after the other.

use futures_util::future::BoxFuture;
use migration::Migrated;
use odometer_database::{
    failure::StatementFailure,
    file_lock::FileLock,
    fitness::{DatabaseFitness, fitness_of},
    session::DatabaseConnection,
    start_error::StartError,
    target::Target,
};
use sea_orm::DbErr;

use crate::{
    change::{
        disarming::{self, Arming},
        recover::{self, Loss, Recovered},
    },
    fitness, meta_row,
    redis::agreement::{Agreement, check_servers},
    schema,
    settings::{DatabaseSettings, StoresSettings},
    striped::assign_installation,
};

/// Says what it means that replicas do not arm a database, and that they do.
const DISARMED: &str = "disarmed: an earlier program can use it, and failovers are left to you until \
                        `odometer migrate --arm`";
const ARMED: &str = "replicas may arm it, as soon as no earlier program has used it for a minute";

/// The database that a command works on, to show how far the command is.
#[derive(Clone, Copy, Debug)]
pub struct DatabaseStep<'a> {
    /// The number of the database in the order of the configuration, from 1.
    pub number: usize,
    pub n_databases: usize,
    /// The name of the database in sentences.
    pub database: &'a str,
    /// The sequences whose counters are raised so far. Only a recovery counts them.
    pub n_sequences: u64,
}

/// Brings the schemas of all databases up to this program. Then lets replicas arm the databases, or
/// lets them not, if `arming` says so. `tell` gets a line for each database, and `on_step` gets each
/// database before the work on it begins.
///
/// A database that cannot be reached does not keep the others from being migrated.
///
/// # Errors
/// Why some databases could not be migrated.
pub fn migrate<'a>(
    settings: &'a StoresSettings,
    arming: Option<Arming>,
    tell: &'a mut (dyn FnMut(String) + Send),
    on_step: &'a (dyn Fn(DatabaseStep<'_>) + Send + Sync),
) -> BoxFuture<'a, Result<(), StartError>> {
    Box::pin(async move {
        let mut failed = Vec::new();
        let n_databases = settings.all_databases().len();
        let mut number = 0;
        for store in 0..settings.stores.len() {
            let mut begin = |database: &DatabaseSettings| {
                number += 1;
                on_step(DatabaseStep {
                    number,
                    n_databases,
                    database: &database.identity.to_string(),
                    n_sequences: 0,
                });
            };
            let databases = settings.databases(store);
            migrate_store((&databases, arming), &mut failed, tell, &mut begin).await;
        }
        StartError::all(failed)
    })
}

async fn migrate_store(
    (databases, arming): (&[DatabaseSettings], Option<Arming>),
    failed: &mut Vec<StartError>,
    tell: &mut (dyn FnMut(String) + Send),
    begin: &mut (dyn FnMut(&DatabaseSettings) + Send),
) {
    let n_failed = failed.len();
    for database in databases {
        begin(database);
        let mut tell = |sentence: &str| tell(format!("{}: {sentence}", database.identity));
        let done = async {
            let (migrated, is_disarmed) = migrate_one(database).await?;
            tell(&schema::migrated_sentence(migrated));
            let before = is_disarmed.then_some(Arming::Off);
            if let Some(arming) = arming {
                disarming::set(database, arming).await?;
            }
            match arming.or(before) {
                Some(Arming::Off) => tell(DISARMED),
                Some(Arming::Allowed) => tell(ARMED),
                None => {}
            }
            Ok::<(), StartError>(())
        };
        if let Err(error) = Box::pin(done).await {
            failed.push(error.of(&database.identity.label));
        }
    }
    // Which numbers each database has is only known when all databases are there.
    let [first, _, ..] = databases else {
        return;
    };
    if failed.len() > n_failed {
        return;
    }
    match Box::pin(assign_installation::stamp(databases)).await {
        Ok(0) => {}
        Ok(n) => tell(format!(
            "{n} of {} databases of the store `{}` are stamped: from now on their number and \
             their order stay",
            databases.len(),
            first.identity.label.store
        )),
        Err(error) => failed.push(error),
    }
}

/// Brings one database up to this program. Returns also whether it is disarmed.
pub(crate) async fn migrate_one(
    database: &DatabaseSettings,
) -> Result<(Migrated, bool), StartError> {
    let target = Target::parse(&database.url)?;
    let _lock = target.file.as_deref().map(FileLock::take).transpose()?;
    // The future that makes a connection is too large for the stack.
    let migrated = Box::pin(schema::migrate(&target, database.bounds.statement.acquire)).await?;
    let is_disarmed = Box::pin(record_redis(database, &target)).await?;
    Ok((migrated, is_disarmed))
}

/// Records in a database which Redis servers count for it. Returns whether the database is
/// disarmed.
async fn record_redis(database: &DatabaseSettings, target: &Target) -> Result<bool, StartError> {
    let agreement = Agreement::of(&database.redis)?;
    let bounds = &database.bounds;
    let (acquire, longest) = (bounds.statement.acquire, Some(bounds.statement.timeout));
    let record = async |connection: &DatabaseConnection| {
        let refresh = bounds.definition_refresh;
        agreement.record(connection, refresh).await?;
        let meta = meta_row::read(meta_row::plain(), connection).await?;
        // A replica of schema 7 may have armed it all the same.
        Ok::<bool, DbErr>(meta.disarmed && meta.armed_at.is_none())
    };
    let recorded = DatabaseConnection::once(target, acquire, longest, Target::single, record);
    recorded.await?.map_err(|error| {
        let failure = StatementFailure::from(error);
        let cause = failure.cause().text();
        StartError::Other(format!("the database could not be changed: {cause}"))
    })
}

/// Looks at all databases and changes nothing. `tell` gets the lines about what was found.
///
/// # Errors
/// Why numbers could not be issued from some databases.
pub fn check<'a>(
    settings: &'a StoresSettings,
    tell: &'a mut (dyn FnMut(String) + Send),
) -> BoxFuture<'a, Result<(), StartError>> {
    Box::pin(async move {
        let mut failed = Vec::new();
        for database in settings.all_databases() {
            match Box::pin(check_one(&database)).await {
                Ok(found) => found.into_iter().for_each(&mut *tell),
                Err(error) => failed.push(error.of(&database.identity.label)),
            }
        }
        StartError::all(failed)
    })
}

async fn check_one(database: &DatabaseSettings) -> Result<Vec<String>, StartError> {
    let (bounds, identity) = (&database.bounds, &database.identity);
    let agreement = Agreement::of(&database.redis)?;
    let target = Target::parse(&database.url)?;
    let named = if identity.is_only {
        "database".to_owned()
    } else {
        identity.to_string()
    };
    if let Some(file) = target.file.as_deref().filter(|file| !file.exists()) {
        let mut lines = vec![format!(
            "{named}: the SQLite file {} will be created by `odometer serve`",
            file.display()
        )];
        lines.extend(Box::pin(check_servers(database)).await?);
        return Ok(lines);
    }
    let (acquire, longest) = (bounds.statement.acquire, Some(bounds.statement.timeout));
    let look = async |connection: &DatabaseConnection| {
        let verdict = fitness::inspect(
            connection.clone(),
            identity.clone(),
            false,
            bounds.failover.is_lossless,
        )
        .await;
        let verdict = verdict.unwrap_or_else(|error| fitness_of(&error.into()));
        if matches!(verdict, DatabaseFitness::Good { .. })
            && let Ok(Some(problem)) = agreement.problem(connection, identity).await
        {
            return Err(problem);
        }
        Ok(verdict)
    };
    let looked = DatabaseConnection::once(&target, acquire, longest, Target::looking, look).await;
    let verdict = looked.unwrap_or_else(Ok)?;
    match fitness::at_start(verdict, bounds) {
        DatabaseFitness::Good {
            weakness, disorder, ..
        } => {
            let settings = weakness
                .as_ref()
                .map_or(" and settings that last", |_weak| "");
            let mut lines = vec![format!(
                "{named}: reached, with a schema that fits{settings}"
            )];
            let left = database.left_to_operators.iter();
            lines.extend(left.map(|left| format!("{named}: {left}")));
            let disorder = disorder.map(str::to_owned);
            let warnings = target.warnings.into_iter().chain(weakness).chain(disorder);
            lines
                .extend(warnings.map(|text| format!("warning: {}", identity.label.name_in(&text))));
            lines.extend(Box::pin(check_servers(database)).await?);
            Ok(lines)
        }
        verdict @ (DatabaseFitness::Wrong(_)
        | DatabaseFitness::Schema(_)
        | DatabaseFitness::Away(_)) => Err(and_servers(verdict.into(), database).await),
    }
}

/// Adds to a database's error what keeps the Redis servers of the database from being used.
async fn and_servers(error: StartError, database: &DatabaseSettings) -> StartError {
    match Box::pin(check_servers(database)).await {
        Ok(_reached) => error,
        Err(servers) => error.and(servers),
    }
}

/// The name of a store, if there are several, and what its recovery did.
type RecoveredStore = (Option<String>, Result<Recovered, StartError>);

/// Lets every sequence of one store, or of all stores, go on above what may have been lost. Changes
/// nothing if `is_dry_run`.
///
/// Each database has an outcome of its own, next to the name that sentences use for the database.
/// The name is `None` if there is only one database. `on_step` gets each database before the work on
/// it begins, and again after each page of its sequences.
///
/// # Errors
/// There is no such store.
pub fn recover<'a>(
    settings: &'a StoresSettings,
    store: Option<&'a str>,
    loss: Loss,
    is_dry_run: bool,
    on_step: &'a (dyn Fn(DatabaseStep<'_>) + Send + Sync),
) -> BoxFuture<'a, Result<Vec<RecoveredStore>, StartError>> {
    Box::pin(async move {
        if let Some(wanted) = store
            && !settings.stores.iter().any(|store| store.name == wanted)
        {
            return Err(StartError::Configuration(format!(
                "--store: there is no store `{wanted}`; give one of {}",
                settings.names().join(", ")
            )));
        }
        let mut databases = settings.all_databases();
        databases.retain(|database| {
            store.is_none_or(|wanted| wanted == &*database.identity.label.store)
        });
        let mut outcomes = Vec::new();
        for (number, database) in (1..).zip(&databases) {
            let identity = &database.identity;
            let name = identity.to_string();
            let on_page = |n_sequences| {
                on_step(DatabaseStep {
                    number,
                    n_databases: databases.len(),
                    database: &name,
                    n_sequences,
                });
            };
            on_page(0);
            let recovered = recover::recover(database, loss.clone(), is_dry_run, &on_page).await;
            let named = (!identity.is_only).then(|| name.clone());
            outcomes.push((named, recovered.map_err(|error| error.of(&identity.label))));
        }
        Ok(outcomes)
    })
}
