//! Carries bytes of a connection, as they are or by TLS.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use actix_web::rt::net::TcpStream;
use tokio::io::{AsyncBufRead as _, AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::server::TlsStream;

use super::tls_socket::TlsSocket;
use crate::access::shown_certificate::ShownCertificate;

/// A connection of a caller.
pub(crate) enum Connection {
    Plain(TcpStream),
    Tls(Box<TlsConnection>),
}

/// A connection after its handshake.
pub(crate) struct TlsConnection {
    pub(super) stream: TlsStream<TlsSocket<TcpStream>>,
    /// The certificate that the caller showed, if it showed one.
    pub(super) certificate: Option<Rc<ShownCertificate>>,
}

impl Connection {
    /// Returns the certificate that the caller showed, if it showed one.
    pub(crate) fn certificate(&self) -> Option<&Rc<ShownCertificate>> {
        match self {
            Self::Plain(_) => None,
            Self::Tls(tls) => tls.certificate.as_ref(),
        }
    }

    /// Returns the protocol that both sides agreed on by TLS (ALPN), if they did.
    pub(crate) fn agreed_protocol(&self) -> Option<&[u8]> {
        match self {
            Self::Plain(_) => None,
            Self::Tls(tls) => tls.stream.get_ref().1.alpn_protocol(),
        }
    }
}

impl TlsConnection {
    /// Reads bytes of requests: those of one record, or a part of them.
    fn poll_plaintext(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let plaintext = ready!(Pin::new(&mut self.stream).poll_fill_buf(context))?;
        let n_bytes = plaintext.len().min(buffer.remaining());
        buffer.put_slice(plaintext.get(..n_bytes).unwrap_or_default());
        if n_bytes > 0 {
            Pin::new(&mut self.stream).consume(n_bytes);
            self.stream.get_mut().0.note_record();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Connection {
    #[inline]
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Tls(tls) => tls.poll_plaintext(context, buffer),
        }
    }
}

impl AsyncWrite for Connection {
    #[inline]
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Tls(tls) => Pin::new(&mut tls.stream).poll_write(context, bytes),
        }
    }

    #[inline]
    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
            Self::Tls(tls) => Pin::new(&mut tls.stream).poll_flush(context),
        }
    }

    #[inline]
    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(tls) => Pin::new(&mut tls.stream).poll_shutdown(context),
        }
    }
}
