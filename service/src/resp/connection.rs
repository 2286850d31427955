//! Serves one connection: reads its commands, and answers them in their order.
//!
//! Commands that came together are answered together, in one write. A command that has to wait does
//! not delay the replies before it. While replies are written, nothing is read.

use std::io;
use std::rc::Rc;

use actix_web::rt::net::TcpStream;
use odometer_process::log;
use tracing::Instrument as _;

use super::answers::{self, Rest};
use super::arguments::{Arguments, CommandBounds, Parsed, parse};
use super::error_line::ErrorLine;
use super::reply::Replies;
use super::session::{Session, SessionEnd};
use super::state::{Resp, RespWorker};
use super::wire::Wire;
use crate::edge::{IdleLimit, Opened, Opening};

/// The most bytes of replies that wait for each other.
const MAX_TOGETHER: usize = 16 * 1024;

/// Bytes of memory that a connection keeps for commands while it is idle.
const KEPT_FOR_COMMANDS: usize = 512;

/// The protocol that callers of HTTP agree on by TLS. No client of Redis does.
const HTTP: &[u8] = b"http/1.1";

/// Says in the log why such a connection was closed.
const SPEAKS_HTTP: &str = "the client speaks HTTP, and this is the listener for clients of Redis";

/// One connection.
struct RespConnection {
    wire: Wire,
    session: Session,
    /// What came and is not answered yet.
    input: Vec<u8>,
    /// How many bytes of input the next command has at least.
    needed: usize,
    replies: Replies,
}

/// Serves a connection to its end.
///
/// # Errors
/// The connection could not be opened.
pub(super) async fn serve(
    worker: Rc<RespWorker>,
    opening: Opening,
    io: TcpStream,
) -> io::Result<()> {
    let opened = opening.open(io).await?;
    if opened.connection.agreed_protocol() == Some(HTTP) {
        // A browser that was led here would send what another person wrote.
        note_malformed(&worker.resp, SPEAKS_HTTP.to_owned());
        return Ok(());
    }
    RespConnection::new(worker, opened).run().await;
    Ok(())
}

impl RespConnection {
    fn new(worker: Rc<RespWorker>, opened: Opened) -> Self {
        let certificate = opened.connection.certificate().cloned();
        Self {
            session: Session::new(worker, opened.peer, certificate),
            wire: Wire::new(opened.connection, opened.place),
            input: Vec::new(),
            needed: 1,
            replies: Replies::default(),
        }
    }

    async fn run(mut self) {
        self.session.look_at_certificate().await;
        self.limit_idleness();
        // Whatever breaks a connection, nobody reads what would be said about it.
        while let Ok(true) = self.turn().await {}
        self.count();
        if self.session.end != Some(SessionEnd::Abrupt) {
            self.wire.end().await;
        }
    }

    /// Reads once, and answers the commands that are whole. Returns whether the connection goes on.
    async fn turn(&mut self) -> io::Result<bool> {
        if self.wire.read(&mut self.input).await? == 0 {
            return Ok(false);
        }
        let n_answered = match self.input.len() >= self.needed {
            true => self.answer_whole().await?,
            false => 0,
        };
        self.count();
        self.wire.write(&mut self.replies).await?;
        if n_answered > 0 {
            self.wire.note_answered(self.input.len());
        }
        self.limit_idleness();
        let goes_on = self.session.end.is_none() && !self.wire.place.watch.is_stopping();
        Ok(goes_on)
    }

    /// Answers the commands that are whole. Returns how many bytes they have.
    async fn answer_whole(&mut self) -> io::Result<usize> {
        let mut at = 0;
        while self.goes_on_from(at) {
            if self.replies.bytes().len() > MAX_TOGETHER {
                self.wire.write(&mut self.replies).await?;
            }
            let rest = self.input.get(at..).unwrap_or_default();
            let (session, replies) = (&mut self.session, &mut self.replies);
            if let Some(n_bytes) = answers::repeat(session, rest, replies) {
                at += n_bytes;
                continue;
            }
            match parse(rest, CommandBounds::of(session.is_let_in())) {
                Parsed::Whole { arguments, n_bytes } => {
                    let bytes = rest.get(..n_bytes).unwrap_or_default();
                    let left = answers::begin(session, &arguments, bytes, replies);
                    if left != Rest::Nothing {
                        finish(&mut self.wire, session, replies, (&arguments, left)).await?;
                    }
                    at += n_bytes;
                }
                Parsed::Partial { needed } => {
                    self.needed = needed;
                    break;
                }
                Parsed::Malformed(why) => {
                    refuse(session, &ErrorLine::malformed(why), replies);
                    break;
                }
            }
        }
        if self.session.end == Some(SessionEnd::Abrupt) {
            note_malformed(&self.session.worker.resp, SPEAKS_HTTP.to_owned());
            return Err(io::ErrorKind::InvalidData.into());
        }
        self.input.drain(..at);
        if self.input.is_empty() {
            self.input.shrink_to(KEPT_FOR_COMMANDS);
            self.needed = 1;
        }
        Ok(at)
    }

