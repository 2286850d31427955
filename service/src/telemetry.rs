//! Writes the log to standard error: as text for a terminal, otherwise as one JSON object a line.

use std::fmt::{self, Write as _};
use std::io::{self, IsTerminal, Write as _};
use std::panic::PanicHookInfo;

use jiff::Timestamp;
use odometer_process::log::{ALWAYS, AUDIT};
use serde_json::Value;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::{LogConfig, LogFormat};
#[cfg(feature = "otlp")]
use crate::otlp::Export;

/// The levels at which libraries may log, unless the configuration asks for more.
///
/// A line for each statement at `info` would drown the log. actix reports about its workers what
/// this program reports about itself. It also logs each malformed request, of which this program
/// logs a summary. The connection pool may quote the database, and the parser of URLs may quote the
/// URL.
const LIBRARIES: &str = "sqlx=warn,sqlx::postgres::notice=off,sqlx_core::pool=off,\
     sqlx_postgres::options=off,sqlx_mysql::options=off,sea_orm=warn,sea_orm_migration=warn,actix_server=warn,\
     actix_http=off";

/// The fields that come right after the message, in this order.
const FIRST: [&str; 5] = ["sequence", "period", "error", "request_id", "trace_id"];

/// The fields of a change that hold JSON as text.
const JSON: [&str; 2] = ["before", "after"];

/// The names that each line of JSON uses itself. A field with such a name gets an underscore.
const TAKEN: [&str; 4] = ["time", "level", "message", "target"];

/// Keeps the export of spans going until it is dropped.
#[must_use]
pub struct Exporting {
    #[cfg(feature = "otlp")]
    _export: Option<Export>,
}

/// Starts logging, and logs panics as events. If the build has the feature `otlp`, spans go to the
/// collector at `endpoint`.
///
/// # Errors
/// A sentence, if the level is not valid, spans cannot be exported, or the process already logs.
pub fn init(log: &LogConfig, endpoint: Option<&str>) -> Result<Exporting, String> {
    let terminal = io::stderr().is_terminal();
    let json = match log.format {
        LogFormat::Auto => !terminal,
        LogFormat::Text => false,
        LogFormat::Json => true,
    };
    let registry = tracing_subscriber::registry().with(filter(&log.level)?);
    #[cfg(not(feature = "otlp"))]
    let (exporting, _) = (Exporting {}, endpoint);
    #[cfg(feature = "otlp")]
    let exporting = Exporting {
        _export: endpoint.map(Export::to).transpose()?,
    };
    #[cfg(feature = "otlp")]
    let registry = registry.with(exporting._export.as_ref().map(Export::layer));
    let started = if json {
        registry.with(Json { writer: io::stderr }).try_init()
    } else {
        let text = tracing_subscriber::fmt::layer()
            .with_writer(io::stderr)
            .with_target(false);
        // On a terminal the library's default stays, which follows NO_COLOR.
        let text = if terminal {
            text
        } else {
            text.with_ansi(false)
        };
        registry.with(text).try_init()
    };
    started.map_err(|error| format!("logging cannot start: {error}"))?;
    std::panic::set_hook(Box::new(log_panic));
    Ok(exporting)
}

/// Returns the filter for `level`, which may be a level or a list of `target=level`.
///
/// # Errors
/// A sentence, if the list cannot be read.
fn filter(level: &str) -> Result<EnvFilter, String> {
    EnvFilter::try_new(format!("{LIBRARIES},{level},{ALWAYS}=info,{AUDIT}=info"))
        .map_err(|error| format!("the log's level {level:?}: {error}"))
}

fn log_panic(panic: &PanicHookInfo<'_>) {
    let message = panic.payload_as_str().unwrap_or("no message");
    let location = panic.location().map(ToString::to_string);
    tracing::error!(location, "A thread panicked: {message}");
}

/// Writes each event as one line of JSON, with the fields of the event's spans.
struct Json<W> {
    writer: W,
}

impl<S, W> Layer<S> for Json<W>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'a> MakeWriter<'a> + 'static,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if let Some(span) = context.span(id) {
            let mut fields = LogFields::default();
            attributes.record(&mut fields);
            span.extensions_mut().insert(fields);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(fields) = span.extensions_mut().get_mut::<LogFields>()
        {
            values.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = LogFields::default();
        for span in context
            .event_scope(event)
            .into_iter()
            .flat_map(|scope| scope.from_root())
        {
            if let Some(of_span) = span.extensions().get::<LogFields>() {
                for (name, value) in &of_span.named {
                    fields.set(name, value.clone());
                }
            }
        }
        event.record(&mut fields);
        let metadata = event.metadata();
        if metadata.target() == AUDIT {
            fields.read_json();
        }
        let line = fields.line(Timestamp::now(), metadata.level(), metadata.target());
        // If standard error cannot be written to, there is no other place to report that.
        let _ = self.writer.make_writer().write_all(line.as_bytes());
    }
}

/// The fields of one event or span, in the order in which they were given.
#[derive(Default)]
struct LogFields {
    message: String,
    named: Vec<(&'static str, Value)>,
}

impl LogFields {
    /// Sets a field. A later value replaces an earlier one, so the innermost value of a name
    /// counts.
    fn set(&mut self, name: &'static str, value: Value) {
        match self.named.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = value,
            None => self.named.push((name, value)),
        }
    }

