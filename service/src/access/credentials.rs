//! Holds what callers have to show: the administrator's token, and the tokens of the callers. Reads
//! both again when their files change.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::{ArcSwap, ArcSwapOption};
use metrics::Gauge;
use odometer_process::secret::Secret;
use parking_lot::Mutex;

use super::callers::Callers;
use super::settings::AccessSettings;
use crate::config::Config;

/// Names the log target of the events in this file.
const TARGET: &str = "odometer::access";

/// What callers have to show now.
pub struct Credentials {
    admin_token: ArcSwapOption<Secret>,
    admin_token_file: Option<PathBuf>,
    access: Option<AccessSettings>,
    callers: ArcSwap<Callers>,
    /// How often the token or the callers have changed.
    generation: AtomicU64,
    /// 1 while a file cannot be used, so that its former content counts.
    stale: Gauge,
    /// The problems that were logged last.
    logged: Mutex<Vec<String>>,
}

impl Credentials {
    /// Reads what a configuration names.
    ///
    /// # Errors
    /// A sentence: the file of callers cannot be used.
    pub fn new(config: &Config, stale: Gauge) -> Result<Self, String> {
        let access = config.access.clone();
        let callers = access
            .as_ref()
            .map(AccessSettings::read_callers)
            .transpose()?;
        Ok(Self {
            admin_token: ArcSwapOption::from_pointee(config.admin_token.clone()),
            admin_token_file: config.admin_token_file.clone(),
            access,
            callers: ArcSwap::from_pointee(callers.unwrap_or_default()),
            generation: AtomicU64::new(0),
            stale,
            logged: Mutex::default(),
        })
    }

    /// Returns the administrator's token, if there is one.
    pub fn admin_token(&self) -> Option<Arc<Secret>> {
        self.admin_token.load_full()
    }

    /// Returns what `[access]` says; `None` if it is not configured.
    pub fn access(&self) -> Option<&AccessSettings> {
        self.access.as_ref()
    }

    /// Returns the callers as the file last said.
    pub fn callers(&self) -> Arc<Callers> {
        self.callers.load_full()
    }

    /// Returns how often the token or the callers have changed. What was read after this has changed
    /// at least as often.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Returns whether there is a file that can change.
    pub fn has_files(&self) -> bool {
        let callers_file = self.access.as_ref().and_then(|it| it.callers_file.as_ref());
        self.admin_token_file.is_some() || callers_file.is_some()
    }

    /// Reads the files again. A file that cannot be used changes nothing: its former content goes
    /// on counting, and log and metric say so.
    pub fn refresh(&self) {
        let problems = [self.refresh_admin_token(), self.refresh_callers()];
        let problems: Vec<String> = problems.into_iter().filter_map(Result::err).collect();
        self.stale.set(f64::from(u8::from(!problems.is_empty())));
        let mut logged = self.logged.lock();
        if *logged == problems {
            return;
        }
        for problem in &problems {
            tracing::error!(
                target: TARGET,
                "What callers have to show cannot be read again, so it stays as it was: {problem}"
            );
        }
        if problems.is_empty() {
            tracing::info!(target: TARGET, "What callers have to show can be read again");
        }
        *logged = problems;
    }

    fn refresh_admin_token(&self) -> Result<(), String> {
        let Some(file) = &self.admin_token_file else {
            return Ok(());
        };
        let named = |problem: String| format!("admin_token_file: {problem}");
        let token = crate::config::read_token(file).map_err(named)?;
        if self.admin_token().is_none_or(|former| *former != token) {
            self.admin_token.store(Some(Arc::new(token)));
            self.generation.fetch_add(1, Ordering::Release);
            tracing::info!(target: TARGET, "The administrator's token has changed");
        }
        Ok(())
    }

    fn refresh_callers(&self) -> Result<(), String> {
        let Some(access) = &self.access else {
            return Ok(());
        };
        let callers = access.read_callers()?;
        if callers != **self.callers.load() {
            let n_callers = callers.iter().count();
            self.callers.store(Arc::new(callers));
            self.generation.fetch_add(1, Ordering::Release);
            tracing::info!(target: TARGET, n_callers, "The callers have changed");
        }
        Ok(())
    }
}
