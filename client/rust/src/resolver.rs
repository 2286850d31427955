//! Looks up the names of replicas.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use ureq::{
    config::Config,
    http::Uri,
    unversioned::{
        resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver},
        transport::NextTimeout,
    },
};

/// For how long addresses are used without another lookup.
pub(crate) const MAX_AGE: Duration = Duration::from_secs(1);

/// Looks a name up now and then, and goes on with its last addresses if that fails.
///
/// The HTTP library looks a name up at each call, although a connection that is open needs no
/// address. So without this, calls would end with the name service. And each lookup starts a
/// thread: if a program forks at this moment, its child can never start one.
#[derive(Debug)]
pub(crate) struct LastingResolver<R> {
    inner: R,
    max_age: Duration,
    /// The last addresses, by host and port.
    last: Mutex<BTreeMap<String, FoundAddresses>>,
}

/// The outcome of a lookup.
#[derive(Clone, Debug)]
struct FoundAddresses {
    at: Instant,
    addresses: ResolvedSocketAddrs,
}

impl<R: Resolver> LastingResolver<R> {
    pub(crate) fn new(inner: R, max_age: Duration) -> Self {
        Self {
            inner,
            max_age,
            last: Mutex::default(),
        }
    }

    /// Returns what was found last.
    fn last_of(&self, place: &str) -> Option<FoundAddresses> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.get(place).cloned()
    }

    fn note(&self, place: String, addresses: ResolvedSocketAddrs) {
        let found = FoundAddresses {
            at: Instant::now(),
            addresses,
        };
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.insert(place, found);
    }
}

impl<R: Resolver> Resolver for LastingResolver<R> {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let parts = uri.scheme().zip(uri.authority());
        let place = parts.and_then(|(scheme, authority)| {
            // The port may be the usual one of the scheme.
            DefaultResolver::host_and_port(scheme, authority)
        });
        let place = place.ok_or(ureq::Error::HostNotFound)?;
        if let Ok(address) = place.parse::<SocketAddr>() {
            let mut found = self.empty();
            found.push(address);
            return Ok(found);
        }
        let last = self.last_of(&place);
        if let Some(young) = &last
            && young.at.elapsed() < self.max_age
        {
            return Ok(young.addresses.clone());
        }
        match (self.inner.resolve(uri, config, timeout), last) {
            (Ok(found), _) => {
                self.note(place, found.clone());
                Ok(found)
            }
            (Err(_), Some(last)) => Ok(last.addresses),
            (Err(error), None) => Err(error),
        }
    }
}
