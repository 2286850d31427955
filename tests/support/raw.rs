//! Requests byte by byte, as no HTTP library would send them.

use std::time::Duration;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::Reply;

const REPLY_LIMIT: Duration = Duration::from_secs(30);

/// Sends `request` unchanged on a connection of its own, and reads the one reply.
///
/// # Panics
/// If no whole reply comes.
pub async fn exchange(address: &str, request: &[u8]) -> Reply {
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    let (mut reader, mut writer) = stream.split();
    let exchanged = tokio::time::timeout(REPLY_LIMIT, async {
        let read = read_reply(&mut reader);
        tokio::pin!(read);
        tokio::select! {
            read = &mut read => read,
            // A refusal may come before the server has read the whole request. Then the write may
            // fail.
            _ = writer.write_all(request) => read.await,
        }
    });
    let (reply, received) = exchanged.await.expect("a reply comes within the limit");
    reply.unwrap_or_else(|| {
        panic!(
            "not a whole reply to {:?}: {:?}",
            String::from_utf8_lossy(request.get(..200).unwrap_or(request)),
            String::from_utf8_lossy(&received)
        )
    })
}

/// A connection that stays open from one request to the next.
pub struct Connection {
    stream: TcpStream,
}

impl Connection {
    /// Opens a connection to `address`, a `host:port`.
    pub async fn open(address: &str) -> Self {
        let stream = TcpStream::connect(address).await.expect("it listens");
        stream.set_nodelay(true).expect("a socket can be told so");
        Self { stream }
    }

    /// Returns whether the connection can be used again. The other side must neither have closed it
    /// nor have sent bytes that nobody asked for.
    pub fn is_open(&self) -> bool {
        is_quiet(&self.stream)
    }

    /// Sends `request` unchanged and reads the one reply.
    ///
    /// # Panics
    /// If no whole reply comes.
    pub async fn exchange(&mut self, request: &[u8]) -> Reply {
        let exchanged = tokio::time::timeout(REPLY_LIMIT, self.try_exchange(request));
        let reply = exchanged.await.expect("a reply comes within the limit");
        reply.expect("a whole reply comes")
    }

    /// Sends `request` unchanged and reads the one reply, without a time limit. Returns `None` if
    /// no whole reply comes; the connection is of no use after that.
    pub async fn try_exchange(&mut self, request: &[u8]) -> Option<Reply> {
        let (mut reader, mut writer) = self.stream.split();
        writer.write_all(request).await.ok()?;
        read_reply(&mut reader).await.0
    }
}

/// Builds a request with any bytes as its name or path, and with the headers that every request
/// needs.
pub fn request(method: &str, target: &[u8], headers: &str, body: &[u8]) -> Vec<u8> {
    let mut request = Vec::new();
    request.extend_from_slice(method.as_bytes());
    request.push(b' ');
    request.extend_from_slice(target);
    request.extend_from_slice(b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
    if !body.is_empty() {
        request.extend_from_slice(format!("Content-Length: {}\r\n", body.len()).as_bytes());
    }
    request.extend_from_slice(headers.as_bytes());
    request.extend_from_slice(b"\r\n");
    request.extend_from_slice(body);
    request
}

/// Reads one reply. Also returns all that came, whether it is a whole reply or not.
pub(crate) async fn read_reply(stream: &mut (impl AsyncRead + Unpin)) -> (Option<Reply>, Vec<u8>) {
    let mut received = Vec::new();
    let mut buffer = vec![0; 16 * 1024];
    loop {
        if let Some(reply) = parse(&received) {
            return (Some(reply), received);
        }
        match stream.read(&mut buffer).await {
            Ok(n) if n > 0 => received.extend_from_slice(buffer.get(..n).unwrap_or_default()),
            _ => return (None, received),
        }
    }
}

/// Returns whether nothing came on `stream`, neither bytes nor its end.
pub(crate) fn is_quiet(stream: &TcpStream) -> bool {
    let read = stream.try_read(&mut [0]);
    read.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
}

/// Finds the first message in `received`, a request or a reply. Returns its head without the empty
/// line, and its body by `Content-Length`. Returns `None` until the whole message is there.
pub fn message(received: &[u8]) -> Option<(&str, &[u8])> {
    let head_end = received.windows(4).position(|bytes| bytes == b"\r\n\r\n")?;
    let head = std::str::from_utf8(received.get(..head_end)?).ok()?;
    let length: usize = match header(head, "content-length") {
        Some(length) => length.parse().ok()?,
        None => 0,
    };
    let body = received.get(head_end + 4..head_end + 4 + length)?;
    Some((head, body))
}

/// Returns the value of the first header of `head` with this name, in upper or lower case.
pub fn header<'a>(head: &'a str, wanted: &str) -> Option<&'a str> {
    head.split("\r\n").skip(1).find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case(wanted).then(|| value.trim())
    })
}

fn parse(received: &[u8]) -> Option<Reply> {
    let (head, body) = message(received)?;
    let mut lines = head.split("\r\n");
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let mut headers = HeaderMap::new();
    for line in lines {
        let (name, value) = line.split_once(':')?;
        headers.append(
            name.parse::<HeaderName>().ok()?,
            HeaderValue::from_str(value.trim()).ok()?,
        );
    }
    Some(Reply {
        status,
        headers,
        body: String::from_utf8_lossy(body).into_owned(),
    })
}
