//! A connection of a balancer, and the messages on it.

use std::sync::Arc;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::Use;
use crate::raw;

/// A connection to a replica, or of a caller.
pub(super) struct Wire {
    stream: TcpStream,
    received: Vec<u8>,
    replica: Option<Use>,
}

impl Wire {
    pub(super) fn over(stream: TcpStream, replica: Option<Use>) -> Self {
        stream.set_nodelay(true).expect("a socket can be told so");
        Self {
            stream,
            received: Vec::new(),
            replica,
        }
    }

    /// Reads the next whole message. Returns `None` if the other side ends the connection before. A
    /// dropped call loses no bytes: call the method again.
    pub(super) async fn message(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some((head, body)) = raw::message(&self.received) {
                let length = head.len() + 4 + body.len();
                let rest = self.received.split_off(length);
                return Some(std::mem::replace(&mut self.received, rest));
            }
            let read = self.stream.read_buf(&mut self.received).await;
            read.ok().filter(|n_bytes| *n_bytes > 0)?;
        }
    }

    /// Sends `message`. Returns `None` if the message cannot be written.
    pub(super) async fn send(&mut self, message: &[u8]) -> Option<()> {
        self.stream.write_all(message).await.ok()
    }

    pub(super) fn count_sent(&self) {
        if let Some(used) = &self.replica {
            used.replica().count_sent();
        }
    }

    pub(super) fn can_be_used(&self) -> bool {
        self.received.is_empty() && raw::is_quiet(&self.stream)
    }

    /// Returns the address of the replica at the other end, or the words `the caller`.
    pub(super) fn name(&self) -> &str {
        let replica = self.replica.as_ref();
        replica.map_or("the caller", |used| used.replica().address())
    }

    /// Resolves when the other side closes the connection. Bytes that nobody asked for are no
    /// reply, and end the connection as well.
    pub(super) async fn ended(&self) {
        let _ = self.stream.peek(&mut [0]).await;
    }

    /// Keeps a connection to a replica for the next request.
    pub(super) fn put_back(self) {
        let replica = self.replica.as_ref().map(|used| Arc::clone(used.replica()));
        if let Some(replica) = replica {
            replica.keep(self);
        }
    }
}

/// Returns whether a reply ends the connection that it came over.
pub(super) fn says_close(reply: &[u8]) -> bool {
    let head = raw::message(reply).map(|(head, _)| head);
    let connection = head.and_then(|head| raw::header(head, "connection"));
    connection.is_some_and(|value| value.eq_ignore_ascii_case("close"))
}

/// Returns a reply without its headers about the connection that it came over.
pub(super) fn without_connection(reply: &[u8]) -> Vec<u8> {
    let Some((head, body)) = raw::message(reply) else {
        return reply.to_vec();
    };
    let lines = head.split("\r\n").filter(|line| {
        let name = line.split(':').next().unwrap_or_default();
        !name.eq_ignore_ascii_case("connection")
    });
    let head = lines.collect::<Vec<_>>().join("\r\n");
    [head.as_bytes(), b"\r\n\r\n", body].concat()
}

#[test]
fn what_is_said_of_a_connection_ends_with_it() {
    let reply = b"HTTP/1.1 200 OK\r\nConnection: Close\r\ncontent-length: 2\r\n\r\n7\n";
    assert!(says_close(reply));
    let forwarded = without_connection(reply);
    assert_eq!(
        forwarded,
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n7\n"
    );
    assert!(!says_close(&forwarded));
}
