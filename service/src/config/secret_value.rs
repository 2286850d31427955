//! Says which values of the configuration are secrets.

use figment::value::Value;

/// The key of the administrator's token.
pub(crate) const ADMIN_TOKEN: &str = "admin_token";

/// The key of a password.
pub(crate) const PASSWORD: &str = "password";

/// Returns whether the value of a key is a secret: the administrator's token, a password, or a URL
/// with one.
pub(crate) fn is_secret(key: &str, value: &Value) -> bool {
    let listed = value.as_array().into_iter().flatten();
    let listed = listed.filter_map(Value::as_str);
    let mut texts = value.as_str().into_iter().chain(listed);
    texts.any(|text| matches!(key, ADMIN_TOKEN | PASSWORD) || has_password(text))
}

/// Returns whether one of the URLs in a text has a password: before its host, or as a parameter.
fn has_password(text: &str) -> bool {
    let mut logins = text.split("://").skip(1).filter_map(|rest| {
        let host = rest.split(['/', '?', '#']).next()?;
        host.rsplit_once('@').map(|(login, _)| login)
    });
    let has_one = |login: &str| login.split_once(':').is_some_and(|(_, it)| !it.is_empty());
    text.contains("password=") || logins.any(has_one)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    use super::super::tests::File;
    use super::*;

    #[test]
    fn a_url_with_a_password_is_a_secret() {
        for (text, is_one) in [
            ("postgres://u:tiger@h/d", true),
            ("postgres://u@h/d?sslmode=verify-full&password=tiger", true),
            ("redis://r1,redis://:tiger@r2", true),
            ("mysql://a/d\nmysql://u:ti@ger@b/d", true),
            ("postgres://u@h:5432/d", false),
            ("postgres://u:@h/d", false),
            ("mysql://h:3306/d?x=u:p@h", false),
            ("sqlite:a:b@c.db", false),
            ("", false),
        ] {
            let value = Value::from(text);
            assert_eq!(is_secret("database_url", &value), is_one, "{text}");
            let value = Value::from(vec!["mysql://h/d", text]);
            assert_eq!(is_secret("databases", &value), is_one, "{text}");
            assert!(is_secret(ADMIN_TOKEN, &Value::from(text)), "{text}");
        }
        assert!(!is_secret(ADMIN_TOKEN, &Value::from(5)));
    }

    #[test]
    fn secrets_in_files_that_everybody_can_read_are_warned_of() {
        let file = File::with(
            "admin_token = \"a-token-of-the-administrator\"\nresp.password = \"tiger\"\n\
             [stores.x]\ndatabases = [\"mysql://a/d\", \"mysql://u:tiger@b/d\"]\n\
             [stores.y]\ndatabase = \"mysql://u@c/d\"\nredis = \"redis://:tiger@r\"\n",
        );
        let config = file.flags.config.clone().unwrap();
        let folder = config.parent().unwrap();
        let set = |path: &Path, mode| set_permissions(path, Permissions::from_mode(mode)).unwrap();
        set(folder, 0o711);
        let (url, key) = ("postgres://u:tiger@h/d", "a private key");
        let [url, key] = [("url", url), ("key", key)].map(|(name, text)| file.beside(name, text));
        let given = [
            ("ODOMETER_DATABASE_URL_FILE", url.as_str()),
            ("ODOMETER_TLS__CERTIFICATE_FILE", url.as_str()),
            ("ODOMETER_TLS__KEY_FILE", key.as_str()),
        ];
        let warnings = |mode| {
            for path in [config.as_path(), Path::new(&url), Path::new(&key)] {
                set(path, mode);
            }
            file.load_with(given).unwrap().exposed_files
        };
        assert_eq!(warnings(0o640), [""; 0]);
        let (in_file, in_variable) = (config.to_str().unwrap(), "environment variable ODOMETER");
        let wanted = [
            format!("admin_token in {in_file}: {in_file}"),
            format!("resp.password in {in_file}: {in_file}"),
            format!("stores.x.databases in {in_file}: {in_file}"),
            format!("stores.y.redis in {in_file}: {in_file}"),
            format!("database_url_file ({in_variable}_DATABASE_URL_FILE): {url}"),
            format!("tls.key_file ({in_variable}_TLS__KEY_FILE): {key}"),
        ];
        let told = warnings(0o644);
        assert_eq!(told.len(), wanted.len(), "{told:?}");
        for (told, wanted) in told.iter().zip(wanted) {
            let begin = format!("warning: {wanted} has a secret that everybody");
            assert!(told.starts_with(&begin), "{told}");
            assert!(!told.contains("tiger"), "{told}");
        }
    }
}
