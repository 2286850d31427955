//! Tests that the reference of the command line is what the program says of itself. Renews the
//! reference if a run asks for that.

use clap::{Arg, Command};

use super::markdown::Document;
use crate::support::settings;

const FILE: &str = "docs/cli.md";
const BEGIN: &str =
    "<!-- What follows is generated from `odometer --help`: see CONTRIBUTING.md. -->\n";
const END: &str = "<!-- This is the end of what is generated. -->\n";
const RENEW: &str = "ODOMETER_TESTS_RENEW_DOCUMENTS=1 tests/run the_reference_of_the_command_line";
/// The heading of the flags in each `--help`. The reference has them once.
const CONFIGURATION: &str = "Configuration";
/// What clap adds to each command.
const OF_CLAP: [&str; 3] = ["help", "version", "generated-help"];

/// Returns a text with one sentence a line, and a period at its end.
fn sentences(text: &str) -> String {
    let text = text.replace(". ", ".\n");
    let end = if text.ends_with('.') { "" } else { "." };
    format!("{text}{end}")
}

/// Returns a text for a cell of a table.
fn cell(text: &str) -> String {
    sentences(text).replace('\n', " ")
}

fn about(command: &Command) -> String {
    let about = command.get_long_about().or(command.get_about());
    about.map(ToString::to_string).unwrap_or_default()
}

/// Returns the help of an argument and its default, if it has one.
fn help(argument: &Arg) -> (String, Option<String>) {
    let help = argument.get_long_help().or(argument.get_help());
    let help = help.map(ToString::to_string).unwrap_or_default();
    let (help, in_text) = match help.split_once("[default: ") {
        Some((help, default)) => (help.trim(), Some(default.trim_end_matches(']').to_owned())),
        None => (help.as_str(), None),
    };
    let mut help = cell(help);
    let values = argument.get_possible_values();
    let takes_values = argument.get_action().takes_values();
    if !values.is_empty() && takes_values {
        let values: Vec<String> = values.iter().map(|it| code(it.get_name())).collect();
        help.push_str(&format!(" Give one of {}.", values.join(", ")));
    }
    if let Some(variable) = argument.get_env() {
        let variable = code(&variable.to_string_lossy());
        help.push_str(&format!(" Environment variable: {variable}."));
    }
    let given = argument.get_default_values().first();
    let given = given.filter(|_| takes_values);
    let given = given.map(|value| value.to_string_lossy().into_owned());
    (help, in_text.or(given))
}

fn code(text: &str) -> String {
    format!("`{text}`")
}

/// Returns how an argument is written.
fn written(argument: &Arg) -> String {
    let values = argument.get_value_names().unwrap_or_default();
    let values: Vec<&str> = values.iter().map(|it| it.as_str()).collect();
    let values = values.join(" ");
    let takes_values = argument.get_action().takes_values();
    code(&match argument.get_long() {
        Some(long) if takes_values => format!("--{long} {values}"),
        Some(long) => format!("--{long}"),
        None => values,
    })
}

/// Returns the table of arguments. It has a column of defaults if one of them has a default.
fn table(arguments: &[&Arg]) -> String {
    let helps: Vec<_> = arguments.iter().map(|argument| help(argument)).collect();
    let has_defaults = helps.iter().any(|(_, default)| default.is_some());
    let mut table = String::from("| Option | Means |");
    table.push_str(if has_defaults {
        " Default |\n|---|---|---|\n"
    } else {
        "\n|---|---|\n"
    });
    for (argument, (help, default)) in arguments.iter().zip(helps) {
        table.push_str(&format!("| {} | {help} |", written(argument)));
        if has_defaults {
            let default = default.map(|default| format!(" {}", code(&default)));
            table.push_str(&format!("{} |", default.unwrap_or_default()));
        }
        table.push('\n');
    }
    table
}

/// Returns the arguments of a command: its own, and those of the configuration.
fn arguments(command: &Command) -> (Vec<&Arg>, Vec<&Arg>) {
    let shown = command.get_arguments().filter(|argument| {
        let id = argument.get_id().as_str();
        !argument.is_hide_set() && !OF_CLAP.contains(&id)
    });
    shown.partition(|argument| argument.get_help_heading() != Some(CONFIGURATION))
}

