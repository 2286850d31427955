//! Answers of a server that does not serve.
//!
//! The program waits if the problem passes by itself. Any other answer ends the start. No answer
//! ends a replica that has served.
//!
//! A stand-in sends the codes that no test can get from a real server.

use std::time::Duration;

use sea_orm::Database;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use crate::support::{
    ACCOUNT, Backend, Finished, PASSWORD, Program, Server, TestDatabase, for_each_backend,
    for_each_server, one_connection, run, wait,
};

/// Words that no message may contain if the server answers.
const UNREACHABLE: &str = "cannot be reached";
/// How long the program may take to notice a change. It looks at the database every five seconds.
const NOTICED: Duration = Duration::from_secs(30);

/// The bytes that are mixed with a password. Any twenty bytes without a zero work.
const NONCE: &[u8; 20] = b"abcdefghijklmnopqrst";
/// MySQL's answer to a login or statement that it accepts.
const OK: &[u8] = &[0, 0, 0, 2, 0, 0, 0];

/// The moment at which a stand-in refuses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum At {
    Login,
    Statement,
}

/// A server that has only one answer.
struct StandIn {
    url: String,
    accepting: tokio::task::JoinHandle<()>,
}

impl Drop for StandIn {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl StandIn {
    async fn start(backend: Backend, code: &'static str, at: At) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("it listens").port();
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    // A client may hang up in the middle; the stand-in ignores this.
                    let _ = match backend {
                        Backend::Postgres => refuse_as_postgres(stream, code, at).await,
                        Backend::MariaDb | Backend::Sqlite => {
                            refuse_as_mysql(stream, code, at).await
                        }
                    };
                });
            }
        });
        let scheme = backend.scheme();
        Self {
            url: format!("{scheme}://{ACCOUNT}:{PASSWORD}@127.0.0.1:{port}/o"),
            accepting,
        }
    }

    async fn run(&self, command: &'static str) -> Finished {
        let options = Program::options()
            .env("ODOMETER_LISTEN", "127.0.0.1:0")
            .database(&self.url);
        let ran = tokio::task::spawn_blocking(move || options.run(&[command]));
        ran.await.expect("it ran")
    }
}

