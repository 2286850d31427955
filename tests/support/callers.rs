//! Finds the process of this run that is at the other end of a connection.

use std::path::PathBuf;

use tokio::net::TcpStream;

use super::child;

/// Returns the process of this run that opened `connection` to `port` of loopback. Returns `None`
/// if the process is gone, or is not a process of this run.
pub(crate) fn of(connection: &TcpStream, port: u16) -> Option<u32> {
    let theirs = connection.peer_addr().ok()?.port();
    let table = std::fs::read_to_string("/proc/net/tcp").ok()?;
    let socket = socket_of(&table, theirs, port)?;
    let holds = |process: &u32| {
        let files = std::fs::read_dir(format!("/proc/{process}/fd"));
        let mut files = files.into_iter().flatten().flatten();
        files.any(|file| std::fs::read_link(file.path()).is_ok_and(|link| link == socket))
    };
    child::of_this_run().into_iter().find(holds)
}

/// Returns the kernel's name of the socket that is bound to `from` and connected to `to`.
fn socket_of(table: &str, from: u16, to: u16) -> Option<PathBuf> {
    let (from, to) = (address(from), address(to));
    let inode = table.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let is_it = words.next()? == from && words.next()? == to;
        // The six fields between are state, queues, timers, retransmissions, owner and timeout.
        is_it.then(|| words.nth(6)).flatten()
    })?;
    Some(PathBuf::from(format!("socket:[{inode}]")))
}

/// Formats a port of loopback as the kernel prints it.
fn address(port: u16) -> String {
    format!("0100007F:{port:04X}")
}

#[test]
fn a_socket_is_found_by_its_two_ends() {
    let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt uid timeout inode\n   \
                 0: 0100007F:1F90 0100007F:3039 01 00000000:00000000 00:00000000 00000000     0        0 111 1\n   \
                 1: 0100007F:3039 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1000        0 222 1\n";
    assert_eq!(
        socket_of(table, 12345, 8080),
        Some(PathBuf::from("socket:[222]"))
    );
    assert_eq!(socket_of(table, 12345, 8081), None);
}
