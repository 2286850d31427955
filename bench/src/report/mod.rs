//! Reports a run: a table, raw figures, pictures, and the parts of the documents that show them.

mod pictures;
mod publish;
mod raw;
mod study;
mod table;
mod units;

pub(crate) use publish::publish;
pub(crate) use raw::Run;
pub(crate) use table::n_failed;

/// Returns the figures of a run as a table.
pub(crate) fn table(run: &Run) -> String {
    match run.study {
        None => table::table(&run.rows),
        Some(_) => study::tables(run),
    }
}
