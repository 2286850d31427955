//! What a run says: a table, raw figures, pictures.

mod table;

pub(crate) use table::table;
