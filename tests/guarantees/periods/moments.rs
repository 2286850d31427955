//! The moments at which calendars are difficult.

use jiff::Timestamp;

use super::{HOUR_MS, count::Count};

/// An instant, the sequences that count by it, and the errors of three replicas' clocks.
pub(super) struct Moment {
    pub(super) at: &'static str,
    pub(super) counts: &'static [Count],
    /// The first clock is right.
    pub(super) skews_ms: [i64; 3],
    pub(super) asks_for_blocks: bool,
}

impl Moment {
    /// Returns the instant, in milliseconds since the Unix epoch.
    pub(super) fn ms(&self) -> i64 {
        let at: Timestamp = self.at.parse().expect("an instant");
        at.as_millisecond()
    }
}

const BERLIN: &str = "Europe/Berlin";
const LONDON: &str = "Europe/London";
const KOLKATA: &str = "Asia/Kolkata";

/// Midnight, and a new year.
pub(super) const NEW_YEAR: Moment = Moment {
    at: "2026-12-31T23:00:00Z",
    counts: &[
        Count::new("day", ("day", BERLIN, "00:00"), ("20261231", "20270101")),
        Count::new("week", ("week", BERLIN, "00:00"), ("2026W53", "2026W53")),
        Count::new("month", ("month", BERLIN, "00:00"), ("202612", "202701")),
        Count::new("year", ("year", BERLIN, "00:00"), ("2026", "2027")),
    ],
    skews_ms: [0, -700, -24 * HOUR_MS],
    asks_for_blocks: true,
};

/// A moment with only the usual errors of clocks, and with enough time to reserve ahead.
pub(super) const UNSKEWED: Moment = Moment {
    at: "2026-11-20T21:00:00Z",
    counts: &[Count::new(
        "ahead",
        ("day", BERLIN, "22:00"),
        ("20261120", "20261121"),
    )],
    skews_ms: [0, -200, 200],
    asks_for_blocks: false,
};

/// Noon of a Thursday, as far from every cut-over as a step must reach.
pub(super) const STEPPED: Moment = Moment {
    at: "2026-12-31T11:00:00Z",
    counts: NEW_YEAR.counts,
    skews_ms: [0; 3],
    asks_for_blocks: true,
};

pub(super) const MOMENTS: &[Moment] = &[
    // Berlin's clock goes from 02:00 to 03:00. A cut-over between these times comes at this moment,
    // and so does a cut-over at 03:00.
    Moment {
        at: "2026-03-29T01:00:00Z",
        counts: &[
            Count::new("gap", ("day", BERLIN, "02:30"), ("20260329", "20260330")),
            Count::new("behind", ("day", BERLIN, "03:00"), ("20260329", "20260330")),
            Count::new("plain", ("day", BERLIN, "00:00"), ("20260329", "20260329")),
            Count::new("half", ("day", KOLKATA, "06:30"), ("20260329", "20260330")),
        ],
        skews_ms: [0, -700, 24 * HOUR_MS],
        asks_for_blocks: true,
    },
    // 02:30 comes for the first time. One replica meets it for the second time. Another replica is
    // at the moment at which the clock is set back from 03:00 to 02:00.
    Moment {
        at: "2026-10-25T00:30:00Z",
        counts: &[
            Count::new("fold", ("day", BERLIN, "02:30"), ("20261025", "20261026")),
            Count::new("utc", ("day", "UTC", "00:30"), ("20261025", "20261026")),
        ],
        skews_ms: [0, HOUR_MS, HOUR_MS / 2],
        asks_for_blocks: true,
    },
    // A fiscal year begins.
    Moment {
        at: "2026-04-05T23:00:00Z",
        counts: &[
            Count::new("fiscal", ("year", LONDON, "00:00"), ("2025", "2026")).fiscal("04-06"),
            Count::new("london", ("day", LONDON, "00:00"), ("20260405", "20260406")),
            Count::new("cut", ("day", BERLIN, "01:00"), ("20260406", "20260407")),
        ],
        skews_ms: [0, 26 * HOUR_MS, -26 * HOUR_MS],
        asks_for_blocks: true,
    },
    NEW_YEAR,
    // Midnight of a zone with half an hour in its offset, from a Sunday to a Monday. In Berlin a
    // bank closes its books.
    Moment {
        at: "2026-11-15T18:30:00Z",
        counts: &[
            Count::new("delhi", ("day", KOLKATA, "00:00"), ("20261115", "20261116")),
            Count::new(
                "delhi-week",
                ("week", KOLKATA, "00:00"),
                ("2026W46", "2026W47"),
            ),
            Count::new("bank", ("day", BERLIN, "19:30"), ("20261115", "20261116")),
        ],
        skews_ms: [0, 24 * HOUR_MS, -26 * HOUR_MS],
        asks_for_blocks: true,
    },
];
