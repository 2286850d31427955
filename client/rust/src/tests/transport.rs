//! Tests what becomes of replies that end too early.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use ureq::{
    Agent,
    config::Config,
    http::{Method, Uri},
    unversioned::{
        resolver::{ResolvedSocketAddrs, Resolver},
        transport::{DefaultConnector, NextTimeout},
    },
};

use super::stub::Stub;
use crate::{
    error::Error,
    resolver::LastingResolver,
    transport::{Call, LOOKUP_TIMEOUT, RawReply, Transport, config},
};

const TIMEOUT: Duration = Duration::from_secs(5);
const BODY: &str = "{\"count\":1}";

fn whole() -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 11\r\n\r\n{BODY}")
}

fn chunked() -> String {
    format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nb\r\n{BODY}\r\n0\r\n\r\n")
}

/// Makes a call, to which a server sends these bytes before it closes the connection.
fn called(reply: &[u8]) -> Result<RawReply, Error> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url: Arc<str> = format!("http://{}", listener.local_addr().unwrap()).into();
    let reply = reply.to_vec();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 4096];
        let n_read = stream.read(&mut request).unwrap();
        stream.write_all(&reply).unwrap();
        n_read
    });
    let transport = Transport::new(config(None, TIMEOUT).new_agent());
    let result = transport.call(&url, &Call::new(Method::POST, "/next", TIMEOUT), None);
    assert!(server.join().unwrap() > 0);
    result
}

#[test]
fn a_reply_that_is_cut_anywhere_is_none() {
    let whole = whole();
    for n_bytes in 0..whole.len() {
        let error = called(&whole.as_bytes()[..n_bytes]).unwrap_err();
        assert_eq!(error.outcome(), "connection", "{n_bytes}");
        assert!(error.is_retryable(), "{n_bytes}");
    }
}

#[test]
fn a_reply_in_chunks_that_is_cut_is_none() {
    let chunked = chunked();
    let end = chunked.find("\r\n0\r\n").unwrap();
    for n_bytes in 0..end {
        let error = called(&chunked.as_bytes()[..n_bytes]).unwrap_err();
        assert_eq!(error.outcome(), "connection", "{n_bytes}");
    }
}

#[test]
fn a_whole_reply_is_read() {
    for whole in [whole(), chunked()] {
        let reply = called(whole.as_bytes()).unwrap();
        assert_eq!(
            (reply.status, reply.body.as_slice()),
            (200, BODY.as_bytes())
        );
        assert!(!reply.is_last);
    }
}

#[test]
fn a_reply_without_an_end_of_its_own_is_none() {
    let error = called(format!("HTTP/1.1 200 OK\r\n\r\n{BODY}").as_bytes()).unwrap_err();
    assert_eq!(error.outcome(), "connection");
}

#[test]
fn a_refusal_may_end_with_its_connection() {
    for refusal in ["{\"code\":\"sequence_retired\"}", ""] {
        let reply = format!("HTTP/1.1 410 Gone\r\n\r\n{refusal}");
        let reply = called(reply.as_bytes()).unwrap();
        assert_eq!(
            (reply.status, reply.body.as_slice()),
            (410, refusal.as_bytes())
        );
    }
}

#[test]
fn a_reply_says_when_to_call_again_and_that_it_is_the_last() {
    let reply =
        "HTTP/1.1 503 No\r\nretry-after: 2\r\nConnection: Close\r\ncontent-length: 0\r\n\r\n";
    let reply = called(reply.as_bytes()).unwrap();
    assert_eq!(reply.status, 503);
    assert_eq!(reply.retry_after, Some(Duration::from_secs(2)));
    assert!(reply.is_last);
}

#[test]
fn a_redirect_is_not_followed() {
    let reply = "HTTP/1.1 307 There\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n";
    assert_eq!(called(reply.as_bytes()).unwrap().status, 307);
}

#[test]
fn a_call_ends_in_time_however_slowly_the_bytes_come() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url: Arc<str> = format!("http://{}", listener.local_addr().unwrap()).into();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        for byte in whole().bytes() {
            if stream.write_all(&[byte]).is_err() {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
    });
    let transport = Transport::new(config(None, TIMEOUT).new_agent());
    let call = Call::new(Method::GET, "/", Duration::from_millis(200));
    let error = transport.call(&url, &call, None).unwrap_err();
    assert_eq!(error.outcome(), "timeout");
    drop(transport);
    server.join().unwrap();
}

