//! Builds the description of the API, OpenAPI 3.1.
//!
//! The description comes from the routes' own annotations, the warm path included. One table adds
//! how each call can be refused.

use actix_web::web::Bytes;
use utoipa::OpenApi as _;
use utoipa::openapi::path::Operation;
use utoipa::openapi::schema::{SchemaType, Type};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{OpenApi, PathItem, RefOr, Required, Schema};

use super::payload::values;
use super::{explain, health, lifecycle, me, numbers, printed, replica, sequences, workers};

mod refusals;
mod rights;

/// The description of the token that a call may carry.
const TOKEN: &str = "The token of a caller, or the administrator's token. If the service has roles, \
    `x-odometer-right` names the right that the role of the caller needs. Without roles, only \
    calls with the right `define` need the administrator's token; a service on loopback may work \
    without it.";

/// The description of the certificate that a connection may carry.
const CERTIFICATE: &str = "The client certificate of a caller, if the service has roles and asks for \
    certificates. A token counts instead of the certificate.";

/// Calls whose body may be left out.
///
/// utoipa marks only an `Option` as a body that may be left out. It then describes a body that may
/// be `null`, which the service refuses.
const BODY_OPTIONAL: [&str; 2] = ["renewWorker", "returnWorker"];

#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "Odometer",
        description = "Numbers that never repeat: sequences, unique ids and worker ids. Only a 200 \
            gives you a number. If you get no reply, a number may have been used up. Retry, and \
            you get a different one.\n\n\
            Every refusal is a `Problem` (RFC 9457). Its `code` says what went wrong.\n\n\
            Every call takes an `X-Request-Id`, which its reply repeats, and the `traceparent` of \
            W3C Trace Context.",
    ),
    paths(
        numbers::next,
        numbers::blocks,
        printed::parse,
        sequences::list,
        sequences::read,
        sequences::define,
        lifecycle::advance,
        lifecycle::retire,
        lifecycle::restore,
        lifecycle::remove_period,
        explain::explain,
        workers::lease,
        workers::renew,
        workers::give_back,
        workers::list,
        workers::release_pool,
        me::me,
        replica::replica,
        replica::list,
        replica::watch,
        health::livez,
        health::readyz,
        health::metrics,
        health::openapi,
    ),
    // utoipa finds the types of bodies by itself, but not the types of headers and parameters.
    components(schemas(
        values::AnyVersion,
        values::EntityTag,
        values::LiveSort,
        values::TraceContext
    )),
    tags(
        (name = "numbers", description = "Take numbers, and read printed ids back."),
        (name = "sequences", description = "Define sequences, look at them and change them."),
        (name = "workers", description = "Lease worker ids for a snowflake library of your own."),
        (name = "operation", description = "Watch replicas."),
    ),
)]
struct Description;

/// Returns the whole description, as it is served.
///
/// # Errors
/// The description cannot be written as JSON.
pub(crate) fn document() -> Result<Bytes, serde_json::Error> {
    serde_json::to_vec(&description()).map(Bytes::from)
}

fn description() -> OpenApi {
    let mut api = Description::openapi();
    api.info.version = env!("CARGO_PKG_VERSION").to_owned();
    let components = api.components.get_or_insert_default();
    components
        .schemas
        .insert("Problem".to_owned(), refusals::problem_schema());
    let bearer = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .description(Some(TOKEN))
        .build();
    components.add_security_scheme(rights::BEARER, SecurityScheme::Http(bearer));
    let certificate = SecurityScheme::MutualTls {
        description: Some(CERTIFICATE.to_owned()),
        deprecated: None,
        extensions: None,
    };
    components.add_security_scheme(rights::MUTUAL_TLS, certificate);
    for schema in components.schemas.values_mut() {
        require_nullable(schema);
    }
    for item in api.paths.paths.values_mut() {
        for operation in operations(item) {
            refusals::add(operation);
            rights::add(operation);
            let id = operation.operation_id.as_deref().unwrap_or_default();
            if let Some(RefOr::T(body)) = &mut operation.request_body
                && BODY_OPTIONAL.contains(&id)
            {
                body.required = Some(Required::False);
            }
        }
    }
    api
}

