//! A caller that speaks TLS, and the files of a program that does.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use rustls::{
    ClientConfig, ClientConnection, HandshakeKind, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::{Client, Options, Program, Reply, SignedCertificate, TestAuthority, keeper, raw};

/// The name of the listener in its certificate.
pub const HOST: &str = "localhost";
const REPLY_LIMIT: Duration = Duration::from_secs(30);

/// How a caller speaks TLS. What it remembers of a connection is for its later ones.
pub struct TlsCaller {
    config: ClientConfig,
}

impl TlsCaller {
    /// Returns a caller who trusts `authority`, and shows a certificate if one is given.
    pub fn new(authority: &TestAuthority, shown: Option<&SignedCertificate>) -> Self {
        Self::by(authority, shown, rustls::DEFAULT_VERSIONS)
    }

    /// Returns a caller who speaks these versions of TLS.
    pub fn by(
        authority: &TestAuthority,
        shown: Option<&SignedCertificate>,
        versions: &[&'static rustls::SupportedProtocolVersion],
    ) -> Self {
        let mut roots = RootCertStore::empty();
        let trusted = certificates(&authority.certificate());
        roots.add_parsable_certificates(trusted);
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .expect("the versions are known")
            .with_root_certificates(roots);
        let config = match shown {
            None => builder.with_no_client_auth(),
            Some(shown) => {
                let key = PrivateKeyDer::from_pem_slice(shown.key.as_bytes());
                let chain = certificates(&shown.certificate);
                let config = builder.with_client_auth_cert(chain, key.expect("a key"));
                config.expect("the key is that of the certificate")
            }
        };
        let caller = Self { config };
        caller.offering(&["h2", "http/1.1"])
    }

    /// Offers these protocols by ALPN, or none.
    pub fn offering(mut self, protocols: &[&str]) -> Self {
        let protocols = protocols.iter().map(|one| one.as_bytes().to_vec());
        self.config.alpn_protocols = protocols.collect();
        self
    }

    /// Lets the keys of a connection be taken out of it.
    pub fn with_open_keys(mut self) -> Self {
        self.config.enable_secret_extraction = true;
        self
    }

    /// Returns a connection without a socket, whose handshake begins.
    pub fn session(&self) -> ClientConnection {
        let host = HOST.try_into().expect("the name of a host");
        ClientConnection::new(self.shared_config(), host).expect("it can be used")
    }

    /// The copy shares what the caller remembers.
    fn shared_config(&self) -> Arc<ClientConfig> {
        Arc::new(self.config.clone())
    }

    /// Opens a connection to `address`, a `host:port`. With TLS 1.3 the server looks at the
    /// certificate later, so its refusal is no error here.
    ///
    /// # Errors
    /// The handshake fails.
    pub async fn connect(&self, address: &str) -> io::Result<SecureConnection> {
        self.connect_over(TcpStream::connect(address).await?).await
    }

    /// Does the same on a connection that is open already.
    ///
    /// # Errors
    /// The handshake fails.
    pub async fn connect_over(&self, stream: TcpStream) -> io::Result<SecureConnection> {
        stream.set_nodelay(true)?;
        let host = HOST.try_into().expect("the name of a host");
        let connector = TlsConnector::from(self.shared_config());
        let connecting = connector.connect(host, stream);
        let stream = tokio::time::timeout(REPLY_LIMIT, connecting).await??;
        Ok(SecureConnection { stream })
    }
}

/// A connection by TLS that stays open from one request to the next.
pub struct SecureConnection {
    stream: TlsStream<TcpStream>,
}

impl SecureConnection {
    /// Opens a connection to `address`, as [`TlsCaller::new`] and [`TlsCaller::connect`].
    ///
    /// # Errors
    /// The handshake fails.
    pub async fn open(
        address: &str,
        authority: &TestAuthority,
        shown: Option<&SignedCertificate>,
    ) -> io::Result<Self> {
        TlsCaller::new(authority, shown).connect(address).await
    }

    /// Returns the stream itself.
    pub fn into_stream(self) -> TlsStream<TcpStream> {
        self.stream
    }

