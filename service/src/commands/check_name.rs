//! `odometer check --name`: shows what a sequence of a name would be created from, without a
//! database.

use std::collections::BTreeMap;

use odometer_core::{
    definition::Definition,
    name::SequenceName,
    templates::{Template, TemplateChoice},
};

use super::failure::CommandFailure;
use crate::config::Config;

/// Shows what a name that was never used gets, as a file of definitions with comments.
///
/// # Errors
/// `name` is not the name of a sequence, or its definition cannot be shown as TOML.
pub fn check_name(config: &Config, name: &str) -> Result<Vec<String>, CommandFailure> {
    let name = SequenceName::parse(name)
        .map_err(|error| CommandFailure::usage(format!("--name: {error}")))?;
    let templates = &config.templates;
    let mut lines = vec![format!("# {name}: {}", said(templates.choice(&name)))];
    let mut created = name;
    if let Some(Template::Share(target)) = templates.of(&created) {
        lines.push(format!("# {target}: {}", said(templates.choice(&target))));
        created = target;
    }
    if let Some(definition) = templates.created_with(&created) {
        lines.extend(as_toml(&created, &definition)?.lines().map(str::to_owned));
    }
    Ok(lines)
}

fn said(choice: TemplateChoice<'_>) -> String {
    match choice {
        TemplateChoice::Rule(index, rule) => {
            let template = format!("template[{index}], match \"{}\"", rule.glob);
            match &rule.template {
                Template::Definition(_) => format!("the first call creates it from {template}"),
                Template::Share(target) => {
                    format!("unless it is defined, it shares the numbers of {target}: {template}")
                }
            }
        }
        TemplateChoice::Default => {
            "no template fits; the first call creates it from [default]".to_owned()
        }
        TemplateChoice::Shared => {
            "no template fits, but one names it in `share`; the first call creates \
                           it from [default]"
                .to_owned()
        }
        TemplateChoice::Refused => {
            "no template fits; 404 until it is defined, as unknown = \"reject\"".to_owned()
        }
    }
}

fn as_toml(name: &SequenceName, definition: &Definition) -> Result<String, CommandFailure> {
    let sequences = BTreeMap::from([(name.as_str(), definition)]);
    let definitions = BTreeMap::from([("sequences", sequences)]);
    toml_edit::ser::to_string_pretty(&definitions)
        .map_err(|error| CommandFailure::other(format!("{name} cannot be shown: {error}")))
}
