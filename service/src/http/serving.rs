//! Shows what serves a sequence, as JSON.

use odometer_sequence::description::{Serving, StoreKind};
use serde::Serialize;
use utoipa::ToSchema;

use super::payload::values;

/// A store, as the replica that was asked sees it.
#[derive(Serialize, ToSchema)]
pub(crate) struct ServingStore {
    name: values::StoreName,
    #[schema(value_type = values::StoreKind)]
    kind: StoreKind,
    /// The databases, in the order of the configuration.
    databases: Vec<ServingDatabase>,
    /// The Redis server that counts for a sequence in strict order; null if the database counts.
    redis: Option<ServingRedis>,
}

/// A database of the store.
#[derive(Serialize, ToSchema)]
pub(crate) struct ServingDatabase {
    /// The URL without user, password and parameters.
    #[schema(example = "postgres://db.example:5432/odometer")]
    database: String,
    /// Whether the database answers.
    up: bool,
}

/// The Redis server that counts.
#[derive(Serialize, ToSchema)]
pub(crate) struct ServingRedis {
    /// The URL without user, password and parameters.
    #[schema(example = "redis://redis.example:6379")]
    server: String,
    /// Whether the server answers.
    up: bool,
    /// The number of the window that Redis issues from; null if none is known.
    #[schema(example = 7)]
    window: Option<i64>,
    /// Nothing at or above this number is issued before the database has raised it; null if none
    /// is known.
    ceiling: Option<values::NumberString>,
    /// How long the numbers below the ceiling last at the present rate; null at rate 0.
    #[schema(example = 60.0)]
    lasts_seconds: Option<f64>,
}

impl From<Serving> for ServingStore {
    fn from(serving: Serving) -> Self {
        let databases = serving.databases.into_iter();
        let databases = databases.map(|one| ServingDatabase {
            database: one.database,
            up: one.is_up,
        });
        Self {
            name: serving.store.into(),
            kind: serving.kind,
            databases: databases.collect(),
            redis: serving.redis.map(|redis| ServingRedis {
                server: redis.server,
                up: redis.is_up,
                window: redis.window,
                ceiling: redis.ceiling.map(Into::into),
                lasts_seconds: redis.lasts_seconds.filter(|seconds| seconds.is_finite()),
            }),
        }
    }
}