async fn refuse_as_postgres(mut stream: TcpStream, code: &str, at: At) -> std::io::Result<()> {
    const TLS: u32 = 80_877_103;
    loop {
        let length = stream.read_u32().await?;
        let what = stream.read_u32().await?;
        let mut rest = vec![0; usize::try_from(length).expect("32 bits") - 8];
        stream.read_exact(&mut rest).await?;
        if what != TLS {
            break;
        }
        stream.write_all(b"N").await?;
    }
    let mut error = vec![b'E', 0, 0, 0, 0];
    error.extend_from_slice(format!("SFATAL\0VFATAL\0C{code}\0Mrefused\0\0").as_bytes());
    let length = u32::try_from(error.len() - 1).expect("a short message");
    error[1..5].copy_from_slice(&length.to_be_bytes());
    if at == At::Login {
        return stream.write_all(&error).await;
    }
    // The login is accepted, and the server is ready for a statement.
    stream.write_all(b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I").await?;
    error.extend_from_slice(b"Z\0\0\0\x05I");
    loop {
        let kind = stream.read_u8().await?;
        let length = stream.read_u32().await?;
        let mut message = vec![0; usize::try_from(length).expect("32 bits") - 4];
        stream.read_exact(&mut message).await?;
        match kind {
            b'Q' | b'S' => stream.write_all(&error).await?,
            b'X' => return Ok(()),
            _ => {}
        }
    }
}

async fn refuse_as_mysql(mut stream: TcpStream, code: &str, at: At) -> std::io::Result<()> {
    let refused = refusal(code.parse().expect("a number"));
    if at == At::Login {
        return send(&mut stream, 0, &refused).await;
    }
    send(&mut stream, 0, &greeting()).await?;
    let (number, _response) = receive(&mut stream).await?;
    send(&mut stream, number + 1, OK).await?;
    loop {
        let (_, command) = receive(&mut stream).await?;
        let is_setting = command.get(1..4).is_some_and(|start| start == b"SET");
        match (command.first(), is_setting) {
            (Some(3), true) => send(&mut stream, 1, OK).await?,
            (Some(1), _) | (None, _) => return Ok(()),
            _ => send(&mut stream, 1, &refused).await?,
        }
    }
}

/// Checks that the message has the code, and that it does not call the server unreachable.
fn is_told(finished: &str, code: &str) {
    assert!(finished.contains(code), "no word of {code}: {finished}");
    assert!(!finished.contains(UNREACHABLE), "{code}: {finished}");
}

for_each_server!(an_answer_that_passes_by_itself_is_waited_for);

async fn an_answer_that_passes_by_itself_is_waited_for(backend: Backend) {
    let codes: &[&str] = match backend {
        // An operator who frees space on a full disk restarts nothing, so the program waits.
        Backend::Postgres => &["53100", "53300", "57P01", "57P02", "57P03", "08006"],
        Backend::MariaDb | Backend::Sqlite => &[
            "1021", "1040", "1047", "1053", "1203", "1226", "1290", "1461", "9001",
        ],
    };
    for code in codes {
        for at in [At::Login, At::Statement] {
            if (*code, at) == ("1290", At::Login) {
                // Only a statement that would write gets this code.
                continue;
            }
            let server = StandIn::start(backend, code, at).await;
            let finished = server.run("check").await;
            assert_eq!(finished.code, Some(1), "{code} {at:?}: {finished}");
            is_told(&finished.to_string(), code);

            let mut program = Program::options().database(&server.url).start().await;
            wait::until("it has said so", NOTICED, async || {
                program.log().contains(code).then_some(())
            })
            .await;
            assert!(!program.has_ended(), "{code} {at:?}: {}", program.log());
            is_told(&program.stop().await, code);
        }
    }
}

for_each_server!(any_other_answer_ends_the_start_with_its_code);

async fn any_other_answer_ends_the_start_with_its_code(backend: Backend) {
    let codes: &[&str] = match backend {
        Backend::Postgres => &["55000", "42883", "58030", "XX000"],
        Backend::MariaDb | Backend::Sqlite => &["1105", "1129", "1180", "1305"],
    };
    for code in codes {
        for at in [At::Login, At::Statement] {
            let server = StandIn::start(backend, code, at).await;
            for command in ["check", "migrate", "serve"] {
                let finished = server.run(command).await;
                assert_eq!(
                    finished.code,
                    Some(78),
                    "{command} {code} {at:?}: {finished}"
                );
                is_told(&finished.to_string(), code);
            }
        }
    }
}

for_each_server!(a_server_without_a_connection_left_is_waited_for);

async fn a_server_without_a_connection_left_is_waited_for(backend: Backend) {
    let server = Server::start(backend).await;
    let database = TestDatabase::prepared_on(&server).await;
    let (none_left, some_left, code) = match backend {
        Backend::Postgres => (
            format!("ALTER ROLE {ACCOUNT} CONNECTION LIMIT 0"),
            format!("ALTER ROLE {ACCOUNT} CONNECTION LIMIT -1"),
            "53300",
        ),
        Backend::MariaDb | Backend::Sqlite => (
            format!("ALTER USER {ACCOUNT}@'%' WITH MAX_USER_CONNECTIONS 1"),
            format!("ALTER USER {ACCOUNT}@'%' WITH MAX_USER_CONNECTIONS 0"),
            "1226",
        ),
    };
    let taken = Box::pin(Database::connect(one_connection(&database.url))).await;
    let taken = taken.expect("there is a connection still");
    server.administrate(&none_left).await;
    let mut program = Program::options().database(&database.url).start().await;
    wait::until("it has said so", NOTICED, async || {
        program.log().contains(code).then_some(())
    })
    .await;
    server.administrate(&some_left).await;
    program.ready().await;
    assert_eq!(program.client().next("x").await, 1);
    taken.close().await.expect("a connection closes");
    is_told(&program.stop().await, code);
}

for_each_backend!(nothing_that_a_server_answers_ends_a_replica_that_has_served);

async fn nothing_that_a_server_answers_ends_a_replica_that_has_served(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let options = Program::options().database(&database.url);
    let mut program = options.start_ready().await;
    assert_eq!(program.client().next("x").await, 1);
    let code = match backend {
        Backend::Postgres => "42703",
        Backend::MariaDb => "1054",
        Backend::Sqlite => "SQLite result code 1",
    };
    let rename = |from: &str, to: &str| format!("ALTER TABLE meta RENAME COLUMN {from} TO {to}");
    database.execute(&rename("recovered_at", "another")).await;
    wait::until("it has said so", NOTICED, async || {
        let said = program.log();
        let is_waiting = said.contains("waiting for the database") && said.contains(code);
        is_waiting.then_some(())
    })
    .await;
    // The same answer ends a program that has served nothing yet.
    if backend != Backend::Sqlite {
        let second = options
            .clone()
            .env("ODOMETER_LISTEN", "127.0.0.1:0")
            .run(&["serve"]);
        assert_eq!(second.code, Some(78), "{second}");
        is_told(&second.to_string(), code);
    }
    assert!(!program.has_ended(), "{}", program.log());
    assert_eq!(program.client().next("x").await, 2);
    database.execute(&rename("another", "recovered_at")).await;
    wait::until("it is back", NOTICED, async || {
        program.log().contains("the database is back").then_some(())
    })
    .await;
    let said = program.stop().await;
    is_told(&said, code);
}

#[test]
fn a_server_that_ends_sessions_and_lets_none_in_is_told_by_its_code() {
    run(async {
        let server = Server::start(Backend::Postgres).await;
        let database = TestDatabase::prepared_on(&server).await;
        let options = Program::options().database(&database.url);
        let mut program = options.start_ready().await;
        assert_eq!(program.client().next("x").await, 1);
        let name = database.url.rsplit('/').next().expect("a database's name");
        let admit = |whether: &str| format!("ALTER DATABASE {name} ALLOW_CONNECTIONS {whether}");
        server.administrate(&admit("false")).await;
        server
            .administrate(&format!(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{ACCOUNT}'"
            ))
            .await;
        wait::until("it has said so", NOTICED, async || {
            let said = program.log();
            let mut waiting = said.lines().filter(|line| line.contains("waiting for"));
            waiting.any(|line| line.contains("55000")).then_some(())
        })
        .await;
        assert!(!program.has_ended(), "{}", program.log());
        assert_eq!(program.client().next("x").await, 2);
        server.administrate(&admit("true")).await;
        wait::until("it is back", NOTICED, async || {
            program.log().contains("the database is back").then_some(())
        })
        .await;
        is_told(&program.stop().await, "55000");
    });
}

fn greeting() -> Vec<u8> {
    let mut greeting = b"\x0a8.0.36\0\x01\0\0\0".to_vec();
    greeting.extend_from_slice(&NONCE[..8]);
    // The capabilities: a database, the protocol of 4.1, transactions, secure connection, plugins.
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
