//! Holds what decides about the calls of one listener.

use std::sync::Arc;
use std::time::{Duration, Instant};

use odometer_sequence::Directory;

use super::access::Access;
use super::call_limit::CallLimit;
use super::repeated_lines::RepeatedLines;

/// No line of the log waits as long as this.
const ANY_WAIT: Duration = Duration::from_secs(3600);

/// What decides about the calls of one listener. All its workers share it.
pub(crate) struct Calls {
    pub(crate) directory: Arc<Directory>,
    pub(crate) access: Access,
    pub(crate) in_flight: Arc<CallLimit>,
    pub(crate) repeated_lines: RepeatedLines,
}

impl Calls {
    /// Writes the lines to the log that have waited long enough at the time `now`.
    pub(crate) fn tell(&self, now: Instant) {
        self.access.tell(now);
        self.repeated_lines.tell(now);
    }
}

/// What the log has not reported yet: wrong tokens, refused calls, and input that is no request.
pub struct UnreportedLines(pub(crate) Arc<Calls>);

impl UnreportedLines {
    /// Writes all of this to the log. Call it after the last call is answered.
    pub fn tell(&self) {
        self.0.tell(Instant::now() + ANY_WAIT);
    }
}
