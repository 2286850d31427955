//! Decides by which names callers may call a listener on loopback.

use actix_web::dev::RequestHead;
use actix_web::http::Method;
use actix_web::http::header::{self, HeaderMap};
use odometer_process::{
    faults::{self, Fault},
    host::{is_this_machine, without_port},
};

use crate::calls::problem::{Code, Problem};

/// Why a call by another name is refused.
pub(crate) const FOREIGN_HOST: &str = "The service listens on loopback and was called by a name other than \
    `localhost`, `127.0.0.1` or `[::1]`. Call it by one of these names, let the proxy in front of it \
    send one of them as `Host`, or add the name to `http.hosts`.";

/// The names by which callers may call one listener.
#[derive(Clone, Debug)]
pub(crate) enum Hosts {
    /// Any name, because other machines can reach the listener.
    Any,
    /// The names of this machine that no other machine can have, and the names in this list. The
    /// listener is loopback.
    ///
    /// A person who owns another name may let it lead to this machine. That person's page is then
    /// the same site as the service.
    Own(Vec<String>),
}

impl Hosts {
    /// Creates the names of one listener. `configured` are further names, valid with any port.
    pub(crate) fn new(loopback: bool, configured: &[String]) -> Self {
        if loopback {
            let names = configured.iter().map(|host| without_port(host).to_owned());
            Self::Own(names.collect())
        } else {
            Self::Any
        }
    }

    /// Returns whether a call came by one of these names.
    pub(crate) fn has(&self, headers: &HeaderMap) -> bool {
        let Self::Own(configured) = self else {
            return true;
        };
        let host = headers.get(header::HOST);
        let Some(name) = host.and_then(|host| host.to_str().ok()).map(without_port) else {
            return false;
        };
        let is_configured = |own: &String| own.eq_ignore_ascii_case(name);
        is_this_machine(name) || configured.iter().any(is_configured)
    }

    /// Returns why a call that only reads is refused, or `None` if it is not refused.
    ///
    /// Programs may call without a name, but browsers never do.
    pub(crate) fn read_refusal(&self, head: &RequestHead) -> Option<Problem> {
        let is_reading = matches!(head.method, Method::GET | Method::HEAD);
        let is_probe = matches!(head.uri.path(), "/livez" | "/readyz");
        let has_host = head.headers().contains_key(header::HOST);
        let is_foreign = is_reading && !is_probe && has_host && !self.has(head.headers());
        let is_refused = is_foreign && !faults::is(Fault::AnyHost);
        is_refused.then(|| Problem::new(Code::Forbidden, FOREIGN_HOST))
    }
}
