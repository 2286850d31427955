//! Windows that are opened: in the row, and then in Redis, once.

use std::time::Duration;

use odometer_core::{
    definition::Definition,
    sizing::{self, Demand},
};
use odometer_process::metrics::AbandonedCause;

use super::{
    row::Opening,
    scripts::{self, WindowState},
    strict_reservation::{FULL_AGAIN, StepOutcome, StrictReservation},
    window::{Fallen, OpenWindow},
};
use crate::{error::StoreError, reservation::counter_read::Looked};

/// How long a window that is in the row and not in Redis may be on its way there.
const ON_ITS_WAY: Duration = Duration::from_millis(30);

impl StrictReservation<'_> {
    /// The row's window is not one to step in.
    pub(crate) async fn next_window(
        &mut self,
        standing: Option<WindowState>,
        looked: Looked,
        generation: u64,
        epoch: u64,
    ) -> Result<StepOutcome, StoreError> {
        let in_row = looked.window;
        let was_installed = standing.is_some_and(|there| there.window == in_row.number)
            || self.counter.has_used(in_row.number);
        if in_row.is_open && !was_installed && self.awaited != Some(in_row.number) {
            // It was opened only just now, maybe, and is on its way to Redis.
            self.awaited = Some(in_row.number);
            self.sleep(ON_ITS_WAY.mul_f64(rand::random_range(0.7..1.3)))
                .await;
            return Ok(StepOutcome::Again);
        }
        if self.is_leased() {
            if in_row.is_open {
                self.close(in_row.number).await?;
                self.fall("the open window is not in Redis");
                return Ok(StepOutcome::Again);
            }
            let version = looked.known.definition_version;
            let was_closed_by_another = self.counter.has_fallen() == Fallen::No
                && self.counter.was_last(in_row.number, version);
            if was_closed_by_another {
                self.fall("another replica closed the window");
                return Ok(StepOutcome::Again);
            }
            self.wait_for_leases(in_row.number).await?;
        }
        let rest = standing.and_then(|there| rest_of(there, &looked));
        self.n_lost = self.n_lost.max(rest.unwrap_or(0));
        self.store
            .note_opening(standing, in_row, self.n_full >= FULL_AGAIN);
        self.open(looked, generation, epoch).await
    }

    /// Opens the next window in the row, and installs it.
    async fn open(
        &mut self,
        looked: Looked,
        generation: u64,
        epoch: u64,
    ) -> Result<StepOutcome, StoreError> {
        let known = looked.known;
        let left = known.definition.left(known.seen.next_value);
        self.check_limit(left)?;
        let demand = self.demand(looked.rate);
        let count = self.granted(&known.definition, &demand, left, self.count)?;
        let length = length_of(&known.definition, count)?;
        let opening = Opening {
            window: looked.window.number,
            revision: known.revision,
            seen: known.seen,
            length,
            end: known.definition.end(),
            rate: demand.rates.average(),
            is_leased: self.is_leased(),
        };
        let row = self.row()?;
        let database = &self.store.database;
        let opening = database
            .connection
            .run(self.until, |connection| row.open(connection, opening));
        let after = match opening.await {
            Ok(Some(after)) => after,
            Ok(None) => return Ok(StepOutcome::AfterPause),
            Err(failure) => return self.failed(&failure, count),
        };
        database.metrics.reserved.increment(1);
        let n_lost = std::mem::take(&mut self.n_lost);
        self.abandon(AbandonedCause::Window, n_lost);
        let base = after.next_value.saturating_sub(length);
        let mut known = known;
        known.seen = after;
        known.revision = known.revision.saturating_add(1);
        let window = OpenWindow {
            number: looked.window.number.saturating_add(1),
            base,
            used: 0,
            cap: count,
            known,
            rate: looked.rate,
            generation,
        };
        self.install(window, epoch).await
    }

    /// Sent once: a window of which it is not known that it was installed is never stepped in.
    async fn install(&mut self, window: OpenWindow, epoch: u64) -> Result<StepOutcome, StoreError> {
        let mut install = scripts::INSTALL.key(&self.redis_key);
        install
            .arg(window.number)
            .arg(window.base)
            .arg(window.cap)
            .arg(scripts::KEPT_MS);
        match self.server.run::<(i64, u64, u64)>(&install).await {
            Ok((1, ..)) => {
                self.n_full = 0;
                self.counter.keep(&window, epoch);
                self.step(window).await
            }
            Ok(_) => {
                self.abandon(AbandonedCause::Window, window.cap);
                Ok(StepOutcome::AfterPause)
            }
            Err(_) => {
                self.abandon(AbandonedCause::Window, window.cap);
                self.away().await
            }
        }
    }

    /// How many numbers a window gets, of `left`; `at_least` are waited for.
    pub(crate) fn granted(
        &self,
        definition: &Definition,
        demand: &Demand,
        left: u64,
        at_least: u64,
    ) -> Result<u64, StoreError> {
        if at_least > left {
            return Err(StoreError::Exhausted { left });
        }
        Ok(granted(definition, demand, left, at_least))
    }
}

/// Numbers of the row's last window that nobody will have once the next one is open, as far as what
/// stands in Redis can be believed.
fn rest_of(there: WindowState, looked: &Looked) -> Option<u64> {
    let in_row = looked.window;
    if !there.is_ours || there.window != in_row.number {
        return None;
    }
    let cap = if in_row.is_open {
        // Also what was set aside and Redis was not told of.
        let length = looked.known.seen.next_value.checked_sub(there.base)?;
        u64::try_from(length.checked_div(looked.known.definition.step)?).ok()?
    } else {
        // The row may have counted since.
        there.cap
    };
    cap.checked_sub(there.used)
}

/// How many numbers are set aside at once for such a demand.
pub(crate) fn granted(definition: &Definition, demand: &Demand, left: u64, at_least: u64) -> u64 {
    let demand = Demand {
        waited_for: at_least,
        ..*demand
    };
    sizing::grant(&sizing::size(&definition.block, &demand), left).count
}

/// By how much so many numbers raise the high-water mark.
pub(crate) fn length_of(definition: &Definition, count: u64) -> Result<i64, StoreError> {
    let length = i64::try_from(count)
        .ok()
        .and_then(|count| count.checked_mul(definition.step));
    length.ok_or_else(|| StoreError::Broken("a window of more than 2^63 - 1".to_owned()))
}
