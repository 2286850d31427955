//! Lets the body of a reply keep a value until the body is written, or given up with its
//! connection.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use actix_web::HttpResponse;
use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::web::Bytes;

/// Bytes that are handed out at once. The writer keeps a buffer of this size for the next reply of
/// the connection.
const PIECE: usize = 16 * 1024;

/// The bytes of a body, and a value that is dropped after them.
struct RetainingBody<T> {
    left: Bytes,
    n_bytes: u64,
    _kept: T,
}

/// Returns the reply with a body that keeps `kept` until the body is written.
pub(crate) fn retain_until_written<T: Unpin + 'static>(
    response: HttpResponse,
    kept: T,
) -> HttpResponse {
    response.map_body(|_head, body| match body.try_into_bytes() {
        Ok(left) => BoxBody::new(RetainingBody {
            n_bytes: left.len() as u64,
            left,
            _kept: kept,
        }),
        Err(body) => body,
    })
}

impl<T: Unpin> MessageBody for RetainingBody<T> {
    type Error = Infallible;

    fn size(&self) -> BodySize {
        BodySize::Sized(self.n_bytes)
    }

    fn poll_next(
        self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Infallible>>> {
        let left = &mut self.get_mut().left;
        // The writer asks for the next piece when the piece before is nearly written, and not
        // sooner.
        let piece = left.split_to(left.len().min(PIECE));
        Poll::Ready((!piece.is_empty()).then_some(Ok(piece)))
    }
}
