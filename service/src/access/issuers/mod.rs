//! Verifies JSON Web Tokens with keys from files, so it calls nobody.
//!
//! This folder owns the issuers of `[[access.issuers]]` and their keys. It never knows callers: it
//! says which subject a token names, and the file of callers says who that is.
//!
//! Read first:
//!
//! - `issuer.rs`: finds the issuer of a token, and checks the token.
//! - `key_set.rs`: reads the file of an issuer's keys.
//!
//! The rest: `public_key.rs` reads one key, `claims.rs` reads what a token says, and `signature.rs`
//! verifies signatures by ring.

mod claims;
pub mod issuer;
pub mod key_set;
pub mod public_key;
mod signature;
#[cfg(test)]
mod tests;
