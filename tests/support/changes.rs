//! Calls that define and change sequences.

use reqwest::Method;
use serde_json::Value;

use super::{Client, Reply};

/// Calls `method` on a path below `/v1/sequences/`, with `body` as JSON if there is one.
///
/// # Panics
/// If there is no reply.
pub async fn call(
    client: &Client,
    method: Method,
    path: &str,
    body: Option<&Value>,
    headers: &[(&str, &str)],
) -> Reply {
    let path = format!("/v1/sequences/{path}");
    let mut all = headers.to_vec();
    if body.is_some() {
        all.push(("content-type", "application/json"));
    }
    let body = body.map(|body| body.to_string().into_bytes());
    let reply = client.send(method, &path, &all, body).await;
    reply.expect("a reply")
}

/// Raises the floor of a sequence.
pub async fn advance(client: &Client, name: &str, body: &Value) -> Reply {
    let path = format!("{name}/advance");
    call(client, Method::POST, &path, Some(body), &[]).await
}

/// Retires a sequence.
pub async fn retire(client: &Client, name: &str) -> Reply {
    call(client, Method::DELETE, name, None, &[]).await
}

/// Restores a retired sequence.
pub async fn restore(client: &Client, name: &str) -> Reply {
    call(client, Method::POST, &format!("{name}/restore"), None, &[]).await
}
