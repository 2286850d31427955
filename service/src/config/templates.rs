//! Reads `[default]` and `[[template]]`: what a sequence without a definition is created from.

use std::sync::Arc;

use figment::Figment;
use odometer_core::{
    definition::{Definition, DefinitionChange, DefinitionError, Order},
    glob::Glob,
    name::SequenceName,
    templates::{Template, TemplateRule, Templates},
};
use odometer_process::faults::{self, Fault};
use serde_json::{Map, Value};

use super::Unknown;
use super::error::ConfigError;
use super::fields::{self, NO_SECTION};
use super::layers::{name_in, name_of};
use super::stores::StoresConfig;

/// The keys of a template that are not fields of a definition.
const OWN_KEYS: [&str; 2] = ["match", "share"];

/// Fields that count. Text from the environment or a flag is read as their number. All other fields
/// take text.
const COUNTS: [&str; 9] = [
    "/step",
    "/declared_rate",
    "/limit/rate",
    "/limit/burst",
    "/block/min",
    "/block/max",
    "/layout/time",
    "/layout/worker",
    "/layout/sequence",
];

/// Reads `[default]` and all tables of `[[template]]` from the layers.
///
/// # Errors
/// The first key that cannot be used.
pub(crate) fn read(
    layers: &Figment,
    unknown: Unknown,
    stores: &StoresConfig,
) -> Result<Templates, ConfigError> {
    let default = default(layers, stores)?;
    let mut rules = Vec::new();
    for (index, section) in sections(layers)?.iter().enumerate() {
        let refused = |mut wrong: ConfigError| {
            if wrong.key != "match"
                && let Some(glob) = section.get("match").and_then(Value::as_str)
            {
                wrong.problem.push_str(&format!(" (its match is {glob:?})"));
            }
            let wrong = wrong.below(&format!("template[{index}]"));
            wrong.named(|key| name_in(layers, key, "template"))
        };
        rules.push(rule(section, &default, stores).map_err(refused)?);
    }
    if faults::is(Fault::LastTemplate) {
        rules.reverse();
    }
    let creates_others = unknown == Unknown::Create;
    Templates::new(rules, default, creates_others).map_err(|error| {
        let key = match error.place() {
            Some((index, field)) => format!("template[{index}].{field}"),
            None => "template".to_owned(),
        };
        ConfigError::new(name_in(layers, &key, "template"), error.to_string())
    })
}

/// Reads the definition of `[default]`.
fn default(layers: &Figment, stores: &StoresConfig) -> Result<Arc<Definition>, ConfigError> {
    let Ok(given) = layers.find_value("default") else {
        return Ok(Arc::default());
    };
    let refused = |wrong: ConfigError| wrong.below("default").named(|key| name_of(layers, key));
    let mut given: Value = given
        .deserialize()
        .map_err(|error| refused(ConfigError::new("", error.to_string())))?;
    for count in COUNTS {
        if let Some(value) = given.pointer_mut(count)
            && let Some(number) = value.as_str().and_then(|text| text.parse().ok())
        {
            *value = Value::Number(number);
        }
    }
    let Value::Object(section) = &given else {
        return Err(refused(ConfigError::new("", NO_SECTION)));
    };
    let change = fields::change(section, &[]).map_err(refused)?;
    created(&change, &Definition::default(), stores).map_err(refused)
}

/// Returns the tables of `[[template]]`, in their order.
fn sections(layers: &Figment) -> Result<Vec<Map<String, Value>>, ConfigError> {
    let Ok(given) = layers.find_value("template") else {
        return Ok(Vec::new());
    };
    let refused = || {
        ConfigError::new(
            name_of(layers, "template"),
            "give tables that begin with [[template]], in two brackets, in the configuration file; \
             each has a `match` and fields of a definition, or a `match` and a `share`",
        )
    };
    given.deserialize().map_err(|_| refused())
}

/// Reads the template of one table. A field that the table leaves out is as in `default`.
fn rule(
    section: &Map<String, Value>,
    default: &Definition,
    stores: &StoresConfig,
) -> Result<TemplateRule, ConfigError> {
    // Unknown keys are checked first: a writer of `mach` does not lack a `match`.
    let change = fields::change(section, &OWN_KEYS)?;
    let glob = match section.get("match") {
        Some(Value::String(glob)) => {
            Glob::parse(glob).map_err(|error| ConfigError::new("match", error.to_string()))?
        }
        Some(_) => return Err(ConfigError::new("match", "give a glob in quotation marks")),
        None => {
            let problem = "it is missing; give a glob over names, as in match = \"orders-*\"";
            return Err(ConfigError::new("match", problem));
        }
    };
    let template = match section.get("share") {
        Some(share) => Template::Share(shared(share, section)?),
        None => Template::Definition(created(&change, default, stores)?),
    };
    Ok(TemplateRule { glob, template })
}

