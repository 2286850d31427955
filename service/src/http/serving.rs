//! What serves a sequence, as JSON.

use serde::Serialize;
use utoipa::ToSchema;

use crate::sequence::description::{Serving, StoreKind};

/// A store, as the replica that was asked sees it.
#[derive(Serialize, ToSchema)]
pub(super) struct ServingStore {
    name: String,
    /// `database`; `striped` where several share each sequence; `redis` where that counts for
    /// sequences with strict order.
    kind: &'static str,
    /// In the order of the configuration.
    databases: Vec<ServingDatabase>,
    /// What counts, where order is strict and Redis does; else null.
    redis: Option<ServingRedis>,
}

/// A database of the store.
#[derive(Serialize, ToSchema)]
pub(super) struct ServingDatabase {
    /// Its URL without user, password and parameters.
    database: String,
    /// Whether it answers.
    up: bool,
}

/// The Redis server that counts.
#[derive(Serialize, ToSchema)]
pub(super) struct ServingRedis {
    /// Its URL without user, password and parameters.
    server: String,
    /// Whether it answers.
    up: bool,
    /// The number of the window it issues from.
    window: Option<i64>,
    /// Nothing at or above it is issued before the database has raised it.
    ceiling: Option<String>,
    /// How long the numbers below the ceiling last at the present rate; null at rate 0.
    lasts_seconds: Option<f64>,
}

impl From<Serving> for ServingStore {
    fn from(serving: Serving) -> Self {
        let databases = serving.databases.into_iter();
        Self {
            name: serving.store,
            kind: word_of(serving.kind),
            databases: databases
                .map(|one| ServingDatabase {
                    database: one.database,
                    up: one.is_up,
                })
                .collect(),
            redis: serving.redis.map(|redis| ServingRedis {
                server: redis.server,
                up: redis.is_up,
                window: redis.window,
                ceiling: redis.ceiling.map(|ceiling| ceiling.to_string()),
                lasts_seconds: redis.lasts_seconds.filter(|seconds| seconds.is_finite()),
            }),
        }
    }
}

/// What a kind of store is called.
pub(super) fn word_of(kind: StoreKind) -> &'static str {
    match kind {
        StoreKind::Database => "database",
        StoreKind::Striped => "striped",
        StoreKind::Redis => "redis",
    }
}
