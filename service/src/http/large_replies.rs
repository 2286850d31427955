//! Bounds the memory of large replies that are being written.
//!
//! Each reply is in memory until its caller has taken it.

use std::sync::Arc;

use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::dev::ServiceResponse;
use actix_web::http::Method;
use actix_web::{HttpResponse, ResponseError};
use metrics::Counter;
use odometer_process::faults::{self, Fault};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::retain_until_written::retain_until_written;
use crate::calls::problem::{Code, Problem};

const KIB: u64 = 1024;

/// The memory that large replies may have together, in KiB.
const MAX_KIB: u32 = 64 * 1024;

/// The separate memory for replies of `/metrics`, in KiB, so that scrapes go on.
const MAX_METRICS_KIB: u32 = 4 * 1024;

/// The most bytes of a reply that is not large.
const MAX_SMALL: u64 = 32 * KIB;

/// The sentences of a refusal because no memory is left.
const BATCHES: &str = "Too many large replies are being written; ask for fewer numbers, for ranges \
    with `ids=false`, or try again.";
const READINGS: &str = "Too many large replies are being written; ask for less, or try again.";
const SCRAPES: &str = "Others read `/metrics` and have not taken their replies yet; try again.";

/// The large replies of this replica.
pub(crate) struct LargeReplies {
    others: MemoryBudget,
    metrics: MemoryBudget,
    refused: Counter,
}

/// Memory that large replies share, in KiB.
struct MemoryBudget {
    left: Arc<Semaphore>,
    size: u32,
}

/// The part of the memory that one reply has. The part is free again when this is dropped.
pub(crate) type Part = Option<OwnedSemaphorePermit>;

impl MemoryBudget {
    fn new(size: u32) -> Self {
        // Semaphores count in `usize`, which has 32 bits or more on every machine that runs this.
        let n_permits = usize::try_from(size).unwrap_or(usize::MAX);
        Self {
            left: Arc::new(Semaphore::new(n_permits)),
            size,
        }
    }

    /// Returns a part for this many bytes, if it is free. A reply larger than the whole memory gets
    /// the whole memory.
    fn take(&self, n_bytes: u64) -> Option<OwnedSemaphorePermit> {
        let kib = u32::try_from(n_bytes.div_ceil(KIB)).unwrap_or(u32::MAX);
        let kib = kib.min(self.size);
        Arc::clone(&self.left).try_acquire_many_owned(kib).ok()
    }
}

impl LargeReplies {
    /// Creates the memory, all of it free. `refused` counts replies for which none is left.
    pub(crate) fn new(refused: Counter) -> Self {
        Self {
            others: MemoryBudget::new(MAX_KIB),
            metrics: MemoryBudget::new(MAX_METRICS_KIB),
            refused,
        }
    }

    /// Returns memory for a batch of `n_bytes`, before its numbers are taken. A small batch needs
    /// none.
    ///
    /// # Errors
    /// Not enough memory is left.
    pub(crate) fn take(&self, n_bytes: u64) -> Result<Part, Problem> {
        if is_large(n_bytes) {
            self.part(&self.others, n_bytes, BATCHES)
        } else {
            Ok(None)
        }
    }

    /// Returns the reply, which keeps the memory that it needs until it is written. The rest of
    /// `part` is free again.
    pub(crate) fn keep(reply: HttpResponse, part: Part) -> HttpResponse {
        let (Some(mut part), BodySize::Sized(n_bytes)) = (part, reply.body().size()) else {
            return reply;
        };
        if !is_large(n_bytes) {
            return reply;
        }
        let n_needed = usize::try_from(n_bytes.div_ceil(KIB)).unwrap_or(usize::MAX);
        drop(part.split(part.num_permits().saturating_sub(n_needed)));
        retain_until_written(reply, part)
    }

    /// Returns the reply with memory until it is written, or a refusal if no memory is left.
    ///
    /// Only replies of calls that read can be refused. Any other call has already done something.
    pub(crate) fn fit(&self, response: ServiceResponse<BoxBody>) -> ServiceResponse<BoxBody> {
        let request = response.request();
        let BodySize::Sized(n_bytes) = response.response().body().size() else {
            return response;
        };
        if !is_large(n_bytes) || *request.method() != Method::GET {
            return response;
        }
        let part = match request.path() {
            "/metrics" => self.part(&self.metrics, n_bytes, SCRAPES),
            _ => self.part(&self.others, n_bytes, READINGS),
        };
        let (request, reply) = response.into_parts();
        let reply = match part {
            Ok(part) => Self::keep(reply, part),
            Err(problem) => problem.error_response(),
        };
        ServiceResponse::new(request, reply)
    }

