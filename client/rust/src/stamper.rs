//! Makes snowflake ids in the process, under a worker id that is leased from the service.

use std::{fmt, sync::Arc, time::Instant};

use odometer_core::{
    name::SequenceName,
    snowflake::{High, Layout},
};

use crate::{
    block_on::block_on,
    engine::Shared,
    error::Error,
    keeper::Keeper,
    lease::StamperPlan,
    log::TARGET,
    of_process::OfProcess,
    wait::{Wait, WaitEnd},
    waiter::{Outcome, Waiter},
};

/// Makes time-ordered ids without a call. [`Client::stamper`](crate::Client::stamper) makes it.
///
/// Clones share the worker id. Share it among threads and tasks.
///
/// Its ids never repeat, and none lies outside the time that is leased: not if the program is
/// stopped past the end of its lease, not if its clock steps, and not if the service is away. If
/// no id can be made, [`take`](Self::take) says why.
///
/// The worker id is renewed by a thread of the client. When the last clone is dropped, that thread
/// gives it back, unless the program ends before: see [`close`](Self::close). A forked child leases
/// a worker id of its own.
#[derive(Clone)]
pub struct Stamper(Arc<StamperCore>);

/// What the clones of a stamper share.
pub(crate) struct StamperCore {
    plan: Arc<StamperPlan>,
    keeper: OfProcess<Keeper>,
}

impl Stamper {
    /// Makes a stamper without a lease.
    ///
    /// # Errors
    /// [`Error::InvalidSetting`] if the pool has another name than a sequence may have, or if no
    /// ids may have this layout.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        pool: &str,
        layout: Layout,
        holder: String,
    ) -> Result<Self, Error> {
        let checked = layout.check();
        checked.map_err(|error| Error::setting(error.to_string()))?;
        let plan = Arc::new(StamperPlan {
            shared: Arc::clone(shared),
            pool: SequenceName::parse(pool)?,
            layout,
            holder,
        });
        Ok(Self(Arc::new(StamperCore {
            keeper: OfProcess::new(Keeper::new(Arc::clone(&plan))),
            plan,
        })))
    }

    /// Makes the next id. Never waits, and makes no call.
    ///
    /// Ids of one stamper ascend.
    ///
    /// # Errors
    /// - [`Error::NoLease`]: no worker id is leased now. The client leases one as soon as it can.
    /// - [`Error::ClockBehind`]: the clock was set back, or the ids of this moment are used up.
    /// - [`Error::PastReservedTime`]: the clock is ahead of that of the service, or more ids were
    ///   made than the reserved time has.
    /// - [`Error::TimeEnds`]: the layout has no bits for this time.
    #[inline]
    pub fn take(&self) -> Result<i64, Error> {
        self.0.keeper.with(Keeper::take)
    }

    /// Returns the worker id of the ids that are made now; `None` if none is leased.
    #[must_use]
    pub fn worker(&self) -> Option<u32> {
        self.0.keeper.with(|keeper| keeper.worker())
    }

    /// Returns the layout of the ids.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.0.plan.layout
    }

    pub(crate) fn core(&self) -> &Arc<StamperCore> {
        &self.0
    }

    /// Stops this stamper and all its clones, and gives the worker id back. The task waits for
    /// that, at most as long as the client's deadline.
    ///
    /// Call it before your program ends: the threads of the client end with it. If the id is not
    /// given back, the next program gets it when the lease has ended.
    pub async fn close(self) {
        let waiter = Waiter::new();
        self.0.keeper.with(|keeper| keeper.close(&waiter));
        if let Err(error) = self.wait(waiter, self.until()).await {
            tracing::debug!(target: TARGET, %error, "the end of a stamper cannot be waited for");
        }
    }

    /// Stops like [`close`](Self::close). The thread waits.
    pub fn close_blocking(self) {
        block_on(self.close());
    }

    /// Waits until ids can be made, or until no lease can be had.
    pub(crate) async fn started(self) -> Result<Self, Error> {
        let until = self.until();
        loop {
            let waiter = Waiter::new();
            self.0.keeper.with(|keeper| keeper.wait_for_lease(&waiter));
            let end = self.wait(waiter, until).await?;
            match end {
                WaitEnd::Settled(Outcome::Failed(error)) => return Err(error),
                WaitEnd::Settled(_) => return Ok(self),
                WaitEnd::GaveUp => return Err(self.no_lease()),
                WaitEnd::Forked => {}
            }
        }
    }

    fn wait(&self, waiter: Arc<Waiter>, until: Instant) -> Wait<'_> {
        let StamperPlan { shared, pool, .. } = &*self.0.plan;
        Wait::new(waiter, until, None, shared, pool.as_str())
    }

    fn until(&self) -> Instant {
        self.0.plan.shared.settings.until()
    }

    fn no_lease(&self) -> Error {
        self.0.keeper.with(Keeper::no_lease)
    }
}

impl StamperCore {
    /// Drops the lease, because a copy of this process may have it, too.
    pub(crate) fn forget(&self) {
        self.keeper.with(|keeper| keeper.forget());
    }
}

impl Drop for StamperCore {
    fn drop(&mut self) {
        self.keeper.with(|keeper| keeper.close(&Waiter::new()));
    }
}

impl fmt::Debug for Stamper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plan = &self.0.plan;
        f.debug_struct("Stamper")
            .field("pool", &plan.pool.as_str())
            .field("holder", &plan.holder)
            .field("is_counted", &(plan.layout.high == High::Worker))
            .field("worker", &self.worker())
            .finish()
    }
}
