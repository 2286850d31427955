//! Decides who may take what: callers with their tokens, their roles, and the rights of a role.
//!
//! This folder owns what `[access]` and the file of callers say. It never knows HTTP, and it asks no
//! database.
//!
//! Read first:
//!
//! - `right.rs`: lists the rights.
//! - `role.rs`: says on which names a role has each right.
//! - `callers.rs`: reads the file of callers, and finds the caller of a token.
//! - `credentials.rs`: holds what callers have to show, and reads the files again.
//! - `issuers/`: verifies JSON Web Tokens.
//! - `certificates.rs`: reads the files of `[tls]`.
//!
//! The rest: `quotas/` bounds what the callers of a role use up, `token.rs` makes tokens and hashes
//! them, `verdicts.rs` remembers the JSON Web Tokens that were right, `revocations.rs` checks lists
//! of revoked certificates, `shown_certificate.rs` holds the certificate of a connection,
//! `expiry.rs` computes for how long something is good, and `settings.rs` defines what `[access]`
//! configures.

pub mod callers;
pub mod certificates;
pub mod credentials;
mod expiry;
#[cfg(test)]
mod fuzz;
pub mod issuers;
pub mod quotas;
mod revocations;
pub mod right;
pub mod role;
pub mod settings;
pub mod shown_certificate;
pub mod token;
pub mod verdicts;
