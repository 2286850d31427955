//! Names a call in the log and in its reply.

use actix_web::http::header::{HeaderName, HeaderValue};
use uuid::{Builder, Uuid};

/// The header that names a call in the log. A caller's own id is kept if it is safe to print.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The id of a call, for the code that answers the call.
#[derive(Clone, Debug)]
pub(crate) struct RequestId(pub(crate) HeaderValue);

/// The longest request id that is kept, in bytes.
const MAX_REQUEST_ID: usize = 128;

/// Returns whether a caller's request id may be printed and sent back.
pub(crate) fn is_safe(id: &HeaderValue) -> bool {
    let id = id.as_bytes();
    (1..=MAX_REQUEST_ID).contains(&id.len())
        && id.iter().all(|byte| {
            byte.is_ascii_alphanumeric()
                || matches!(byte, b'-' | b'_' | b'.' | b':' | b'/' | b'+' | b'=' | b'@')
        })
}

/// Returns the caller's own id if it may be printed, otherwise a new one.
pub(crate) fn of(given: Option<&HeaderValue>) -> HeaderValue {
    if let Some(given) = given.filter(|given| is_safe(given)) {
        return given.clone();
    }
    let mut text = Uuid::encode_buffer();
    // The generator belongs to this thread. Asking the operating system would cost a call for each
    // id.
    let id = Builder::from_random_bytes(rand::random()).into_uuid();
    let text = id.hyphenated().encode_lower(&mut text);
    HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static("-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_safe_request_id_is_kept() {
        let given = HeaderValue::from_static("trace-1.2:3/4+5=@_");
        assert_eq!(of(Some(&given)), given);
    }

    #[test]
    fn an_unsafe_request_id_is_replaced() {
        let long = HeaderValue::from_str(&"a".repeat(129)).ok();
        let unsafe_ones = ["", "a b", "a\"b", "a\tb"].map(|text| HeaderValue::from_str(text).ok());
        for given in unsafe_ones.into_iter().chain([long]) {
            let id = of(given.as_ref());
            assert_eq!(id.len(), 36, "{given:?}");
        }
        assert_ne!(of(None), of(None));
    }
}
