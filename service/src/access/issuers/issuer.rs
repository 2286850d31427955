//! Finds the issuer of a JSON Web Token, and checks the token with the issuer's keys.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use jsonwebtoken::dangerous::insecure_decode_claims;
use jsonwebtoken::{Algorithm, Header, Validation, decode, decode_header};

use super::claims::{Claims, NamedIssuer};
use super::key_set::KeySet;
use super::signature;

/// The most issuers, as each may have many keys.
pub const MAX_ISSUERS: usize = 16;

/// An issuer as the configuration says it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IssuerSettings {
    /// The exact `iss` of its tokens.
    pub issuer: String,
    /// What `aud` of its tokens must have.
    pub audience: String,
    /// The file of its keys.
    pub jwks_file: PathBuf,
}

/// An issuer with its keys.
#[derive(Clone, PartialEq, Eq, Debug)]
struct TokenIssuer {
    settings: IssuerSettings,
    keys: Arc<KeySet>,
}

/// All issuers, in the order of the configuration.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct TokenIssuers(Vec<TokenIssuer>);

/// What a right token says of the one who shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The `iss` of the token.
    pub issuer: String,
    /// The `sub` of the token.
    pub subject: String,
    /// From this time on, the token is wrong.
    pub until: SystemTime,
}

impl TokenIssuers {
    /// Reads the keys of all issuers.
    ///
    /// # Errors
    /// A sentence that names the key of the configuration, the file and what is wrong.
    pub fn read(settings: &[IssuerSettings]) -> Result<Self, String> {
        signature::install();
        let issuers = settings.iter().enumerate().map(|(index, settings)| {
            let keys = Arc::new(keys_of(index, settings)?);
            let settings = settings.clone();
            Ok(TokenIssuer { settings, keys })
        });
        issuers.collect::<Result<_, String>>().map(Self)
    }

    /// Reads the keys of all issuers again. An issuer whose file cannot be used keeps its former
    /// keys, and a sentence says why.
    pub fn read_again(&self) -> (Self, Vec<String>) {
        let mut problems = Vec::new();
        let issuers = self.0.iter().enumerate().map(|(index, former)| {
            let mut issuer = former.clone();
            match keys_of(index, &issuer.settings) {
                Ok(keys) => issuer.keys = Arc::new(keys),
                Err(problem) => problems.push(problem),
            }
            issuer
        });
        let issuers = Self(issuers.collect());
        (issuers, problems)
    }

    /// Returns how many issuers there are.
    pub fn n_issuers(&self) -> usize {
        self.0.len()
    }

    /// Returns how many keys all issuers have together.
    pub fn n_keys(&self) -> usize {
        self.0.iter().map(|issuer| issuer.keys.n_keys()).sum()
    }

    /// Returns whether a text has the form of a token that one of the issuers may have signed: three
    /// parts with dots between them.
    pub fn may_have_signed(&self, text: &str) -> bool {
        !self.0.is_empty() && memchr::memchr_iter(b'.', text.as_bytes()).count() == 2
    }

    /// Returns whom a token is for, if it is right at the time `now`.
    ///
    /// The token names its issuer and its key. Both are only used to find the key, and `iss` is
    /// checked again with the signature. The header cannot bring a key, or name a file of keys.
    pub fn identity(&self, token: &str, now: SystemTime) -> Option<Identity> {
        let header = decode_header(token).ok()?;
        // We know no extension, so we cannot follow one that must be followed (RFC 7515, 4.1.11).
        if header.crit.is_some() {
            return None;
        }
        let named: NamedIssuer = insecure_decode_claims(token).ok()?;
        let mut issuers = self.0.iter();
        let issuer = issuers.find(|issuer| issuer.settings.issuer == named.iss)?;
        issuer.identity(token, &header, now)
    }
}

impl TokenIssuer {
    fn identity(&self, token: &str, header: &Header, now: SystemTime) -> Option<Identity> {
        let key = self.keys.get(header.kid.as_deref()?)?;
        // The type of the key decides. Otherwise a token could choose how it is checked.
        let algorithm = key.algorithm();
        if header.alg != algorithm {
            return None;
        }
        let decoded = decode::<Claims>(token, &key.decoding_key(), &self.validation(algorithm));
        let claims = decoded.ok()?.claims;
        let until = claims.end()?;
        (claims.has_begun(now) && now < until).then(|| Identity {
            issuer: self.settings.issuer.clone(),
            subject: claims.sub,
            until,
        })
    }

    /// Returns what the library checks. It reads a clock of its own, so we check the times.
    fn validation(&self, algorithm: Algorithm) -> Validation {
        let mut validation = Validation::new(algorithm);
        validation.set_required_spec_claims(&["iss", "aud", "exp", "sub"]);
        validation.set_issuer(&[&self.settings.issuer]);
        validation.set_audience(&[&self.settings.audience]);
        validation.validate_exp = false;
        validation
    }
}

fn keys_of(index: usize, settings: &IssuerSettings) -> Result<KeySet, String> {
    let named = |problem| format!("access.issuers[{index}].jwks_file: {problem}");
    KeySet::read(&settings.jwks_file).map_err(named)
}
