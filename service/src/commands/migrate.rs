//! `odometer migrate`: brings the schemas of all databases up to date.

use odometer_store::Arming;

use super::failure::CommandFailure;
use super::progress::Progress;
use crate::application::stores_settings;
use crate::config::Config;

/// Names the log target of the events in this file.
const TARGET: &str = "odometer::application";

/// The examples that `odometer migrate --help` shows.
pub const EXAMPLES: &str = "\
Examples:
  odometer migrate
  odometer migrate --database-url-file /run/secrets/database_url";

/// The options of `migrate`.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct MigrateOptions {
    /// Then let a program of an earlier version use the databases again. Failovers are left to you
    /// from then on.
    #[arg(long)]
    pub disarm: bool,
    /// Take `--disarm` back.
    #[arg(long, conflicts_with = "disarm")]
    pub arm: bool,
}

impl MigrateOptions {
    /// Returns whether replicas may arm the databases from now on; `None` if that stays as it is.
    fn arming(self) -> Option<Arming> {
        match (self.disarm, self.arm) {
            (true, _) => Some(Arming::Off),
            (false, true) => Some(Arming::Allowed),
            (false, false) => None,
        }
    }
}

/// Brings the schemas of the configured databases up to date. Then lets replicas arm the databases,
/// or lets them not, if the options say so.
///
/// # Errors
/// A database cannot be reached or changed.
pub async fn migrate(
    config: &Config,
    options: MigrateOptions,
    progress: &Progress,
) -> Result<(), CommandFailure> {
    let mut tell = |line: String| {
        progress.erase();
        tracing::info!(target: TARGET, "{line}");
    };
    let settings = stores_settings(config);
    let on_step = |step: odometer_store::DatabaseStep<'_>| progress.database("Migrating", step);
    odometer_store::migrate(&settings, options.arming(), &mut tell, &on_step).await?;
    Ok(())
}
