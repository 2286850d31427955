//! The options of all commands that call a replica: which one, with which token.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use url::Url;

use crate::commands::failure::CommandFailure;
use crate::config::{Environment, Secret};

/// The replica that is called if none is named: one with the default of `listen`.
const DEFAULT_URL: &str = "http://127.0.0.1:8080";

/// Which replica a command calls.
#[derive(Debug, Args)]
pub(crate) struct ReplicaOptions {
    /// The replica, http: or https:. If you give none, ODOMETER_URL counts, and without that
    /// http://127.0.0.1:8080.
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// File that holds the token of a caller or of the administrator, which calls may need. If you
    /// give none, ODOMETER_TOKEN is the token, or ODOMETER_TOKEN_FILE names the file.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// File of certificates (PEM) to trust for https. If you give none, those of the system count.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
}

/// Where calls go, and what they bring.
pub(crate) struct ReplicaSettings {
    /// Has no user, password, query or fragment.
    pub(crate) url: Url,
    pub(crate) token: Option<Secret>,
    /// The file of trusted certificates, if one was named.
    pub(crate) ca: Option<PathBuf>,
}

impl ReplicaOptions {
    /// Reads what the options leave open from the environment. An empty variable counts as none.
    ///
    /// # Errors
    /// The URL, the token or a variable cannot be used.
    pub(crate) fn settle(
        &self,
        environment: &Environment,
    ) -> Result<ReplicaSettings, CommandFailure> {
        let url = match &self.url {
            Some(url) => checked(url, "--url")?,
            None => match text(environment, "ODOMETER_URL")? {
                Some(url) => checked(&url, "ODOMETER_URL")?,
                None => checked(DEFAULT_URL, "--url")?,
            },
        };
        Ok(ReplicaSettings {
            url,
            token: self.token(environment)?,
            ca: self.ca.clone(),
        })
    }

    fn token(&self, environment: &Environment) -> Result<Option<Secret>, CommandFailure> {
        if let Some(path) = &self.token_file {
            return token_in(path, "--token-file").map(Some);
        }
        let token = text(environment, "ODOMETER_TOKEN")?;
        let file = text(environment, "ODOMETER_TOKEN_FILE")?;
        match (token, file) {
            (Some(_), Some(_)) => Err(CommandFailure::usage(
                "ODOMETER_TOKEN_FILE: ODOMETER_TOKEN is given as well; keep one of the two",
            )),
            (Some(token), None) => sendable(token, "ODOMETER_TOKEN").map(Some),
            (None, Some(path)) => token_in(Path::new(&path), "ODOMETER_TOKEN_FILE").map(Some),
            (None, None) => Ok(None),
        }
    }
}

/// Returns the value of a variable, or `None` if it is not set or empty.
fn text(environment: &Environment, name: &str) -> Result<Option<String>, CommandFailure> {
    let Some(value) = environment.get(name) else {
        return Ok(None);
    };
    let value = value.to_str().ok_or_else(|| {
        CommandFailure::usage(format!(
            "{name}: its value is not UTF-8; set it to a text in UTF-8"
        ))
    })?;
    Ok((!value.is_empty()).then(|| value.to_owned()))
}

/// Checks the URL of a replica. The message does not repeat the URL, which may have a password.
fn checked(given: &str, origin: &str) -> Result<Url, CommandFailure> {
    let refused = |problem: &str| {
        let sentence = format!("{origin}: {problem}; write it as http://HOST:PORT");
        Err(CommandFailure::usage(sentence))
    };
    let url = match Url::parse(given) {
        Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => url,
        _ => return refused("the URL is neither http nor https"),
    };
    if !url.username().is_empty() || url.password().is_some() {
        return refused("the URL has a user or a password, which the commands do not send");
    }
    if url.query().is_some() || url.fragment().is_some() {
        return refused("the URL has a query or a fragment");
    }
    Ok(url)
}

fn token_in(path: &Path, origin: &str) -> Result<Secret, CommandFailure> {
    let content = fs::read_to_string(path).map_err(|error| {
        CommandFailure::usage(format!(
            "{origin}: {} cannot be read ({error}); correct its path or its permissions",
            path.display()
        ))
    })?;
    let token = content.trim_end_matches(['\r', '\n']);
    if token.is_empty() {
        let sentence = format!(
            "{origin}: {} is empty; write the token into it",
            path.display()
        );
        return Err(CommandFailure::usage(sentence));
    }
    sendable(token.to_owned(), origin)
}

