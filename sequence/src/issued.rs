//! What a reply shows beside the number: of which sequence it is, and of which period.

use std::sync::Arc;

use odometer_core::{block::Block, format::Printer, period::CounterKey};

/// What a reply shows beside the number, read where the number was taken.
#[derive(Clone, Copy)]
pub struct IssuedBy<'a> {
    /// The sequence that gave it, which may be another one than was asked, and its period.
    pub key: &'a CounterKey,
    /// How its numbers are printed; `None` where just as they are.
    pub printer: Option<&'a Arc<Printer>>,
}

/// Numbers that a caller got, and what the reply shows beside them.
#[derive(Clone, Debug)]
pub struct Issued {
    pub key: CounterKey,
    /// Ascending, as many numbers as asked for.
    pub ranges: Vec<Block>,
    pub(crate) printer: Option<Arc<Printer>>,
}

impl Issued {
    pub fn shown(&self) -> IssuedBy<'_> {
        IssuedBy {
            key: &self.key,
            printer: self.printer.as_ref(),
        }
    }
}
