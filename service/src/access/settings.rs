//! Says what `[access]` configures.

use std::path::PathBuf;
use std::sync::Arc;

use super::callers::Callers;
use super::role::{Role, Roles};

/// Who may do what, as the configuration says it.
#[derive(Clone, Default, Debug)]
pub struct AccessSettings {
    pub roles: Roles,
    /// The role of callers who show no token. Without one, they are refused.
    pub anonymous: Option<Arc<Role>>,
    /// The file of callers.
    pub callers_file: Option<PathBuf>,
}

impl AccessSettings {
    /// Reads the file of callers. Without one, there are none.
    ///
    /// # Errors
    /// A sentence that names the key, the file and what is wrong.
    pub fn read_callers(&self) -> Result<Callers, String> {
        let Some(file) = &self.callers_file else {
            return Ok(Callers::default());
        };
        let named = |problem| format!("access.callers_file: {problem}");
        Callers::read(file, &self.roles).map_err(named)
    }
}
