//! Tells the state of each store as this process knows it now, without asking a server.

use crate::database::Database;
use crate::outcome::{DatabaseHealth, StoreHealth};
use crate::store::Store;
use crate::stores::Stores;

impl Stores {
    /// Returns the state of each store, in the order of the configuration.
    pub fn health(&self) -> Vec<StoreHealth> {
        self.all().map(|store| store.health()).collect()
    }
}

impl Store {
    fn health(&self) -> StoreHealth {
        StoreHealth {
            store: self.name.to_string(),
            kind: self.kind(),
            databases: self.databases().map(|it| health_of(it)).collect(),
            redis: self.redis.as_ref().map_or_else(Vec::new, |it| it.health()),
        }
    }
}

fn health_of(database: &Database) -> DatabaseHealth {
    let serving = database.serving();
    DatabaseHealth {
        database: serving.database,
        is_up: serving.is_up,
        went_back: database.heartbeat.has_gone_back(),
    }
}
