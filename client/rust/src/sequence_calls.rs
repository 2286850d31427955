//! What the calls for the numbers of one sequence have in common.

use std::{sync::Arc, time::Duration};

use odometer_core::name::SequenceName;
use ureq::http::Method;

use crate::{
    definition::Paths,
    engine::{Engine, Shared},
    error::Error,
    hooks::DropCause,
    numbers_call::{EndedCall, NumbersCall},
    service::Answer,
    stock::Stock,
    transport::Call,
};

/// One sequence, as the threads that call for it know it.
pub(crate) struct SequenceCalls {
    pub(crate) name: SequenceName,
    pub(crate) paths: Paths,
    pub(crate) shared: Arc<Shared>,
    pub(crate) engine: Arc<Engine>,
    pub(crate) stock: Arc<Stock>,
}

impl SequenceCalls {
    /// Begins a call for numbers.
    pub(crate) fn begin(&self) -> NumbersCall {
        NumbersCall::begin(self.name.as_str(), &self.shared.hooks)
    }

    /// Makes one call for numbers, and reads the answer.
    ///
    /// # Errors
    /// Those of a call, and those of `read_answer`.
    pub(crate) fn ask<T>(
        &self,
        path: &str,
        timeout: Duration,
        traceparent: &str,
        read_answer: impl FnOnce(Answer) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let call = Call {
            traceparent: Some(traceparent),
            ..Call::new(Method::POST, path, timeout)
        };
        self.engine.service.ask(&call, read_answer)
    }

    /// Tells the hooks about a call that has ended.
    pub(crate) fn report(&self, ended: &EndedCall) {
        ended.tell(self.name.as_str(), &self.shared.hooks);
    }

    /// Tells the hooks about numbers that are gaps now.
    pub(crate) fn report_dropped(&self, count: u64, cause: DropCause) {
        let hooks = &self.shared.hooks;
        hooks.dropped(self.name.as_str(), count, cause);
    }
}
