//! What the store is asked and tells of definitions and of the journal.

use std::{sync::Arc, time::SystemTime};

use odometer_core::{definition::Definition, name::SequenceName};

/// What must hold for a definition to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    None,
    /// There must be no sequence of that name yet.
    MustNotExist,
    /// The sequence must be at this version.
    Version(i64),
}

/// The outcome of a definition that was written, or that was there already.
#[derive(Clone, Debug)]
pub struct Defined {
    pub created: bool,
    pub definition: Arc<Definition>,
    pub version: i64,
}

/// One line of a listing.
#[derive(Clone, Debug)]
pub struct Listed {
    pub name: SequenceName,
    /// `live` or `retired`.
    pub state: String,
    pub definition: Arc<Definition>,
    pub version: i64,
}

/// A page of a listing, in the byte order of names.
#[derive(Clone, Debug)]
pub struct Page {
    pub sequences: Vec<Listed>,
    /// The last name of this page, where another page follows.
    pub next: Option<SequenceName>,
}

/// One row of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalBlock {
    pub first: i64,
    pub last: i64,
    pub step: i64,
    pub holder: String,
    pub reserved_at: SystemTime,
    pub fate: String,
    pub next_unissued: i64,
}
