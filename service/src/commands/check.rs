//! `odometer check`: looks at the configuration and the databases, and changes nothing.

use std::time::SystemTime;

use super::failure::CommandFailure;
use crate::access::certificates::ListenerTls;
use crate::application::stores_settings;
use crate::config::Config;

/// The examples that `odometer check --help` shows.
pub const EXAMPLES: &str = "\
Examples:
  odometer check
  odometer check --name invoices-2026
  odometer check --as billing-prod --name invoices-2026";

/// The options of `check`.
#[derive(Clone, Debug, clap::Args)]
pub struct CheckOptions {
    /// Say from what a sequence of this name would be created, and look at no database.
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Say what a caller may do, with --name on this name, and look at no database. CALLER is a name
    /// in the file of callers, or `anonymous` or `administrator`.
    #[arg(long = "as", value_name = "CALLER")]
    pub caller: Option<String>,
}

/// Checks the configuration and the databases, and changes nothing.
///
/// The configuration is good if it was loaded, so only warnings about it are left. `tell` gets the
/// lines of the findings.
///
/// # Errors
/// Something would keep `serve` from starting, or from issuing numbers.
pub async fn check(
    config: &Config,
    tell: &mut (dyn FnMut(String) + Send),
) -> Result<(), CommandFailure> {
    tell(format!(
        "configuration: good; `odometer serve` would listen on {}",
        config.listen
    ));
    config.never_used().into_iter().for_each(&mut *tell);
    config.security_warnings().into_iter().for_each(&mut *tell);
    if let Some(access) = &config.access {
        let callers = access.read_callers();
        let callers = callers.map_err(CommandFailure::configuration)?;
        tell(format!("callers: {} with roles", callers.iter().count()));
        let issuers = access.read_issuers();
        let issuers = issuers.map_err(CommandFailure::configuration)?;
        if issuers.n_issuers() > 0 {
            let (n_issuers, n_keys) = (issuers.n_issuers(), issuers.n_keys());
            tell(format!("issuers: {n_issuers} with {n_keys} keys"));
        }
        if callers.have_certificates() && config.tls.clients_ca_file.is_none() {
            tell(
                "warning: callers have `certificate`, but no caller is asked for one; set \
                 tls.clients_ca_file"
                    .to_owned(),
            );
        }
    }
    if let Some(files) = config.tls.files() {
        let tls = ListenerTls::read(&files).map_err(CommandFailure::configuration)?;
        tell(format!("tls: the certificate expires at {}", tls.expires()));
        if let Some(problem) = tls.untimely(&files, SystemTime::now()) {
            tell(format!("warning: {problem}"));
        }
    }
    odometer_store::check(&stores_settings(config), tell).await?;
    Ok(())
}
