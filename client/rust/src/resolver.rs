//! Looks up the names of replicas.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use ureq::{
    config::Config,
    http::Uri,
    unversioned::{
        resolver::{ResolvedSocketAddrs, Resolver},
        transport::NextTimeout,
    },
};

/// Goes on with the addresses of the last lookup if a name cannot be looked up any more.
///
/// The HTTP library looks a name up at each call, although a connection that is open needs no
/// address. So without this, calls would end with the name service.
#[derive(Debug)]
pub(crate) struct LastingResolver<R> {
    inner: R,
    /// The last addresses, by scheme, host and port.
    last: Mutex<BTreeMap<String, ResolvedSocketAddrs>>,
}

impl<R: Resolver> LastingResolver<R> {
    pub(crate) fn new(inner: R) -> Self {
        Self {
            inner,
            last: Mutex::default(),
        }
    }
}

impl<R: Resolver> Resolver for LastingResolver<R> {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        // The port may be the usual one of the scheme.
        let scheme = uri.scheme_str().unwrap_or_default();
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        let place = format!("{scheme}://{authority}");
        let found = self.inner.resolve(uri, config, timeout);
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match found {
            Ok(found) => {
                last.insert(place, found.clone());
                Ok(found)
            }
            Err(error) => last.get(&place).cloned().ok_or(error),
        }
    }
}
