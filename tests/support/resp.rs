//! A client of Redis that sends bytes as the test says, and reads replies of RESP2 and RESP3.

use std::time::Duration;

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
};

const REPLY_LIMIT: Duration = Duration::from_secs(30);

/// One connection. A reply is shown as a text that begins with its marker: `:5`, `+OK`, `$a text`,
/// `-ERR …`, `*[:1, :2]`, or `nothing`.
pub struct RespClient<S> {
    stream: S,
    received: Vec<u8>,
}

impl RespClient<TcpStream> {
    /// Opens a connection to `address`, a `host:port`.
    pub async fn open(address: &str) -> Self {
        let stream = TcpStream::connect(address).await.expect("it listens");
        stream.set_nodelay(true).expect("a socket can be told so");
        Self::over(stream)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> RespClient<S> {
    /// Uses a connection that is open.
    pub fn over(stream: S) -> Self {
        Self {
            stream,
            received: Vec::new(),
        }
    }

    /// Sends bytes unchanged.
    ///
    /// # Panics
    /// If the connection has ended.
    pub async fn send(&mut self, bytes: &[u8]) {
        self.try_send(bytes).await.expect("it reads");
    }

    /// Sends bytes unchanged.
    ///
    /// # Errors
    /// The connection has ended.
    pub async fn try_send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes).await?;
        self.stream.flush().await
    }

    /// Sends a command whose words have blanks between them, and returns its reply.
    pub async fn ask(&mut self, line: &str) -> String {
        self.send(&resp_command(&line.split(' ').collect::<Vec<_>>()))
            .await;
        self.reply().await
    }

    /// Returns the next reply.
    ///
    /// # Panics
    /// If the connection ends before it.
    pub async fn reply(&mut self) -> String {
        self.next_reply().await.expect("a reply comes")
    }

    /// Returns the next reply; `None` if the connection ends before it.
    ///
    /// # Panics
    /// If neither comes, or if what comes is no reply.
    pub async fn next_reply(&mut self) -> Option<String> {
        read_reply(&mut self.stream, &mut self.received).await
    }

    /// Sends many commands, and meanwhile reads this many replies.
    ///
    /// # Panics
    /// If the connection ends before the last one.
    pub async fn ask_all(&mut self, commands: &[u8], n_replies: usize) -> Vec<String> {
        let received = &mut self.received;
        let (mut reader, mut writer) = tokio::io::split(&mut self.stream);
        let writing = async {
            writer.write_all(commands).await.expect("it reads");
            writer.flush().await.expect("it reads");
        };
        let reading = async {
            let mut replies = Vec::new();
            for _ in 0..n_replies {
                let reply = read_reply(&mut reader, received).await;
                replies.push(reply.expect("a reply comes"));
            }
            replies
        };
        let ((), replies) = tokio::join!(writing, reading);
        replies
    }

    /// Waits until the connection ends, without a further reply.
    ///
    /// # Panics
    /// If it does not end within the limit, or if a reply comes.
    pub async fn end_within(&mut self, limit: Duration) {
        let ended = tokio::time::timeout(limit, self.stream.read_u8()).await;
        let reply = ended.expect("the connection ends within the limit");
        assert!(reply.is_err(), "a reply came: {reply:?}");
    }

    /// Returns all replies up to the end of the connection.
    pub async fn replies_to_the_end(&mut self) -> Vec<String> {
        let mut replies = Vec::new();
        while let Some(reply) = self.next_reply().await {
            replies.push(reply);
        }
        replies
    }
}

/// Reads until `received` begins with a whole reply, and takes that out. Returns `None` if the
/// connection ends before.
async fn read_reply(
    reader: &mut (impl AsyncRead + Unpin),
    received: &mut Vec<u8>,
) -> Option<String> {
    let reading = async {
        loop {
            if let Some((reply, n_bytes)) = shown(received) {
                received.drain(..n_bytes);
                return Some(reply);
            }
            match reader.read_buf(received).await {
                Ok(n_bytes) if n_bytes > 0 => {}
                _ => return None,
            }
        }
    };
    let reply = tokio::time::timeout(REPLY_LIMIT, reading).await;
    reply.expect("a reply or an end comes within the limit")
}

/// Returns a command as clients send it.
pub fn resp_command(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len());
    for word in words {
        bytes.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    bytes.into_bytes()
}

/// Returns the number of a reply that is one.
///
/// # Panics
/// If it is another reply.
pub fn resp_number(reply: &str) -> i64 {
    let number = reply.strip_prefix(':').and_then(|it| it.parse().ok());
    number.unwrap_or_else(|| panic!("no number: {reply}"))
}

/// Returns the first reply in `received`, and how many bytes it has. `None` until it is whole.
///
/// # Panics
/// If these bytes are no reply.
fn shown(received: &[u8]) -> Option<(String, usize)> {
    let end = received.windows(2).position(|two| two == b"\r\n")?;
    let line = String::from_utf8_lossy(received.get(1..end)?).into_owned();
    let marker = char::from(*received.first()?);
    let mut at = end + 2;
    if matches!(marker, '+' | '-' | ':') {
        return Some((format!("{marker}{line}"), at));
    }
    let length = || -> i64 {
        let length = line.parse();
        length.unwrap_or_else(|_| panic!("no length: {marker}{line}"))
    };
    let nothing = || Some(("nothing".to_owned(), end + 2));
    match marker {
        '_' => nothing(),
        '$' | '=' => {
            let Ok(length) = usize::try_from(length()) else {
                return nothing();
            };
            let text = received.get(at..at + length)?;
            assert_eq!(received.get(at + length..at + length + 2)?, b"\r\n");
            let text = String::from_utf8_lossy(text);
            Some((format!("{marker}{text}"), at + length + 2))
        }
        '*' | '%' => {
            let Ok(length) = usize::try_from(length()) else {
                return nothing();
            };
            let mut inside = Vec::new();
            for _ in 0..if marker == '%' { 2 * length } else { length } {
                let (reply, n_bytes) = shown(received.get(at..)?)?;
                inside.push(reply);
                at += n_bytes;
            }
            Some((format!("{marker}[{}]", inside.join(", ")), at))
        }
        other => panic!("no reply begins with {other:?}: {line}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_shown_once_they_are_whole() {
        for (bytes, reply) in [
            (":-7\r\n", ":-7"),
            ("+OK\r\n", "+OK"),
            ("-ERR a b\r\n", "-ERR a b"),
            ("$3\r\na\r\n\r\n", "$a\r\n"),
            ("=6\r\ntxt:ab\r\n", "=txt:ab"),
            ("$-1\r\n", "nothing"),
            ("*-1\r\n", "nothing"),
            ("_\r\n", "nothing"),
            ("*2\r\n:1\r\n*1\r\n+a\r\n", "*[:1, *[+a]]"),
            ("%1\r\n$1\r\na\r\n*0\r\n", "%[$a, *[]]"),
        ] {
            let whole = Some((reply.to_owned(), bytes.len()));
            assert_eq!(shown(format!("{bytes}+more\r\n").as_bytes()), whole);
            for n_bytes in 0..bytes.len() {
                let part = bytes.as_bytes().get(..n_bytes).unwrap_or_default();
                assert_eq!(shown(part), None, "{bytes:?} up to {n_bytes}");
            }
        }
        assert_eq!(
            resp_command(&["INCR", "a"]),
            b"*2\r\n$4\r\nINCR\r\n$1\r\na\r\n"
        );
        assert_eq!(resp_number(":12"), 12);
    }
}
