//! Issues time-ordered ids (snowflake ids): a time, a worker id and a counter in one positive
//! number.
//!
//! Nothing here knows the time. A caller passes a function that reads the clock, and the time up to
//! which ids may be issued. That time is reserved in a store, as numbers are.
//!
//! | Word | Meaning |
//! |---|---|
//! | layout | how many bits the time, the worker id and the counter have, and in which order |
//! | tick | how many whole units (1 ms, 10 ms, 1 s) have passed since the layout's epoch |
//! | counter | the sequence bits of an id, in which ids of one worker id and tick differ |
//! | position | tick and counter as one number: `tick · 2^sequence + counter` |
//! | opening | the time from the start of a ticker with a worker id until its close |
//! | limit | the end of the reserved time: the first position that may not be issued |
//!
//! | File | Owns |
//! |---|---|
//! | `layout` | ids and their parts, ticks and times |
//! | `epoch` | how the epoch is written |
//! | `ticker` | the issue of ids, no id twice |

mod epoch;
mod layout;
#[cfg(all(test, not(loom)))]
mod layout_tests;
mod ticker;

pub use epoch::{DEFAULT_EPOCH_MS, epoch_from_text, epoch_to_text};
pub use layout::{HEADROOM, High, Layout, LayoutUnit, Parts};
pub use ticker::{Closed, IdBatch, Moment, NotOpened, Refused, Ticker};
