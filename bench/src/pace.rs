//! How long a run measures, and in which order.

use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::{reading::Reading, row::Series};

/// Something that can be measured again and again.
#[async_trait(?Send)]
pub(crate) trait Contender {
    fn name(&self) -> &str;

    /// Measures for about `length`; what it needs has been started before.
    async fn measure(&mut self, length: Duration) -> Reading;
}

/// How much a run measures.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Pace {
    /// What is published.
    Whole,
    /// Whether all works, and a first impression.
    Quick,
}

impl Pace {
    /// How often each contender has its turn.
    pub(crate) fn n_rounds(self) -> usize {
        self.of(5, 1)
    }

    /// How long one measurement of a load takes.
    pub(crate) fn length(self) -> Duration {
        self.of(Duration::from_secs(3), Duration::from_millis(500))
    }

    /// `whole` or `quick`, whichever this is.
    pub(crate) fn of<T>(self, whole: T, quick: T) -> T {
        match self {
            Self::Whole => whole,
            Self::Quick => quick,
        }
    }

    /// How long `n_contenders` take that are measured in turn.
    pub(crate) fn estimate(self, n_contenders: u32) -> Duration {
        let rounds = u32::try_from(self.n_rounds()).unwrap_or(u32::MAX);
        let warm = self.length() / 3;
        n_contenders * (warm + rounds * (self.length() + Duration::from_millis(150)))
    }

    /// Measures all in turn, one after the other and round by round, after each had a moment to
    /// become warm.
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