    /// Returns whether the handshake was whole, and resumed no earlier connection.
    pub fn is_full(&self) -> bool {
        let (_, session) = self.stream.get_ref();
        session.handshake_kind() == Some(HandshakeKind::Full)
    }

    /// Returns the protocol that both sides agreed on.
    pub fn protocol(&self) -> Option<&[u8]> {
        self.stream.get_ref().1.alpn_protocol()
    }

    /// Returns whether the server showed this certificate.
    pub fn has_met(&self, server: &SignedCertificate) -> bool {
        let (_, session) = self.stream.get_ref();
        let shown = session.peer_certificates().unwrap_or_default();
        shown.first() == certificates(&server.certificate).first()
    }

    /// Sends `request` unchanged and reads the one reply. Returns `None` if no whole reply comes.
    ///
    /// # Panics
    /// If neither a reply nor an end comes.
    pub async fn exchange(&mut self, request: &[u8]) -> Option<Reply> {
        let exchanged = async {
            self.stream.write_all(request).await.ok()?;
            self.stream.flush().await.ok()?;
            raw::read_reply(&mut self.stream).await.0
        };
        let exchanged = tokio::time::timeout(REPLY_LIMIT, exchanged).await;
        exchanged.expect("a reply or an end comes within the limit")
    }

    /// Sends `requests` unchanged, and reads until the server ends the connection.
    ///
    /// # Panics
    /// If no end comes.
    pub async fn exchange_all(&mut self, requests: &[u8]) -> String {
        let mut received = Vec::new();
        let exchanged = async {
            self.stream.write_all(requests).await?;
            self.stream.flush().await?;
            self.stream.read_to_end(&mut received).await
        };
        let exchanged = tokio::time::timeout(REPLY_LIMIT, exchanged).await;
        let ended = exchanged.expect("an end comes within the limit");
        ended.expect("the connection ends in order");
        String::from_utf8_lossy(&received).into_owned()
    }

    /// Sends a request without body, and with a token unless that is empty.
    pub async fn call(&mut self, method: &str, path: &str, token: &str) -> Option<Reply> {
        let token = match token {
            "" => String::new(),
            token => format!("Authorization: Bearer {token}\r\n"),
        };
        let head = format!("{method} {path} HTTP/1.1\r\nHost: {HOST}\r\n{token}");
        self.exchange(format!("{head}Content-Length: 0\r\n\r\n").as_bytes())
            .await
    }
}

fn certificates(pem: &str) -> Vec<CertificateDer<'static>> {
    let found = CertificateDer::pem_slice_iter(pem.as_bytes());
    found
        .collect::<Result<_, _>>()
        .expect("certificates in PEM")
}

/// The files of `[tls]` of a program, which has an operations listener without TLS.
pub struct TlsFiles(TempDir);

impl TlsFiles {
    pub fn new(server: &SignedCertificate) -> Self {
        let files = Self(keeper::directory("tls"));
        files.set_server(server);
        files
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file as editors and Kubernetes do: in one step.
    pub fn set(&self, name: &str, text: &str) {
        let beside = self.path("new");
        std::fs::write(&beside, text).expect("our directory");
        std::fs::rename(&beside, self.path(name)).expect("our directory");
    }

    /// Replaces the certificate of the listener, and then its key.
    pub fn set_server(&self, server: &SignedCertificate) {
        self.set("server.pem", &server.certificate);
        self.set("server.key", &server.key);
    }

    /// Lets the program use the certificate, and look at the files once a second.
    pub fn given_to(&self, options: Options) -> Options {
        let shown = |path: &Path| path.display().to_string();
        options
            .env(
                "ODOMETER_TLS__CERTIFICATE_FILE",
                shown(&self.path("server.pem")),
            )
            .env("ODOMETER_TLS__KEY_FILE", shown(&self.path("server.key")))
            .env("ODOMETER_OPERATIONS__LISTEN", "127.0.0.1:0")
            .env("ODOMETER_DEFINITION_REFRESH", "1s")
    }
}

/// Returns a client of the operations listener.
pub fn operations(program: &Program) -> Client {
    Client::new(&program.operations_url())
}
