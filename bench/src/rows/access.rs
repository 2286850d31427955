//! Measures one number a call from callers who show a token. The reference is the same program
//! without roles.

use std::path::Path;

use odometer_tests::{Backend, Options, Program, raw};
use serde_json::Value;

use super::single::NEXT;
use crate::{
    cores::Side,
    load::{http::Http, wrk::Wrk},
    pace::Pace,
    row::{Bound, Row, Unit},
    stage::{Odometer, Stage},
};

const WITHOUT: &str = "the same without roles";
const QUOTA: &str = "the same with a quota";
const ROLE: &str = "taker";
/// The highest quota there is, in numbers a second. It refuses no call.
const NUMBERS_PER_S: u64 = 1_000_000_000;
/// The name of the header with the token, and of a header that nobody reads. Both are as long.
const SHOWN: &str = "Authorization";
const UNREAD: &str = "If-None-Match";

/// Measures one number over HTTP with 64 connections, with roles and tokens, with a quota besides,
/// and without roles.
pub(crate) async fn access(stage: &Stage, pace: Pace) -> Vec<Row> {
    let folder = odometer_tests::directory("access");
    let token = token_and_callers(folder.path());
    let with_roles = options(folder.path(), "roles", "");
    let quota = format!("numbers = \"{}M/s\"\n", NUMBERS_PER_S / 1_000_000);
    let with_quota = options(folder.path(), "quota", &quota);
    let start = |options| stage.odometer_with(Backend::Sqlite, Side::Server, options);
    let with_roles = start(with_roles).await;
    let without = start(Program::options()).await;
    let with_quota = start(with_quota).await;
    for (odometer, quota) in [
        (&with_roles, Value::Null),
        (&with_quota, NUMBERS_PER_S.into()),
    ] {
        check_roles(odometer, &token, &quota).await;
    }
    let ask = |name: &str, odometer: &Odometer, header: &str| {
        let program = &odometer.program;
        let mut wrk = Wrk::new(program.address(), NEXT);
        wrk.headers = vec![bearer(header, &token)];
        Http::new(name, &stage.cores, program.id(), wrk)
    };
    let mut roles = ask("Odometer", &with_roles, SHOWN);
    let mut plain = ask(WITHOUT, &without, UNREAD);
    let mut quota = ask(QUOTA, &with_quota, SHOWN);
    let series = pace
        .alternate(&mut [&mut roles, &mut plain, &mut quota])
        .await;
    let title = "one number, 64 connections, callers who show a token";
    let rate = Row::new("access", title, Unit::RequestsPerSecond)
        .series(series)
        .target(WITHOUT, Bound::AtLeast(0.95))
        .note(format!(
            "`[access]` has one role with the right `take` on the name, and its callers show a token. \
             Without roles, callers send a header of the same length that nobody reads. The quota is \
             {NUMBERS_PER_S} numbers a second, so it refuses no call."
        ));
    let title = format!("processor time of {title}");
    vec![rate.cost(&title, 1, &[WITHOUT, QUOTA]), rate]
}

/// Returns a header with a token, as `name: value`.
fn bearer(name: &str, token: &str) -> String {
    format!("{name}: Bearer {token}")
}

/// Makes a token, and writes the file of callers into `folder`. Returns the token.
fn token_and_callers(folder: &Path) -> String {
    let made = Program::options().run(&["token", "bench", "--role", ROLE]);
    assert_eq!(made.code, Some(0), "no token was made: {made}");
    let (token, section) = token_and_section(&made.output);
    std::fs::write(folder.join("callers.toml"), section).expect("our directory");
    token.to_owned()
}

/// Finds the token, and the section for the file of callers, in what `odometer token` prints.
///
/// # Panics
/// If one of them is missing.
fn token_and_section(printed: &str) -> (&str, &str) {
    let token = printed.lines().find(|line| line.starts_with("odo_"));
    let section = printed.find("\n[").and_then(|at| printed.get(at + 1..));
    token.zip(section).expect("a token and its section")
}

/// Writes a configuration with one role into `folder`, and returns the options that name it.
/// `quotas` are further lines of the role.
fn options(folder: &Path, name: &str, quotas: &str) -> Options {
    let callers = folder.join("callers.toml");
    let text = format!(
        "[access]\ncallers_file = \"{}\"\n[access.roles.{ROLE}]\ntake = [\"orders\"]\n\
         create = [\"orders\"]\n{quotas}",
        callers.display()
    );
    let config = folder.join(format!("{name}.toml"));
    std::fs::write(&config, text).expect("our directory");
    Program::options().env("ODOMETER_CONFIG", config.display())
}

/// Checks that the program asks for a token, and that the token has the role with this quota.
///
/// # Panics
/// If the program does not, because then the row would measure nothing.
async fn check_roles(odometer: &Odometer, token: &str, quota: &Value) {
    let address = odometer.program.address();
    let without = raw::request("POST", NEXT.as_bytes(), "", b"");
    let without = raw::exchange(address, &without).await;
    assert_eq!(without.status, 401, "vacuous: {without:?}");
    let shown = format!("{}\r\n", bearer(SHOWN, token));
    let caller = raw::request("GET", b"/v1/me", &shown, b"");
    let caller = raw::exchange(address, &caller).await.json();
    assert_eq!(caller["role"], ROLE, "{caller}");
    assert_eq!(&caller["numbers_per_second"], quota, "{caller}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_that_nobody_reads_is_as_long_as_the_other() {
        assert_ne!(SHOWN, UNREAD);
        assert_eq!(bearer(SHOWN, "odo_a").len(), bearer(UNREAD, "odo_a").len());
    }

    #[test]
    fn a_token_and_its_section_are_found() {
        let printed = "# The token of bench.\nodo_AbC\n# The section for the file of callers.\n\
                       [\"bench\"]\nrole = \"taker\"\nsha256 = [\"12\"]\n";
        let section = "[\"bench\"]\nrole = \"taker\"\nsha256 = [\"12\"]\n";
        assert_eq!(token_and_section(printed), ("odo_AbC", section));
    }
}