/// Says that a reply always has the fields that may be null.
///
/// utoipa takes each `Option` for a field that may be absent. Schemas that take no other fields
/// belong to requests, and stay as they are.
fn require_nullable(schema: &mut RefOr<Schema>) {
    let RefOr::T(Schema::Object(object)) = schema else {
        return;
    };
    if object.additional_properties.is_some() {
        return;
    }
    for (name, property) in &object.properties {
        if is_nullable(property) && !object.required.contains(name) {
            object.required.push(name.clone());
        }
    }
}

fn is_nullable(schema: &RefOr<Schema>) -> bool {
    let is_null = |schema_type: &SchemaType| match schema_type {
        SchemaType::Type(one) => *one == Type::Null,
        SchemaType::Array(several) => several.contains(&Type::Null),
        SchemaType::AnyValue => false,
    };
    match schema {
        RefOr::T(Schema::Object(object)) => is_null(&object.schema_type),
        RefOr::T(Schema::OneOf(choices)) => choices.items.iter().any(is_nullable),
        RefOr::T(_) | RefOr::Ref(_) => false,
    }
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    let methods = [
        &mut item.get,
        &mut item.post,
        &mut item.put,
        &mut item.delete,
    ];
    methods.into_iter().flatten()
}

#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]
mod tests {
    use std::collections::BTreeSet;

    use odometer_core::name::SequenceName;
    use odometer_core::snowflake::{High, Layout, LayoutUnit};
    use odometer_core::{
        definition::{Definition, Kind, Order},
        format::Overflow,
        period::PeriodKind,
    };
    use serde::de::DeserializeOwned;
    use serde_json::Value;

    use super::*;

    fn served() -> Value {
        serde_json::from_slice(&document().unwrap()).unwrap()
    }

    fn keys(value: &Value) -> BTreeSet<&str> {
        value
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect()
    }

    #[test]
    fn it_is_openapi_3_1_and_holds_every_route() {
        let served = served();
        assert_eq!(served["openapi"], "3.1.0");
        let expected = [
            "/livez",
            "/metrics",
            "/openapi.json",
            "/readyz",
            "/v1/me",
            "/v1/replica",
            "/v1/replica/sequences",
            "/v1/replica/sequences/{name}",
            "/v1/sequences",
            "/v1/sequences/{name}",
            "/v1/sequences/{name}/advance",
            "/v1/sequences/{name}/blocks",
            "/v1/sequences/{name}/explain",
            "/v1/sequences/{name}/next",
            "/v1/sequences/{name}/parse",
            "/v1/sequences/{name}/periods/{key}",
            "/v1/sequences/{name}/restore",
            "/v1/workers",
            "/v1/workers/{pool}",
            "/v1/workers/{pool}/{worker}",
            "/v1/workers/{pool}/{worker}/renew",
        ];
        assert_eq!(keys(&served["paths"]), BTreeSet::from(expected));
    }

    #[test]
    fn the_fields_of_a_definition_are_those_it_is_written_with() {
        let served = served();
        let schemas = &served["components"]["schemas"];
        let time_ordered = Definition {
            layout: Some(Layout::default()),
            ..Definition::default()
        };
        let written = serde_json::to_value(time_ordered).unwrap();
        for (shown, changed, written) in [
            ("Definition", "DefinitionChange", &written),
            ("Layout", "LayoutChange", &written["layout"]),
            ("BlockPolicy", "BlockPolicyChange", &written["block"]),
        ] {
            assert_eq!(keys(&schemas[shown]["properties"]), keys(written));
            let mut taken = keys(&schemas[changed]["properties"]);
            // `confirm` is said with a change, and not kept.
            assert_eq!(taken.remove("confirm"), changed == "DefinitionChange");
            assert_eq!(taken, keys(written));
            assert_eq!(schemas[changed]["required"], Value::Null);
        }
    }

