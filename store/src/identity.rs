//! One database of one store.

use std::{fmt, sync::Arc};

use odometer_core::definition::Stripe;
use odometer_database::label::DatabaseLabel;

use crate::{installation_id::Installations, settings::Source};

/// Which database of which store one is.
#[derive(Clone, Debug)]
pub(crate) struct DatabaseIdentity {
    pub(crate) label: DatabaseLabel,
    pub(crate) source: Source,
    /// Which numbers of each sequence it has.
    pub(crate) stripe: Stripe,
    /// Those of all stores.
    pub(crate) installation: Arc<Installations>,
    /// Whether the configuration has no other database.
    pub(crate) is_only: bool,
}

impl fmt::Display for DatabaseIdentity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.label.fmt(formatter)
    }
}
