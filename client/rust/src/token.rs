//! The bearer token of the calls, given or in a file.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use crate::error::Error;

/// Where the bearer token comes from. It has the token, so it cannot be printed.
#[derive(Clone, Default)]
pub(crate) struct TokenSource {
    /// The token, or the one that the file had first.
    first: Option<String>,
    /// The file is read at each call, because files are rotated.
    file: Option<PathBuf>,
}

/// The bearer token of one process.
pub(crate) struct Token {
    source: TokenSource,
    /// The last one that the file had.
    last: Mutex<Option<String>>,
}

impl TokenSource {
    /// Takes a token that the program has.
    ///
    /// # Errors
    /// [`Error::InvalidSetting`] if it is no token. The error does not quote it.
    pub(crate) fn of_text(text: &str) -> Result<Self, Error> {
        let first = token_in(text.as_bytes());
        let detail = "the token is empty, or has characters that no token has";
        Ok(Self {
            first: Some(first.ok_or_else(|| Error::setting(detail))?),
            file: None,
        })
    }

    /// Reads the token in a file.
    ///
    /// # Errors
    /// [`Error::InvalidSetting`] if the file cannot be read, or has no token.
    pub(crate) fn of_file(file: &Path) -> Result<Self, Error> {
        let shown = file.display();
        let bytes = fs::read(file)
            .map_err(|error| Error::setting(format!("{shown} cannot be read: {error}")))?;
        let first = token_in(&bytes);
        Ok(Self {
            first: Some(first.ok_or_else(|| Error::setting(format!("{shown} has no token")))?),
            file: Some(file.to_owned()),
        })
    }
}

impl Token {
    pub(crate) fn new(source: TokenSource) -> Self {
        Self {
            last: Mutex::new(source.first.clone()),
            source,
        }
    }

    /// Returns the token of now. While the file is being written, or is away, the last one counts.
    pub(crate) fn read(&self) -> Option<String> {
        let file = self.source.file.as_ref();
        let read = file.and_then(|file| token_in(&fs::read(file).ok()?));
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if read.is_some() {
            *last = read;
        }
        last.clone()
    }
}

/// Returns the token in a text, which may have white space around it.
fn token_in(text: &[u8]) -> Option<String> {
    let token = str::from_utf8(text).ok()?.trim();
    let is_token = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
    is_token.then(|| token.to_owned())
}
