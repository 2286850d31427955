//! Free ports on loopback.

use std::{
    collections::HashSet,
    net::{Ipv4Addr, TcpListener},
    sync::{Mutex, PoisonError},
};

/// Below what the kernel gives to outgoing connections: while a server is down for a test,
/// no connection may get its port by chance, and none may connect to itself.
const RANGE: std::ops::Range<u16> = 15_000..30_000;

static GIVEN: Mutex<Option<HashSet<u16>>> = Mutex::new(None);

/// A port nobody listens on now, given once in a run.
pub fn free() -> u16 {
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    let given = given.get_or_insert_default();
    for _ in 0..1000 {
        let port = rand::random_range(RANGE);
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() && given.insert(port) {
            return port;
        }
    }
    panic!("no free port between {} and {}", RANGE.start, RANGE.end);
}
