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
/// A lookup takes at most this part of the time of its call, if the name was found before.
const LOOKUP_PART: u32 = 4;

/// Looks a name up now and then. While that fails, open connections are still used.
///
/// The HTTP library looks a name up at each call, although a connection that is open needs no
/// address. So without this, calls would end with the name service. And each lookup starts a
/// thread: if a program forks at this moment, its child can never start one.
#[derive(Debug)]
pub(crate) struct LastingResolver<R> {
    inner: R,
    max_age: Duration,
    /// The last lookups, by host and port.
    last: Mutex<BTreeMap<String, Lookup>>,
}

/// The lookup of a name that was found once.
#[derive(Clone, Debug)]
struct Lookup {
    at: Instant,
    /// Empty if the name could not be looked up again.
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

    /// Returns what the last lookup gave, and whether it is time for another one. Of several
    /// callers, one is told so.
    fn last_of(&self, place: &str) -> Option<(ResolvedSocketAddrs, bool)> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let lookup = last.get_mut(place)?;
        let is_due = lookup.at.elapsed() >= self.max_age;
        if is_due {
            lookup.at = Instant::now();
        }
        Some((lookup.addresses.clone(), is_due))
    }

    fn note(&self, place: String, addresses: &ResolvedSocketAddrs) {
        let lookup = Lookup {
            at: Instant::now(),
            addresses: addresses.clone(),
        };
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.insert(place, lookup);
    }
}

impl<R: Resolver> Resolver for LastingResolver<R> {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        mut timeout: NextTimeout,
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
        let is_known = last.is_some();
        match last {
            Some((addresses, false)) => return Ok(addresses),
            Some((_, true)) => timeout.after = timeout.after / LOOKUP_PART,
            None => {}
        }
        let found = match self.inner.resolve(uri, config, timeout) {
            Err(_) if is_known => self.empty(),
            found => found?,
        };
        self.note(place, &found);
        Ok(found)
    }
}
