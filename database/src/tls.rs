//! Says what a URL asks of TLS, whether that keeps a stranger out, and what a failed handshake
//! means.

use std::{fs, io, path::Path};

use odometer_process::{
    faults::{self, Fault},
    host::is_this_machine,
};
use rustls::{AlertDescription, CertificateError};
use sea_orm::sqlx::{
    Error as SqlxError,
    mysql::{MySqlConnectOptions, MySqlSslMode},
    postgres::{PgConnectOptions, PgSslMode},
};

use crate::failure::Cause;

/// Lists the parameters that name a file, of PostgreSQL and of MySQL.
const FILES: [&str; 8] = [
    "sslrootcert",
    "ssl-root-cert",
    "ssl-ca",
    "sslca",
    "sslcert",
    "ssl-cert",
    "sslkey",
    "ssl-key",
];

/// Returns the cause of a failure to connect, if it has to do with TLS. The server counts as one
/// that refuses if the failure lasts until somebody changes a certificate or the URL.
pub fn cause(error: &SqlxError) -> Option<Cause> {
    if let SqlxError::Configuration(_) = error {
        let text = "its host, port or parameters cannot be used";
        return Some(Cause::Refused(text.to_owned()));
    }
    if let SqlxError::Tls(inner) = error {
        let text = if inner.to_string().contains("does not support TLS") {
            "the database offers no TLS, which the URL asks for"
        } else {
            "TLS cannot be set up with this host and these certificate files"
        };
        return Some(Cause::Refused(text.to_owned()));
    }
    let SqlxError::Io(inner) = error else {
        return None;
    };
    let fault = inner.get_ref()?.downcast_ref::<rustls::Error>()?;
    Some(if let rustls::Error::InvalidCertificate(why) = fault {
        Cause::Refused(unverified(why))
    } else if let rustls::Error::AlertReceived(alert) = fault {
        refused(*alert)
    } else if let rustls::Error::PeerIncompatible(_) = fault {
        Cause::Refused(NOT_AGREED.to_owned())
    } else {
        Cause::Away("TLS could not be agreed on".to_owned())
    })
}

/// Says that client and server have no version of TLS, or no cipher, in common.
const NOT_AGREED: &str =
    "TLS could not be agreed on: let the server speak TLS 1.2 or 1.3, with common ciphers";

fn unverified(why: &CertificateError) -> String {
    use CertificateError as Why;
    // An authority that took another key under its old name signs what the old key did not.
    let what = if matches!(why, Why::UnknownIssuer | Why::BadSignature) {
        "is signed by no authority that is known here: name the file of the authority's \
         certificate, as sslrootcert (PostgreSQL) or ssl-ca (MySQL)"
    } else if matches!(why, Why::Expired | Why::ExpiredContext { .. }) {
        "has expired"
    } else if matches!(why, Why::NotValidYet | Why::NotValidYetContext { .. }) {
        "is not valid yet, or this machine's clock is slow"
    } else if matches!(
        why,
        Why::NotValidForName | Why::NotValidForNameContext { .. }
    ) {
        "is for another host than the one in the URL"
    } else if matches!(why, Why::Revoked) {
        "is revoked"
    } else {
        "cannot be verified"
    };
    format!("the database's certificate {what}")
}

fn refused(alert: AlertDescription) -> Cause {
    use AlertDescription as Alert;
    let is_about_us = matches!(
        alert,
        Alert::CertificateRequired
            | Alert::BadCertificate
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::UnknownCA
            | Alert::AccessDenied
    );
    let is_about_what_is_spoken = matches!(
        alert,
        Alert::HandshakeFailure | Alert::ProtocolVersion | Alert::InsufficientSecurity
    );
    if is_about_what_is_spoken {
        Cause::Refused(NOT_AGREED.to_owned())
    } else if is_about_us {
        let text = "the database wants another client certificate (sslcert and sslkey)";
        Cause::Refused(text.to_owned())
    } else {
        Cause::Away("TLS could not be agreed on".to_owned())
    }
}

/// Returns which file of a certificate or a key cannot be used, and why.
pub fn unusable_file(url: &url::Url) -> Option<String> {
    url.query_pairs()
        .filter(|(key, _)| FILES.contains(&key.as_ref()))
        // A value that is no path is the certificate itself.
        .filter(|(_, path)| !path.trim_start().starts_with("-----BEGIN"))
        .find_map(|(key, path)| {
            let why = match fs::read_to_string(Path::new(path.as_ref())) {
                Ok(text) if text.contains("-----BEGIN") => return None,
                Ok(_) => "is no PEM file".to_owned(),
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    "is no PEM file".to_owned()
                }
                Err(error) => format!("cannot be read ({})", error.kind()),
            };
            Some(format!("{key}: the file {path} {why}"))
        })
}

/// Leaves TLS as the URL has it. Under the fault `AnyCertificate`, any certificate is accepted.
pub fn postgres(options: PgConnectOptions) -> PgConnectOptions {
    if faults::is(Fault::AnyCertificate) {
        return options.ssl_mode(PgSslMode::Require);
    }
    options
}

/// Leaves TLS as the URL has it. Under the fault `AnyCertificate`, any certificate is accepted.
pub fn mysql(options: MySqlConnectOptions) -> MySqlConnectOptions {
    if faults::is(Fault::AnyCertificate) {
        return options.ssl_mode(MySqlSslMode::Required);
    }
    options
}

