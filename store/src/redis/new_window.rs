//! Opens windows: first in the row, and then once in Redis.

use std::time::Duration;

use odometer_core::{
    definition::Definition,
    sizing::{self, Demand},
};
use odometer_database::retry::AttemptError;
use odometer_process::metrics::AbandonedCause;

use super::{
    scripts::{self, RawReplaced, WindowState},
    strict_reservation::{FULL_AGAIN, StrictReservation},
    window::{Fallen, OpenWindow},
};
use crate::{
    error::{Attempted, StoreError},
    reservation::{counter_read::ReadCounter, request::Reserved},
    rows::{addition::Addition, counter::WindowRow, payment::Payment},
};

/// How long a new window in the row may need to arrive in Redis.
const INSTALL_WAIT: Duration = Duration::from_millis(30);

/// What Redis and the row had when this replica looked, before another window is opened.
pub(crate) struct SeenWindows {
    pub(crate) in_redis: Option<WindowState>,
    pub(crate) in_row: ReadCounter,
    /// The number of the connection to Redis.
    pub(crate) generation: u64,
    /// How many changes this replica had heard of.
    pub(crate) n_changes: u64,
}

impl StrictReservation<'_> {
    /// Decides what to do if the row's window cannot be used: wait, fall back, or open the next
    /// window.
    pub(crate) async fn next_window(&mut self, seen: SeenWindows) -> Attempted<Reserved> {
        let (in_redis, in_row) = (seen.in_redis, seen.in_row.window);
        let last = self.counter.last();
        let was_installed = in_redis.is_some_and(|there| there.window == in_row.number)
            || last.is_some_and(|(used, _)| used == in_row.number);
        if in_row.is_open && !was_installed && self.awaited != Some(in_row.number) {
            // Perhaps the window was opened just now, and is on its way to Redis.
            self.awaited = Some(in_row.number);
            self.sleep(INSTALL_WAIT.mul_f64(rand::random_range(0.7..1.3)))
                .await;
            return Err(AttemptError::Again);
        }
        if self.is_leased() {
            if in_row.is_open {
                self.close(in_row.number).await?;
                self.fall("the open window is not in Redis");
                return Err(AttemptError::Again);
            }
            let in_use = Some((in_row.number, seen.in_row.known.definition_version));
            if self.counter.has_fallen() == Fallen::No && last == in_use {
                self.fall("another replica closed the window");
                return Err(AttemptError::Again);
            }
            self.wait_for_leases(in_row.number).await?;
        }
        self.store
            .note_opening(in_redis, in_row, self.n_full >= FULL_AGAIN);
        self.open(seen).await
    }

    /// Opens the next window in the row, and installs it in Redis.
    async fn open(&mut self, seen: SeenWindows) -> Attempted<Reserved> {
        let (number, rate) = (seen.in_row.window.number, seen.in_row.rate);
        let mut known = seen.in_row.known.clone();
        let left = known.definition.left(known.seen.next_value);
        self.request.want.check_handover(left)?;
        let demand = self.demand(rate);
        if self.count > left {
            return Err(StoreError::Exhausted { left }.into());
        }
        let count = granted(&known.definition, &demand, left, self.count);
        let count = self.within_limit(&seen.in_row, count).await?;
        let length = length_of(&known.definition, count)?;
        let opening = Addition {
            counter: self.settled_row().await?,
            revision: known.revision,
            seen: known.seen,
            length,
            end: known.definition.end(),
            rate: Some(demand.rates.average()),
            opens_after: Some(number),
            needs_free_row: self.is_leased(),
            payment: Payment::of(&known.definition, count),
        };
        let database = &self.store.database;
        let opening = database
            .connection
            .run(self.retry.until, |connection| opening.run(connection));
        let after = match opening.await {
            Ok(Some(after)) => after,
            Ok(None) => return Err(AttemptError::Conflict),
            Err(failure) => return Err(self.failed(failure, count)),
        };
        database.metrics.reserved.increment(1);
        let base = after.next_value.saturating_sub(length);
        known.seen = after;
        known.revision = known.revision.saturating_add(1);
        let window = OpenWindow {
            number: number.saturating_add(1),
            base,
            used: 0,
            cap: count,
            known,
            rate,
            generation: seen.generation,
        };
        self.install(window, &seen).await
    }

    /// Installs a window in Redis. The script is sent once.
    ///
    /// The script says which window it replaced, so it is known exactly which numbers no step can
    /// take any more. `before` is what this replica saw before.
    async fn install(&mut self, window: OpenWindow, before: &SeenWindows) -> Attempted<Reserved> {
        let mut install = scripts::INSTALL.key(&self.redis_key);
        install
            .arg(window.number)
            .arg(window.base)
            .arg(window.cap)
            .arg(scripts::KEY_TTL_MS);
        let lost = self.lost.take().map(|lost| lost.state());
        match self.server.run::<RawReplaced>(&install).await {
            Ok((1, number, base, used, cap)) => {
                let replaced = WindowState::of(&(1, number, base, used, cap, 1));
                let left = replaced
                    .or(lost)
                    .map(|it| left_behind(&it, before.in_row.window, &window));
                self.abandon(AbandonedCause::Window, left.unwrap_or(0));
                self.n_full = 0;
                self.counter.keep(&window, before.n_changes);
                self.step(window).await
            }
            // A later window stands there. The replica that installed it counts what it replaced.
            Ok(_) => {
                self.abandon_uninstalled(&window, before);
                Err(AttemptError::Conflict)
            }
            Err(_) => {
                self.abandon_uninstalled(&window, before);
                self.away().await
            }
        }
    }

    /// Counts the numbers of a window that did not arrive in Redis, as far as is known. Counts also
    /// numbers of the window before that the row set aside and Redis did not hear of.
    fn abandon_uninstalled(&self, window: &OpenWindow, before: &SeenWindows) {
        let in_redis = before.in_redis.filter(|there| there.is_ours);
        let unheard = in_redis.map_or(0, |there| {
            let left = there.cap.saturating_sub(there.used);
            left_behind(&there, before.in_row.window, window).saturating_sub(left)
        });
        self.abandon(AbandonedCause::Window, window.cap.saturating_add(unheard));
    }
}

