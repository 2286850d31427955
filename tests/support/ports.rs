//! Free ports on loopback.

use std::{
    collections::HashSet,
    net::{Ipv4Addr, TcpListener},
    sync::{Mutex, PoisonError},
};

/// The range of the ports, below the ports that the kernel gives to outgoing connections. While a
/// server is down for a test, no connection may get its port by chance, and no connection may
/// connect to itself.
const RANGE: std::ops::Range<u16> = 15_000..30_000;

static GIVEN: Mutex<Option<HashSet<u16>>> = Mutex::new(None);

/// Returns a port on which nobody listens now. Each port is returned once in a run.
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
