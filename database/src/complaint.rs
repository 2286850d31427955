//! Limits how often a lasting problem is logged: when it changes, and once a minute while it lasts.

use std::time::{Duration, Instant};

const INTERVAL: Duration = Duration::from_secs(60);

#[derive(Default)]
pub struct Complaint {
    last: Option<(Instant, String)>,
}

impl Complaint {
    /// Returns whether `what` is to be logged at this instant.
    pub fn is_due(&mut self, what: &str, now: Instant) -> bool {
        let is_new = self.last.as_ref().is_none_or(|(at, said)| {
            said != what || now.saturating_duration_since(*at) >= INTERVAL
        });
        if is_new {
            self.last = Some((now, what.to_owned()));
        }
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_repeated_once_a_minute_while_it_lasts() {
        let start = Instant::now();
        let mut complaint = Complaint::default();
        let mut said = Vec::new();
        for second in 0..=150 {
            let what = if second < 30 { "starting" } else { "no login" };
            if complaint.is_due(what, start + Duration::from_secs(second)) {
                said.push(second);
            }
        }
        assert_eq!(said, [0, 30, 90, 150]);
    }
}
