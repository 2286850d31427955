//! Defines the rows of the tables, and reads and writes them.

pub(crate) mod addition;
pub(crate) mod block;
pub(crate) mod catalog;
pub(crate) mod conditional_insert;
pub(crate) mod counter;
pub(crate) mod creation_baseline;
pub(crate) mod new_counter;
pub(crate) mod payment;
pub(crate) mod row_count;
pub(crate) mod sequence;
