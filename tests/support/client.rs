//! A caller of the program that uses an ordinary HTTP library.

use std::time::Duration;

use reqwest::{Method, header::HeaderMap};
use serde_json::Value;

use super::Range;

/// How long one reply may take. This is longer than every deadline of the program, so a caller that
/// reaches the limit has found a defect.
const REPLY_LIMIT: Duration = Duration::from_secs(30);
/// How long [`settled`] asks again.
const ASKS_AGAIN_FOR: Duration = Duration::from_secs(60);
const BEFORE_ASKING_AGAIN: Duration = Duration::from_millis(50);

#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    base: String,
}

/// A status, with the headers and the body of the reply.
#[derive(Clone, Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: String,
}

impl Reply {
    /// Reads the body as JSON.
    ///
    /// # Panics
    /// If the body is not JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body)
            .unwrap_or_else(|error| panic!("not JSON ({error}): {self:?}"))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// Returns the `code` of a problem; `None` if the reply is no problem.
    pub fn code(&self) -> Option<String> {
        let value: Value = serde_json::from_str(&self.body).ok()?;
        value.get("code")?.as_str().map(str::to_owned)
    }

    /// Returns the numbers of a reply of any of the three forms.
    ///
    /// # Panics
    /// If the status is not 200, or if the parts of the reply disagree.
    pub fn numbers(&self) -> Vec<Range> {
        assert_eq!(self.status, 200, "no numbers: {self:?}");
        let reply = self.json();
        if let Some(ranges) = reply.get("ranges").and_then(Value::as_array) {
            let ranges: Vec<Range> = ranges.iter().map(Range::of_json).collect();
            let count: u64 = ranges.iter().map(|range| range.count).sum();
            assert_eq!(reply["count"], count, "count and ranges differ: {reply}");
            if let Some(ids) = reply.get("ids") {
                let expected: Vec<Value> = ranges
                    .iter()
                    .flat_map(Range::values)
                    .map(|value| Value::String(value.to_string()))
                    .collect();
                assert_eq!(ids, &Value::Array(expected), "ids and ranges differ");
            }
            return ranges;
        }
        if reply.get("first").is_some() {
            return vec![Range::of_json(&reply)];
        }
        vec![Range::single(Range::identifier(&reply["value"]))]
    }

    /// Returns each number of a reply of any of the three forms, with any step.
    ///
    /// # Panics
    /// If the status is not 200, or if the parts of the reply disagree.
    pub fn values(&self) -> Vec<i64> {
        assert_eq!(self.status, 200, "no numbers: {self:?}");
        let reply = self.json();
        if let Some(ranges) = reply.get("ranges").and_then(Value::as_array) {
            return ranges.iter().flat_map(spread).collect();
        }
        if reply.get("first").is_some() {
            return spread(&reply);
        }
        vec![Range::identifier(&reply["value"])]
    }

    /// Returns the one number of the reply.
    pub fn number(&self) -> i64 {
        match self.numbers().as_slice() {
            [range] if range.count == 1 => range.first,
            ranges => panic!("not one number: {ranges:?}"),
        }
    }
}

/// Lists the numbers of a JSON object with `first`, `last`, `count` and `step`, which must agree.
fn spread(range: &Value) -> Vec<i64> {
    let (first, last) = (&range["first"], &range["last"]);
    let (first, last) = (Range::identifier(first), Range::identifier(last));
    let step = range["step"].as_i64().and_then(|step| step.try_into().ok());
    let step = step.unwrap_or_else(|| panic!("not a step: {range}"));
    let values: Vec<i64> = (first..=last).step_by(step).collect();
    assert_eq!(values.last(), Some(&last), "step and ends: {range}");
    assert_eq!(range["count"], values.len(), "count and ends: {range}");
    values
}

