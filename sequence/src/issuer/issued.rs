//! Defines what a reply shows besides the number: its sequence and its period.

use std::sync::Arc;

use odometer_core::{block::Block, format::Printer, period::CounterKey};

/// What a reply shows besides the number. It comes from the issuer that gave the number.
#[derive(Clone, Copy)]
pub struct IssuedBy<'a> {
    /// The sequence that gave the number, with its period. The requested name may share the numbers
    /// of this sequence.
    pub key: &'a CounterKey,
    /// How its numbers are printed; `None` for plain numbers.
    pub printer: Option<&'a Arc<Printer>>,
}

/// The numbers that a caller got, and what the reply shows besides them.
#[derive(Clone, Debug)]
pub struct Issued {
    pub key: CounterKey,
    /// Ascending ranges, with as many numbers as were requested.
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
