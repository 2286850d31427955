//! Holds what one connection has: its login, its name, and its transaction.

use std::net::SocketAddr;
use std::rc::Rc;

use odometer_core::name::SequenceName;
use odometer_process::secret::Secret;

use super::last_take::LastTake;
use super::state::RespWorker;
use super::transaction::Transaction;
use crate::access::right::Right;
use crate::access::shown_certificate::ShownCertificate;
use crate::calls::call_limit::LeavableSlot;
use crate::calls::caller_memo::{CallerMemo, MemoTime};
use crate::calls::evidence::{Evidence, MemoPlace, ShownToken};
use crate::calls::problem::Problem;

/// What one connection has.
pub(super) struct Session {
    pub(super) worker: Rc<RespWorker>,
    /// The id of the connection.
    pub(super) id: i64,
    peer: Option<SocketAddr>,
    certificate: Option<Rc<ShownCertificate>>,
    /// Whether the certificate is a caller's. `None` if there is none, or if certificates are not
    /// looked at.
    is_certified: Option<bool>,
    login: Login,
    pub(super) memo: CallerMemo,
    /// What the client calls itself; empty if it does not say.
    pub(super) client_name: Vec<u8>,
    pub(super) transaction: Option<Transaction>,
    pub(super) last_take: LastTake,
    /// The name of the last range of numbers that was unbroken, or an empty text.
    unbroken: String,
    /// How the connection ends, if it is to end.
    pub(super) end: Option<SessionEnd>,
    n_calls: u64,
    /// How many commands were answered or refused since the metrics counted them.
    pub(super) n_commands: u64,
}

/// What a connection has shown of its caller.
enum Login {
    Nothing,
    /// A token that was right when it was last looked at.
    Token(Secret),
    /// A token that is wrong, or that was right and is not any more.
    Wrong,
}

/// How a connection ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SessionEnd {
    /// After its replies.
    InOrder,
    /// At once: what came was not meant for this listener.
    Abrupt,
}

impl Session {
    /// Begins the session of a new connection.
    pub(super) fn new(
        worker: Rc<RespWorker>,
        peer: Option<SocketAddr>,
        certificate: Option<Rc<ShownCertificate>>,
    ) -> Self {
        Self {
            id: worker.resp.next_id(),
            worker,
            peer,
            certificate,
            is_certified: None,
            login: Login::Nothing,
            memo: CallerMemo::default(),
            client_name: Vec::new(),
            transaction: None,
            last_take: LastTake::default(),
            unbroken: String::new(),
            end: None,
            n_calls: 0,
            n_commands: 0,
        }
    }

    /// Finds out once whether the certificate of the connection is a caller's. Each call asks
    /// again.
    pub(super) async fn look_at_certificate(&mut self) {
        let access = &self.worker.resp.calls.access;
        if self.certificate.is_none() || !access.has_roles() {
            return;
        }
        let evidence = Evidence {
            certificate: self.certificate.as_deref(),
            peer: self.peer,
            ..Evidence::default()
        };
        let is_certified = access.identify(&evidence, Right::Take).await.is_ok();
        drop(evidence);
        self.is_certified = Some(is_certified);
    }

    /// Returns whether any command but a login is answered.
    pub(super) fn is_let_in(&self) -> bool {
        let takes_anonymous = || self.worker.resp.calls.access.takes_anonymous();
        match self.login {
            Login::Token(_) => true,
            Login::Wrong => false,
            Login::Nothing => self.is_certified.unwrap_or_else(takes_anonymous),
        }
    }

    /// Notes that a token was right. The commands from now on are of its caller.
    pub(super) fn log_in(&mut self, token: &str) {
        self.login = Login::Token(Secret::new(token));
        self.memo = CallerMemo::default();
    }

    /// Notes that the token of the connection is not right any more. Its caller never becomes
    /// anonymous by that.
    pub(super) fn withdraw(&mut self) {
        if let Login::Token(_) = self.login {
            self.login = Login::Wrong;
            self.memo = CallerMemo::default();
        }
    }

    /// Notes that a wrong token was shown. It takes no login away, but nobody is anonymous after
    /// it.
    pub(super) fn note_wrong_token(&mut self) {
        if let Login::Nothing = self.login {
            self.login = Login::Wrong;
            self.memo = CallerMemo::default();
        }
    }

    /// Forgets all that the connection showed and set.
    pub(super) fn reset(&mut self) {
        self.login = Login::Nothing;
        self.memo = CallerMemo::default();
        self.client_name = Vec::new();
        self.transaction = None;
    }

    /// Spoils the transaction, if there is one.
    pub(super) fn spoil_transaction(&mut self) {
        if let Some(transaction) = &mut self.transaction {
            transaction.spoil();
        }
    }

    /// Returns the token that the connection showed.
    pub(super) fn token(&self) -> Option<&str> {
        match &self.login {
            Login::Token(token) => Some(token.expose()),
            Login::Nothing | Login::Wrong => None,
        }
    }

    /// Returns the time of what the connection remembers of its caller.
    #[inline]
    pub(super) fn memo_time(&self) -> MemoTime {
        MemoTime {
            generation: self.worker.resp.calls.access.generation(),
            tick: self.worker.watch.now(),
        }
    }

    /// Counts a call that is not answered from memory, and returns how the log names it.
    pub(super) fn name_call(&mut self) -> String {
        self.n_calls = self.n_calls.wrapping_add(1);
        self.call_name()
    }

    fn call_name(&self) -> String {
        format!("resp-{}-{}", self.id, self.n_calls)
    }

    /// Returns what a call shows of its caller, with a slot among the calls being answered.
    ///
    /// # Errors
    /// All slots are taken.
    pub(super) fn evidence(&self) -> Result<Evidence<'_>, Problem> {
        let token = self.token();
        Ok(Evidence {
            certificate: self.certificate.as_deref(),
            was_right: token.is_some(),
            memo: Some(MemoPlace {
                memo: &self.memo,
                tick: self.worker.watch.now(),
                shown: token.map(str::as_bytes),
            }),
            ..self.evidence_of(token.map_or(ShownToken::Nothing, ShownToken::Text))?
        })
    }

    /// Returns what a login shows, with a slot in the same way.
    ///
    /// # Errors
    /// All slots are taken.
    pub(super) fn evidence_of<'a>(&self, token: ShownToken<'a>) -> Result<Evidence<'a>, Problem> {
        let in_flight = &self.worker.resp.calls.in_flight;
        let slot = in_flight.admit()?;
        Ok(Evidence {
            token,
            peer: self.peer,
            request_id: self.call_name(),
            slot: Some(LeavableSlot::new(in_flight, slot)),
            ..Evidence::default()
        })
    }

    /// Returns whether the last range of numbers was of this name, and unbroken. The distance of
    /// the numbers of a sequence never changes. But a name that shares the numbers of a sequence
    /// may get one of its own.
    pub(super) fn is_unbroken(&self, name: &str) -> bool {
        !name.is_empty() && self.unbroken == name
    }

    /// Notes that a range of numbers of this name was unbroken.
    pub(super) fn note_unbroken(&mut self, name: &SequenceName) {
        name.as_str().clone_into(&mut self.unbroken);
    }

    /// Forgets which range was unbroken, because the next one may be refused.
    pub(super) fn forget_unbroken(&mut self) {
        self.unbroken.clear();
    }
}
