//! Makes one call to the replica that has its turn, and reads what the reply means.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{
    endpoints::{Endpoints, Turn},
    error::{Error, Refusal},
    settings::Settings,
    token::Token,
    transport::{self, Call, RawReply, Transport},
};

/// With these statuses a replica says that it cannot serve now.
const UNFIT_STATUSES: [u16; 3] = [502, 503, 504];
const TOO_MANY_REQUESTS: u16 = 429;
/// A call that has less time than this is hurried: a replica that does not answer it may still be
/// healthy.
const MIN_JUDGED_TIMEOUT: Duration = Duration::from_secs(1);

/// A reply of success.
#[derive(Clone)]
pub(crate) struct Answer {
    /// The JSON of the reply, which may have the token of a lease. `Null` if it has no content.
    pub(crate) body: Value,
    pub(crate) endpoint: Arc<str>,
}

/// Makes calls at the endpoints, and learns from each how the endpoint does.
pub(crate) struct Service {
    pub(crate) endpoints: Endpoints,
    transport: Transport,
    token: Token,
    usual_timeout: Duration,
}

impl Service {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self {
            endpoints: Endpoints::new(settings.endpoints.clone(), settings.uniform),
            transport: Transport::new(transport::agent(settings.http.clone())),
            token: Token::new(settings.token.clone()),
            usual_timeout: settings.refill_timeout,
        }
    }

    /// Closes the connections that no call uses.
    pub(crate) fn close_idle(&self) {
        self.transport.close_idle();
    }

    /// Makes one call at one endpoint, and reads the answer. Retries nothing.
    ///
    /// # Errors
    /// [`Error::Unreachable`], [`Error::InvalidReply`], [`Error::Refused`], and those of
    /// `read_answer`.
    pub(crate) fn ask<T>(
        &self,
        call: &Call<'_>,
        read_answer: impl FnOnce(Answer) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let Some(turn) = self.endpoints.choose(Instant::now()) else {
            return Err(Error::setting("a client needs an endpoint"));
        };
        let token = self.token.read();
        let reply = self.transport.call(&turn.url, call, token.as_deref());
        let is_last = reply.as_ref().is_ok_and(|reply| reply.is_last);
        let answer = reply.and_then(|reply| read(reply, &turn.url));
        let outcome = answer.and_then(read_answer);
        match &outcome {
            Ok(_) => self.endpoints.succeeded(&turn),
            Err(error) => {
                let is_hurried = call.timeout < self.usual_timeout.min(MIN_JUDGED_TIMEOUT);
                self.judge(&turn, error, is_hurried);
            }
        }
        if is_last {
            self.endpoints.moved_on(&turn);
        }
        outcome
    }

    /// Notes what a failure says about the endpoint.
    fn judge(&self, turn: &Turn, error: &Error, is_hurried: bool) {
        let refusal = error.refusal();
        if let Error::Unreachable { timed_out, .. } = error {
            if *timed_out && is_hurried {
                self.endpoints.hurried(turn, Instant::now());
            } else {
                self.endpoints.failed(turn, Instant::now());
            }
        } else if refusal.is_some_and(|it| UNFIT_STATUSES.contains(&it.status)) {
            self.endpoints.failed(turn, Instant::now());
        } else if error.endpoint().is_none() {
            // What cannot be sent says nothing.
            self.endpoints.abandoned(turn);
        } else {
            self.endpoints.succeeded(turn);
            if refusal.is_none_or(is_better_elsewhere) {
                self.endpoints.moved_on(turn);
            }
        }
    }
}

/// Returns whether another replica may do what this one refused.
fn is_better_elsewhere(refusal: &Refusal) -> bool {
    // Another replica may have numbers in memory. A limit holds for this replica.
    let is_without_numbers = refusal.status == TOO_MANY_REQUESTS && refusal.limit.is_none();
    // Only what is no replica has no such route, or gives no code.
    let is_no_replica = refusal.code == "route_not_found" || refusal.code.starts_with("http_");
    is_without_numbers || is_no_replica
}

fn read(reply: RawReply, endpoint: &Arc<str>) -> Result<Answer, Error> {
    let body: Option<Value> = serde_json::from_slice(&reply.body).ok();
    let body = body.filter(Value::is_object);
    if !(200..300).contains(&reply.status) {
        let refusal = refusal(&reply, body.as_ref(), endpoint);
        return Err(Error::Refused(Arc::new(refusal)));
    }
    match body {
        Some(body) => Ok(Answer {
            body,
            endpoint: Arc::clone(endpoint),
        }),
        None if reply.body.is_empty() => Ok(Answer {
            body: Value::Null,
            endpoint: Arc::clone(endpoint),
        }),
        None => {
            let status = reply.status;
            let detail = format!("an answer of status {status} that is no JSON object");
            Err(Error::invalid_reply(endpoint, detail))
        }
    }
}

fn refusal(reply: &RawReply, body: Option<&Value>, endpoint: &Arc<str>) -> Refusal {
    let text = |name: &str| body?.get(name)?.as_str().map(str::to_owned);
    Refusal {
        status: reply.status,
        code: text("code").unwrap_or_else(|| format!("http_{}", reply.status)),
        detail: text("detail").unwrap_or_else(|| "no reason is given".to_owned()),
        endpoint: Arc::clone(endpoint),
        limit: text("limit").and_then(|limit| limit.parse().ok()),
        retry_after: reply.retry_after,
    }
}
