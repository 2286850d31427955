//! Decides how long a run measures, and in which order.

use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::{reading::Reading, row::Series};

/// Something that can be measured again and again.
#[async_trait(?Send)]
pub(crate) trait Contender {
    fn name(&self) -> &str;

    /// Measures for about `length`. Everything that this needs has been started before.
    async fn measure(&mut self, length: Duration) -> Reading;
}

/// How much a run measures.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Pace {
    /// The run that is published.
    Whole,
    /// A short run, which shows whether everything works and gives a first impression.
    Quick,
}

impl Pace {
    /// Returns how often each contender is measured.
    pub(crate) fn n_rounds(self) -> usize {
        self.of(5, 1)
    }

    /// Returns how long one measurement takes.
    pub(crate) fn length(self) -> Duration {
        self.of(Duration::from_secs(3), Duration::from_millis(500))
    }

    /// Returns `whole` or `quick`, as this pace is.
    pub(crate) fn of<T>(self, whole: T, quick: T) -> T {
        match self {
            Self::Whole => whole,
            Self::Quick => quick,
        }
    }

    /// Returns how long it takes to measure `n_contenders` in turn.
    pub(crate) fn estimate(self, n_contenders: u32) -> Duration {
        let rounds = u32::try_from(self.n_rounds()).unwrap_or(u32::MAX);
        let warm = self.length() / 3;
        n_contenders * (warm + rounds * (self.length() + Duration::from_millis(150)))
    }

    /// Measures all contenders one after the other, round by round. Before the rounds, each
    /// contender has a short run to warm up.
    pub(crate) async fn alternate(self, contenders: &mut [&mut dyn Contender]) -> Vec<Series> {
        let mut series: Vec<Series> = contenders
            .iter()
            .map(|contender| Series::new(contender.name(), Vec::new()))
            .collect();
        for contender in contenders.iter_mut() {
            contender.measure(self.length() / 3).await;
        }
        for _ in 0..self.n_rounds() {
            for (contender, series) in contenders.iter_mut().zip(&mut series) {
                series.readings.push(contender.measure(self.length()).await);
            }
        }
        series
    }
}
