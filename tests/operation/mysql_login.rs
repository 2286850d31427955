//! MySQL's default way to log in, `caching_sha2_password`, which MariaDB does not have.

use crate::support::{PASSWORD, Product, Program, Server, TestDatabase, run};

/// Over TLS the whole password is sent; without it what the server's key has encrypted.
#[test]
fn a_password_is_sent_encrypted_where_mysql_has_no_tls() {
    run(async {
        let server = Server::shared_of(Product::MySql).await;
        let database = TestDatabase::prepared_on(server).await;
        for parameters in ["?ssl-mode=REQUIRED", "?ssl-mode=DISABLED"] {
            let check = |password: &str| {
                // Otherwise the server remembers it, and a proof is enough.
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
