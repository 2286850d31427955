//! Lets one command change sequences in all stores.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use futures_util::future::join_all;
use odometer_core::{
    definition::{DefinitionError, Order},
    duration::exact,
};
use odometer_database::start_error::StartError;
use odometer_process::{clock::now_ms, metrics::Metrics};

use super::{
    direct::{DirectStore, NamePlacement},
    request::{Act, ChangeRequest},
};
use crate::{StoresSettings, error::StoreError, outcome::Altered, stores::Stores};

/// Bounds how long the command waits at its end for its connections to close.
const CLOSING: Duration = Duration::from_secs(5);

/// The stores, as a command has access to them.
pub enum CommandStores {
    /// A connection to the only database, if there is one database and no Redis.
    One(Box<DirectStore>),
    /// All stores as a server has them, because a change may have to be made in several databases.
    All(Arc<Stores>),
    /// A connection to the first database of each store, for a dry run on several databases. It
    /// locks and creates nothing.
    Looking(Vec<LookingStore>),
}

/// A store that a dry run reads.
pub struct LookingStore {
    name: Arc<str>,
    is_striped: bool,
    database: DirectStore,
}

impl CommandStores {
    /// Opens all stores.
    ///
    /// From then on this process holds the locks of the SQLite files, and creates those that do not
    /// exist. A dry run locks and creates nothing.
    ///
    /// # Errors
    /// A store cannot be reached, or is not fit to be changed.
    pub fn open(
        mut settings: StoresSettings,
        is_dry_run: bool,
    ) -> BoxFuture<'static, Result<Self, StartError>> {
        Box::pin(async move {
            let only = settings.all_databases();
            let has_redis = settings.stores.iter().any(|store| !store.redis.is_empty());
            if only.len() == 1
                && !has_redis
                && let Some(only) = only.into_iter().next()
            {
                let identity = only.identity.clone();
                let direct = Box::pin(DirectStore::open(only, is_dry_run)).await;
                let direct = direct.map_err(|error| error.of(&identity.label))?;
                return Ok(Self::One(Box::new(direct)));
            }
            if is_dry_run {
                return Self::look(&settings).await;
            }
            // A schema that does not fit is neither migrated nor waited for: `fatal` reports it at
            // once.
            settings.bounds.migrate = false;
            settings.bounds.statement.schema_wait = Duration::ZERO;
            let time_limit = settings.bounds.statement.acquire + settings.bounds.statement.timeout;
            let names: Vec<String> = settings.names().into_iter().map(str::to_owned).collect();
            let connecting = Stores::connect(settings, Arc::new(Metrics::new()));
            let stores = Box::pin(connecting).await?;
            let reached = join_all(stores.all().map(|store| {
                // Each store has a time limit of its own, so the error can name the store that is away.
                tokio::time::timeout(time_limit, store.reached())
            }));
            let reached = tokio::select! {
                reached = reached => reached,
                error = stores.fatal() => return Err(error),
            };
            let mut away = names
                .iter()
                .zip(&reached)
                .filter(|(_, reached)| reached.is_err());
            if let Some((name, _)) = away.next() {
                return Err(StartError::Other(format!(
                    "the store `{name}` could not be used within {}; nothing was changed",
                    exact(time_limit)
                )));
            }
            drop(reached);
            Ok(Self::All(stores))
        })
    }

    /// Changes a sequence.
    ///
    /// `n_created` sequences count as created already, besides those that exist. A dry run of
    /// several changes needs this, because it creates none of them.
    ///
    /// # Errors
    /// The outer error says that a database failed and nothing was changed. The inner error says
    /// why this change was not made, or that it may have been made.
    pub fn alter(
        &self,
        change: ChangeRequest,
        n_created: u64,
    ) -> BoxFuture<'_, Result<Result<Altered, StoreError>, StartError>> {
        Box::pin(async move {
            match self {
                Self::One(database) => database.alter(Arc::new(change), n_created).await,
                Self::All(stores) => Ok(stores.alter(change).await),
                Self::Looking(stores) => look_at(stores, change, n_created).await,
            }
        })
    }

    /// Closes the connections. SQLite files are free afterwards.
    pub fn close(self) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            match self {
                Self::One(database) => database.close().await,
                Self::All(stores) => stores.close(CLOSING).await,
                Self::Looking(stores) => {
                    for store in stores {
                        store.database.close().await;
                    }
                }
            }
        })
    }

    async fn look(settings: &StoresSettings) -> Result<Self, StartError> {
        let mut stores = Vec::new();
        for (index, store) in settings.stores.iter().enumerate() {
            let Some(first) = settings.databases(index).into_iter().next() else {
                continue;
            };
            let identity = first.identity.clone();
            let database = Box::pin(DirectStore::open(first, true)).await;
            stores.push(LookingStore {
                name: Arc::clone(&identity.label.store),
                is_striped: store.databases.len() > 1,
                database: database.map_err(|error| error.of(&identity.label))?,
            });
        }
        Ok(Self::Looking(stores))
    }
}

/// Returns what an act would do in the store where the name lives, or else where it would be
/// created.
async fn look_at(
    stores: &[LookingStore],
    mut change: ChangeRequest,
    n_created: u64,
) -> Result<Result<Altered, StoreError>, StartError> {
    let wanted = match &change.act {
        Act::Define {
            change, template, ..
        } => change.create_at(template, now_ms()),
        Act::Advance { .. } | Act::Retire | Act::Restore | Act::RemovePeriod { .. } => {
            return Ok(Err(StoreError::NotFound));
        }
    };
    let mut placement = None;
    for store in stores {
        match store.database.has(&change.name).await? {
            Some(NamePlacement::Here) => {
                placement = Some(store);
                break;
            }
            Some(NamePlacement::Of(claimed)) => {
                placement = stores.iter().find(|store| *store.name == *claimed);
                break;
            }
            None => {}
        }
    }
    if placement.is_none()
        && let Ok(definition) = &wanted
    {
        placement = stores.iter().find(|store| *store.name == *definition.store);
        let Some(store) = placement else {
            let reason = "must be a store of the configuration".to_owned();
            let field = "store";
            return Ok(Err(StoreError::Definition(DefinitionError::Invalid {
                field,
                reason,
            })));
        };
        if store.is_striped && definition.order == Order::Strict {
            let reason = "must be \"relaxed\" in a store whose databases share each sequence";
            return Ok(Err(StoreError::Definition(DefinitionError::Invalid {
                field: "order",
                reason: reason.to_owned(),
            })));
        }
    }
    let Some(placement) = placement.or_else(|| stores.first()) else {
        return Ok(Err(StoreError::NotFound));
    };
    if let Act::Define { template, .. } = &mut change.act
        && *template.store != *placement.name
    {
        // A definition that names no store does not move the sequence to another one.
        Arc::make_mut(template).store = placement.name.to_string();
    }
    placement.database.alter(Arc::new(change), n_created).await
}
