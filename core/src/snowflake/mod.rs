//! Time-ordered ids: a time, a worker id and a counter in the bits of one positive number.
//!
//! Nothing here knows the time. What reads the clock is an argument, and so is the time up to which
//! ids may be issued: that is reserved, as numbers are.
//!
//! | Word | Means |
//! |---|---|
//! | layout | how many bits the time, the worker id and the counter have, and in which order |
//! | tick | how many whole units (1 ms, 10 ms, 1 s) have passed since the layout's epoch |
//! | counter | what tells ids of one worker and tick apart; it is the id's sequence bits |
//! | position | tick and counter as one number, `tick · 2^sequence + counter`: the ids of one worker, counted |
//! | opening | from when a ticker is given a worker id until it is closed |
//! | limit | the first position that is not to be issued: the time reserved ends there |
//!
//! | File | Owns |
//! |---|---|
//! | `layout` | composing ids and taking them apart, ticks and times |
//! | `epoch` | how the epoch is written |
//! | `ticker` | issuing, none of them twice |

mod epoch;
mod layout;
#[cfg(all(test, not(loom)))]
mod layout_tests;
mod ticker;

pub use epoch::{DEFAULT_EPOCH_MS, epoch_from_text, epoch_to_text};
pub use layout::{HEADROOM, High, Layout, LayoutUnit, Parts};
pub use ticker::{Closed, Moment, NotOpened, Refused, Stamped, Stamps, Ticker};
