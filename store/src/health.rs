//! Tells the state of each store as this process knows it now, without asking a server.

use crate::database::Database;
use crate::kind::{Databases, Store};
use crate::outcome::{DatabaseHealth, StoreHealth};
use crate::stores::Stores;

impl Stores {
    /// Returns the state of each store, in the order of the configuration.
    pub fn health(&self) -> Vec<StoreHealth> {
        let named = self.all().zip(&self.names);
        named.map(|(store, name)| store.health(name)).collect()
    }
}

impl Store {
    fn health(&self, name: &str) -> StoreHealth {
        StoreHealth {
            store: name.to_owned(),
            kind: self.kind(),
            databases: match self.databases() {
                Databases::One(database) => vec![health_of(database)],
                Databases::Several(striped) => striped
                    .databases()
                    .map(|database| health_of(database))
                    .collect(),
            },
            redis: match self {
                Self::Redis(store) => store.health(),
                Self::Database(_) | Self::Striped(_) => Vec::new(),
            },
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
