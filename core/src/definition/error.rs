//! Says what is wrong with a definition, or with a change of a definition.

use thiserror::Error;

/// Says why a definition is refused. Each message is a sentence for the caller.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DefinitionError {
    /// A value that the field does not allow.
    #[error("`{field}` {reason}.")]
    Invalid {
        /// The field. A field inside another one has a path, such as `block.min`.
        field: &'static str,
        /// The rule that the value breaks. It is read after the field's name.
        reason: String,
    },
    /// A field that stays as it was created.
    #[error("`{field}` cannot be changed once the sequence exists: it is {existing}.")]
    Immutable {
        /// The field.
        field: &'static str,
        /// The value of the field, as JSON.
        existing: String,
    },
    /// A format that might print an id that was printed before.
    #[error(
        "`format` cannot be changed to one that might print an id again: numbers were issued \
         under {used}."
    )]
    FormatInUse {
        /// The pattern of the former format, as JSON. The new format might print one of its ids
        /// again.
        used: String,
    },
    /// The store was recovered after the last change of the sequence. Formats that were set after
    /// the restored state are not known.
    #[error(
        "`format` may print ids again: the database was recovered after the sequence was last \
         changed, and has forgotten any formats that were set since the restored state. Give \
         `confirm` as true if no id can come twice."
    )]
    FormatsUnknown,
}

impl DefinitionError {
    /// Returns the field that is wrong.
    #[must_use]
    pub fn field(&self) -> &str {
        match self {
            Self::Invalid { field, .. } | Self::Immutable { field, .. } => field,
            Self::FormatInUse { .. } | Self::FormatsUnknown => "format",
        }
    }

    /// Returns whether a change was refused because the field stays as it is.
    #[must_use]
    pub fn is_immutable(&self) -> bool {
        matches!(self, Self::Immutable { .. } | Self::FormatInUse { .. })
    }
}

/// Says why a definition from the store cannot be used.
#[derive(Debug, Error)]
pub enum StoredDefinitionError {
    /// The text is not the JSON of a definition.
    #[error("the stored definition cannot be read: {0}")]
    Unreadable(#[from] serde_json::Error),
    /// A definition that this version cannot serve.
    #[error("the stored definition cannot be served: {0}")]
    Refused(#[from] DefinitionError),
}

/// Says why a text is not a change of a definition. Each message is a sentence for the caller.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ChangeError {
    /// The text is not JSON, or not a JSON object.
    #[error("The body must be a JSON object with fields of a definition: {detail}.")]
    NotJson {
        /// A description of the text that was given instead.
        detail: String,
    },
    /// A field that does not exist, or a value of the wrong type.
    #[error("{detail}")]
    Wrong {
        /// The field. A field inside another one has a path, such as `block.min`.
        field: String,
        /// The whole message.
        detail: String,
    },
}