    /// Turns the texts of the fields in [`JSON`] into JSON values, if the texts are JSON.
    fn read_json(&mut self) {
        let json = self
            .named
            .iter_mut()
            .filter(|(name, _)| JSON.contains(name));
        for (_, value) in json {
            let read = value
                .as_str()
                .and_then(|text| serde_json::from_str(text).ok());
            if let Some(read) = read {
                *value = read;
            }
        }
    }

    fn line(&self, time: Timestamp, level: &tracing::Level, target: &str) -> String {
        let mut line = String::with_capacity(256);
        // Writing to a string does not fail.
        let _ = write!(
            line,
            r#"{{"time":"{time:.6}","level":"{level}","message":{}"#,
            Value::from(self.message.as_str())
        );
        let first = FIRST
            .iter()
            .filter_map(|wanted| self.named.iter().find(|(name, _)| name == wanted));
        let others = self.named.iter().filter(|(name, _)| !FIRST.contains(name));
        for (name, value) in first.chain(others) {
            let underscore = if TAKEN.contains(name) { "_" } else { "" };
            let _ = write!(
                line,
                ",{}:{value}",
                Value::from(format!("{name}{underscore}"))
            );
        }
        let _ = writeln!(line, r#","target":{}}}"#, Value::from(target));
        line
    }
}

impl Visit for LogFields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.message = format!("{value:?}");
        } else {
            self.set(field.name(), Value::from(format!("{value:?}")));
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            value.clone_into(&mut self.message);
        } else {
            self.set(field.name(), Value::from(value));
        }
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field.name(), Value::from(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field.name(), Value::from(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field.name(), Value::from(value));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.set(field.name(), Value::from(value));
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        let mut sentence = value.to_string();
        let mut cause = value.source();
        while let Some(error) = cause {
            let _ = write!(sentence, ": {error}");
            cause = error.source();
        }
        self.set(field.name(), Value::from(sentence));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests may fail loudly")]

    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(level: &str, log: impl FnOnce()) -> String {
        let kept = Kept::default();
        let writer = kept.clone();
        let subscriber = tracing_subscriber::registry()
            .with(filter(level).unwrap())
            .with(Json {
                writer: move || writer.clone(),
            });
        tracing::subscriber::with_default(subscriber, log);
        let bytes = kept.0.lock().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn an_event_is_one_line_of_json_with_the_named_fields() {
        let line = logged("info", || {
            tracing::warn!(
                rows = 3,
                request_id = "r-1",
                error = %"the \"cause\"\nin two lines",
                sequence = %"orders",
                period = "202611",
                exact = true,
                "Nothing was reserved"
            );
        });
        assert_eq!(line.lines().count(), 1, "{line}");
        let (time, rest) = line
            .strip_prefix(r#"{"time":""#)
            .and_then(|rest| rest.split_once('"'))
            .unwrap();
        time.parse::<Timestamp>().unwrap();
        assert!(time.ends_with('Z'), "{time}");
        assert_eq!(
            rest,
            concat!(
                r#","level":"WARN","message":"Nothing was reserved","sequence":"orders","#,
                r#""period":"202611","error":"the \"cause\"\nin two lines","request_id":"r-1","#,
                r#""rows":3,"exact":true,"target":"odometer::telemetry::tests"}"#,
                "\n"
            )
        );
        serde_json::from_str::<Value>(&line).unwrap();
    }

    #[test]
    fn fields_of_spans_are_flat_and_the_innermost_counts() {
        let line = logged("info", || {
            let outer = tracing::info_span!("request", request_id = "r-1", sequence = "outer");
            let _outer = outer.enter();
            let inner = tracing::info_span!("refill", sequence = tracing::field::Empty, level = 7);
            inner.record("sequence", "inner");
            let _inner = inner.enter();
            tracing::info!("Reserved");
        });
        let line: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(line["sequence"], "inner");
        assert_eq!(line["request_id"], "r-1");
        assert_eq!(line["level"], "INFO");
        assert_eq!(line["level_"], 7);
    }

    #[test]
    fn an_error_is_told_with_its_causes() {
        let cause = io::Error::other(crate::config::ConfigError::new("a.b", "is wrong"));
        let line = logged("info", || {
            tracing::error!(error = &cause as &dyn std::error::Error, "Failed");
        });
        let line: Value = serde_json::from_str(&line).unwrap();
        assert!(line["error"].as_str().unwrap().contains("a.b: is wrong"));
    }

    #[test]
    fn libraries_are_silent_unless_asked_and_levels_hold() {
        let statement = || {
            tracing::info!(target: "sqlx::query", "SELECT 1");
            tracing::info!(target: "sea_orm::database", "SELECT 1");
            tracing::debug!("too fine");
        };
        assert_eq!(logged("info", statement), "");
        assert_eq!(logged("info,sqlx=info", statement).lines().count(), 1);
        assert_eq!(logged("debug", statement).lines().count(), 1);
    }

    #[test]
    fn what_is_always_logged_is_logged_at_any_level() {
        for level in ["off", "error", "warn,odometer=error"] {
            let lines = logged(level, || {
                tracing::info!(target: ALWAYS, "Listening");
                tracing::info!("Something else");
            });
            assert_eq!(lines.lines().count(), 1, "{level}: {lines}");
        }
    }
}
