//! Commands that only write text: a configuration, what is configured, completions, and manual
//! pages.

use std::{collections::BTreeMap, fs, os::unix::fs::PermissionsExt as _, path::Path};

use crate::support::{Program, directory};

#[test]
fn commands_that_read_no_configuration_work_with_a_broken_one() {
    let home = directory("broken");
    let broken = "this is not toml";
    fs::write(home.path().join("odometer.toml"), broken).expect("our directory");
    let options = Program::options().in_directory(home.path());
    let checked = options.run(&["check"]);
    assert_eq!(checked.code, Some(78), "{checked}");
    for (arguments, said) in [
        (&["init", "-"][..], "#listen = \"127.0.0.1:8080\""),
        (&["completions", "bash"], "complete -F _odometer"),
        (&["man", "pages"], "pages"),
    ] {
        let finished = options.run(arguments);
        assert_eq!(finished.code, Some(0), "{arguments:?}: {finished}");
        assert!(finished.output.contains(said), "{arguments:?}: {finished}");
    }
    let refused = options.run(&["init"]);
    assert_eq!(refused.code, Some(1), "{refused}");
    assert!(refused.errors.contains("was not changed"), "{refused}");
    let kept = fs::read_to_string(home.path().join("odometer.toml"));
    assert_eq!(kept.expect("our file"), broken);
}

#[test]
fn the_file_of_init_is_its_owner_s_alone_and_is_used() {
    let home = directory("init");
    let options = Program::options().in_directory(home.path());
    let finished = options.run(&["init"]);
    assert_eq!(finished.code, Some(0), "{finished}");
    let file = home.path().join("odometer.toml");
    let mode = fs::metadata(&file)
        .expect("it is there")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let text = fs::read_to_string(&file).expect("our file");
    let changed = text.replace("#limits.waiters = 16384", "limits.waiters = 100");
    assert_ne!(changed, text);
    fs::write(&file, changed).expect("our file");
    let shown = options.run(&["config", "--changed", "--set", "refill.deadline=2s"]);
    assert_eq!(shown.code, Some(0), "{shown}");
    for line in [
        "waiters = 100  # in odometer.toml",
        "deadline = \"2s\"  # command line",
    ] {
        assert!(shown.output.contains(line), "no {line}: {shown}");
    }
    assert!(!shown.output.contains("# the default"), "{shown}");
    let all = options.run(&["config"]);
    assert!(
        all.output.contains("in_flight = 16384  # the default"),
        "{all}"
    );
}

/// Returns the pages in a folder, by their names.
fn pages_in(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).expect("the folder is there");
    let pages = entries.flatten().map(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        (name, fs::read(entry.path()).expect("a page can be read"))
    });
    pages.collect()
}

#[test]
fn each_command_has_a_manual_page_and_each_shell_a_script() {
    let home = directory("texts");
    let options = Program::options().in_directory(home.path());
    for folder in ["first", "second"] {
        let finished = options.run(&["man", folder]);
        assert_eq!(finished.code, Some(0), "{finished}");
    }
    let pages = pages_in(&home.path().join("first"));
    assert_eq!(pages, pages_in(&home.path().join("second")));
    let description = odometer::command_line::describe();
    let commands = description.get_subcommands();
    let names = commands.map(|command| format!("odometer-{}.1", command.get_name()));
    let names: Vec<String> = names.chain(["odometer.1".to_owned()]).collect();
    assert!(names.len() >= 10, "vacuous: {names:?}");
    for name in &names {
        let page = pages.get(name).unwrap_or_else(|| panic!("no page {name}"));
        let page = String::from_utf8_lossy(page);
        assert!(page.contains("Examples:"), "{name}: {page}");
    }
    assert_eq!(pages.len(), names.len(), "{:?}", pages.keys());
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let finished = options.run(&["completions", shell]);
        assert_eq!(finished.code, Some(0), "{finished}");
        for word in ["odometer", "completions", "births-from-start"] {
            assert!(finished.output.contains(word), "{shell}: no {word}");
        }
    }
}
