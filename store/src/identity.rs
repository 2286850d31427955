//! Identifies one database of one store.

use std::{fmt, sync::Arc};

use odometer_core::definition::Stripe;
use odometer_database::label::DatabaseLabel;

use crate::{installation_id::Installations, settings::Source};

/// Identifies a database: its store, its place in the store, and the numbers that it has.
#[derive(Clone, Debug)]
pub(crate) struct DatabaseIdentity {
    pub(crate) label: DatabaseLabel,
    pub(crate) source: Source,
    /// The numbers of each sequence that this database has.
    pub(crate) stripe: Stripe,
    /// The installations of all stores.
    pub(crate) installation: Arc<Installations>,
    /// Whether the configuration has only this database, and gives it as `database_url`.
    pub(crate) is_only: bool,
}

impl fmt::Display for DatabaseIdentity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.label.fmt(formatter)
    }
}