    fn part(
        &self,
        room: &MemoryBudget,
        n_bytes: u64,
        refusal: &'static str,
    ) -> Result<Part, Problem> {
        if faults::is(Fault::NoConnectionGuard) {
            return Ok(None);
        }
        room.take(n_bytes).map(Some).ok_or_else(|| {
            self.refused.increment(1);
            Problem::new(Code::Overloaded, refusal)
        })
    }
}

/// Returns whether a reply of this many bytes needs memory from here.
pub(crate) fn is_large(n_bytes: u64) -> bool {
    n_bytes > MAX_SMALL
}

#[cfg(test)]
mod tests {
    use actix_web::HttpResponse;
    use actix_web::test::TestRequest;

    use super::*;

    fn reply(method: Method, path: &str, n_bytes: u64) -> ServiceResponse<BoxBody> {
        let request = TestRequest::with_uri(path).method(method).to_srv_request();
        let n_bytes = usize::try_from(n_bytes).unwrap_or_default();
        request.into_response(HttpResponse::Ok().body(vec![b'x'; n_bytes]))
    }

    fn status(response: &ServiceResponse<BoxBody>) -> u16 {
        response.status().as_u16()
    }

    #[test]
    fn batches_have_as_much_room_as_their_ids_need() {
        let replies = LargeReplies::new(Counter::noop());
        let kept: Vec<_> = (0..31).map(|_| replies.take(2 << 20)).collect();
        assert!(kept.iter().all(Result::is_ok));
        let code = replies.take(3 << 20).err().map(|problem| problem.code());
        assert_eq!(code, Some(Code::Overloaded));
        // The rest is enough for a smaller reply, and a small reply needs none.
        assert!(replies.take(2 << 20).is_ok_and(|part| part.is_some()));
        assert!(replies.take(MAX_SMALL).is_ok_and(|part| part.is_none()));
        drop(kept);
        assert!(replies.take(3 << 20).is_ok());
    }

    #[test]
    fn a_batch_keeps_as_much_room_as_it_is_large() {
        let replies = LargeReplies::new(Counter::noop());
        let batch = |n_bytes: usize| {
            let part = replies.take(2 << 20).ok().flatten();
            assert!(part.is_some(), "{n_bytes}");
            LargeReplies::keep(HttpResponse::Ok().body(vec![b'x'; n_bytes]), part)
        };
        let left = || replies.others.left.available_permits();
        let all = left();
        let large = batch(100_000);
        assert_eq!(left(), all - 98);
        let small = batch(32 * 1024);
        assert_eq!(left(), all - 98);
        drop((large, small));
        assert_eq!(left(), all);
    }

    #[test]
    fn what_is_read_has_its_room_until_it_is_written() {
        let replies = LargeReplies::new(Counter::noop());
        let large = || replies.fit(reply(Method::GET, "/v1/sequences", 1 << 20));
        let mut kept: Vec<_> = (0..64).map(|_| large()).collect();
        assert!(kept.iter().all(|response| status(response) == 200));
        assert_eq!(status(&large()), 503);
        // Small replies need none, and the reply of a call that did something is never refused.
        let small = replies.fit(reply(Method::GET, "/v1/sequences", MAX_SMALL));
        assert_eq!(status(&small), 200);
        let taken = replies.fit(reply(
            Method::POST,
            "/v1/sequences/orders/next",
            MAX_SMALL + 1,
        ));
        assert_eq!(status(&taken), 200);
        kept.pop();
        assert_eq!(status(&large()), 200);
    }

    #[test]
    fn scrapes_go_on_while_other_large_replies_have_no_room() {
        let replies = LargeReplies::new(Counter::noop());
        let _batches: Vec<_> = (0..32).map(|_| replies.take(2 << 20)).collect();
        let openapi = replies.fit(reply(Method::GET, "/openapi.json", MAX_SMALL + 1));
        assert_eq!(status(&openapi), 503);
        // A scrape larger than the whole memory gets all of it.
        let scrape = || replies.fit(reply(Method::GET, "/metrics", 5 << 20));
        let first = scrape();
        assert_eq!((status(&first), status(&scrape())), (200, 503));
        drop(first);
        assert_eq!(status(&scrape()), 200);
    }
}
