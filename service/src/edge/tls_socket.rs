//! Bounds how many bytes of a connection TLS may hold.
//!
//! TLS keeps what comes until a record is whole, or a message of its handshake. rustls takes messages
//! of up to 64 KiB from everybody, also after the handshake. So rustls gets no more bytes than it
//! needs, and a connection that sends more fails.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use odometer_process::faults::{self, Fault};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The most bytes of the first message. Common ones have 2 KiB.
const MAX_HELLO: usize = 8 * 1024;

/// The most bytes of the rest of a handshake: the certificates of a caller, what proves that they are
/// its own, and what was read behind the handshake.
pub(super) const MAX_HANDSHAKE: usize = MAX_CERTIFICATES + 2 * 1024 + READ_AT_ONCE;

/// The most bytes of the certificate of a caller, with those that lead to its authority.
pub(super) const MAX_CERTIFICATES: usize = 12 * 1024;

/// The most bytes without a byte of a request, after the handshake.
///
/// One record has 16 KiB and at most 261 bytes around them (RFC 8446, section 5.2; the suites of
/// TLS 1.2 add fewer). The rest is for what was read of the next record, and for messages that change
/// keys.
const MAX_WITHOUT_REQUEST: usize = READ_AT_ONCE + 17 * 1024;

/// The most bytes of one read. So at most these are read beyond the end of a record.
const READ_AT_ONCE: usize = 4 * 1024;

/// A socket below TLS.
pub(crate) struct TlsSocket<T> {
    io: T,
    /// The most bytes that TLS may hold.
    max_held: usize,
    /// At least as many bytes as TLS holds.
    held: usize,
    /// The bytes of the last read.
    last_read: usize,
    /// Whether the first message is whole, and the rest of the handshake is not.
    is_handshaking: bool,
    /// Whether the last read brought bytes of the rest of the handshake. TLS looks at them before
    /// it reads on.
    must_look: bool,
}

impl<T> TlsSocket<T> {
    /// Wraps a socket whose handshake begins.
    pub(super) fn new(io: T) -> Self {
        Self {
            io,
            max_held: MAX_HELLO,
            held: 0,
            last_read: 0,
            is_handshaking: false,
            must_look: false,
        }
    }

    /// Notes that the first message is whole, and that the handshake goes on.
    pub(super) fn note_hello(&mut self) {
        self.is_handshaking = true;
        self.note_whole(MAX_HANDSHAKE);
    }

    /// Notes that the handshake is done, or that TLS gave bytes of a request.
    #[inline]
    pub(super) fn note_record(&mut self) {
        self.is_handshaking = false;
        self.note_whole(MAX_WITHOUT_REQUEST);
    }

    /// Notes that a message or a record is whole. So TLS holds no more than what the last read brought
    /// behind it.
    #[inline]
    fn note_whole(&mut self, max_held: usize) {
        self.held = self.last_read;
        self.max_held = max_held;
        self.must_look = false;
    }

    /// Returns how many bytes more TLS may hold.
    fn left(&self) -> usize {
        match faults::is(Fault::NoConnectionGuard) {
            true => usize::MAX,
            false => self.max_held.saturating_sub(self.held),
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for TlsSocket<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if std::mem::take(&mut this.must_look) {
            // tokio-rustls reads until nothing has come or a request begins, and looks only then
            // whether the handshake is done. So this read finds nothing, and the next one goes on.
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let left = this.left();
        if left == 0 {
            let problem = "more bytes came than TLS needs for a record or a handshake";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, problem)));
        }
        let room = buffer.remaining().min(left).min(READ_AT_ONCE);
        let mut part = ReadBuf::new(buffer.initialize_unfilled_to(room));
        ready!(Pin::new(&mut this.io).poll_read(context, &mut part))?;
        let n_bytes = part.filled().len();
        buffer.advance(n_bytes);
        this.held = this.held.saturating_add(n_bytes);
        this.last_read = n_bytes;
        this.must_look = this.is_handshaking && n_bytes > 0;
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for TlsSocket<T> {
    #[inline]
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().io).poll_write(context, bytes)
    }

    #[inline]
    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().io).poll_write_vectored(context, parts)
    }

    #[inline]
    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    #[inline]
    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_flush(context)
    }

    #[inline]
    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_shutdown(context)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::{Wake, Waker};

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// Reads until nothing more is allowed, and returns how much that was.
    async fn read_all(socket: &mut TlsSocket<tokio::io::DuplexStream>) -> usize {
        let (mut n_read, mut buffer) = (0, vec![0; 64 * 1024]);
        while let Ok(n_bytes) = socket.read(&mut buffer).await {
            assert!((1..=READ_AT_ONCE).contains(&n_bytes), "{n_bytes}");
            n_read += n_bytes;
        }
        n_read
    }

    /// Counts how often a task is woken.
    #[derive(Default)]
    struct Wakes(AtomicU32);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[tokio::test]
    async fn tls_looks_at_each_read_of_a_handshake_before_the_next_one() {
        let (near, mut far) = tokio::io::duplex(1 << 20);
        far.write_all(&vec![22; 1 << 18]).await.unwrap();
        let mut socket = TlsSocket::new(near);
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(Arc::clone(&wakes));
        let mut context = Context::from_waker(&waker);
        let mut read = |socket: &mut TlsSocket<_>| {
            let mut buffer = [0; 1];
            let mut reading = pin!(socket.read(&mut buffer));
            reading.as_mut().poll(&mut context).map(Result::unwrap)
        };
        for _ in 0..3 {
            assert_eq!(read(&mut socket), Poll::Ready(1), "the first message");
        }
        socket.note_hello();
        for n_wakes in 1..4 {
            assert_eq!(read(&mut socket), Poll::Ready(1));
            assert_eq!(read(&mut socket), Poll::Pending);
            assert_eq!(wakes.0.load(Ordering::Relaxed), n_wakes);
        }
        assert_eq!(
            read(&mut socket),
            Poll::Ready(1),
            "the end of the handshake"
        );
        socket.note_record();
        for _ in 0..3 {
            assert_eq!(read(&mut socket), Poll::Ready(1));
        }
    }

    #[tokio::test]
    async fn tls_gets_no_more_than_a_handshake_or_a_record_needs() {
        let (near, mut far) = tokio::io::duplex(1 << 20);
        far.write_all(&vec![22; 1 << 18]).await.unwrap();
        let mut socket = TlsSocket::new(near);
        assert_eq!(read_all(&mut socket).await, MAX_HELLO);
        // The last read may have brought a part of what comes next. So the bounds are wider than
        // what has to be whole.
        let is_enough = |read: usize, needed: usize, bound: usize| {
            assert!((needed..=bound).contains(&read), "{read}");
        };
        socket.note_hello();
        is_enough(
            read_all(&mut socket).await,
            MAX_CERTIFICATES + 2048,
            MAX_HANDSHAKE,
        );
        for _ in 0..3 {
            socket.note_record();
            let record = 16 * 1024 + 261;
            is_enough(read_all(&mut socket).await, record, MAX_WITHOUT_REQUEST);
        }
    }
}
