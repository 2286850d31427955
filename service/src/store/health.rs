//! How each store is, as this process knows it now, without asking anybody.

use super::{
    StoreKind,
    database::Database,
    kind::{Databases, Store},
    stores::Stores,
};

/// How a store is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreHealth {
    /// Its name in the configuration.
    pub store: String,
    pub kind: StoreKind,
    /// In the order of the configuration.
    pub databases: Vec<DatabaseHealth>,
    /// The same; none but where Redis counts.
    pub redis: Vec<RedisHealth>,
}

/// How a database is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseHealth {
    /// Its URL without user, password and parameters.
    pub database: String,
    /// Whether it answers.
    pub is_up: bool,
    /// Whether it was found to have gone back to an earlier state, and not to have been recovered.
    pub went_back: bool,
}

/// How a Redis server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisHealth {
    /// Its URL without user, password and parameters.
    pub server: String,
    /// Whether it answers.
    pub is_up: bool,
}

impl Stores {
    /// How each of them is, in the order of the configuration.
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
        went_back: database.beat.has_gone_back(),
    }
}
