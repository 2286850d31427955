//! What is wrong with a definition, or with a change of one.

use thiserror::Error;

/// Why a definition is refused. Each is a sentence for the caller.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DefinitionError {
    /// A value outside what the field allows.
    #[error("`{field}` {reason}.")]
    Invalid {
        /// The field, `block.min` for one inside another.
        field: &'static str,
        /// What it must be, to be read after the field's name.
        reason: String,
    },
    /// A field that stays as it was created.
    #[error("`{field}` cannot be changed once the sequence exists: it is {existing}.")]
    Immutable {
        /// The field.
        field: &'static str,
        /// Its value, as JSON.
        existing: String,
    },
    /// A format that might print an id that was printed before.
    #[error(
        "`format` cannot be changed to one that might print an id again: numbers were issued \
         under {used}."
    )]
    FormatInUse {
        /// The format whose ids it might print, as JSON.
        used: String,
    },
    /// The store was recovered since the sequence was last defined: formats that were set after the
    /// state that it went back to are not known.
    #[error(
        "`format` may print ids again: the database was recovered after the sequence was last \
         changed, and has forgotten any formats that were set since the restored state. Give \
         `confirm` as true if no id can come twice."
    )]
    FormatsUnknown,
}

impl DefinitionError {
    /// The field that is at fault.
    #[must_use]
    pub fn field(&self) -> &str {
        match self {
            Self::Invalid { field, .. } | Self::Immutable { field, .. } => field,
            Self::FormatInUse { .. } | Self::FormatsUnknown => "format",
        }
    }

    /// Whether a change was refused because the field stays as it is.
    #[must_use]
    pub fn is_immutable(&self) -> bool {
        matches!(self, Self::Immutable { .. } | Self::FormatInUse { .. })
    }
}

/// Why a definition read from the store cannot be used.
#[derive(Debug, Error)]
pub enum StoredDefinitionError {
    /// Not the JSON of a definition.
    #[error("the stored definition cannot be read: {0}")]
    Unreadable(#[from] serde_json::Error),
    /// A definition that this version cannot serve.
    #[error("the stored definition cannot be served: {0}")]
    Refused(#[from] DefinitionError),
}

/// Why a text is not a change of a definition. Each is a sentence for the caller.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ChangeError {
    /// Not JSON, or not a JSON object.
    #[error("The body must be a JSON object with fields of a definition: {detail}.")]
    NotJson {
        /// What it is instead.
        detail: String,
    },
    /// A field that does not exist, or a value of the wrong type.
    #[error("{detail}")]
    Wrong {
        /// The whole sentence.
        detail: String,
    },
}
