//! What a run says: a table, raw figures, pictures, and what stands of it in the documents.

mod pictures;
mod publish;
mod raw;
mod study;
mod table;
mod units;

pub(crate) use publish::{kept, publish};
pub(crate) use raw::Run;
pub(crate) use table::n_failed;

/// What a run says as a table.
pub(crate) fn table(run: &Run) -> String {
    match run.study {
        None => table::table(&run.rows),
        Some(_) => study::tables(run),
    }
}
