//! Worker ids, as a program with a snowflake library of its own leases them.

use reqwest::Method;
use serde_json::{Value, json};

use super::{Client, Reply};

/// A worker id that is held.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lease {
    pub pool: String,
    pub worker: u32,
    pub token: String,
    pub from_ms: i64,
    pub until_ms: i64,
    pub renew_after_ms: i64,
}

impl Lease {
    /// # Panics
    /// When the reply is not a lease.
    pub fn of(reply: &Reply) -> Self {
        let body = reply.json();
        let number = |key: &str| {
            let number = body[key].as_i64();
            number.unwrap_or_else(|| panic!("no {key}: {body}"))
        };
        let text = |key: &str| {
            let text = body[key].as_str();
            text.unwrap_or_else(|| panic!("no {key}: {body}"))
                .to_owned()
        };
        Self {
            pool: text("pool"),
            worker: u32::try_from(number("worker")).expect("a worker id is not negative"),
            token: text("token"),
            from_ms: number("from_ms"),
            until_ms: number("until_ms"),
            renew_after_ms: number("renew_after_ms"),
        }
    }

    fn path(&self) -> String {
        format!("/v1/workers/{}/{}", self.pool, self.worker)
    }
}

impl Client {
    /// Asks for a worker id, whatever the answer.
    pub async fn ask_for_worker(&self, body: &Value) -> Result<Reply, reqwest::Error> {
        let body = body.to_string().into_bytes();
        let headers = [("content-type", "application/json")];
        self.send(Method::POST, "/v1/workers", &headers, Some(body))
            .await
    }

    /// Leases a worker id, which must be given.
    pub async fn lease(&self, pool: &str, bits: u32, ttl_ms: i64, holder: &str) -> Lease {
        let body = json!({"pool": pool, "bits": bits, "ttl_ms": ttl_ms, "holder": holder});
        let reply = self.ask_for_worker(&body).await.expect("a reply");
        assert_eq!(reply.status, 201, "not leased: {reply:?}");
        Lease::of(&reply)
    }

    pub async fn renew(
        &self,
        lease: &Lease,
        body: Option<&Value>,
    ) -> Result<Reply, reqwest::Error> {
        let path = format!("{}/renew", lease.path());
        self.show(Method::POST, &path, lease, body).await
    }

    pub async fn give_back(
        &self,
        lease: &Lease,
        unused_from_ms: Option<i64>,
    ) -> Result<Reply, reqwest::Error> {
        let body = unused_from_ms.map(|unused| json!({ "unused_from_ms": unused }));
        self.show(Method::DELETE, &lease.path(), lease, body.as_ref())
            .await
    }

    async fn show(
        &self,
        method: Method,
        path: &str,
        lease: &Lease,
        body: Option<&Value>,
    ) -> Result<Reply, reqwest::Error> {
        let mut headers = vec![("odometer-lease", lease.token.as_str())];
        if body.is_some() {
            headers.push(("content-type", "application/json"));
        }
        let body = body.map(|body| body.to_string().into_bytes());
        self.send(method, path, &headers, body).await
    }
}
