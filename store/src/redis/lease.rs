//! Leases windows, if the database counts while Redis is away.
//!
//! A replica that steps in a window has leased it through its row. A replica that counts in the row
//! has closed the window, and has waited until every lease was over.
//!
//! A lease is counted from before it was asked for. It is checked when the group of callers that
//! share a step is closed: all of them were there while the lease held. So when the row gives its
//! first number, every caller of every step was already there. Such a caller may get any number, no
//! matter how late the step arrives.

use std::time::Duration;

use odometer_core::definition::Order;
use odometer_database::retry::AttemptError;
use odometer_process::faults::{self, Fault};

use super::{row, strict_reservation::StrictReservation, window::OpenWindow};
use crate::{
    error::{Attempted, StoreError, survive},
    reservation::{counter_read::StrictIn, request::Reserved},
    rows::counter::LEASE_MS,
};

/// After this many failures of Redis in one reservation, the window is closed although Redis
/// answers.
const MAX_FALLS: u32 = 2;
/// After this many leases that came too late in one reservation, the row counts.
const MAX_LATE_LEASES: u32 = 2;

impl StrictReservation<'_> {
    /// Says whether this replica may step in the window now. Takes a lease if it has none.
    pub(crate) async fn lease(&mut self, window: &OpenWindow) -> Result<bool, StoreError> {
        if faults::is(Fault::NoLease) {
            return Ok(true);
        }
        if self.counter.is_leased(window.number) {
            self.renew_ahead(window.number);
            return Ok(true);
        }
        let Ok(row) = self.row() else {
            return Ok(false);
        };
        let taking = self.window_task();
        match taking
            .take_lease(row, window.number, self.retry.until)
            .await
        {
            Ok(true) if self.counter.is_leased(window.number) => Ok(true),
            // The lease took so long that it is over.
            Ok(true) => {
                self.n_late = self.n_late.saturating_add(1);
                if self.n_late >= MAX_LATE_LEASES {
                    self.close(window.number).await?;
                    self.fall("the database is too slow for leases");
                }
                Ok(false)
            }
            Ok(false) => Ok(false),
            Err(failure) => survive(&self.request.key.sequence, &failure).map(|()| false),
        }
    }

    fn renew_ahead(&self, window: i64) {
        if !self.counter.lease_is_old(window) {
            return;
        }
        let (Some(turn), Ok(row)) = (self.counter.lease_permit(), self.row()) else {
            return;
        };
        let (task, until) = (self.window_task(), self.retry.until);
        self.store.tasks().spawn(async move {
            // If the lease is not renewed, the next step asks for it and learns why.
            let _renewed = task.take_lease(row, window, until).await;
            drop(turn);
        });
    }

    /// Closes a window, also one that another replica opened.
    pub(crate) async fn close(&self, window: i64) -> Result<(), StoreError> {
        let row = self.settled_row().await?;
        let database = &self.store.database;
        let closing = database
            .connection
            .run(self.retry.until, |connection| row.close(connection, window));
        match closing.await {
            // If nothing was written, the window was already closed, or followed by another window.
            Ok(_) => Ok(()),
            // The next look shows whether the window was closed.
            Err(failure) => survive(&self.request.key.sequence, &failure),
        }
    }

    /// Waits until no replica steps any more in the last window, which is closed. The statements on
    /// the row check this again.
    pub(crate) async fn wait_for_leases(&self, window: i64) -> Result<(), StoreError> {
        if faults::is(Fault::NoLease) {
            return Ok(());
        }
        let key = self.request.key.clone();
        let database = &self.store.database;
        let reading = database.connection.run(self.retry.until, |connection| {
            row::lease_left(connection, key)
        });
        let left = match reading.await {
            Ok(left) => left,
            Err(failure) => return survive(&self.request.key.sequence, &failure),
        };
        let longest = i64::from(LEASE_MS);
        let left_ms = left
            .ms
            .saturating_add(1)
            .clamp(0, longest.saturating_mul(2));
        self.sleep(Duration::from_millis(left_ms.unsigned_abs()))
            .await;
        if left.ms > longest {
            // No lease lasts so long: the database's clock was set back. By our clock the lease is
            // over now.
            let row = self.settled_row().await?;
            let ending = database.connection.run(self.retry.until, |connection| {
                row.end_lease(connection, window, left.until)
            });
            if let Err(failure) = ending.await {
                survive(&self.request.key.sequence, &failure)?;
            }
        }
        Ok(())
    }

    /// Takes numbers from the row, after the window is closed and its leases are over.
    pub(crate) async fn in_row(&mut self) -> Attempted<Reserved> {
        if !self.counter.row_is_free() {
            let looked = self.look().await?;
            if looked.window.is_open {
                if self.server.is_up() && self.n_falls < MAX_FALLS {
                    // Another replica went back to Redis.
                    self.counter.follow();
                    return Err(AttemptError::Again);
                }
                self.close(looked.window.number).await?;
                return Err(AttemptError::Again);
            }
            self.wait_for_leases(looked.window.number).await?;
            self.counter.set_row_is_free(true);
        }
        let reservation = self.of_row(StrictIn::RowAsFallback);
        match Box::pin(reservation.run()).await {
            Err(StoreError::Changed(definition)) if definition.order == Order::Strict => {
                self.counter.set_row_is_free(false);
                Err(AttemptError::Again)
            }
            reserved => Ok(reserved?),
        }
    }
}
