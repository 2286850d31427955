//! Leases of worker ids, for a program with a snowflake library of its own.

use reqwest::Method;
use serde_json::{Value, json};

use super::{Client, Reply};

/// A lease of a worker id.
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
    /// Reads a lease from a reply.
    ///
    /// # Panics
    /// If the reply is not a lease.
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
    /// Asks for a worker id and returns the reply, with any status.
    pub async fn ask_for_worker(&self, body: &Value) -> Result<Reply, reqwest::Error> {
        let body = body.to_string().into_bytes();
        let headers = [("content-type", "application/json")];
        self.send(Method::POST, "/v1/workers", &headers, Some(body))
            .await
    }

    /// Leases a worker id; the program must grant the lease.
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