/// Returns the warning that each start logs if a stranger could stand in for the database.
pub fn postgres_warning(options: &PgConnectOptions) -> Option<String> {
    let host = options.get_host();
    if options.get_socket().is_some() || host.starts_with('/') || is_this_machine(host) {
        return None;
    }
    let (mode, what) = match options.get_ssl_mode() {
        PgSslMode::VerifyFull => return None,
        PgSslMode::Disable => ("disable", CLEAR),
        PgSslMode::Allow => ("allow", CLEAR),
        PgSslMode::Prefer => ("prefer", ANY_CERTIFICATE),
        PgSslMode::Require => ("require", ANY_CERTIFICATE),
        PgSslMode::VerifyCa => ("verify-ca", ANY_HOST),
    };
    Some(format!(
        "ODOMETER_DATABASE_URL: sslmode={mode} {what}: \
         use sslmode=verify-full&sslrootcert=FILE. FILE is the certificate of the authority \
         that signed the server's certificate"
    ))
}

/// Returns the warning for MySQL, like [`postgres_warning`].
pub fn mysql_warning(options: &MySqlConnectOptions) -> Option<String> {
    if options.get_socket().is_some() || is_this_machine(options.get_host()) {
        return None;
    }
    let (mode, what) = match options.get_ssl_mode() {
        MySqlSslMode::VerifyIdentity => return None,
        MySqlSslMode::Disabled => ("DISABLED", CLEAR),
        MySqlSslMode::Preferred => ("PREFERRED", ANY_CERTIFICATE),
        MySqlSslMode::Required => ("REQUIRED", ANY_CERTIFICATE),
        MySqlSslMode::VerifyCa => ("VERIFY_CA", ANY_HOST),
    };
    Some(format!(
        "ODOMETER_DATABASE_URL: ssl-mode={mode} {what}: \
         use ssl-mode=VERIFY_IDENTITY&ssl-ca=FILE. FILE is the certificate of the authority \
         that signed the server's certificate"
    ))
}

const CLEAR: &str = "sends everything to another host in clear text, and anybody on the network \
                     between can read and change it";
const ANY_CERTIFICATE: &str =
    "takes any certificate, so anybody on the network between can stand in for the database";
/// Warns although the authority is checked: authorities known to browsers count, and they sign for
/// everybody.
const ANY_HOST: &str = "takes any host's certificate, so anybody on the network between who has \
                        one can stand in for the database";

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;

    fn postgres_said(rest: &str) -> Option<String> {
        postgres_warning(&format!("postgres://u:tiger@{rest}").parse().unwrap())
    }

    fn mysql_said(rest: &str) -> Option<String> {
        mysql_warning(&format!("mysql://u:tiger@{rest}").parse().unwrap())
    }

    #[test]
    fn only_what_leaves_this_machine_unverified_is_warned_of() {
        for quiet in [
            "localhost/d",
            "127.0.0.1/d",
            "127.8.9.1:6432/d?sslmode=disable",
            "[::1]/d",
            "h/d?host=/run/postgresql",
            "%2Frun%2Fpostgresql/d",
            "db.example/d?sslmode=verify-full",
        ] {
            assert_eq!(postgres_said(quiet), None, "{quiet}");
        }
        for (loud, mode) in [
            ("db.example/d", "sslmode=prefer"),
            ("10.0.0.7/d?sslmode=disable", "sslmode=disable"),
            ("db.example/d?sslmode=allow", "sslmode=allow"),
            ("db.example/d?sslmode=require", "sslmode=require"),
            ("db.example/d?sslmode=verify-ca", "sslmode=verify-ca"),
            ("localhost.example/d", "sslmode=prefer"),
        ] {
            let said = postgres_said(loud).unwrap();
            assert!(
                said.contains(mode) && said.contains("verify-full"),
                "{said}"
            );
            assert!(
                !said.contains("tiger") && !said.contains("db.example"),
                "{said}"
            );
        }
    }

    #[test]
    fn mysql_is_warned_of_in_its_own_words() {
        for quiet in [
            "localhost/d",
            "h/d?socket=/run/mysqld/mysqld.sock",
            "db.example/d?ssl-mode=VERIFY_IDENTITY",
        ] {
            assert_eq!(mysql_said(quiet), None, "{quiet}");
        }
        for (loud, mode) in [
            ("db.example/d", "ssl-mode=PREFERRED"),
            ("db.example/d?ssl-mode=disabled", "ssl-mode=DISABLED"),
            ("db.example/d?ssl-mode=verify_ca", "ssl-mode=VERIFY_CA"),
        ] {
            let said = mysql_said(loud).unwrap();
            assert!(
                said.contains(mode) && said.contains("VERIFY_IDENTITY"),
                "{said}"
            );
        }
    }

    #[test]
    fn a_certificate_file_that_cannot_be_used_is_named() {
        let unusable = |query: &str| {
            unusable_file(&format!("postgres://u:tiger@h/d?{query}").parse().unwrap())
        };
        let said = unusable("sslmode=verify-full&sslrootcert=/nowhere/ca.pem").unwrap();
        assert!(
            said.contains("sslrootcert") && said.contains("/nowhere/ca.pem"),
            "{said}"
        );
        assert!(
            unusable("sslrootcert=/proc/version")
                .unwrap()
                .contains("no PEM")
        );
        assert_eq!(unusable("sslmode=verify-full"), None);
        assert_eq!(unusable("sslrootcert=-----BEGIN%20CERTIFICATE-----"), None);
    }
}
