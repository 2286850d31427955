//! What a run says: a table, raw figures, pictures, and what stands of it in the documents.

mod pictures;
mod publish;
mod raw;
mod table;
mod units;

pub(crate) use publish::publish;
pub(crate) use raw::Run;
pub(crate) use table::{n_failed, table};
