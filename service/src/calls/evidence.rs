//! Holds what a call shows of its caller.

use std::net::SocketAddr;

use super::call_limit::LeavableSlot;
use super::caller_memo::CallerMemo;
use crate::access::shown_certificate::ShownCertificate;

/// What a call shows of its caller. Each listener fills it from what came on a connection.
#[derive(Default)]
pub(crate) struct Evidence<'a> {
    pub(crate) token: ShownToken<'a>,
    /// Whether the connection showed this token before, and it was right. So it is no guess.
    pub(crate) was_right: bool,
    /// The certificate of the connection, if its caller showed one.
    pub(crate) certificate: Option<&'a ShownCertificate>,
    /// The address at the other end of the connection.
    pub(crate) peer: Option<SocketAddr>,
    /// Whether a proxy says that it passed the call on.
    pub(crate) is_forwarded: bool,
    /// For whom a proxy says that it calls, as it was sent.
    pub(crate) forwarded_for: Option<&'a [u8]>,
    /// How the log names the call.
    pub(crate) request_id: String,
    /// The slot that the call leaves while it only waits.
    pub(crate) slot: Option<LeavableSlot>,
    /// Where the caller is remembered, if the connection has a memo.
    pub(crate) memo: Option<MemoPlace<'a>>,
}

/// The token that a call shows.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) enum ShownToken<'a> {
    /// None.
    #[default]
    Nothing,
    /// Something that no caller can have: in another form, too long, or several tokens.
    Malformed,
    Text(&'a str),
}

/// Where the caller of a connection is remembered.
#[derive(Clone, Copy)]
pub(crate) struct MemoPlace<'a> {
    pub(crate) memo: &'a CallerMemo,
    /// The tick of the worker.
    pub(crate) tick: u32,
    /// What the call showed, as it was sent; `None` if it showed nothing.
    pub(crate) shown: Option<&'a [u8]>,
}

impl Evidence<'_> {
    /// Returns whether the call shows a token, whatever its form.
    pub(crate) fn shows_token(&self) -> bool {
        self.token != ShownToken::Nothing
    }
}
