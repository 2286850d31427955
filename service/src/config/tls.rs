//! Defines `[tls]`: the files of the listeners' certificate, and of who signs those of callers.

use std::path::PathBuf;

use super::error::ConfigError;
use super::value::section;
use crate::access::certificates::CertificateFiles;

section! {
    /// TLS of the listeners.
    TlsConfig "tls." {
        /// The file of the certificate, in PEM, followed by the certificates that lead to its
        /// authority. Without one, the listeners speak no TLS.
        certificate_file: Option<PathBuf> = None;
        /// The file of the private key of the certificate, in PEM.
        key_file: Option<PathBuf> = None;
        /// The file of the authorities, in PEM, that sign certificates of callers. Without one, no
        /// caller is asked for a certificate.
        clients_ca_file: Option<PathBuf> = None;
        /// The file of the lists of revoked certificates, in PEM: one list of each authority that
        /// signed a certificate of a chain, those in `clients_ca_file` included.
        clients_crl_file: Option<PathBuf> = None;
        /// Whether the operations listener speaks TLS, too.
        operations: bool = false;
    }
}

impl TlsConfig {
    /// Returns the files; `None` if the listeners speak no TLS.
    pub fn files(&self) -> Option<CertificateFiles> {
        Some(CertificateFiles {
            certificate: self.certificate_file.clone()?,
            key: self.key_file.clone()?,
            clients_ca: self.clients_ca_file.clone(),
            clients_crl: self.clients_crl_file.clone(),
        })
    }

    /// Says which key lacks another one. `has_callers` and `has_operations` say whether
    /// `access.callers_file` and `operations.listen` are given.
    pub(crate) fn missing(&self, has_callers: bool, has_operations: bool) -> Option<ConfigError> {
        let is_on = self.certificate_file.is_some();
        let (key, lacks) = if is_on && self.key_file.is_none() {
            ("tls.certificate_file", "tls.key_file")
        } else if !is_on && self.key_file.is_some() {
            ("tls.key_file", "tls.certificate_file")
        } else if !is_on && self.clients_ca_file.is_some() {
            ("tls.clients_ca_file", "tls.certificate_file")
        } else if self.clients_ca_file.is_none() && self.clients_crl_file.is_some() {
            ("tls.clients_crl_file", "tls.clients_ca_file")
        } else if self.clients_ca_file.is_some() && !has_callers {
            // A certificate would be nobody's, and look as if it opened something.
            ("tls.clients_ca_file", "access.callers_file")
        } else if !is_on && self.operations {
            ("tls.operations", "tls.certificate_file")
        } else if self.operations && !has_operations {
            ("tls.operations", "operations.listen")
        } else {
            return None;
        };
        let problem = format!("it has no effect without {lacks}; give {lacks} as well");
        Some(ConfigError::new(key, problem))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::super::tests::File;

    const PAIR: &str = "certificate_file = \"a.pem\"\nkey_file = \"a.key\"\n";
    const ROLES: &str = "[access.roles.reader]\nlook = [\"*\"]\n";
    const CALLERS: &str = "[access]\ncallers_file = \"callers.toml\"\n";

    #[test]
    fn without_the_section_there_is_no_tls() {
        assert!(File::with("").load().unwrap().tls.files().is_none());
    }

    #[test]
    fn the_files_are_read_later_and_may_be_given_in_the_environment() {
        let given = [
            ("ODOMETER_TLS__CERTIFICATE_FILE", "/run/a.pem"),
            ("ODOMETER_TLS__KEY_FILE", "/run/a.key"),
            ("ODOMETER_TLS__OPERATIONS", "true"),
            ("ODOMETER_OPERATIONS__LISTEN", "127.0.0.1:8081"),
        ];
        let tls = File::with("").load_with(given).unwrap().tls;
        let files = tls.files().unwrap();
        assert_eq!(files.certificate.to_str(), Some("/run/a.pem"));
        assert!(files.clients_ca.is_none() && tls.operations);
        let all = format!(
            "[tls]\n{PAIR}clients_ca_file = \"ca.pem\"\nclients_crl_file = \"crl.pem\"\n{CALLERS}{ROLES}"
        );
        let files = File::with(&all).load().unwrap().tls.files().unwrap();
        assert_eq!(files.clients_crl.unwrap().to_str(), Some("crl.pem"));
    }

    #[test]
    fn each_listener_to_which_tokens_travel_in_clear_is_warned_of() {
        let token = "admin_token = \"a-token-of-the-administrator\"\n";
        let (listen, operations) = (
            "listen = \"0.0.0.0:8080\"\n",
            "operations.listen = \"0.0.0.0:8081\"\n",
        );
        let tls = format!("[tls]\n{PAIR}");
        for (content, keys) in [
            (format!("{token}{listen}"), &["listen"][..]),
            (String::new(), &[]),
            (token.to_owned(), &[]),
            (format!("{listen}{operations}"), &[]),
            (format!("{token}{operations}"), &["operations.listen"]),
            (
                format!("{token}{listen}{operations}"),
                &["listen", "operations.listen"],
            ),
            (format!("{listen}{ROLES}"), &["listen"]),
            (
                format!("{token}{listen}{operations}{tls}"),
                &["operations.listen"],
            ),
            (
                format!("{token}{listen}{operations}{tls}operations = true\n"),
                &[],
            ),
        ] {
            let warnings = File::with(&content).load().unwrap().tokens_in_clear();
            assert_eq!(warnings.len(), keys.len(), "{content}: {warnings:?}");
            for (warning, key) in warnings.iter().zip(keys) {
                let said = warning.contains(&format!("in clear text to `{key}`;"));
                assert!(said, "{content}: {warning}");
            }
        }
    }

    #[test]
    fn a_key_that_lacks_another_one_is_named() {
        for (content, key, lacks) in [
            ("certificate_file = \"a\"", "certificate_file", "key_file"),
            ("key_file = \"a\"", "key_file", "certificate_file"),
            (
                "clients_ca_file = \"a\"",
                "clients_ca_file",
                "certificate_file",
            ),
            (
                "clients_crl_file = \"a\"",
                "clients_crl_file",
                "clients_ca_file",
            ),
            ("operations = true", "operations", "certificate_file"),
            (
                format!("{PAIR}clients_crl_file = \"a\"\n{ROLES}").as_str(),
                "clients_crl_file",
                "clients_ca_file",
            ),
            (
                format!("{PAIR}clients_ca_file = \"a\"").as_str(),
                "clients_ca_file",
                "access.callers_file",
            ),
            (
                format!("{PAIR}clients_ca_file = \"a\"\n{ROLES}").as_str(),
                "clients_ca_file",
                "access.callers_file",
            ),
            (
                format!("{PAIR}operations = true").as_str(),
                "operations",
                "operations.listen",
            ),
        ] {
            let sentence = File::with(&format!("[tls]\n{content}")).refusal();
            let named = format!("configuration: tls.{key} in ");
            assert!(sentence.starts_with(&named), "{content}: {sentence}");
            let said = sentence.ends_with(&format!("{lacks} as well"));
            assert!(said, "{content}: {sentence}");
        }
    }
}