/// Checks that a header of HTTP can have the token.
fn sendable(token: String, origin: &str) -> Result<Secret, CommandFailure> {
    if token.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
        return Ok(Secret::new(token));
    }
    Err(CommandFailure::usage(format!(
        "{origin}: the token has a character that no HTTP header can have; use printable ASCII"
    )))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Given {
        #[command(flatten)]
        replica: ReplicaOptions,
    }

    fn settled(
        arguments: &[&str],
        variables: &[(&str, &str)],
    ) -> Result<ReplicaSettings, CommandFailure> {
        let arguments = ["given"].iter().chain(arguments);
        let given = Given::try_parse_from(arguments).unwrap();
        given
            .replica
            .settle(&Environment::of(variables.iter().copied()))
    }

    fn refusal(arguments: &[&str], variables: &[(&str, &str)]) -> String {
        let failure = settled(arguments, variables).err().unwrap();
        assert_eq!(failure.exit_code(), 2, "{failure}");
        failure.to_string()
    }

    #[test]
    fn a_flag_counts_more_than_a_variable_and_a_variable_more_than_the_default() {
        let variables = [("ODOMETER_URL", "https://numbers.example/odometer/")];
        let url = |arguments: &[&str], variables: &[(&str, &str)]| {
            settled(arguments, variables).unwrap().url.to_string()
        };
        assert_eq!(url(&[], &[]), "http://127.0.0.1:8080/");
        assert_eq!(url(&[], &[("ODOMETER_URL", "")]), "http://127.0.0.1:8080/");
        assert_eq!(url(&[], &variables), "https://numbers.example/odometer/");
        let flag = ["--url", "http://[::1]:9"];
        assert_eq!(url(&flag, &variables), "http://[::1]:9/");
    }

    #[test]
    fn a_url_that_cannot_be_called_is_refused_without_being_repeated() {
        for wrong in [
            "127.0.0.1:8080",
            "localhost:8080",
            "ftp://h",
            "http://",
            "http://reader:hunter2@h",
            "http://h/?token=hunter2",
            "http://h/#hunter2",
        ] {
            let said = refusal(&["--url", wrong], &[]);
            assert!(said.starts_with("--url: the URL "), "{said}");
            assert!(!said.contains("hunter2"), "{said}");
            let said = refusal(&[], &[("ODOMETER_URL", wrong)]);
            assert!(said.starts_with("ODOMETER_URL: the URL "), "{said}");
        }
    }

    #[test]
    fn a_token_comes_from_one_place_and_is_in_no_text() {
        let folder = tempfile_folder();
        let file = folder.join("token");
        fs::write(&file, "s3cret\n").unwrap();
        let file = file.display().to_string();
        let token = |arguments: &[&str], variables: &[(&str, &str)]| {
            let settings = settled(arguments, variables).unwrap();
            settings.token.map(|token| token.expose().to_owned())
        };
        assert_eq!(token(&[], &[]), None);
        assert_eq!(token(&[], &[("ODOMETER_TOKEN", "")]), None);
        let variable = ("ODOMETER_TOKEN", "other");
        assert_eq!(token(&[], &[variable]).as_deref(), Some("other"));
        let named = ("ODOMETER_TOKEN_FILE", file.as_str());
        assert_eq!(token(&[], &[named]).as_deref(), Some("s3cret"));
        let flag = ["--token-file", file.as_str()];
        assert_eq!(token(&flag, &[variable]).as_deref(), Some("s3cret"));

        let both = refusal(&[], &[variable, named]);
        assert!(both.contains("keep one of the two"), "{both}");
        let unsendable = refusal(&[], &[("ODOMETER_TOKEN", "s3cret\n")]);
        assert!(unsendable.contains("ASCII") && !unsendable.contains("s3cret"));
        let missing = refusal(&["--token-file", "/nowhere/token"], &[]);
        assert!(
            missing.contains("/nowhere/token cannot be read"),
            "{missing}"
        );
        let given = Given::try_parse_from(["given", "--token-file", &file]).unwrap();
        assert!(!format!("{given:?}").contains("s3cret"));
        fs::remove_dir_all(folder).unwrap();
    }

    fn tempfile_folder() -> PathBuf {
        let folder = std::env::temp_dir().join(format!("odometer-{}", uuid::Uuid::new_v4()));
        fs::create_dir(&folder).unwrap();
        folder
    }
}
