//! Says what went wrong, with a word for programs.

use std::{fmt, sync::Arc, time::Duration};

use odometer_core::name::{InvalidName, SequenceName};

/// The statuses after which the same call may succeed later.
const RETRYABLE_STATUSES: [u16; 4] = [429, 502, 503, 504];

/// A failure of this client. Clones share what they say.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No number is in memory. A refill has started.
    #[error("no number of {sequence} is in memory: a refill has started")]
    Empty {
        /// The sequence.
        sequence: SequenceName,
        /// The last failure of a refill, if no refill has succeeded since.
        #[source]
        last: Option<Arc<Error>>,
    },
    /// No number came within the deadline. The refill goes on.
    #[error("no number of {sequence} came within the deadline{}", because(.last.as_deref()))]
    DeadlinePassed {
        /// The sequence.
        sequence: SequenceName,
        /// The last failure of a refill, if no refill has succeeded since.
        #[source]
        last: Option<Arc<Error>>,
    },
    /// A replica gave no reply. Numbers that were on their way are a gap.
    #[error("{endpoint} gave no reply: {detail}")]
    Unreachable {
        /// The address of the replica.
        endpoint: Arc<str>,
        /// Whether the time for the call was over.
        timed_out: bool,
        /// What happened.
        detail: Arc<str>,
    },
    /// A replica answered with something that is no answer of Odometer.
    #[error("{endpoint} gave {detail}")]
    InvalidReply {
        /// The address of the replica.
        endpoint: Arc<str>,
        /// What came instead.
        detail: Arc<str>,
    },
    /// The service refused a call.
    #[error("{0}")]
    Refused(Arc<Refusal>),
    /// A setting or an argument cannot be used.
    #[error("{detail}")]
    InvalidSetting {
        /// What is wrong.
        detail: Arc<str>,
    },
    /// The system gave no thread for a call.
    #[error("no thread could be started: {detail}")]
    NoThread {
        /// What the system said.
        detail: Arc<str>,
    },
    /// No worker id is leased now, so no id can be made. The stamper leases one as soon as it can.
    #[error("no worker id of {pool} is leased now{}", because(.last.as_deref()))]
    NoLease {
        /// The pool of worker ids.
        pool: SequenceName,
        /// The last failure of a lease or a renewal.
        #[source]
        last: Option<Arc<Error>>,
    },
    /// The clock was set back, or the ids of the present time are used up.
    #[error("the clock must go on for {} ms before the next id can be made", .wait.as_millis())]
    ClockBehind {
        /// How long to wait. It is short if only the ids of the present tick are used up.
        wait: Duration,
    },
    /// The clock is past the time that is reserved with the worker id, or this time is used up.
    #[error("the next id lies past the time that is reserved with the worker id")]
    PastReservedTime,
    /// The layout has no bits for this time.
    #[error("the time bits of the layout have ended")]
    TimeEnds,
}

/// A call that the service refused.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Refusal {
    /// The HTTP status.
    pub status: u16,
    /// The service's code, from its closed list, such as `sequence_retired`.
    pub code: String,
    /// The reason, as a sentence.
    pub detail: String,
    /// The address of the replica.
    pub endpoint: Arc<str>,
    /// How many numbers the call could have now, if its size was refused.
    pub limit: Option<u64>,
    /// When to call again, if the service said so.
    pub retry_after: Option<Duration>,
}

impl Error {
    /// Returns a word for programs. For a refusal it is the service's code.
    #[must_use]
    pub fn code(&self) -> &str {
        match self {
            Self::Empty { .. } => "empty",
            Self::DeadlinePassed { .. } => "deadline",
            Self::Unreachable { .. } => "unreachable",
            Self::InvalidReply { .. } => "invalid_reply",
            Self::Refused(refusal) => &refusal.code,
            Self::InvalidSetting { .. } | Self::NoThread { .. } => "client",
            Self::NoLease { .. } => "no_lease",
            Self::ClockBehind { .. } => "clock_behind",
            Self::PastReservedTime => "past_reserved_time",
            Self::TimeEnds => "time_ends",
        }
    }

    /// Returns whether the same call may succeed later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Unreachable { .. } => true,
            Self::Refused(refusal) => RETRYABLE_STATUSES.contains(&refusal.status),
            Self::Empty { .. }
            | Self::DeadlinePassed { .. }
            | Self::InvalidReply { .. }
            | Self::InvalidSetting { .. }
            | Self::NoThread { .. }
            | Self::NoLease { .. }
            | Self::ClockBehind { .. }
            | Self::PastReservedTime
            | Self::TimeEnds => false,
        }
    }

    /// Returns the refusal of the service, if it is one.
    #[must_use]
    pub fn refusal(&self) -> Option<&Refusal> {
        if let Self::Refused(refusal) = self {
            Some(refusal)
        } else {
            None
        }
    }

    /// Returns when the service wants to be called again, if it said so.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        self.refusal().and_then(|refusal| refusal.retry_after)
    }

    /// Returns what hooks are told about a call that failed.
    pub(crate) fn outcome(&self) -> &str {
        if let Self::Unreachable { timed_out, .. } = self {
            if *timed_out { "timeout" } else { "connection" }
        } else {
            self.code()
        }
    }

    /// Returns the address of the replica that was called, if one was.
    pub(crate) fn endpoint(&self) -> Option<&str> {
        if let Self::Unreachable { endpoint, .. } | Self::InvalidReply { endpoint, .. } = self {
            Some(endpoint)
        } else {
            self.refusal().map(|refusal| &*refusal.endpoint)
        }
    }

    pub(crate) fn setting(detail: impl Into<Arc<str>>) -> Self {
        Self::InvalidSetting {
            detail: detail.into(),
        }
    }

    pub(crate) fn invalid_reply(endpoint: &Arc<str>, detail: impl Into<Arc<str>>) -> Self {
        Self::InvalidReply {
            endpoint: Arc::clone(endpoint),
            detail: detail.into(),
        }
    }

    pub(crate) fn no_thread(error: &std::io::Error) -> Self {
        Self::NoThread {
            detail: error.to_string().into(),
        }
    }

    /// Adds a sentence about what to do to a refusal.
    pub(crate) fn with_advice(self, advice: &str) -> Self {
        let Self::Refused(refusal) = self else {
            return self;
        };
        let mut refusal = Refusal::clone(&refusal);
        refusal.detail = format!("{} {advice}", refusal.detail);
        Self::Refused(Arc::new(refusal))
    }
}

impl From<InvalidName> for Error {
    fn from(invalid: InvalidName) -> Self {
        Self::setting(invalid.to_string())
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            endpoint,
            status,
            code,
            detail,
            ..
        } = self;
        write!(f, "{endpoint} answered {status} {code}: {detail}")
    }
}

/// Returns the end of a sentence, which says why.
fn because(last: Option<&Error>) -> String {
    last.map_or_else(String::new, |last| format!(": {last}"))
}
