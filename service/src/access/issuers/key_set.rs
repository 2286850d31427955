//! Reads the file of an issuer's keys: a JSON Web Key Set.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use super::public_key::PublicKey;
use crate::config::guarded_file;

/// The most keys in a file.
const MAX_KEYS: usize = 64;

/// The most bytes of a file.
const MAX_BYTES: u64 = 256 * 1024;

/// The keys of an issuer, by the `kid` that a token names.
#[derive(PartialEq, Eq, Default, Debug)]
pub struct KeySet(BTreeMap<String, PublicKey>);

impl KeySet {
    /// Reads a file of keys.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    pub fn read(path: &Path) -> Result<Self, String> {
        let text = guarded_file::read_bytes(path, MAX_BYTES)?;
        Self::parse(&text).map_err(|problem| format!("{}: {problem}", path.display()))
    }

    /// Reads the text of a JSON Web Key Set (RFC 7517, section 5).
    ///
    /// Keys of unknown types, and keys that are not for signatures, are left out.
    ///
    /// # Errors
    /// As [`KeySet::read`].
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        let file: Value = serde_json::from_slice(text)
            .map_err(|error| format!("not a JSON Web Key Set: {error}"))?;
        let Some(keys) = file.get("keys").and_then(Value::as_array) else {
            let problem = "not a JSON Web Key Set; give an object with a list `keys`";
            return Err(problem.to_owned());
        };
        if keys.len() > MAX_KEYS {
            let n = keys.len();
            return Err(format!("it has {n} keys; give {MAX_KEYS} at most"));
        }
        let mut set = Self::default();
        for (index, key) in keys.iter().enumerate() {
            set.add(key)
                .map_err(|problem| format!("keys[{index}]: {problem}"))?;
        }
        if set.0.is_empty() {
            let problem = "it has no key that verifies tokens; give at least one of RSA, of EC with \
                           P-256, or of OKP with Ed25519";
            return Err(problem.to_owned());
        }
        Ok(set)
    }

    fn add(&mut self, key: &Value) -> Result<(), String> {
        let Some(read) = PublicKey::parse(key)? else {
            return Ok(());
        };
        let id = key.get("kid").and_then(Value::as_str);
        let Some(id) = id.filter(|id| !id.is_empty()) else {
            return Err("`kid` is missing, and tokens name their key by it".to_owned());
        };
        if self.0.insert(id.to_owned(), read).is_some() {
            return Err(format!("another key has the `kid` {id:?} already"));
        }
        Ok(())
    }

    /// Returns the key that a token names.
    pub fn get(&self, id: &str) -> Option<&PublicKey> {
        self.0.get(id)
    }

    /// Returns how many keys can verify tokens.
    pub fn n_keys(&self) -> usize {
        self.0.len()
    }
}
