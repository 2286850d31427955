//! Runs one script against the listener and against a Redis server. Both must say the same.

use tokio::net::TcpStream;

use super::RespService;
use crate::support::{Program, Redis, RespClient, run};

const PASSWORD: &str = "a-password-of-the-tests";

/// Lines of commands on one connection, in their order.
const SCRIPT: &[&str] = &[
    "PING",
    "ping hello",
    "PING a b",
    "ECHO hello",
    "ECHO \"a \\\"b\\\" \\x41\\n\"",
    "ECHO 'it\\'s'",
    "ECHO",
    "INCR",
    "INCR a b",
    "incr orders",
    "INCR orders",
    "INCRBY orders 1",
    "INCRBY orders",
    "INCRBY orders x",
    "INCRBY orders 01",
    "INCRBY orders 9223372036854775808",
    "DECRBY orders x",
    "INCRBYFLOAT orders x",
    "SETNX counted 41",
    "INCR counted",
    "SETNX counted 7",
    "SET counted 7 NX",
    "SET zero 0 NX",
    "INCR zero",
    "SET zero",
    "SET zero 1 NX XX",
    "SET zero 1 NX EX",
    "SET zero 1 NX EX x",
    "SET zero 1 NX PX 0",
    "SET zero 1 NX EX 5 PX 5",
    "SET zero 1 WHY",
    "EXISTS orders counted none orders",
    "EXISTS",
    "TYPE orders",
    "TYPE none",
    "TTL orders",
    "TTL none",
    "PTTL orders",
    "GET none",
    "GET",
    "EXPIRE none 5",
    "EXPIRE orders x",
    "EXPIRE orders 5 WHY",
    "EXPIRE orders",
    "NONE",
    "none a 'b c' d",
    "HGETALLX aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa b",
    "CLIENT",
    "CLIENT NONE a",
    "CLIENT SETNAME",
    "CLIENT GETNAME",
    "CLIENT SETNAME web-1",
    "CLIENT GETNAME",
    "CLIENT SETNAME \"a b\"",
    "CLIENT NO-EVICT on",
    "CLIENT NO-EVICT maybe",
    "CONFIG NONE",
    "CONFIG GET appendonlyx",
    "COMMAND NONE",
    "SELECT 0",
    "SELECT x",
    "EXEC",
    "DISCARD",
    "MULTI",
    "MULTI",
    "WATCH orders",
    "INCR multi",
    "PING",
    "INCR multi",
    "EXEC",
    "MULTI",
    "INCR multi",
    "INCR",
    "INCR multi",
    "EXEC",
    "MULTI",
    "EXEC a",
    "EXEC",
    "MULTI",
    "NONE",
    "DISCARD",
    "MULTI",
    "INCR multi",
    "RESET",
    "EXEC",
    "INCR multi",
    "HELLO 4",
    "HELLO x",
    "HELLO 2 WHY",
    "HELLO 2 SETNAME",
    "GET none",
    "AUTH",
    "AUTH any",
    "AUTH a b c",
    "QUIT",
];

/// Lines before a login and with it, if there is a password.
const LOGIN: &[&str] = &[
    "INCR orders",
    "PING",
    "INCR",
    "NONE",
    "CLIENT NONE",
    "MULTI",
    "EXEC",
    "HELLO 3",
    "AUTH wrong",
    "AUTH other a-password-of-the-tests",
    "HELLO 3 AUTH default wrong",
    "AUTH default a-password-of-the-tests",
    "INCR orders",
    "AUTH wrong",
    "INCR orders",
    "RESET",
    "INCR orders",
    "QUIT",
];

/// What is no command. Each ends its connection.
const MALFORMED: &[&str] = &[
    "PING\r\n*x\r\n",
    "*2147483648\r\n",
    "*1\r\n$x\r\n",
    "*1\r\n$-5\r\n",
    "*1\r\n+PING\r\n",
    "ECHO \"a\r\n",
    "ECHO \"a\"b\r\n",
    "POST / HTTP/1.1\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
];

/// What is too much before a login. Each ends its connection.
const TOO_MUCH: &[&str] = &["*11\r\n", "*1\r\n$16385\r\n"];

/// Starts a Redis server of the version whose words the listener has. Others have other ones.
async fn redis() -> Redis {
    let redis = Redis::start().await;
    let told = redis.ask(&["INFO", "server"]);
    let mut lines = told.lines();
    let version = lines.find_map(|line| line.strip_prefix("redis_version:"));
    let version = version.expect("it tells its version");
    assert!(
        version.starts_with("7."),
        "this is Redis {version}, and the listener has the words of Redis 7"
    );
    redis
}

/// The listener and a Redis server, one connection of each.
struct Pair {
    ours: RespClient<TcpStream>,
    theirs: RespClient<TcpStream>,
}

impl Pair {
    async fn open(service: &RespService, redis: &Redis) -> Self {
        let address = format!("127.0.0.1:{}", redis.port());
        Self {
            ours: service.connect().await,
            theirs: RespClient::open(&address).await,
        }
    }

    /// Sends bytes to both, and returns what each replies.
    async fn ask(&mut self, bytes: &[u8]) -> [Option<String>; 2] {
        let mut replies = [None, None];
        for (client, reply) in [&mut self.ours, &mut self.theirs]
            .into_iter()
            .zip(&mut replies)
        {
            client.send(bytes).await;
            *reply = client.next_reply().await;
        }
        replies
    }

    async fn must_agree(&mut self, lines: &[&str]) {
        for line in lines {
            let [ours, theirs] = self.ask(format!("{line}\r\n").as_bytes()).await;
            assert!(theirs.is_some(), "{line}: redis says nothing");
            assert_eq!(ours, theirs, "{line}");
        }
        let ends = [self.ours.next_reply().await, self.theirs.next_reply().await];
        assert_eq!(ends, [None, None], "after {lines:?}");
    }

    /// Sends what ends the connection of each, and compares all that they reply before.
    async fn must_end_alike(mut self, bytes: &str) {
        let mut ends = Vec::new();
        for client in [&mut self.ours, &mut self.theirs] {
            client.send(bytes.as_bytes()).await;
            ends.push(client.replies_to_the_end().await);
        }
        assert_eq!(ends.first(), ends.last(), "{bytes:?}");
    }
}

#[test]
fn the_listener_says_what_redis_says() {
    run(async {
        let options = Program::options().env("ODOMETER_RESP__EXPIRE", "ignore");
        let (service, redis) = (RespService::with(options).await, redis().await);
        Pair::open(&service, &redis).await.must_agree(SCRIPT).await;
        for bytes in MALFORMED {
            let pair = Pair::open(&service, &redis).await;
            pair.must_end_alike(bytes).await;
        }
    });
}

#[test]
fn the_listener_asks_for_a_password_as_redis_does() {
    run(async {
        let options = Program::options().env("ODOMETER_RESP__PASSWORD", PASSWORD);
        let (service, redis) = (RespService::with(options).await, redis().await);
        assert_eq!(redis.ask(&["CONFIG", "SET", "requirepass", PASSWORD]), "OK");
        Pair::open(&service, &redis).await.must_agree(LOGIN).await;
        for bytes in TOO_MUCH {
            let pair = Pair::open(&service, &redis).await;
            pair.must_end_alike(bytes).await;
        }
    });
}
