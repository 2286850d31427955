//! MySQL's default way to log in, `caching_sha2_password`, which MariaDB does not have.

use crate::support::{PASSWORD, Product, Program, Server, TestDatabase, run};

/// Over TLS the client sends the whole password. Without TLS it encrypts the password with the
/// server's key.
#[test]
fn a_password_is_sent_encrypted_where_mysql_has_no_tls() {
    run(async {
        let server = Server::shared_of(Product::MySql).await;
        let database = TestDatabase::prepared_on(server).await;
        for parameters in ["?ssl-mode=REQUIRED", "?ssl-mode=DISABLED"] {
            let check = |password: &str| {
                // After each check the server remembers the password, and a proof is enough the
                // next time. `FLUSH PRIVILEGES` makes the server forget it.
                let url = database.url.replace(PASSWORD, password);
                Program::options()
                    .database(&format!("{url}{parameters}"))
                    .run(&["check"])
            };
            server.administrate("FLUSH PRIVILEGES").await;
            let known = check(PASSWORD);
            assert_eq!(known.code, Some(0), "{parameters}: {known}");

            server.administrate("FLUSH PRIVILEGES").await;
            let unknown = check("another-one");
            assert_eq!(unknown.code, Some(78), "{parameters}: {unknown}");
            assert!(unknown.errors.contains("user or password"), "{unknown}");
            assert!(!unknown.to_string().contains("another-one"), "{unknown}");
        }
    });
}
