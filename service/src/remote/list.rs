//! Carries out `odometer list`: lists sequences, page by page.

use clap::Args;
use serde_json::{Map, Value};

use super::facts::Traits;
use super::options::ReplicaOptions;
use super::replica_client::{ApiCall, ReplicaClient};
use super::replies::{ListedPage, ListedSequence};
use super::table::{self, Side};
use crate::commands::{failure::CommandFailure, output};

/// How many sequences are asked for at once: the most that the API gives.
const PAGE: u32 = 1000;
/// A name, what it is, its ids, its range, its description.
const SIDES: [Side; 5] = [Side::Left, Side::Left, Side::Left, Side::Left, Side::Left];

/// What to list.
#[derive(Debug, Args)]
pub(crate) struct ListOptions {
    /// Only names that begin like this.
    #[arg(value_name = "PREFIX")]
    prefix: Option<String>,
    /// Print the replies of the API as they are: a line for each 1000 sequences.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    pub(crate) replica: ReplicaOptions,
}

/// Prints the sequences in the byte order of their names.
///
/// # Errors
/// The replica cannot list them.
pub(crate) fn list(client: &ReplicaClient, options: &ListOptions) -> Result<(), CommandFailure> {
    let path = ["v1", "sequences"];
    let mut after: Option<String> = None;
    let mut has_head = false;
    loop {
        let call = ApiCall::get(&path)
            .with("prefix", options.prefix.as_ref())
            .with("after", after.as_ref())
            .with("limit", Some(PAGE));
        let (page, reply) = client.read::<ListedPage>(&call)?;
        if options.json {
            output::print_json(&reply.body)?;
        } else if !page.sequences.is_empty() {
            output::print_lines(&lines(&page.sequences, !has_head))?;
            has_head = true;
        }
        // A name that does not sort after the last one would begin the list again.
        match page.next {
            Some(next) if after.as_ref().is_none_or(|after| next > *after) => after = Some(next),
            _ => break,
        }
    }
    if !has_head && !options.json {
        let which = match &options.prefix {
            Some(prefix) => format!(" that begins with {prefix}"),
            None => String::new(),
        };
        output::print_lines(&[format!("There is no sequence{which}.")])?;
    }
    Ok(())
}

fn lines(sequences: &[ListedSequence], with_head: bool) -> Vec<String> {
    let mut rows: Vec<Vec<String>> = Vec::new();
    if with_head {
        let head = ["Sequence", "Kind", "Numbers", "Format", "Description"];
        rows.push(head.map(str::to_owned).to_vec());
    }
    rows.extend(sequences.iter().map(row));
    table::lines(&SIDES, &rows)
}

fn row(listed: &ListedSequence) -> Vec<String> {
    let definition = &listed.definition;
    let kind = text(definition, "kind");
    let traits = Traits {
        kind,
        order: text(definition, "order"),
        counts_by: text(definition, "period"),
        store: text(definition, "store"),
        retired: listed.state == "retired",
    };
    let words = traits.words();
    let shown = if words.is_empty() {
        kind.to_owned()
    } else {
        words.join(" · ")
    };
    // Time-ordered ids go by the clock.
    let range = if kind == "snowflake" {
        String::new()
    } else {
        format!(
            "{} – {}",
            text(definition, "start"),
            text(definition, "max")
        )
    };
    let (format, description) = (text(definition, "format"), text(definition, "description"));
    vec![
        listed.sequence.clone(),
        shown,
        range,
        format.to_owned(),
        description.to_owned(),
    ]
}

fn text<'a>(definition: &'a Map<String, Value>, field: &str) -> &'a str {
    let value = definition.get(field);
    value.and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_row_says_what_a_sequence_is() {
        let page = json!({"next": null, "sequences": [
            {"sequence": "orders", "state": "live", "definition": {
                "kind": "block", "start": "1", "max": "9223372036854775806", "order": "relaxed",
                "period": "none", "store": "default", "format": "{value}", "description": "Shop"}},
            {"sequence": "moments", "state": "retired", "definition": {
                "kind": "snowflake", "start": "1", "max": "9", "order": "relaxed",
                "period": "none", "store": "fast", "format": "{value}", "description": ""}},
        ]});
        let page: ListedPage = serde_json::from_value(page).unwrap();
        assert_eq!(
            lines(&page.sequences, true),
            [
                "Sequence  Kind                           Numbers                  Format   Description",
                "orders    block                          1 – 9223372036854775806  {value}  Shop",
                "moments   retired · time-ordered · fast                           {value}",
            ]
        );
        assert_eq!(lines(&page.sequences, false).len(), 2);
    }
}
