//! Tests what client libraries send that no test can run here: their words on connect, and then for
//! numbers.

use super::RespService;
use crate::support::{Program, resp_command, run};

const PASSWORD: &str = "a-password-of-the-tests";

/// What a library sends, in parts that it sends together. Each command has the begin of the reply
/// that the library accepts.
struct Recorded {
    library: &'static str,
    parts: &'static [&'static [(&'static [&'static str], &'static str)]],
}

const RECORDED: [Recorded; 6] = [
    Recorded {
        library: "go-redis 9",
        parts: &[
            &[(
                &["hello", "3", "auth", "default", PASSWORD, "setname", "web"],
                "%[$server, $odometer",
            )],
            &[
                (
                    &["client", "setinfo", "LIB-NAME", "go-redis(,go1.25.1)"],
                    "+OK",
                ),
                (&["client", "setinfo", "LIB-VER", "9.14.0"], "+OK"),
            ],
            // It goes on without what this would bring.
            &[(
                &[
                    "client",
                    "maint_notifications",
                    "on",
                    "moving-endpoint-type",
                    "internal-ip",
                ],
                "-ERR unknown subcommand 'maint_notifications'",
            )],
            &[(&["incr", "orders"], ":1")],
            &[(&["incrby", "orders", "5"], ":")],
            &[
                (&["multi"], "+OK"),
                (&["incr", "orders"], "+QUEUED"),
                (&["incr", "orders"], "+QUEUED"),
                (&["exec"], "*[:"),
            ],
        ],
    },
    Recorded {
        library: "go-redis 8, which has RESP2 alone",
        parts: &[
            &[(&["auth", PASSWORD], "+OK"), (&["select", "0"], "+OK")],
            &[(&["incr", "orders"], ":")],
        ],
    },
    Recorded {
        library: "Lettuce 6",
        parts: &[
            &[(
                &["HELLO", "3", "AUTH", "default", PASSWORD],
                "%[$server, $odometer",
            )],
            &[
                (&["CLIENT", "SETINFO", "lib-name", "Lettuce"], "+OK"),
                (&["CLIENT", "SETINFO", "lib-ver", "6.8.1.RELEASE"], "+OK"),
            ],
            &[(&["INCR", "orders"], ":"), (&["INCR", "orders"], ":")],
            &[(&["MULTI"], "+OK"), (&["INCR", "orders"], "+QUEUED")],
            &[(&["EXEC"], "*[:")],
            &[(&["QUIT"], "+OK")],
        ],
    },
    Recorded {
        library: "Lettuce 7",
        parts: &[
            &[(
                &["HELLO", "3", "AUTH", "default", PASSWORD, "SETNAME", "web"],
                "%[$server, $odometer",
            )],
            &[
                (&["CLIENT", "SETINFO", "lib-name", "Lettuce"], "+OK"),
                (&["CLIENT", "SETINFO", "lib-ver", "7.0.0.RELEASE"], "+OK"),
            ],
            &[(
                &["CLIENT", "MAINT_NOTIFICATIONS", "on"],
                "-ERR unknown subcommand 'MAINT_NOTIFICATIONS'",
            )],
            &[(&["INCR", "orders"], ":")],
        ],
    },
    Recorded {
        library: "Jedis 6 by RESP2",
        parts: &[
            &[(&["AUTH", PASSWORD], "+OK")],
            &[
                (&["CLIENT", "SETNAME", "web"], "+OK"),
                (&["CLIENT", "SETINFO", "LIB-NAME", "jedis"], "+OK"),
                (&["CLIENT", "SETINFO", "LIB-VER", "6.2.0"], "+OK"),
            ],
            &[(&["PING"], "+PONG")],
            &[(&["INCR", "orders"], ":")],
            &[(&["INCRBY", "orders", "1"], ":")],
        ],
    },
    Recorded {
        library: "Jedis 6 by RESP3",
        parts: &[
            &[(
                &["HELLO", "3", "AUTH", "default", PASSWORD],
                "%[$server, $odometer",
            )],
            &[
                (&["CLIENT", "SETINFO", "LIB-NAME", "jedis"], "+OK"),
                (&["CLIENT", "SETINFO", "LIB-VER", "6.2.0"], "+OK"),
            ],
            &[(&["INCR", "orders"], ":")],
        ],
    },
];

#[test]
fn what_other_libraries_send_is_answered_as_they_expect() {
    run(async {
        let options = Program::options().env("ODOMETER_RESP__PASSWORD", PASSWORD);
        let service = RespService::with(options).await;
        for Recorded { library, parts } in RECORDED {
            let mut client = service.connect().await;
            for part in parts {
                let sent: Vec<Vec<u8>> =
                    part.iter().map(|(words, _)| resp_command(words)).collect();
                client.send(&sent.concat()).await;
                for (words, begin) in *part {
                    let reply = client.reply().await;
                    assert!(reply.starts_with(begin), "{library}: {words:?}: {reply}");
                }
            }
        }
    });
}
