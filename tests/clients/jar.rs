//! The jar of the Java library, as it would be published, in a project that has nothing else.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use super::language::Language;
use crate::support::{Backend, Program, TestDatabase, directory, npm, run, settings};

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// How long one command may take, in seconds.
const LIMIT: &str = "120";

/// The program of the project. It takes numbers from the sequence that it is given.
const SHOP: &str = r#"package shop;

import java.time.Duration;
import odometer.client.OdometerClient;

public final class Shop {
    public static void main(String[] arguments) {
        OdometerClient.Builder options = OdometerClient.builder(arguments[0]);
        try (OdometerClient client = options.deadline(Duration.ofSeconds(20)).build()) {
            OdometerClient.Sequence sequence = client.sequence(arguments[1]);
            System.out.println(sequence.next() + ", " + sequence.nextId());
            long[] unbroken = sequence.range(3).toArray();
            System.out.println(unbroken[2] - unbroken[0]);
        }
    }
}
"#;
const MODULE: &str = "module shop { requires odometer.client; }";
const SAID: &str = "1, 2\n2\n";

#[test]
fn the_jar_of_the_java_library_works_in_an_empty_project() {
    run(async {
        let home = directory("jar");
        let jar = built(home.path());
        let project = home.path().join("project");
        write(&project.join("shop/Shop.java"), SHOP);
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let options = Program::options().database(&database.url);
        let program = options.start_ready().await;
        let url = program.url();

        // Negative control: it is the jar that has the library.
        let without = command(&project, "javac")
            .args(["-d", "classes", "shop/Shop.java"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        assert!(!without.expect("timeout runs").success(), "vacuous");

        succeed(
            &project,
            "javac",
            &["-cp", &jar, "-d", "classes", "shop/Shop.java"],
        );
        let path = format!("{jar}:classes");
        let said = succeed(
            &project,
            "java",
            &["-cp", &path, "shop.Shop", &url, "orders"],
        );
        assert_eq!(said, SAID);

        // The same as modules, which see only what the library exports.
        write(&project.join("module-info.java"), MODULE);
        let module = [
            "-p",
            jar.as_str(),
            "-d",
            "modules",
            "module-info.java",
            "shop/Shop.java",
        ];
        succeed(&project, "javac", &module);
        let path = format!("{jar}:modules");
        let said = succeed(
            &project,
            "java",
            &["-p", &path, "-m", "shop/shop.Shop", &url, "bills"],
        );
        assert_eq!(said, SAID);
        program.stop().await;
    });
}

#[test]
fn the_jars_have_their_licenses_and_sources() {
    let home = directory("jar");
    let jar = built(home.path());
    let sources = format!("{}-sources.jar", jar.trim_end_matches(".jar"));
    for (jar, file) in [
        (&jar, "module-info.class"),
        (&jar, "odometer/client/OdometerClient.class"),
        (&sources, "odometer/client/OdometerClient.java"),
    ] {
        let listed = succeed(home.path(), "jar", &["--list", "--file", jar]);
        let listed: Vec<&str> = listed.lines().collect();
        for wanted in [
            "META-INF/LICENSE-APACHE",
            "META-INF/LICENSE-MIT",
            "META-INF/README.md",
            file,
        ] {
            assert!(
                listed.contains(&wanted),
                "{jar} has no {wanted}: {listed:?}"
            );
        }
        let ours = [
            "META-INF/",
            "module-info.",
            "odometer/client/OdometerClient",
        ];
        let is_ours = |entry: &str| ours.iter().any(|begin| entry.starts_with(*begin));
        let other = listed
            .iter()
            .find(|entry| !entry.ends_with('/') && !is_ours(entry));
        assert_eq!(other, None, "{jar} has more than the library");
    }

    let class = ["-v", "-cp", jar.as_str(), "odometer.client.OdometerClient"];
    let shown = succeed(home.path(), "javap", &class);
    assert!(shown.contains("major version: 55"), "it is not for JDK 11");
}

/// Builds the jars into a folder. Returns the path of the jar that has the classes.
fn built(folder: &Path) -> String {
    let script = settings::repository()
        .join(Language::Java.folder())
        .join("build");
    let folder_name = folder.display().to_string();
    succeed(folder, &script.display().to_string(), &[&folder_name]);
    let jar = folder.join(format!("odometer-client-{VERSION}.jar"));
    jar.display().to_string()
}

fn write(file: &Path, text: &str) {
    let folder = file.parent().expect("it lies in a folder");
    std::fs::create_dir_all(folder).expect("our directory");
    std::fs::write(file, text).expect("our directory");
}

/// Runs a program to its end, which must be a success. Returns its standard output.
fn succeed(folder: &Path, program: &str, arguments: &[&str]) -> String {
    npm::succeed(command(folder, program).args(arguments))
}

fn command(folder: &Path, program: &str) -> Command {
    let mut command = Command::new("timeout");
    command.args([LIMIT, program]).current_dir(folder);
    command
}