/// Returns the sequence whose numbers a template shares.
fn shared(share: &Value, section: &Map<String, Value>) -> Result<SequenceName, ConfigError> {
    let mut fields = section.keys().map(String::as_str);
    if let Some(field) = fields.find(|field| !OWN_KEYS.contains(field)) {
        let problem = format!(
            "stands next to `{field}`, and a template has one or the other: give `share` alone, or \
             the fields of a definition"
        );
        return Err(ConfigError::new("share", problem));
    }
    let Some(name) = share.as_str() else {
        let problem = "give the name of a sequence in quotation marks";
        return Err(ConfigError::new("share", problem));
    };
    SequenceName::parse(name).map_err(|error| ConfigError::new("share", error.to_string()))
}

fn created(
    change: &DefinitionChange,
    template: &Definition,
    stores: &StoresConfig,
) -> Result<Arc<Definition>, ConfigError> {
    let created = change.create(template);
    let created = created
        .map_err(|error: DefinitionError| ConfigError::new(error.field(), error.to_string()))?;
    let Some(store) = stores.get(&created.store) else {
        let problem = format!(
            "there is no store \"{}\"; give one of {}, or a section [stores.{}]",
            created.store,
            stores.names(),
            created.store
        );
        return Err(ConfigError::new("store", problem));
    };
    if store.is_striped() && created.order == Order::Strict {
        let problem = format!(
            "the databases of the store \"{}\" share each sequence and keep no strict order; \
             leave it out, or give a store of one database",
            store.name
        );
        return Err(ConfigError::new("order", problem));
    }
    Ok(Arc::new(created))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use odometer_core::snowflake::{High, Layout};

    use super::super::tests::{File, of_default};
    use super::*;

    fn name(text: &str) -> SequenceName {
        SequenceName::parse(text).unwrap()
    }

    #[test]
    fn templates_are_read_in_their_order_and_lean_on_the_default() {
        let file = File::with(
            "unknown = \"reject\"\n\
             [default]\nstart = 100\n[default.block]\nhold = \"1h\"\n\
             [[template]]\nmatch = \"inv-*\"\nstep = 2\n\
             [[template]]\nmatch = \"*-small\"\nshare = \"misc\"\n\
             [[template]]\nmatch = \"inv*\"\nstart = \"7\"\nblock = { min = 5 }\n",
        );
        let templates = file.load().unwrap().templates;
        let of = |text: &str| templates.created_with(&name(text)).unwrap();
        let first = of("inv-1");
        assert_eq!((first.start, first.step), (100, 2));
        assert_eq!(of("inv-small").step, 2);
        let last = of("invoices");
        assert_eq!((last.start, last.step, last.block.min), (7, 1, 5));
        assert_eq!(last.block.hold.seconds(), 3600);
        assert_eq!(
            templates.of(&name("a-small")),
            Some(Template::Share(name("misc")))
        );
        assert_eq!(of("misc").start, 100);
        assert_eq!(templates.of(&name("other")), None);

        let open = file.load_with([("ODOMETER_UNKNOWN", "create")]).unwrap();
        let other = open.templates.created_with(&name("other")).unwrap();
        assert_eq!(other.start, 100);
    }

    #[test]
    fn templates_of_both_kinds_stand_beside_each_other() {
        let file = File::with(
            "[default]\nstart = 100\ndescription = \"all\"\n\
             [[template]]\nmatch = \"f-*\"\nkind = \"snowflake\"\nlayout = \"53-bit\"\n\
             [[template]]\nmatch = \"w-*\"\nkind = \"snowflake\"\n\
             layout = { high = \"worker\", worker = 5 }\n",
        );
        let templates = file.load().unwrap().templates;
        let of = |text: &str| templates.created_with(&name(text)).unwrap();
        assert_eq!(of("f-1").layout, Some(Layout::preset_53_bit()));
        assert_eq!(
            (of("f-1").start, of("f-1").description.as_str()),
            (1, "all")
        );
        let layout = of("w-1").layout.unwrap();
        assert_eq!(
            (layout.high, layout.worker, layout.time),
            (High::Worker, 5, 41)
        );
        assert_eq!((of("other").start, of("other").layout), (100, None));

        let given = [
            ("ODOMETER_DEFAULT__KIND", "snowflake"),
            ("ODOMETER_DEFAULT__LAYOUT__WORKER", "9"),
        ];
        let config = File::with("").load_with(given).unwrap();
        let layout = of_default(&config).layout.unwrap();
        assert_eq!((layout.worker, layout.sequence), (9, 12));
    }

    /// Each case: what follows `[[template]]`, the key that is named, and a part of the refusal.
    const REFUSED: [(&str, &str, &str); 24] = [
        ("start = 5", "template[0].match", "is missing"),
        ("match = 5", "template[0].match", "quotation marks"),
        ("match = \"\"", "template[0].match", "is empty"),
        ("match = \"a[\"", "template[0].match", "position 2"),
        ("match = \"a b\"", "template[0].match", "in no name"),
        ("mach = \"a*\"", "template[0].mach", "is `match` meant?"),
        (
            "match = \"a*\"\nstpe = 5",
            "template[0].stpe",
            "is `step` meant?",
        ),
        ("match = \"a*\"\nstpe = 5", "template[0].stpe", "\"a*\""),
        (
            "match = \"a*\"\nblock.mni = 5",
            "template[0].block.mni",
            "is `min` meant?",
        ),
        ("match = \"a*\"\nstep = 0", "template[0].step", "must be"),
        (
            "match = \"a*\"\nstep = \"x\"",
            "template[0].step",
            "must be",
        ),
        (
            "match = \"a*\"\nkind = \"flake\"",
            "template[0].kind",
            "\"block\"",
        ),
        (
            "match = \"a*\"\nshare = \"x y\"",
            "template[0].share",
            "' '",
        ),
        (
            "match = \"a*\"\nshare = 5",
            "template[0].share",
            "quotation marks",
        ),
        (
            "match = \"a*\"\nshare = \"m\"\nstep = 1",
            "template[0].share",
            "`step`",
        ),
        (
            "match = \"a*\"\n[[template]]\nmatch = \"b*\"\n[[template]]\nmatch = \"a*\"",
            "template[2].match",
            "template[0]",
        ),
        (
            "match = \"a*\"\nshare = \"b\"\n[[template]]\nmatch = \"b*\"\nshare = \"c\"",
            "template[0].share",
            "template[1]",
        ),
        (
            "match = \"a*\"\n[[template]]\nmatch = \"b\"\nmax = 0",
            "template[1].start",
            "must be",
        ),
        (
            "match = \"a*\"\ndescription = 2026-01-01",
            "template[0].description",
            "a string",
        ),
        (
            "match = \"a*\"\nblock = 5",
            "template[0].block",
            "an object",
        ),
        (
            "match = \"a*\"\nkind = \"snowflake\"\nlayout = { tme = 41 }",
            "template[0].layout.tme",
            "is `time` meant?",
        ),
        (
            "match = \"a*\"\nkind = \"snowflake\"\nlayout = { time = 60 }",
            "template[0].layout",
            "63 bits at most",
        ),
        (
            "match = \"a*\"\nkind = \"snowflake\"\nstep = 2",
            "template[0].step",
            "must be left out",
        ),
        (
            "match = \"a*\"\nlayout = \"53-bit\"",
            "template[0].layout",
            "is for `kind` \"snowflake\"",
        ),
    ];

    #[test]
    fn a_template_that_cannot_be_used_is_named_with_the_mend() {
        for (content, key, mend) in REFUSED {
            let sentence = File::with(&format!("[[template]]\n{content}\n")).refusal();
            let named = format!("configuration: {key} in ");
            assert!(sentence.starts_with(&named), "{content}: {sentence}");
            assert!(sentence.contains("odometer.toml"), "{content}: {sentence}");
            assert!(sentence.contains(mend), "{content}: {sentence}");
            assert_eq!(sentence.lines().count(), 1, "{sentence}");
        }
    }

    #[test]
    fn templates_are_tables_of_the_file() {
        for content in [
            "[template]\nmatch = \"a\"",
            "template = 5",
            "template = [5]",
        ] {
            let sentence = File::with(content).refusal();
            assert!(sentence.contains("[[template]]"), "{content}: {sentence}");
        }
        for variable in ["ODOMETER_TEMPLATE", "ODOMETER_TEMPLATE__0__MATCH"] {
            let refused = File::with("").load_with([(variable, "a*")]);
            let sentence = refused.unwrap_err().to_string();
            assert!(sentence.contains("[[template]]"), "{sentence}");
            assert!(sentence.contains("ODOMETER_TEMPLATE"), "{sentence}");
        }
    }
}
