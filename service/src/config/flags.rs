//! The flags that give keys of the configuration. Each command that reads the configuration takes
//! them.

use std::path::PathBuf;

use odometer_process::secret::Secret;

/// What the command line says; the strongest layer.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Configuration")]
pub struct Flags {
    /// Configuration file, in the working directory by default. A file that you name must exist.
    /// [default: odometer.toml]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Address to listen on. Port 0 picks a free port, and the port is printed.
    /// [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<String>,
    /// Database: `sqlite:FILE`, or a URL that begins with `postgres:` or `mysql:`. Others on this
    /// machine can see the command line. If the URL has a password, use the environment or
    /// `--database-url-file`. [default: sqlite:odometer.db]
    #[arg(long, value_name = "URL")]
    pub database_url: Option<Secret>,
    /// File that holds the URL of the database.
    #[arg(long, value_name = "FILE", conflicts_with = "database_url")]
    pub database_url_file: Option<String>,
    /// Least level that is logged: error, warn, info, debug, trace or off, or a filter as in
    /// `info,odometer=debug`. [default: info]
    #[arg(long, value_name = "LEVEL")]
    pub log_level: Option<String>,
    /// Form of the log: text, json, or auto, which is text on a terminal and JSON otherwise.
    /// [default: auto]
    #[arg(long, value_name = "FORM")]
    pub log_format: Option<String>,
    /// Bring the schema of PostgreSQL or MySQL up to date at the start. This is for a single
    /// replica.
    #[arg(long)]
    pub migrate: bool,
    /// Any other key of the configuration, as in `--set refill.deadline=2s`. You may repeat it.
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
}

impl Flags {
    /// Returns these flags, and what `weaker` has of those that are not given here.
    #[must_use]
    pub fn over(self, weaker: Self) -> Self {
        // A later `--set` of a key wins.
        let set = weaker.set.into_iter().chain(self.set).collect();
        let gives_database = self.database_url.is_some() || self.database_url_file.is_some();
        let weaker_database = if gives_database {
            (None, None)
        } else {
            (weaker.database_url, weaker.database_url_file)
        };
        Self {
            config: self.config.or(weaker.config),
            listen: self.listen.or(weaker.listen),
            database_url: self.database_url.or(weaker_database.0),
            database_url_file: self.database_url_file.or(weaker_database.1),
            log_level: self.log_level.or(weaker.log_level),
            log_format: self.log_format.or(weaker.log_format),
            migrate: self.migrate || weaker.migrate,
            set,
        }
    }

    /// Checks the form of each `--set`. Its key and value are checked with the configuration.
    ///
    /// # Errors
    /// What is wrong with the command line. The sentence does not repeat the text, which may have a
    /// secret in it.
    pub fn check_form(&self) -> Result<(), String> {
        let mut given = self.set.iter();
        let problem = given.find_map(|setting| split_setting(setting).err());
        problem.map_or(Ok(()), |problem| Err(format!("--set: {problem}")))
    }

    /// Returns the name of the first flag that is given.
    pub fn first_given(&self) -> Option<&'static str> {
        let given = [
            ("--config", self.config.is_some()),
            ("--listen", self.listen.is_some()),
            ("--database-url", self.database_url.is_some()),
            ("--database-url-file", self.database_url_file.is_some()),
            ("--log-level", self.log_level.is_some()),
            ("--log-format", self.log_format.is_some()),
            ("--migrate", self.migrate),
            ("--set", !self.set.is_empty()),
        ];
        let mut given = given.into_iter();
        given.find_map(|(flag, is_given)| is_given.then_some(flag))
    }
}

/// Splits the value of `--set` into a key and its value.
pub(crate) fn split_setting(setting: &str) -> Result<(&str, &str), &'static str> {
    let parts = setting.split_once('=');
    parts.ok_or("write --set KEY=VALUE, as in --set limits.waiters=100")
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, Command};

    use super::super::Config;
    use super::*;

    #[test]
    fn flags_behind_a_command_win_over_flags_before_it() {
        let before = Flags {
            listen: Some("a:1".to_owned()),
            log_level: Some("warn".to_owned()),
            database_url: Some(Secret::new("sqlite:a.db")),
            set: vec!["limits.waiters=1".to_owned()],
            ..Flags::default()
        };
        let behind = Flags {
            listen: Some("b:2".to_owned()),
            database_url_file: Some("url".to_owned()),
            set: vec!["limits.waiters=2".to_owned()],
            ..Flags::default()
        };
        let flags = behind.over(before);
        assert_eq!(flags.listen.as_deref(), Some("b:2"));
        assert_eq!(flags.log_level.as_deref(), Some("warn"));
        assert!(flags.database_url.is_none());
        assert_eq!(flags.database_url_file.as_deref(), Some("url"));
        assert_eq!(flags.set, ["limits.waiters=1", "limits.waiters=2"]);
    }

    #[test]
    fn each_flag_is_seen_to_be_given() {
        assert_eq!(Flags::default().first_given(), None);
        let command = Flags::augment_args(Command::new("any"));
        for argument in command.get_arguments() {
            let flag = format!("--{}", argument.get_long().unwrap_or_default());
            let value = argument.get_action().takes_values().then_some("a=b");
            let line = ["any", flag.as_str()].into_iter().chain(value);
            let given = command.clone().try_get_matches_from(line);
            let given =
                given.and_then(|given| <Flags as clap::FromArgMatches>::from_arg_matches(&given));
            let given = given.unwrap_or_else(|error| unreachable!("{flag}: {error}"));
            assert_eq!(given.first_given(), Some(flag.as_str()));
        }
    }

    #[test]
    fn the_help_has_the_defaults() {
        let config = Config::default();
        let command = Flags::augment_args(Command::new("any"));
        for (flag, default) in [
            ("config", "odometer.toml".to_owned()),
            ("listen", config.listen.to_string()),
            ("database_url", config.database_url.expose().to_owned()),
            ("log_level", config.log.level),
            (
                "log_format",
                format!("{:?}", config.log.format).to_lowercase(),
            ),
        ] {
            let argument = command.get_arguments().find(|it| it.get_id() == flag);
            let help = argument.and_then(clap::Arg::get_help);
            let help = help.map(ToString::to_string).unwrap_or_default();
            assert!(help.ends_with(&format!("[default: {default}]")), "{help}");
        }
    }
}