    #[test]
    fn every_operation_has_a_name_of_its_own() {
        let served = served();
        let mut names = BTreeSet::new();
        for item in served["paths"].as_object().unwrap().values() {
            for operation in item.as_object().unwrap().values() {
                let name = operation["operationId"].as_str().unwrap();
                let is_verb_and_noun = name.starts_with(|c: char| c.is_ascii_lowercase())
                    && name.contains(|c: char| c.is_ascii_uppercase())
                    && name.chars().all(|c| c.is_ascii_alphabetic());
                assert!(is_verb_and_noun, "{name}");
                assert!(names.insert(name), "twice: {name}");
            }
        }
        assert_eq!(names.len(), 24, "{names:?}");
        for id in BODY_OPTIONAL {
            assert!(names.contains(id), "{id}");
        }
    }

    #[test]
    fn a_field_that_may_be_null_is_in_each_reply_and_in_no_request_by_force() {
        let served = served();
        let schemas = &served["components"]["schemas"];
        let required = |name: &str| -> BTreeSet<&str> {
            let fields = schemas[name]["required"].as_array().into_iter().flatten();
            fields.filter_map(Value::as_str).collect()
        };
        let state = keys(&schemas["SequenceState"]["properties"]);
        assert_eq!(required("SequenceState"), state);
        let batch = BTreeSet::from(["count", "period", "ranges", "sequence"]);
        assert_eq!(required("IssuedBatch"), batch);
        assert_eq!(required("AdvanceRequest"), BTreeSet::from(["floor"]));
    }

    #[test]
    fn no_call_offers_a_header_that_is_always_refused() {
        let text = served().to_string().to_lowercase();
        assert!(!text.contains("idempotency"));
    }

    #[test]
    fn every_field_and_every_parameter_is_described() {
        let served = served();
        let schemas = &served["components"]["schemas"];
        let is_told = |value: &Value| {
            let is_reference = value["$ref"].is_string();
            is_reference
                || value["description"]
                    .as_str()
                    .is_some_and(|told| !told.is_empty())
        };
        for (name, schema) in schemas.as_object().unwrap() {
            assert!(is_told(schema), "{name}");
            for (field, property) in schema["properties"].as_object().into_iter().flatten() {
                let is_nullable_reference = property["oneOf"]
                    .as_array()
                    .is_some_and(|choices| choices.iter().any(|one| one["$ref"].is_string()));
                assert!(
                    is_told(property) || is_nullable_reference,
                    "{name}.{field}: {property}"
                );
            }
        }
        for (path, item) in served["paths"].as_object().unwrap() {
            for operation in item.as_object().unwrap().values() {
                for parameter in operation["parameters"].as_array().into_iter().flatten() {
                    assert!(is_told(parameter), "{path}: {parameter}");
                }
            }
        }
    }

    /// Texts for people, and texts whose shape other programs decide.
    const FREE_TEXTS: [&str; 13] = [
        "Allow",
        "WWW-Authenticate",
        "database",
        "description",
        "detail",
        "holder",
        "server",
        "text/plain",
        "title",
        "traceparent",
        "version",
        "warnings",
        "why",
    ];

