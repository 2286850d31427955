//! Carries out `odometer define`: creates a sequence or changes its definition.

use std::path::PathBuf;

use clap::Args;
use odometer_core::name::SequenceName;
use serde_json::{Map, Value};
use ureq::http::Method;

use super::facts;
use super::options::ReplicaOptions;
use super::replica_client::{ApiCall, CallFailure, ReplicaClient};
use super::replies::{DefinedSequence, ShownSequence};
use super::{definition_diff, definition_fields, table};
use crate::commands::{failure::CommandFailure, output};

/// What to define.
#[derive(Debug, Args)]
pub(crate) struct DefineOptions {
    /// The sequence.
    #[arg(value_name = "NAME", value_parser = SequenceName::parse)]
    name: SequenceName,
    /// A field of the definition and its value. Write parts of a field with a dot, as in
    /// `block.min=100`, and no value as in `declared_rate=null`.
    #[arg(value_name = "FIELD=VALUE")]
    fields: Vec<String>,
    /// TOML or JSON file with the fields of one definition. Fields on the command line come before
    /// those of the file.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Say what would come of it, and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Create the sequence, and refuse if it exists.
    #[arg(long)]
    create_only: bool,
    /// Let the format change, although a recovery may have lost formats that the sequence had.
    #[arg(long)]
    confirm: bool,
    /// Print the reply of the API as it is.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    pub(crate) replica: ReplicaOptions,
}

/// Creates or changes a sequence, and says what has become of it.
///
/// # Errors
/// The definition was refused, or its outcome is not known.
pub(crate) fn define(
    client: &ReplicaClient,
    options: &DefineOptions,
) -> Result<(), CommandFailure> {
    let name = options.name.as_str();
    let mut fields = definition_fields::read(options.file.as_deref(), &options.fields)?;
    if options.confirm {
        fields.insert("confirm".to_owned(), Value::Bool(true));
    }
    let path = ["v1", "sequences", name];
    // Only for the sentences: another caller may change the definition between the two calls.
    let before = if options.json || options.create_only {
        None
    } else {
        present(client, &path)?
    };
    let if_silent = if options.dry_run {
        "Nothing was changed; try again.".to_owned()
    } else {
        format!("The change may have been made: look with `odometer show {name}`.")
    };
    let call = ApiCall::acting(Method::PUT, &path, &if_silent)
        .with("dry_run", options.dry_run.then_some(true))
        .creating_only(options.create_only)
        .sending(Value::Object(fields).to_string().into_bytes());
    let (defined, reply) = client.read::<DefinedSequence>(&call)?;
    if options.json {
        return output::print_json(&reply.body);
    }
    let is_new = if options.dry_run {
        before.is_none()
    } else {
        reply.status == 201
    };
    let before = before.filter(|_| !is_new);
    output::print_lines(&outcome(name, before, &defined, options.dry_run))
}

/// Returns the present definition of a sequence, or `None` if there is no such sequence.
fn present(
    client: &ReplicaClient,
    path: &[&str],
) -> Result<Option<Map<String, Value>>, CommandFailure> {
    match client.read::<ShownSequence>(&ApiCall::get(path)) {
        Ok((present, _)) => Ok(Some(present.definition)),
        Err(CallFailure::Refused { code, .. }) if code == "sequence_not_found" => Ok(None),
        Err(failure) => Err(failure.into()),
    }
}

fn outcome(
    name: &str,
    before: Option<Map<String, Value>>,
    defined: &DefinedSequence,
    dry_run: bool,
) -> Vec<String> {
    let fields = match &before {
        Some(before) => definition_diff::changes(before, &defined.definition),
        None => definition_diff::unusual(&defined.definition),
    };
    let word = match (before.is_some(), fields.is_empty(), dry_run) {
        (false, _, false) => "created",
        (false, _, true) => "would be created",
        (true, false, false) => "changed",
        (true, false, true) => "would be changed",
        (true, true, false) => "unchanged",
        (true, true, true) => "would stay unchanged",
    };
    let mut lines = vec![format!("{name}: {word}")];
    let indented = fields
        .into_iter()
        .map(|(field, value)| (format!("  {field}"), value));
    lines.extend(table::pairs(indented));
    if let Some(samples) = &defined.samples {
        lines.push(format!("Next ids: {}", samples.join(", ")));
    }
    if let Some(runway) = &defined.runway {
        let runway = facts::runway_with_end(Some(runway), false);
        lines.push(format!("Runway: {runway}"));
    }
    let warnings = defined.warnings.iter();
    lines.extend(warnings.map(|warning| format!("Warning: {warning}")));
    lines
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use serde_json::json;

    use super::*;

    fn defined(reply: Value) -> DefinedSequence {
        serde_json::from_value(reply).unwrap()
    }

    fn fields(definition: &Value) -> Option<Map<String, Value>> {
        definition.as_object().cloned()
    }

    #[test]
    fn each_outcome_has_its_word() {
        let reply = json!({"definition": {"max": "9"}, "warnings": ["It is short."]});
        let reply = defined(reply);
        let lines = |before, dry_run| outcome("orders", before, &reply, dry_run);
        let changed = ["orders: changed", "  max  7 → 9", "Warning: It is short."];
        assert_eq!(lines(fields(&json!({"max": "7"})), false), changed);
        for (before, dry_run, word) in [
            (None, false, "created"),
            (None, true, "would be created"),
            (fields(&json!({"max": "7"})), true, "would be changed"),
            (fields(&json!({"max": "9"})), false, "unchanged"),
            (fields(&json!({"max": "9"})), true, "would stay unchanged"),
        ] {
            let first = lines(before, dry_run).into_iter().next();
            assert_eq!(first, Some(format!("orders: {word}")));
        }
    }

    #[test]
    fn a_dry_run_shows_what_would_come_next() {
        let runway = json!({"limit": "max", "numbers_left": 8999, "days_left": null});
        let reply = defined(json!({"definition": {"max": "9"}, "warnings": [],
            "samples": ["A1", "A2"], "runway": runway}));
        let lines = outcome("orders", fields(&json!({"max": "9"})), &reply, true);
        let expected = [
            "orders: would stay unchanged",
            "Next ids: A1, A2",
            "Runway: 8,999 left to max",
        ];
        assert_eq!(lines, expected);
    }
}