/// Returns how many numbers of a window no step can take once `next` is installed.
///
/// If the row names the window as open, the window reaches up to the base of the next one, because
/// nothing else raises the row then. Otherwise the row may have counted since, and the window ends
/// at the ceiling that Redis knows.
fn left_behind(window: &WindowState, in_row: WindowRow, next: &OpenWindow) -> u64 {
    let is_named = in_row.is_open && window.window == in_row.number;
    let length = next.base.checked_sub(window.base);
    let whole = length.and_then(|length| length.checked_div(next.known.definition.step));
    let whole = whole.and_then(|whole| u64::try_from(whole).ok());
    let whole = whole.filter(|_| is_named).unwrap_or(window.cap);
    whole.saturating_sub(window.used)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{outcome::Resolved, rows::counter::SeenCounter};

    /// Window 8, after windows that began at 1, with numbers that are 10 apart.
    fn next(base: i64) -> OpenWindow {
        let definition = Definition {
            step: 10,
            ..Definition::default()
        };
        let seen = SeenCounter {
            next_value: base,
            version: 1,
        };
        OpenWindow {
            number: 8,
            base,
            used: 0,
            cap: 100,
            known: Resolved {
                definition: definition.into(),
                definition_version: 1,
                seen,
                revision: 1,
                floor: 1,
                trusted: true,
            },
            rate: None,
            generation: 1,
        }
    }

    #[test]
    fn what_a_window_leaves_behind_is_all_that_no_step_took() {
        let window = |window, used, cap| WindowState {
            window,
            base: 1,
            used,
            cap,
            is_ours: true,
        };
        let row = |number, is_open| WindowRow { number, is_open };
        for (case, window, in_row, base, expected) in [
            ("used up", window(7, 50, 50), row(7, true), 501, 0),
            ("some left", window(7, 20, 50), row(7, true), 501, 30),
            (
                "raised and unheard",
                window(7, 20, 50),
                row(7, true),
                801,
                60,
            ),
            ("closed since", window(7, 20, 50), row(7, false), 801, 30),
            ("an earlier one", window(6, 20, 50), row(7, true), 801, 30),
        ] {
            assert_eq!(
                left_behind(&window, in_row, &next(base)),
                expected,
                "{case}"
            );
        }
    }
}
