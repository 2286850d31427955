//! Identifies what listens at a database's host and port if it is not the expected database.
//!
//! A client of MySQL waits for the server to speak first, and most other servers wait for the
//! client. So a wrong port shows nothing but silence. Therefore each kind of server is addressed in
//! its own way, before the first contact only.

use std::time::Duration;

use sea_orm::DbBackend;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

/// Bounds how long a server may take to send its first bytes.
const FIRST_WORD: Duration = Duration::from_millis(300);
/// Asks PostgreSQL whether it speaks TLS. PostgreSQL answers with one letter.
const TLS_REQUEST: &[u8] = &[0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];
const HTTP_REQUEST: &[u8] = b"GET / HTTP/1.0\r\n\r\n";

/// Returns what answers there, if it is not what was expected. `None` if nothing is known of it.
pub(crate) async fn identify(expected: DbBackend, host: &str, port: u16) -> Option<&'static str> {
    let greeting = first_word(host, port, b"").await;
    let found = match greeting.as_slice() {
        // Length and number of a packet, then the version of the protocol or an error.
        [_, _, _, 0, 0x0a | 0xff, ..] => Some(DbBackend::MySql),
        [_, ..] => return Some("something that is no database"),
        [] => match first_word(host, port, TLS_REQUEST).await.as_slice() {
            [b'S' | b'N'] => Some(DbBackend::Postgres),
            _ => None,
        },
    };
    match found {
        Some(found) if found == expected => None,
        Some(DbBackend::MySql) => Some("a MySQL or MariaDB server"),
        Some(_) => Some("a PostgreSQL server"),
        None => {
            let reply = first_word(host, port, HTTP_REQUEST).await;
            if reply.starts_with(b"HTTP/") {
                Some("an HTTP server")
            } else if reply.starts_with(b"-") {
                Some("a Redis server")
            } else {
                None
            }
        }
    }
}

/// Returns the first bytes of the answer to `said` on a new connection. Empty if the answer takes
/// too long.
async fn first_word(host: &str, port: u16, said: &[u8]) -> Vec<u8> {
    let asking = async {
        let mut stream = TcpStream::connect((host, port)).await.ok()?;
        stream.write_all(said).await.ok()?;
        let mut word = vec![0; 16];
        let length = stream.read(&mut word).await.ok()?;
        word.truncate(length);
        Some(word)
    };
    let word = timeout(FIRST_WORD, asking).await.ok().flatten();
    word.unwrap_or_default()
}
