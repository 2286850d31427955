//! Reads from a request what it shows of its caller.

use std::rc::Rc;

use actix_web::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use actix_web::{HttpMessage as _, HttpRequest};

use super::request_id::RequestId;
use crate::access::shown_certificate::ShownCertificate;
use crate::calls::call_limit::LeavableSlot;
use crate::calls::caller_memo::CallerMemo;
use crate::calls::evidence::{Evidence, MemoPlace, ShownToken};
use crate::edge::Watch;

/// The header in which proxies say for whom they call.
pub(crate) const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The most bytes of a header with a token.
const MAX_TOKEN_HEADER: usize = 4096;

/// Returns what a request shows of its caller.
pub(crate) fn of(request: &HttpRequest) -> Evidence<'_> {
    let headers = request.headers();
    let id = request.extensions().get::<RequestId>().cloned();
    let id = id.as_ref().and_then(|RequestId(id)| id.to_str().ok());
    let slot = request.extensions().get::<LeavableSlot>().cloned();
    let forwarded_for = headers.get(FORWARDED_FOR);
    let certificate = request.conn_data::<Rc<ShownCertificate>>();
    Evidence {
        token: token(headers),
        was_right: false,
        certificate: certificate.map(|shown| &**shown),
        peer: request.peer_addr(),
        is_forwarded: is_forwarded(headers),
        forwarded_for: forwarded_for.map(HeaderValue::as_bytes),
        request_id: id.unwrap_or_default().to_owned(),
        slot,
        memo: memo(request),
    }
}

/// Returns where the connection of a request remembers its caller.
fn memo(request: &HttpRequest) -> Option<MemoPlace<'_>> {
    let shown = request.headers().get(header::AUTHORIZATION);
    Some(MemoPlace {
        memo: request.conn_data::<CallerMemo>()?,
        tick: request.app_data::<Rc<Watch>>()?.now(),
        shown: shown.map(HeaderValue::as_bytes),
    })
}

/// Returns whether a proxy says that it passed the call on.
fn is_forwarded(headers: &HeaderMap) -> bool {
    headers.contains_key(FORWARDED_FOR) || headers.contains_key(header::FORWARDED)
}

fn token(headers: &HeaderMap) -> ShownToken<'_> {
    match headers.contains_key(header::AUTHORIZATION) {
        false => ShownToken::Nothing,
        true => bearer(headers).map_or(ShownToken::Malformed, ShownToken::Text),
    }
}

/// Returns the token that a call shows; `None` if it shows none, or in another form, or several.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut all = headers.get_all(header::AUTHORIZATION);
    let given = all.next().filter(|given| given.len() <= MAX_TOKEN_HEADER)?;
    if all.next().is_some() {
        return None;
    }
    let (scheme, token) = given.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}