/// The outcome of one call for numbers.
#[derive(Debug)]
pub enum Answer {
    Given(Vec<Range>),
    /// Any status but 200. No number was issued.
    Refused(Reply),
    /// No reply came. Numbers may have been used up, and no caller sees them.
    NoReply(reqwest::Error),
}

impl Client {
    pub fn new(base: &str) -> Self {
        let http = reqwest::Client::builder()
            .no_proxy()
            .tcp_nodelay(true)
            .timeout(REPLY_LIMIT)
            .build()
            .expect("a client without TLS can be made");
        Self {
            http,
            base: base.to_owned(),
        }
    }

    /// Returns the URL that all paths are added to.
    pub fn url(&self) -> &str {
        &self.base
    }

    /// Sends a request. `path` begins with `/`, and the URL library normalises it.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<Vec<u8>>,
    ) -> Result<Reply, reqwest::Error> {
        let mut request = self.http.request(method, format!("{}{path}", self.base));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(body) = body {
            request = request.body(body);
        }
        let response = request.send().await?;
        Ok(Reply {
            status: response.status().as_u16(),
            headers: response.headers().clone(),
            body: response.text().await?,
        })
    }

    pub async fn get(&self, path: &str) -> Result<Reply, reqwest::Error> {
        self.send(Method::GET, path, &[], None).await
    }

    pub async fn post(&self, path: &str) -> Result<Reply, reqwest::Error> {
        self.send(Method::POST, path, &[], None).await
    }

    pub async fn put(&self, path: &str, body: &Value) -> Result<Reply, reqwest::Error> {
        self.put_with(path, body, &[]).await
    }

    pub async fn put_with(
        &self,
        path: &str,
        body: &Value,
        headers: &[(&str, &str)],
    ) -> Result<Reply, reqwest::Error> {
        let mut all = vec![("content-type", "application/json")];
        all.extend_from_slice(headers);
        let body = body.to_string().into_bytes();
        self.send(Method::PUT, path, &all, Some(body)).await
    }

    /// Defines `name`, which must succeed.
    pub async fn define(&self, name: &str, definition: &Value) -> Reply {
        let path = format!("/v1/sequences/{name}");
        let reply = settled(|| self.put(&path, definition)).await;
        assert!(matches!(reply.status, 200 | 201), "not defined: {reply:?}");
        reply
    }

    /// Returns the program's description of `name`, which must exist.
    pub async fn describe(&self, name: &str) -> Value {
        let path = format!("/v1/sequences/{name}");
        let reply = self.get(&path).await.expect("a reply");
        assert_eq!(reply.status, 200, "not described: {reply:?}");
        reply.json()
    }

    /// Takes the next number of `name`, which the program must issue.
    pub async fn next(&self, name: &str) -> i64 {
        self.post(&format!("/v1/sequences/{name}/next"))
            .await
            .expect("a reply")
            .number()
    }

    /// Asks for numbers by `path` and classifies the outcome.
    pub async fn ask(&self, path: &str) -> Answer {
        match self.post(path).await {
            Ok(reply) if reply.status == 200 => Answer::Given(reply.numbers()),
            Ok(reply) => Answer::Refused(reply),
            Err(error) => Answer::NoReply(error),
        }
    }
}

/// Returns the first reply that is not 503. A 503 asks the caller to try again: the database was
/// slow, as it may be on a busy machine.
///
/// # Panics
/// If every reply is 503 for `ASKS_AGAIN_FOR`, or if no reply comes at all.
pub async fn settled<F>(mut ask: impl FnMut() -> F) -> Reply
where
    F: Future<Output = Result<Reply, reqwest::Error>>,
{
    let asked = async {
        loop {
            let reply = ask().await.expect("a reply");
            if reply.status != 503 {
                return reply;
            }
            tokio::time::sleep(BEFORE_ASKING_AGAIN).await;
        }
    };
    let settled = tokio::time::timeout(ASKS_AGAIN_FOR, asked).await;
    settled.expect("it is told to ask again for long")
}