/// Panics, as the HTTP library does if the system gives it no thread.
#[derive(Debug)]
struct NoResolver;

impl Resolver for NoResolver {
    fn resolve(
        &self,
        _uri: &Uri,
        _config: &Config,
        _timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        panic!("on purpose");
    }
}

#[test]
fn a_call_that_panics_is_one_without_a_reply() {
    let agent = Agent::with_parts(
        config(None, TIMEOUT),
        DefaultConnector::default(),
        NoResolver,
    );
    let call = Call::new(Method::GET, "/", TIMEOUT);
    let called = Transport::new(agent).call(&"http://a".into(), &call, None);
    let error = called.unwrap_err();
    assert_eq!(error.outcome(), "connection");
    assert!(error.is_retryable());
}

/// Knows the address of a name at the first lookup alone. Notes the time that each lookup has.
#[derive(Debug)]
struct ResolverOnce {
    address: SocketAddr,
    lookups: Arc<Mutex<Vec<Duration>>>,
}

impl Resolver for ResolverOnce {
    fn resolve(
        &self,
        _uri: &Uri,
        _config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let mut lookups = self.lookups.lock().unwrap();
        lookups.push(*timeout.after);
        if lookups.len() > 1 {
            return Err(ureq::Error::HostNotFound);
        }
        let mut found = self.empty();
        found.push(self.address);
        Ok(found)
    }
}

/// Makes two calls to a stub under a name that is found once. Returns the time of each lookup.
fn called_by_name(max_age: Duration) -> Vec<Duration> {
    let stub = Stub::start();
    let address = stub.url.strip_prefix("http://").unwrap();
    let lookups = Arc::new(Mutex::default());
    let inner = ResolverOnce {
        address: address.parse().unwrap(),
        lookups: Arc::clone(&lookups),
    };
    let resolver = LastingResolver::new(inner, max_age);
    let agent = Agent::with_parts(config(None, TIMEOUT), DefaultConnector::default(), resolver);
    let transport = Transport::new(agent);
    let call = Call::new(Method::GET, "/v1/sequences/orders", TIMEOUT);
    let known: Arc<str> = "http://a.test:8080".into();
    for _ in 0..2 {
        assert_eq!(transport.call(&known, &call, None).unwrap().status, 200);
    }
    assert_eq!(stub.n_connections(), 1);
    let of_known = lookups.lock().unwrap().clone();
    let unknown: Arc<str> = "http://b.test:8080".into();
    let error = transport.call(&unknown, &call, None).unwrap_err();
    assert_eq!(error.outcome(), "connection");
    of_known
}

#[test]
fn an_open_connection_is_used_although_its_name_cannot_be_looked_up_any_more() {
    let lookups = called_by_name(Duration::ZERO);
    assert_eq!(lookups.len(), 2);
    // It hangs perhaps, and the call needs time as well.
    assert!(lookups[1] <= LOOKUP_TIMEOUT / 4, "{lookups:?}");
}

#[test]
fn calls_in_quick_succession_share_a_lookup() {
    assert_eq!(called_by_name(Duration::MAX).len(), 1);
}

#[test]
fn what_is_an_address_is_not_looked_up() {
    let stub = Stub::start();
    let resolver = LastingResolver::new(NoResolver, Duration::ZERO);
    let agent = Agent::with_parts(config(None, TIMEOUT), DefaultConnector::default(), resolver);
    let call = Call::new(Method::GET, "/v1/sequences/orders", TIMEOUT);
    let reply = Transport::new(agent).call(&stub.url.as_str().into(), &call, None);
    assert_eq!(reply.unwrap().status, 200);
}

#[test]
fn a_reply_is_printed_without_its_body() {
    let reply = called(whole().as_bytes()).unwrap();
    let printed = format!("{reply:?}");
    assert!(printed.contains("n_bytes: 11"), "{printed}");
    assert!(!printed.contains("body"), "{printed}");
}
