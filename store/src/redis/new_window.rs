//! Opens windows: first in the row, and then once in Redis.

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
use crate::{error::StoreError, reservation::counter_read::ReadCounter};

/// How long a new window in the row may need to arrive in Redis.
const INSTALL_WAIT: Duration = Duration::from_millis(30);

impl StrictReservation<'_> {
    /// Decides what to do if the row's window cannot be used: wait, fall back, or open the next
    /// window.
    pub(crate) async fn next_window(
        &mut self,
        standing: Option<WindowState>,
        looked: ReadCounter,
        generation: u64,
        n_changes: u64,
    ) -> Result<StepOutcome, StoreError> {
        let in_row = looked.window;
        let was_installed = standing.is_some_and(|there| there.window == in_row.number)
            || self.counter.has_used(in_row.number);
        if in_row.is_open && !was_installed && self.awaited != Some(in_row.number) {
            // Perhaps the window was opened just now, and is on its way to Redis.
            self.awaited = Some(in_row.number);
            self.sleep(INSTALL_WAIT.mul_f64(rand::random_range(0.7..1.3)))
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
        self.left_behind = left_behind(standing, self.lost.as_ref(), &looked);
        self.store
            .note_opening(standing, in_row, self.n_full >= FULL_AGAIN);
        self.open(looked, generation, n_changes).await
    }

    /// Opens the next window in the row, and installs it in Redis.
    async fn open(
        &mut self,
        looked: ReadCounter,
        generation: u64,
        n_changes: u64,
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
        self.install(window, n_changes).await
    }

    /// Installs a window in Redis. The script is sent once: if its outcome is unknown, no replica
    /// ever steps in the window.
    async fn install(
        &mut self,
        window: OpenWindow,
        n_changes: u64,
    ) -> Result<StepOutcome, StoreError> {
        let mut install = scripts::INSTALL.key(&self.redis_key);
        install
            .arg(window.number)
            .arg(window.base)
            .arg(window.cap)
            .arg(scripts::KEY_TTL_MS);
        self.lost = None;
        let before = std::mem::take(&mut self.left_behind);
        match self.server.run::<(i64, u64, u64)>(&install).await {
            Ok((1, left, _)) => {
                self.abandon(AbandonedCause::Window, left.saturating_add(before.unseen));
                self.n_full = 0;
                self.counter.keep(&window, n_changes);
                self.step(window).await
            }
            // The replica that put a later window there counts the numbers of the window that it
            // replaced.
            Ok(_) => {
                let lost = window.cap.saturating_add(before.unseen);
                self.abandon(AbandonedCause::Window, lost);
                Ok(StepOutcome::AfterPause)
            }
            Err(_) => {
                let lost = window.cap.saturating_add(before.unseen);
                self.abandon(AbandonedCause::Window, lost.saturating_add(before.seen));
                self.away().await
            }
        }
    }

    /// Returns how many numbers a window gets, of `left`. Callers wait for `at_least` of them.
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

/// Numbers of earlier windows that no step can take once the next window is installed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LeftBehind {
    /// Numbers that stood in Redis when this replica looked. The script that installs the next
    /// window says how many of them were left. So `seen` counts only if that script has no answer.
    seen: u64,
    /// Numbers that Redis does not know of. Either the row set them aside and Redis did not hear of
    /// it, or their window is not in Redis any more.
    unseen: u64,
}

/// Returns the numbers that the next window leaves behind. They follow from what stood in Redis, or
/// from what this replica knows of a window that it lost.
fn left_behind(
    standing: Option<WindowState>,
    lost: Option<&OpenWindow>,
    looked: &ReadCounter,
) -> LeftBehind {
    let in_row = looked.window;
    // The row says how far its window goes, if it is open. If not, the row may have counted since.
    let whole = |number: i64, base: i64, cap: u64| {
        let is_open = in_row.is_open && number == in_row.number;
        let length = looked.known.seen.next_value.checked_sub(base);
        let count = length.and_then(|length| length.checked_div(looked.known.definition.step));
        let count = count.and_then(|count| u64::try_from(count).ok());
        count.filter(|_| is_open).unwrap_or(cap).max(cap)
    };
    if let Some(there) = standing.filter(|there| there.is_ours) {
        let whole = whole(there.window, there.base, there.cap);
        return LeftBehind {
            seen: there.cap.saturating_sub(there.used),
            unseen: whole.saturating_sub(there.cap),
        };
    }
    let unseen = lost.map_or(0, |lost| {
        whole(lost.number, lost.base, lost.cap).saturating_sub(lost.used)
    });
    LeftBehind { seen: 0, unseen }
}

/// Returns how many numbers are set aside at once for such a demand.
pub(crate) fn granted(definition: &Definition, demand: &Demand, left: u64, at_least: u64) -> u64 {
    let demand = Demand {
        waited_for: at_least,
        ..*demand
    };
    sizing::grant(&sizing::size(&definition.block, &demand), left).count
}

/// Returns the length by which `count` numbers raise the high-water mark.
pub(crate) fn length_of(definition: &Definition, count: u64) -> Result<i64, StoreError> {
    let length = i64::try_from(count)
        .ok()
        .and_then(|count| count.checked_mul(definition.step));
    length.ok_or_else(|| StoreError::Broken("a window of more than 2^63 - 1".to_owned()))
}
