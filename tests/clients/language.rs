//! The languages that have a client library, and how the driver of each is started.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use super::typescript;
use crate::support::{npm, settings};

/// A language with a client library.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Language {
    Rust,
    Java,
    Python,
    TypeScript,
}

impl Language {
    /// Returns the command that starts the driver. The options follow as its last argument.
    pub(super) fn command(self) -> Command {
        let home = self.home();
        match self {
            Self::Rust => Command::new(settings::client_driver()),
            Self::Java => {
                let mut command = Command::new("java");
                command
                    .args(JVM_OPTIONS)
                    .arg("-cp")
                    .arg(java_classes())
                    .arg("odometer.client.Driver");
                command
            }
            Self::Python => {
                let mut command = Command::new("python3");
                command
                    .arg(home.join("driver.py"))
                    .env("PYTHONDONTWRITEBYTECODE", "1");
                command
            }
            Self::TypeScript => {
                let mut command = Command::new("node");
                command.arg(home.join("built/driver.js"));
                command
            }
        }
    }

    /// Returns the folder in which the library can be used. What must be built is built.
    pub(super) fn home(self) -> PathBuf {
        match self {
            Self::Rust | Self::Java | Self::Python => settings::repository().join(self.folder()),
            Self::TypeScript => typescript::library().to_path_buf(),
        }
    }

    /// Returns the folder of the library, relative to the root.
    pub(super) fn folder(self) -> &'static str {
        match self {
            Self::Rust => "client/rust",
            Self::Java => "client/java",
            Self::Python => "client/python",
            Self::TypeScript => "client/typescript",
        }
    }

    /// Returns the command that runs the tests in the language itself. It runs in
    /// [`Self::home`]. `None` if `cargo test` runs them.
    pub(super) fn tests(self) -> Option<&'static [&'static str]> {
        match self {
            Self::Rust => None,
            Self::Java => Some(&["./test"]),
            Self::Python => Some(&["python3", "-m", "unittest"]),
            // The scripts before the tests would build again what drivers are using.
            Self::TypeScript => Some(&["npm", "test", "--ignore-scripts"]),
        }
    }

    /// Returns the files that say the version, with what stands before it in its line.
    pub(super) fn versions(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Rust => &[("../../Cargo.toml", "version = ")],
            Self::Java => &[(
                "src/odometer/client/OdometerClient.java",
                "    public static final String VERSION = ",
            )],
            Self::Python => &[
                ("pyproject.toml", "version = "),
                ("odometer_client/service.py", "VERSION = "),
            ],
            Self::TypeScript => &[
                ("package.json", "  \"version\": "),
                ("package-lock.json", "  \"version\": "),
                ("src/service.ts", "export const VERSION = "),
            ],
        }
    }

    /// Returns whether a program can fork, so that a hook of the library protects the child.
    ///
    /// If not, the driver starts a second process for the step `fork`. If a test takes the hook
    /// out, the driver answers `unsupported`.
    pub(super) fn can_fork(self) -> bool {
        match self {
            Self::Rust | Self::Python => true,
            Self::Java | Self::TypeScript => false,
        }
    }
}

/// Options by which a JVM starts fast, stays small, and leaves no file if it is killed.
const JVM_OPTIONS: [&str; 5] = [
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",
    "-Xmx256m",
];

/// Returns the folder with the classes of the driver in Java and of its library. The first call of
/// a run compiles them.
fn java_classes() -> &'static Path {
    static PLACE: OnceLock<PathBuf> = OnceLock::new();
    PLACE.get_or_init(|| {
        let folder = settings::repository().join(Language::Java.folder());
        let place = settings::repository().join("target/clients/java");
        std::fs::create_dir_all(&place).expect("target is ours");
        let sources = std::fs::read_dir(folder.join("src/odometer/client"));
        let sources = sources.expect("the library is there").flatten();
        let mut command = Command::new("timeout");
        command
            .args(["180", "javac", "--release", "11", "-d"])
            .arg(&place)
            .args(sources.map(|entry| entry.path()))
            .arg(folder.join("Driver.java"));
        npm::succeed(&mut command);
        place
    })
}

/// Makes one test for each language out of `async fn name(language: Language)`.
macro_rules! for_each_language {
    ($($name:ident),+ $(,)?) => {$(
        mod $name {
            use $crate::{clients::language::Language, support::run};

            #[test]
            fn rust() {
                run(super::$name(Language::Rust));
            }

            #[test]
            fn java() {
                run(super::$name(Language::Java));
            }

            #[test]
            fn python() {
                run(super::$name(Language::Python));
            }

            #[test]
            fn typescript() {
                run(super::$name(Language::TypeScript));
            }
        }
    )+};
}

/// Makes one test for each language and each kind of server out of
/// `async fn name(language: Language, backend: Backend)`.
macro_rules! for_each_language_and_server {
    ($($name:ident),+ $(,)?) => {$(
        mod $name {
            mod rust {
                use $crate::{
                    clients::language::Language,
                    support::{Backend, run},
                };

                #[test]
                fn postgres() {
                    run(super::super::$name(Language::Rust, Backend::Postgres));
                }

                #[test]
                fn mariadb() {
                    run(super::super::$name(Language::Rust, Backend::MariaDb));
                }
            }

            mod java {
                use $crate::{
                    clients::language::Language,
                    support::{Backend, run},
                };

                #[test]
                fn postgres() {
                    run(super::super::$name(Language::Java, Backend::Postgres));
                }

                #[test]
                fn mariadb() {
                    run(super::super::$name(Language::Java, Backend::MariaDb));
                }
            }

            mod python {
                use $crate::{
                    clients::language::Language,
                    support::{Backend, run},
                };

                #[test]
                fn postgres() {
                    run(super::super::$name(Language::Python, Backend::Postgres));
                }

                #[test]
                fn mariadb() {
                    run(super::super::$name(Language::Python, Backend::MariaDb));
                }
            }

            mod typescript {
                use $crate::{
                    clients::language::Language,
                    support::{Backend, run},
                };

                #[test]
                fn postgres() {
                    run(super::super::$name(Language::TypeScript, Backend::Postgres));
                }

                #[test]
                fn mariadb() {
                    run(super::super::$name(Language::TypeScript, Backend::MariaDb));
                }
            }
        }
    )+};
}

/// Makes one test for each language out of each case of `cases.json` that is named. Also makes
/// `NAMES`, which lists the cases.
macro_rules! for_each_case {
    ($($name:ident),+ $(,)?) => {
        const NAMES: &[&str] = &[$(stringify!($name)),+];

        $(
            mod $name {
                use $crate::{
                    clients::{language::Language, scripted::player::play},
                    support::run,
                };

                #[test]
                fn rust() {
                    run(play(stringify!($name), Language::Rust));
                }

                #[test]
                fn java() {
                    run(play(stringify!($name), Language::Java));
                }

                #[test]
                fn python() {
                    run(play(stringify!($name), Language::Python));
                }

                #[test]
                fn typescript() {
                    run(play(stringify!($name), Language::TypeScript));
                }
            }
        )+
    };
}

pub(super) use {for_each_case, for_each_language, for_each_language_and_server};
