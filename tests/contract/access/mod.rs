//! Tests who may take what: roles, callers and their tokens.

mod attacks;
mod certificates;
mod failed_calls;
mod first_use;
mod hang_ups;
mod issuers;
mod quotas;
mod resp;
mod rotation;
mod size_limits;
mod table;
mod told;

use std::path::{Path, PathBuf};

use odometer::access::token::{hash, make, to_hex};
use reqwest::Method;
use serde_json::Value;
use tempfile::TempDir;

use crate::support::{Backend, Client, Options, Program, Reply, TestDatabase, directory};

/// The administrator's token.
const ADMIN: &str = "a-token-of-the-administrator";

/// A program with roles.
struct Roles {
    database: TestDatabase,
    folder: TempDir,
    program: Program,
}

impl Roles {
    /// Starts a program with `access`, the part of the configuration after `[access]`, and with a
    /// file of callers.
    async fn start(options: Options, access: &str, callers: &str) -> Self {
        Self::start_on(Backend::Sqlite, options, access, callers).await
    }

    /// Does the same on a server.
    async fn start_on(backend: Backend, options: Options, access: &str, callers: &str) -> Self {
        let database = TestDatabase::prepared(backend).await;
        let folder = directory("access");
        let callers_file = folder.path().join("callers.toml");
        std::fs::write(&callers_file, callers).expect("our directory");
        let config = folder.path().join("odometer.toml");
        let callers_file = callers_file.display();
        let text = format!("[access]\ncallers_file = \"{callers_file}\"\n{access}");
        std::fs::write(&config, text).expect("our directory");
        let options = options
            .database(&database.url)
            .env("ODOMETER_CONFIG", config.display())
            .env("ODOMETER_ADMIN_TOKEN", ADMIN);
        let program = options.start_ready().await;
        Self {
            database,
            folder,
            program,
        }
    }

    fn callers_file(&self) -> PathBuf {
        self.folder.path().join("callers.toml")
    }

    fn client(&self) -> Client {
        self.program.client()
    }
}

/// A caller with a token of its own.
struct TestCaller {
    name: &'static str,
    role: &'static str,
    token: String,
}

impl TestCaller {
    fn new(name: &'static str, role: &'static str) -> Self {
        let token = make().expose().to_owned();
        Self { name, role, token }
    }

    /// Returns the section of this caller in the file of callers.
    fn section(&self) -> String {
        let digits = to_hex(&hash(&self.token).expect("a token"));
        format!(
            "[{}]\nrole = \"{}\"\nsha256 = [\"{digits}\"]\n",
            self.name, self.role
        )
    }
}

/// Writes a file as editors and Kubernetes do: in one step.
fn replace(file: &Path, text: &str) {
    let beside = file.with_extension("new");
    std::fs::write(&beside, text).expect("our directory");
    std::fs::rename(&beside, file).expect("our directory");
}

/// Sends a call with a token; an empty one is left out.
async fn send(
    client: &Client,
    token: &str,
    (method, path, body): (Method, &str, Option<&Value>),
) -> Reply {
    let bearer = format!("Bearer {token}");
    let mut headers = Vec::new();
    if !token.is_empty() {
        headers.push(("authorization", bearer.as_str()));
    }
    if body.is_some() {
        headers.push(("content-type", "application/json"));
    }
    let body = body.map(|body| body.to_string().into_bytes());
    let reply = client.send(method, path, &headers, body).await;
    reply.expect("a reply")
}

async fn get(client: &Client, token: &str, path: &str) -> Reply {
    send(client, token, (Method::GET, path, None)).await
}

async fn post(client: &Client, token: &str, path: &str) -> Reply {
    send(client, token, (Method::POST, path, None)).await
}

fn refused(reply: &Reply, status: u16, code: &str, what: &str) {
    assert_eq!(reply.status, status, "{what}: {reply:?}");
    assert_eq!(reply.code().as_deref(), Some(code), "{what}: {reply:?}");
}
