//! Tests the compose file with two callers. The scripts of its containers run as processes on this
//! machine, and so does the program, with the settings of the file.

use std::{collections::BTreeSet, os::unix::fs::PermissionsExt as _, path::PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{
    compose::{WITH_CALLERS, read_compose},
    tools::{command, succeeds},
    yaml::{items, text},
};
use crate::support::{Options, Program, directory, run, settings};

/// The callers, each with the sequence that it takes from, and the one that it may not take from.
const CALLERS: [(&str, &str, &str); 2] = [
    ("billing", "orders", "reports"),
    ("report", "reports", "orders"),
];
/// The service that makes the tokens.
const TOKENS: &str = "tokens";
/// The shell of a script, as its container starts it.
const SHELL: [&str; 2] = ["sh", "-euc"];

/// The services of the file, with a directory for each volume.
struct ComposeFile {
    services: Value,
    home: TempDir,
}

impl ComposeFile {
    fn read() -> Self {
        let mut file = read_compose(WITH_CALLERS);
        let home = directory("compose");
        let volumes = file["volumes"].as_object().expect("it has volumes");
        for volume in volumes.keys() {
            std::fs::create_dir(home.path().join(volume)).expect("our directory");
        }
        let services = file["services"].take();
        Self { services, home }
    }

    /// Returns what a service mounts: the name of each volume, and the path in the container.
    fn mounts(&self, service: &str) -> Vec<(&str, &str)> {
        let volumes = items(&self.services[service]["volumes"]).iter();
        let mounts = volumes.map(|volume| {
            let (name, path) = text(volume).split_once(':').expect("from and to");
            (name, path.trim_end_matches(":ro"))
        });
        mounts.collect()
    }

    /// Returns a text of a service with the directories of its volumes in it.
    fn on_this_machine(&self, service: &str, text: &str) -> String {
        let mut text = text.to_owned();
        for (volume, path) in self.mounts(service) {
            let directory = self.home.path().join(volume);
            text = text.replace(path, &directory.display().to_string());
        }
        text
    }

    /// Runs the script of a service, with more variables. Returns what it printed.
    fn run(&self, service: &str, variables: &[(&str, &str)]) -> String {
        let configured = &self.services[service];
        assert_eq!(configured["entrypoint"], json!(SHELL), "{service}");
        let script = text(&configured["command"][0]);
        // Compose takes a single dollar for a variable of its own.
        let script = script.replace("$$", "\0");
        assert!(!script.contains('$'), "{service}: {script}");
        let script = self.on_this_machine(service, &script.replace('\0', "$"));
        let mut shell = command(SHELL[0]);
        for (key, value) in configured["environment"].as_object().into_iter().flatten() {
            shell.env(key, text(value));
        }
        shell.envs(variables.iter().copied()).env("no_proxy", "*");
        succeeds(shell.args([SHELL[1], &script]))
    }

    /// Returns the options of the program.
    fn program(&self) -> Options {
        let configured = self.services["odometer"]["environment"].as_object();
        let configured = configured.expect("it is configured").iter();
        let options = configured.fold(Program::options(), |options, (key, value)| {
            assert!(key.starts_with("ODOMETER_"), "{key}");
            options.env(key, self.on_this_machine("odometer", text(value)))
        });
        // As in the container, other machines reach the listener.
        options
            .env("ODOMETER_LISTEN", "0.0.0.0:0")
            .in_directory(&self.home.path().join("numbers"))
    }

    /// Returns the path of a caller's token.
    fn token_file(&self, caller: &str) -> PathBuf {
        self.home.path().join(caller).join("token")
    }

    fn token(&self, caller: &str) -> String {
        std::fs::read_to_string(self.token_file(caller)).expect("it has a token")
    }
}

/// Returns the statuses at the ends of the lines that a caller printed.
fn statuses(said: &str) -> Vec<&str> {
    let lines = said.lines();
    lines
        .filter_map(|line| Some(line.rsplit_once(' ')?.1))
        .collect()
}

#[test]
fn each_caller_of_compose_takes_a_number_and_is_refused_the_other_one() {
    run(async {
        let file = ComposeFile::read();
        file.run(TOKENS, &[]);
        let program = file.program().start_ready().await;
        let url = program.url();
        let variables = [("ODOMETER", url.as_str())];
        for (caller, own, other) in CALLERS {
            let said = file.run(caller, &variables);
            assert_eq!(statuses(&said), ["200", "403"], "{said}");
            let taken = format!("{{\"sequence\":\"{own}\",\"period\":null,\"id\":\"1\"");
            assert!(said.starts_with(&taken), "{said}");
            let refused = format!("The role `{caller}` has no right `take` on `{other}`.");
            assert!(said.contains(&refused), "{said}");
        }
        for (_, own, _) in CALLERS {
            let path = format!("/v1/sequences/{own}/next");
            let reply = program.client().post(&path).await.expect("a reply");
            assert_eq!(reply.status, 401, "{reply:?}");
        }
        // Negative control: with the token of the other caller, it is the other way round.
        std::fs::write(file.token_file("billing"), file.token("report")).expect("our directory");
        let said = file.run("billing", &variables);
        assert_eq!(statuses(&said), ["403", "200"], "{said}");
        program.stop().await;
    });
}

#[test]
fn the_tokens_of_compose_are_made_once_and_are_nowhere_else() {
    let (first, second) = (ComposeFile::read(), ComposeFile::read());
    let mut tokens = BTreeSet::new();
    for file in [&first, &second] {
        file.run(TOKENS, &[]);
        let callers = file.home.path().join("callers/callers.toml");
        for (caller, _, _) in CALLERS {
            let token = file.token(caller);
            // In the containers, other users read what is made here.
            for made in [&file.token_file(caller), &callers] {
                let mode = std::fs::metadata(made)
                    .expect("it is there")
                    .permissions()
                    .mode();
                assert_eq!(mode & 0o777, 0o644, "{}", made.display());
            }
            assert!(token.starts_with("odo_") && token.len() == 47, "{token}");
            file.run(TOKENS, &[]);
            assert_eq!(file.token(caller), token, "a start replaced the token");
            let callers = std::fs::read_to_string(&callers).expect("the callers are there");
            assert!(!callers.contains(&token), "{callers}");
            tokens.insert(token);
        }
    }
    assert_eq!(tokens.len(), 4, "two tokens are alike");
    let text = std::fs::read_to_string(settings::repository().join(WITH_CALLERS));
    let text = text.expect("the file is there");
    let mut after = text.split("odo_").skip(1).peekable();
    assert!(after.peek().is_some(), "vacuous");
    assert!(after.all(|after| after.starts_with("$$(")), "a token");
}

#[test]
fn each_service_of_compose_sees_what_it_needs_and_no_other_token() {
    let file = ComposeFile::read();
    for (caller, _, _) in CALLERS {
        assert_eq!(file.mounts(caller), [(caller, "/run/token")]);
    }
    let odometer = file.mounts("odometer");
    let volumes: Vec<&str> = odometer.into_iter().map(|(volume, _)| volume).collect();
    assert_eq!(volumes, ["callers", "numbers"]);
    let names = file.services.as_object().expect("services").keys();
    for name in names.filter(|name| *name != TOKENS) {
        for volume in items(&file.services[name]["volumes"]) {
            let is_kept = text(volume).starts_with("numbers:");
            assert!(is_kept || text(volume).ends_with(":ro"), "{name}: {volume}");
        }
    }
}

/// Callers reach the program by the name of its service, and the program starts after its file of
/// callers is there.
#[test]
fn the_callers_of_compose_ask_the_service_that_knows_them() {
    let file = ComposeFile::read();
    let odometer = &file.services["odometer"];
    let after = &odometer["depends_on"][TOKENS]["condition"];
    assert_eq!(after, "service_completed_successfully");
    assert_eq!(odometer["build"], ".");
    let (host, listen) = (
        "odometer",
        text(&odometer["environment"]["ODOMETER_LISTEN"]),
    );
    let (_, port) = listen.rsplit_once(':').expect("a port");
    for (caller, own, other) in CALLERS {
        let service = &file.services[caller];
        assert_eq!(service["depends_on"], json!([host]), "{caller}");
        let wanted = json!({
            "ODOMETER": format!("http://{host}:{port}"), "OWN": own, "OTHER": other,
        });
        assert_eq!(service["environment"], wanted, "{caller}");
    }
}