    /// Collects the names of the texts in `value` without a rule for their characters.
    fn shapeless<'a>(value: &'a Value, name: &'a str, found: &mut BTreeSet<&'a str>) {
        let is_text = value["type"] == "string"
            || value["type"]
                .as_array()
                .is_some_and(|types| types.iter().any(|one| one == "string"));
        let has_shape = ["pattern", "enum", "format", "const"]
            .iter()
            .any(|says| !value[says].is_null());
        if is_text && !has_shape {
            found.insert(name);
        }
        // These keys name a place in a schema, not the thing that the schema describes.
        let is_inner = |key: &str| matches!(key, "schema" | "items" | "properties" | "headers");
        for (key, inner) in value.as_object().into_iter().flatten() {
            let name = if is_inner(key) { name } else { key };
            shapeless(inner, name, found);
        }
        for inner in value.as_array().into_iter().flatten() {
            let name = inner["name"].as_str().unwrap_or(name);
            shapeless(inner, name, found);
        }
    }

    #[test]
    fn every_text_has_a_shape_or_is_free() {
        let served = served();
        let mut found = BTreeSet::new();
        shapeless(&served["components"], "components", &mut found);
        shapeless(&served["paths"], "paths", &mut found);
        assert_eq!(found, BTreeSet::from(FREE_TEXTS));
    }

    /// Returns the words that a type of the program is read from, as serde lists them.
    fn words<T: DeserializeOwned + std::fmt::Debug>() -> BTreeSet<String> {
        let error = serde_json::from_str::<T>("\"?\"").unwrap_err().to_string();
        let (_, words) = error.split_once("expected").unwrap();
        let words = words.split('`').skip(1).step_by(2);
        words.map(ToOwned::to_owned).collect()
    }

    #[test]
    fn the_choices_are_those_of_the_program() {
        let served = served();
        let schemas = &served["components"]["schemas"];
        for (name, words) in [
            ("SequenceKind", words::<Kind>()),
            ("SequenceOrder", words::<Order>()),
            ("PeriodKind", words::<PeriodKind>()),
            ("Overflow", words::<Overflow>()),
            ("LayoutHigh", words::<High>()),
            ("LayoutUnit", words::<LayoutUnit>()),
        ] {
            let described = schemas[name]["enum"].as_array().unwrap().iter();
            let described: BTreeSet<String> = described
                .map(|word| word.as_str().unwrap().to_owned())
                .collect();
            assert!(words.len() >= 2, "vacuous: {name}");
            assert_eq!(described, words, "{name}");
        }
        let longest = &schemas["SequenceName"]["maxLength"];
        assert_eq!(*longest, SequenceName::MAX_LENGTH);
    }

    #[test]
    fn every_reference_leads_somewhere() {
        fn references<'a>(value: &'a Value, found: &mut BTreeSet<&'a str>) {
            match value {
                Value::Object(fields) => {
                    found.extend(fields.get("$ref").and_then(Value::as_str));
                    fields.values().for_each(|value| references(value, found));
                }
                Value::Array(items) => items.iter().for_each(|item| references(item, found)),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
            }
        }
        let served = served();
        let mut found = BTreeSet::new();
        references(&served, &mut found);
        assert!(found.contains("#/components/schemas/Problem"));
        for reference in found {
            let pointer = reference.strip_prefix('#').unwrap();
            assert!(served.pointer(pointer).is_some(), "{reference}");
        }
    }

    #[test]
    fn every_operation_says_that_a_chunked_body_can_be_refused() {
        let served = served();
        for (path, item) in served["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                for (status, code) in [("400", "invalid_body"), ("413", "body_too_large")] {
                    let codes = operation["responses"][status]["description"].as_str();
                    assert!(
                        codes.is_some_and(|codes| codes.contains(code)),
                        "{method} {path}: {codes:?}"
                    );
                }
                let is_probe = matches!(path.as_str(), "/livez" | "/readyz");
                let is_forbidden = operation["responses"]["403"].is_object();
                assert_eq!(is_forbidden, !is_probe, "{method} {path}");
            }
        }
    }

    #[test]
    fn a_refusal_names_its_codes() {
        let served = served();
        let responses = &served["paths"]["/v1/sequences/{name}/next"]["post"]["responses"];
        let gone = responses["410"]["description"].as_str().unwrap();
        assert_eq!(gone, "`sequence_retired`, `period_removed`");
        assert!(responses["503"]["headers"]["Retry-After"].is_object());
    }
}