    /// Returns whether a command that begins at `at` is to be answered. While the service stops, only
    /// the first one is, so nothing of the commands behind it is begun. Nothing is repeated then: no
    /// number comes from memory any more.
    fn goes_on_from(&self, at: usize) -> bool {
        let is_first = at == 0;
        at < self.input.len()
            && self.session.end.is_none()
            && (is_first || !self.wire.place.watch.is_stopping())
    }

    /// Says for how long the connection may be idle. A pool of a client keeps its connections for
    /// as long as it likes, once they are logged in.
    fn limit_idleness(&self) {
        let limit = match (self.session.is_let_in(), &self.session.transaction) {
            (false, _) => IdleLimit::Short,
            // Queued commands take memory.
            (true, Some(_)) => IdleLimit::Usual,
            (true, None) => IdleLimit::Unlimited,
        };
        self.wire.place.progress.may_be_idle(limit);
    }

    /// Counts the commands since the last call.
    fn count(&mut self) {
        let metrics = &self.session.worker.resp.metrics.resp;
        let n_refused = self.replies.take_errors();
        let n_commands = self.session.n_commands;
        let n_answered = n_commands.saturating_sub(n_refused);
        metrics.answered.increment(n_answered);
        if n_refused > 0 {
            metrics.refused.increment(n_refused);
        }
        self.session.n_commands = 0;
    }
}

/// Refuses what is no command, and ends the connection.
fn refuse(session: &mut Session, line: &ErrorLine, replies: &mut Replies) {
    let text = String::from_utf8_lossy(line.text()).into_owned();
    note_malformed(&session.worker.resp, text);
    session.n_commands += 1;
    session.end = Some(SessionEnd::InOrder);
    replies.error(line);
}

/// Counts a connection on which something else came than commands, and logs now and then why.
fn note_malformed(resp: &Resp, why: String) {
    resp.metrics.resp.malformed.increment(1);
    resp.calls.repeated_lines.note_malformed(why);
}

/// Does what is left to do of a command: waits for its answer, or answers the commands of its
/// transaction.
async fn finish(
    wire: &mut Wire,
    session: &mut Session,
    replies: &mut Replies,
    (arguments, left): (&Arguments<'_>, Rest),
) -> io::Result<()> {
    let (n_commands, queued) = match left {
        Rest::Nothing => return Ok(()),
        Rest::Later(later) => return wait(wire, session, replies, (arguments, later)).await,
        Rest::Transaction(n_commands, queued) => (n_commands, queued),
    };
    replies.list(n_commands);
    let mut rest = queued.as_slice();
    // Each was whole when it was queued.
    while let Parsed::Whole { arguments, n_bytes } = parse(rest, &CommandBounds::LET_IN) {
        let (command, behind) = rest.split_at_checked(n_bytes).unwrap_or_default();
        rest = behind;
        let left = answers::begin(session, &arguments, command, replies);
        if let Rest::Later(later) = left {
            wait(wire, session, replies, (&arguments, later)).await?;
        } else if replies.bytes().len() > MAX_TOGETHER {
            wire.write(replies).await?;
        }
    }
    Ok(())
}

/// Answers a command that has to wait. The replies before it are written first.
async fn wait(
    wire: &mut Wire,
    session: &mut Session,
    replies: &mut Replies,
    (arguments, later): (&Arguments<'_>, answers::Later),
) -> io::Result<()> {
    wire.write(replies).await?;
    let span = log::call(&session.name_call());
    let work = answers::go_on(session, later, arguments, replies);
    let waited = wire.wait(Box::pin(work.instrument(span))).await;
    if waited.is_err() {
        // Nobody got a reply, so it was not answered.
        session.n_commands = session.n_commands.saturating_sub(1);
    }
    waited
}
