//! Tests that the reference of the HTTP API says what the program's own description says.

use serde_json::Value;

use super::markdown::Document;
use crate::support::settings;

const REFERENCE: &str = "docs/http-api.md";
const CONTRACT: &str = "tests/snapshots/openapi.snap";
const RENEW: &str = "ODOMETER_TESTS_RENEW_DOCUMENTS=1 tests/run the_http_reference_is";
/// The words before a default in the description of a parameter.
const DEFAULT: &str = " Without it, ";

const BEGIN: &str = "\
# HTTP reference

<!-- Generated from the description of the API. CONTRIBUTING.md says how it is written again. -->

This page has every call and every object, as `/openapi.json` describes them.
The [HTTP API](api.md) has the conventions, and an overview by what you want to do.

A call that is refused has the body [`Problem`](#problem), and [errors](errors.md) says what each code means.
Every 429 and 503 has the header `Retry-After`, and every 405 has `Allow`.
Objects of replies can get further fields in later versions, so your program should ignore fields that it does not know.
";

/// Returns the description of the API that the program serves.
pub(super) fn contract() -> Value {
    let snapshot = Document::read(CONTRACT).text;
    let (_, contract) = snapshot.split_once("\n---\n").expect("a front matter");
    serde_json::from_str(contract).expect("the contract is JSON")
}

#[test]
fn the_http_reference_is_what_the_description_says() {
    let written = reference(&contract());
    if settings::renews_documents() {
        std::fs::write(settings::repository().join(REFERENCE), &written).expect("our document");
    }
    let shown = Document::read(REFERENCE).text;
    let difference = shown.lines().zip(written.lines()).position(|(a, b)| a != b);
    let line = difference.map_or(0, |index| index + 1);
    assert!(
        shown == written,
        "{REFERENCE} is not what {CONTRACT} says, from line {line} on. \
         If the contract is right: {RENEW}"
    );
}

fn reference(contract: &Value) -> String {
    let mut text = BEGIN.to_owned();
    for tag in items(&contract["tags"]) {
        let name = word(&tag["name"]);
        let (first, rest) = name.split_at(1);
        let title = format!("{}{rest}", first.to_uppercase());
        text.push_str(&format!("\n## {title}\n\n{}\n", words(tag)));
        for (path, item) in fields(&contract["paths"]) {
            for (method, operation) in fields(item) {
                if operation["tags"][0] == tag["name"] {
                    text.push_str(&call(contract, method, path, operation));
                }
            }
        }
    }
    text.push_str("\n## Objects\n\nRequests and replies are made of these objects and texts.\n");
    for (name, schema) in fields(&contract["components"]["schemas"]) {
        text.push_str(&object(contract, name, schema));
    }
    text.push_str("\n[All pages](index.md)\n");
    text
}

/// Returns the section of one call.
fn call(contract: &Value, method: &str, path: &str, operation: &Value) -> String {
    let mut text = format!("\n### `{} {path}`\n\n", method.to_uppercase());
    for key in ["summary", "description"] {
        if let Some(sentence) = operation[key].as_str() {
            text.push_str(&format!("{}\n", on_one_line(sentence)));
        }
    }
    let id = word(&operation["operationId"]);
    text.push_str(&format!("Generated clients call it `{id}`.\n"));
    if let Some(right) = operation["x-odometer-right"].as_str() {
        let token = match right {
            "define" => {
                ", and without roles the administrator's token ([security](security.md#who-may-change-sequences))"
            }
            _ => "",
        };
        text.push_str(&format!(
            "With roles it needs the right [`{right}`](access.md#rights){token}.\n"
        ));
    }
    let parameters = items(&operation["parameters"]);
    if !parameters.is_empty() {
        text.push_str("\n| Parameter | In | Type | Default | Meaning |\n|---|---|---|---|---|\n");
    }
    for parameter in parameters {
        let told = words(parameter);
        let (meaning, default) = match told.split_once(DEFAULT) {
            Some((meaning, default)) => (meaning, default.trim_end_matches('.')),
            None if parameter["required"] == true => (told.as_str(), "required"),
            None => (told.as_str(), "none"),
        };
        text.push_str(&row(&[
            &format!("`{}`", word(&parameter["name"])),
            word(&parameter["in"]),
            &type_of(&parameter["schema"]),
            default,
            meaning,
        ]));
    }
    if operation["requestBody"].is_object() {
        let body = &operation["requestBody"];
        let schema = type_of(&body["content"]["application/json"]["schema"]);
        let may = if body["required"] == true {
            ""
        } else {
            " You may leave it out."
        };
        let told = words(body);
        let told = if told.is_empty() {
            told
        } else {
            format!(" {told}")
        };
        text.push_str(&format!("\nThe body is JSON: {schema}.{told}{may}\n"));
    }
    text.push_str("\n| Status | Reply |\n|---|---|\n");
    for (status, reply) in fields(&operation["responses"]) {
        let is_refusal = !status.starts_with('2');
        let told = if is_refusal {
            codes(reply)
        } else {
            answer(contract, reply)
        };
        text.push_str(&row(&[status, &told]));
    }
    text
}

/// Returns what a reply with numbers or objects has.
fn answer(contract: &Value, reply: &Value) -> String {
    let mut parts = vec![words(reply)];
    for (media_type, content) in fields(&reply["content"]) {
        parts.push(match media_type {
            "application/json" => format!("JSON: {}.", type_of(&content["schema"])),
            other if parts.len() > 1 => format!("Text, if you send `Accept: {other}`."),
            _ => "Text.".to_owned(),
        });
    }
    for (name, header) in fields(&reply["headers"]) {
        let told = described(contract, header);
        parts.push(format!("Header `{name}`: {told}"));
    }
    parts.join(" ")
}

/// Returns the codes of a refusal, with links to their sections.
fn codes(reply: &Value) -> String {
    let codes = word(&reply["description"]).split(", ");
    let links = codes.map(|code| format!("[{code}](errors.md#{})", code.trim_matches('`')));
    links.collect::<Vec<_>>().join(" ")
}

/// Returns the section of one object, or of one kind of text.
fn object(contract: &Value, name: &str, schema: &Value) -> String {
    let mut text = format!("\n### {name}\n\n{}\n", words(schema));
    let properties = fields(&schema["properties"]);
    if properties.is_empty() {
        text.push_str(&format!("\n- Type: {}\n", type_of(schema)));
        for (key, title) in [("pattern", "Pattern"), ("example", "Example")] {
            // A list of words is example enough.
            if !schema[key].is_null() && schema["enum"].is_null() {
                let value = schema[key]
                    .as_str()
                    .map_or(schema[key].to_string(), str::to_owned);
                text.push_str(&format!("- {title}: `{value}`\n"));
            }
        }
        return text;
    }
    // Only requests refuse fields that they do not know.
    let is_request = schema["additionalProperties"] == false;
    text.push_str("\n| Field | Type | Meaning |\n|---|---|---|\n");
    for (field, property) in properties {
        let is_required = items(&schema["required"]).iter().any(|it| *it == *field);
        let mark = match (is_request, is_required) {
            (true, true) => "; required",
            (false, false) => "; may be absent",
            (true, false) | (false, true) => "",
        };
        text.push_str(&row(&[
            &format!("`{field}`"),
            &format!("{}{mark}", type_of(property)),
            &described(contract, property),
        ]));
    }
    text
}

/// Returns what a schema takes, in a few words.
fn type_of(schema: &Value) -> String {
    if let Some(name) = referenced(schema) {
        return format!("[{name}](#{})", name.to_lowercase());
    }
    let choices = items(&schema["oneOf"]);
    if !choices.is_empty() {
        return choices.iter().map(type_of).collect::<Vec<_>>().join(" or ");
    }
    let listed = items(&schema["enum"]);
    if !listed.is_empty() {
        let listed = listed.iter().map(|it| format!("`{}`", word(it)));
        return listed.collect::<Vec<_>>().join(", ");
    }
    let kind = &schema["type"];
    let kinds = match kind.as_array() {
        Some(kinds) => kinds.iter().map(word).collect(),
        None => vec![word(kind)],
    };
    let kinds = kinds.into_iter().map(|kind| kind_of(kind, schema));
    kinds.collect::<Vec<_>>().join(" or ")
}

fn kind_of(kind: &str, schema: &Value) -> String {
    match kind {
        "null" => "`null`".to_owned(),
        "boolean" => "`true` or `false`".to_owned(),
        "object" => "object".to_owned(),
        "number" => format!("number{}", range(schema, "minimum", "maximum", "")),
        "integer" => format!("whole number{}", range(schema, "minimum", "maximum", "")),
        "string" => format!(
            "text{}",
            range(schema, "minLength", "maxLength", " characters")
        ),
        "array" => {
            let most = range(schema, "minItems", "maxItems", "");
            format!("list of {}{most}", type_of(&schema["items"]))
        }
        other => panic!("a type {other}, which this page cannot say"),
    }
}

/// Returns the bounds of a value, or of its length.
fn range(schema: &Value, least: &str, most: &str, unit: &str) -> String {
    let above = &schema["exclusiveMinimum"];
    match (&schema[least], &schema[most]) {
        (Value::Null, Value::Null) => String::new(),
        (Value::Null, most) if above.is_number() => format!(", above {above}, at most {most}"),
        (Value::Null, most) => format!(", at most {most}{unit}"),
        (least, Value::Null) => format!(", at least {least}{unit}"),
        (least, most) => format!(", {least} to {most}{unit}"),
    }
}

/// Returns the description of a field: its own, or that of the object which it refers to.
fn described(contract: &Value, property: &Value) -> String {
    let choices = items(&property["oneOf"]);
    let own = [property].into_iter().chain(choices);
    let own = own.map(words).find(|told| !told.is_empty());
    own.unwrap_or_else(|| {
        let name = [property].into_iter().chain(choices).find_map(referenced);
        let schema = name.map(|name| &contract["components"]["schemas"][name]);
        schema.map(words).unwrap_or_default()
    })
}

fn referenced(schema: &Value) -> Option<&str> {
    schema["$ref"].as_str()?.rsplit('/').next()
}

/// Returns the description on one line.
fn words(described: &Value) -> String {
    on_one_line(described["description"].as_str().unwrap_or_default())
}

fn on_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns a row of a table. A cell has no line between two columns.
fn row(cells: &[&str]) -> String {
    let cells = cells.iter().map(|cell| cell.replace('|', "\\|"));
    format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "))
}

fn word(value: &Value) -> &str {
    value
        .as_str()
        .unwrap_or_else(|| panic!("{value} is no text"))
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn fields(value: &Value) -> Vec<(&str, &Value)> {
    let fields = value.as_object().into_iter().flatten();
    fields.map(|(name, value)| (name.as_str(), value)).collect()
}

#[test]
fn a_call_is_written_with_its_parameters_replies_and_codes() {
    let contract = serde_json::json!({
        "tags": [{"name": "numbers", "description": "Take numbers."}],
        "paths": {"/next/{name}": {"post": {
            "tags": ["numbers"], "summary": "Takes\none.", "operationId": "takeOne",
            "parameters": [
                {"name": "name", "in": "path", "required": true, "description": "Which.",
                 "schema": {"$ref": "#/components/schemas/Name"}},
                {"name": "n", "in": "query", "description": "How many. Without it, 1.",
                 "schema": {"type": "integer", "minimum": 1, "maximum": 9}},
            ],
            "responses": {
                "200": {"description": "Yours.", "content": {"application/json": {
                    "schema": {"$ref": "#/components/schemas/Taken"}}}},
                "409": {"description": "`lease_lost`, `internal`"},
            },
        }}},
        "components": {"schemas": {
            "Name": {"description": "A name.", "type": "string", "pattern": "^(a|b)$"},
            "Taken": {
                "description": "One.", "required": ["id"],
                "properties": {
                    "id": {"$ref": "#/components/schemas/Name"},
                    "left": {"type": ["integer", "null"], "description": "How | many."},
                },
            },
        }},
    });
    let shown = reference(&contract);
    let shown = shown.strip_prefix(BEGIN).expect("it begins like this");
    let expected = "
## Numbers

Take numbers.

### `POST /next/{name}`

Takes one.
Generated clients call it `takeOne`.

| Parameter | In | Type | Default | Meaning |
|---|---|---|---|---|
| `name` | path | [Name](#name) | required | Which. |
| `n` | query | whole number, 1 to 9 | 1 | How many. |

| Status | Reply |
|---|---|
| 200 | Yours. JSON: [Taken](#taken). |
| 409 | [`lease_lost`](errors.md#lease_lost) [`internal`](errors.md#internal) |

## Objects

Requests and replies are made of these objects and texts.

### Name

A name.

- Type: text
- Pattern: `^(a|b)$`

### Taken

One.

| Field | Type | Meaning |
|---|---|---|
| `id` | [Name](#name) | A name. |
| `left` | whole number or `null`; may be absent | How \\| many. |

[All pages](index.md)
";
    assert_eq!(shown, expected);
}