fn usage(command: &Command) -> String {
    let usage = command.clone().render_usage().to_string();
    let usage = usage.strip_prefix("Usage: ").unwrap_or(&usage).to_owned();
    format!("```text\n{usage}\n```\n")
}

/// Returns the examples of a command, as a block.
fn examples(command: &Command) -> String {
    let text = command.get_after_help().map(ToString::to_string);
    let text = text.unwrap_or_default();
    let (_, examples) = text.split_once("Examples:\n").expect("it has examples");
    let lines: Vec<&str> = examples.lines().map(str::trim).collect();
    format!("Examples:\n\n```text\n{}\n```\n", lines.join("\n"))
}

fn commands_of(program: &Command) -> Vec<&Command> {
    let commands = program.get_subcommands();
    let shown = commands.filter(|it| !it.is_hide_set() && it.get_name() != "help");
    shown.collect()
}

/// Returns the reference of the whole command line.
fn reference() -> String {
    let mut program = odometer::command_line::describe();
    program.build();
    let commands = commands_of(&program);
    let mut text = format!("\n## Commands\n\n{}\n", usage(&program));
    text.push_str("| Command | Does |\n|---|---|\n");
    for command in &commands {
        let name = command.get_name();
        let first = sentences(&about(command));
        let first = first.lines().next().unwrap_or_default();
        text.push_str(&format!("| [`{name}`](#odometer-{name}) | {first} |\n"));
    }
    text.push_str("\n`--help` and `--version` work as usual.\n");
    text.push_str(&format!("{}\n", examples(&program)).replacen("Examples", "\nExamples", 1));
    for command in commands {
        let (own, of_configuration) = arguments(command);
        text.push_str(&format!("### odometer {}\n\n", command.get_name()));
        text.push_str(&format!(
            "{}\n\n{}\n",
            sentences(&about(command)),
            usage(command)
        ));
        if !own.is_empty() {
            text.push_str(&format!("{}\n", table(&own)));
        }
        if !of_configuration.is_empty() {
            text.push_str("You may also give the [flags](#flags) of the configuration.\n\n");
        }
        text.push_str(&format!("{}\n", examples(command)));
    }
    let (_, flags) = arguments(&program);
    text.push_str("## Flags\n\n");
    text.push_str(
        "These flags give keys of the [configuration](configuration.md), or name its file.\n",
    );
    text.push_str("Write them before or behind the name of a command that reads it.\n");
    text.push_str("Other commands refuse them.\n\n");
    text.push_str(&format!("{}\n", table(&flags)));
    text
}

#[test]
fn the_reference_of_the_command_line_is_what_the_program_says() {
    let document = Document::read(FILE);
    let parts = document.text.split_once(BEGIN).and_then(|(before, rest)| {
        let (generated, after) = rest.split_once(END)?;
        Some((before, generated, after))
    });
    let (before, generated, after) = parts.expect("the reference stands between its marks");
    let wanted = reference();
    assert!(
        wanted.matches("\n### odometer ").count() >= 9,
        "vacuous:\n{wanted}"
    );
    if settings::renews_documents() {
        let renewed = format!("{before}{BEGIN}{wanted}{END}{after}");
        std::fs::write(settings::repository().join(FILE), renewed).expect("our document");
        return;
    }
    assert!(
        generated == wanted,
        "{FILE} is not what the program says. To renew it, run {RENEW}. The program says:\n{wanted}"
    );
}

#[test]
fn an_option_is_written_with_its_value_and_its_default() {
    let with_value = Arg::new("since")
        .long("since")
        .value_name("TIME")
        .default_value("now")
        .help("Begin here. See below");
    let text = Arg::new("listen")
        .long("listen")
        .value_name("ADDRESS")
        .help("Listen here. [default: 127.0.0.1:1]");
    let plain = Arg::new("yes")
        .long("yes")
        .action(clap::ArgAction::SetTrue)
        .help("Do not ask.");
    let command = Command::new("any").args([with_value, text, plain]);
    let arguments: Vec<&Arg> = command.get_arguments().collect();
    assert_eq!(
        table(&arguments),
        "| Option | Means | Default |\n|---|---|---|\n\
         | `--since TIME` | Begin here. See below. | `now` |\n\
         | `--listen ADDRESS` | Listen here. | `127.0.0.1:1` |\n\
         | `--yes` | Do not ask. | |\n"
    );
}
