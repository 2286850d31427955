//! The stores as one command changes them.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use odometer_core::{
    definition::{DefinitionError, Order},
    duration::exact,
    name::SequenceName,
};
use odometer_database::start_error::StartError;
use odometer_process::{clock::now_ms, metrics::Metrics};

use super::{
    act::Act,
    direct::{DirectStore, Whose},
};
use crate::{
    StoresSettings,
    error::StoreError,
    outcome::{Altered, Condition},
    stores::Stores,
};

/// How long the end of the command waits for its connections.
const CLOSING: Duration = Duration::from_secs(5);

/// What a command needs to change sequences.
pub enum CommandStores {
    /// Where there is one database: a connection to it.
    One(Box<DirectStore>),
    /// Else what serves, because a change may have to be made in several.
    All(Arc<Stores>),
    /// For a dry run on several: a connection to the first database of each store, by which
    /// nothing is held or made.
    Looking(Vec<LookingStore>),
}

/// A store that a dry run looks at.
pub struct LookingStore {
    name: Arc<str>,
    is_striped: bool,
    database: DirectStore,
}

impl CommandStores {
    /// Opens all stores; SQLite files are held by this process from then on, and made where there
    /// are none. For a dry run nothing is held or made.
    ///
    /// # Errors
    /// One cannot be reached, or is not fit to be changed.
    pub async fn open(mut settings: StoresSettings, is_dry_run: bool) -> Result<Self, StartError> {
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
        // A schema that does not fit is neither mended nor waited for: `fatal` tells of it at once.
        settings.bounds.migrate = false;
        settings.bounds.statement.schema_wait = Duration::ZERO;
        let time_limit = settings.bounds.statement.acquire + settings.bounds.statement.timeout;
        let names: Vec<String> = settings.names().into_iter().map(str::to_owned).collect();
        let connecting = Stores::connect(settings, Arc::new(Metrics::new()));
        let stores = Box::pin(connecting).await?;
        let reached = join_all(stores.all().map(|store| {
            // Each for itself, so that it is known which one is away.
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
    }

    /// Changes a sequence; `n_created` more than there are count as created already.
    ///
    /// # Errors
    /// As for `DirectStore`.
    pub async fn alter(
        &self,
        name: &SequenceName,
        act: Act,
        condition: Condition,
        n_created: u64,
    ) -> Result<Result<Altered, StoreError>, StartError> {
        match self {
            Self::One(database) => database.alter(name, act, condition, n_created).await,
            Self::All(stores) => Ok(stores.alter(name, act, condition, None).await),
            Self::Looking(stores) => look_at(stores, name, act, condition, n_created).await,
        }
    }

    /// Closes the connections; SQLite files are free afterwards.
    pub async fn close(self) {
        match self {
            Self::One(database) => database.close().await,
            Self::All(stores) => stores.close(CLOSING).await,
            Self::Looking(stores) => {
                for store in stores {
                    store.database.close().await;
                }
            }
        }
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

/// What an act would come to: where the name lives, or else where it would be born.
async fn look_at(
    stores: &[LookingStore],
    name: &SequenceName,
    act: Act,
    condition: Condition,
    n_created: u64,
) -> Result<Result<Altered, StoreError>, StartError> {
    let wanted = match &act {
        Act::Define {
            change, template, ..
        } => change.create_at(template, now_ms()),
        Act::Advance { .. } | Act::Retire | Act::Restore | Act::RemovePeriod { .. } => {
            return Ok(Err(StoreError::NotFound));
        }
    };
    let mut placement = None;
    for store in stores {
        match store.database.has(name).await? {
            Some(Whose::Here) => {
                placement = Some(store);
                break;
            }
            Some(Whose::Of(claimed)) => {
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
    let mut act = act;
    if let Act::Define { template, .. } = &mut act
        && *template.store != *placement.name
    {
        // What a definition leaves out does not send it to another store.
        Arc::make_mut(template).store = placement.name.to_string();
    }
    placement
        .database
        .alter(name, act, condition, n_created)
        .await
}
