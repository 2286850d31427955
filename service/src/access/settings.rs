//! Says what `[access]` configures.

use std::path::PathBuf;
use std::sync::Arc;

use super::callers::Callers;
use super::issuers::issuer::{IssuerSettings, TokenIssuers};
use super::role::{Role, Roles};

/// Who may do what, as the configuration says it.
#[derive(Clone, Default, Debug)]
pub struct AccessSettings {
    pub roles: Roles,
    /// The role of callers who show no token. Without one, they are refused.
    pub anonymous: Option<Arc<Role>>,
    /// The file of callers.
    pub callers_file: Option<PathBuf>,
    /// Who signs JSON Web Tokens of callers.
    pub issuers: Vec<IssuerSettings>,
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
        Callers::read(file, &self.roles, &self.issuers).map_err(named)
    }

    /// Reads the keys of all issuers.
    ///
    /// # Errors
    /// A sentence that names the key, the file and what is wrong.
    pub fn read_issuers(&self) -> Result<TokenIssuers, String> {
        TokenIssuers::read(&self.issuers)
    }
}
