//! MySQL's default way to log in, which MariaDB does not have: a stand-in speaks the server's part
//! of `caching_sha2_password` without TLS, up to the first statement.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use crate::support::{PASSWORD, Program, directory, run};

/// What the password is mixed with; any twenty bytes but zeros.
const NONCE: &[u8; 20] = b"abcdefghijklmnopqrst";
const OK: &[u8] = &[0, 0, 0, 2, 0, 0, 0];

/// A server that lets in whoever knows the password and then refuses every question.
struct StandIn {
    port: u16,
    n_let_in: Arc<AtomicU32>,
    accepting: tokio::task::JoinHandle<()>,
    _keys: TempDir,
}

impl Drop for StandIn {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl StandIn {
    async fn start() -> Self {
        let keys = directory("keys");
        let key = keys.path().join("key.pem");
        openssl(
            Command::new("openssl").args(["genrsa", "-out"]).arg(&key),
            &[],
        );
        let public = openssl(
            Command::new("openssl")
                .args(["rsa", "-pubout", "-in"])
                .arg(&key),
            &[],
        );
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("it listens").port();
        let n_let_in = Arc::new(AtomicU32::new(0));
        let counter = Arc::clone(&n_let_in);
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (key, public) = (key.clone(), public.clone());
                let counter = Arc::clone(&counter);
                tokio::spawn(async move {
                    // A client that hangs up in the middle is none of our business.
                    let _ = serve(stream, key, public, counter).await;
                });
            }
        });
        Self {
            port,
            n_let_in,
            accepting,
            _keys: keys,
        }
    }
}

async fn serve(
    mut stream: TcpStream,
    key: PathBuf,
    public: Vec<u8>,
    n_let_in: Arc<AtomicU32>,
) -> std::io::Result<()> {
    send(&mut stream, 0, &greeting()).await?;
    let (number, _response) = receive(&mut stream).await?;
    // Nothing is cached: the whole password is wanted.
    send(&mut stream, number + 1, &[1, 4]).await?;
    let (number, request) = receive(&mut stream).await?;
    assert_eq!(request, [2], "the client asks for the key");
    let mut reply = vec![1];
    reply.extend_from_slice(&public);
    send(&mut stream, number + 1, &reply).await?;
    let (number, encrypted) = receive(&mut stream).await?;
    let mut password = decrypt(&key, &encrypted);
    for (byte, mixed) in password.iter_mut().zip(NONCE.iter().cycle()) {
        *byte ^= mixed;
    }
    if password != format!("{PASSWORD}\0").as_bytes() {
        return send(&mut stream, number + 1, &refusal(1045)).await;
    }
    n_let_in.fetch_add(1, Ordering::Relaxed);
    send(&mut stream, number + 1, OK).await?;
    loop {
        let (_, command) = receive(&mut stream).await?;
        let is_setting = command.get(1..4).is_some_and(|start| start == b"SET");
        match (command.first(), is_setting) {
            (Some(3), true) => send(&mut stream, 1, OK).await?,
            (Some(1), _) | (None, _) => return Ok(()),
            _ => send(&mut stream, 1, &refusal(1105)).await?,
        }
    }
}

fn greeting() -> Vec<u8> {
    let mut greeting = b"\x0a8.0.36\0\x01\0\0\0".to_vec();
    greeting.extend_from_slice(&NONCE[..8]);
    // Capabilities: a database, the protocol of 4.1, transactions, secure connection, plugins.
    greeting.extend_from_slice(&[0, 0x08, 0xa2, 45, 2, 0, 0x08, 0, 21]);
    greeting.extend_from_slice(&[0; 10]);
    greeting.extend_from_slice(&NONCE[8..]);
    greeting.extend_from_slice(b"\0caching_sha2_password\0");
    greeting
}

fn refusal(code: u16) -> Vec<u8> {
    let mut packet = vec![0xff];
    packet.extend_from_slice(&code.to_le_bytes());
    packet.extend_from_slice(b"#HY000refused");
    packet
}

async fn send(stream: &mut TcpStream, number: u8, payload: &[u8]) -> std::io::Result<()> {
    let length = u32::try_from(payload.len()).expect("a short packet");
    let mut packet = length.to_le_bytes()[..3].to_vec();
    packet.push(number);
    packet.extend_from_slice(payload);
    stream.write_all(&packet).await
}

async fn receive(stream: &mut TcpStream) -> std::io::Result<(u8, Vec<u8>)> {
    let mut head = [0; 4];
    stream.read_exact(&mut head).await?;
    let length = u32::from_le_bytes([head[0], head[1], head[2], 0]);
    let mut payload = vec![0; usize::try_from(length).expect("24 bits")];
    stream.read_exact(&mut payload).await?;
    Ok((head[3], payload))
}

fn decrypt(key: &Path, encrypted: &[u8]) -> Vec<u8> {
    openssl(
        Command::new("openssl")
            .args(["pkeyutl", "-decrypt", "-pkeyopt", "rsa_padding_mode:oaep"])
            .arg("-inkey")
            .arg(key),
        encrypted,
    )
}

/// What a command prints for `input`.
fn openssl(command: &mut Command, input: &[u8]) -> Vec<u8> {
    use std::io::Write;

    let mut process = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("openssl is there: apt-get install openssl");
    let mut stdin = process.stdin.take().expect("standard input is piped");
    stdin.write_all(input).expect("it reads");
    drop(stdin);
    let output = process.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{command:?}: {}", output.status);
    output.stdout
}

#[test]
fn a_password_is_sent_encrypted_where_mysql_has_no_tls() {
    run(async {
        let server = StandIn::start().await;
        let check = async |password: &str| {
            let url = format!("mysql://odometer:{password}@127.0.0.1:{}/o", server.port);
            let options = Program::options().database(&url);
            tokio::task::spawn_blocking(move || options.run(&["check"]))
                .await
                .expect("it ran")
        };
        let known = check(PASSWORD).await;
        let n_let_in = server.n_let_in.load(Ordering::Relaxed);
        assert!(n_let_in >= 1, "nobody was let in: {known}");
        assert!(known.errors.contains("MySQL error 1105"), "{known}");

        let unknown = check("another-one").await;
        assert_eq!(unknown.code, Some(78), "{unknown}");
        assert!(unknown.errors.contains("user or password"), "{unknown}");
        assert!(!unknown.to_string().contains("another-one"), "{unknown}");
        assert_eq!(server.n_let_in.load(Ordering::Relaxed), n_let_in);
    });
}
