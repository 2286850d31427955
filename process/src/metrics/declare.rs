//! Registers metrics with a recorder. No other file does so.

use ::metrics::{Counter, Gauge, Histogram, Key, Label, Level, Metadata, Recorder};

const METADATA: Metadata<'static> =
    Metadata::new(module_path!(), Level::INFO, Some(module_path!()));

/// Declares a group of metrics, each with its kind, its name and its labels. Groups that belong to
/// it follow after `with`.
///
/// The first paragraph above a metric is its help text, with which a scrape describes the metric.
/// If several metrics of a group share a name, the help text is that of the first one.
macro_rules! declare {
    (
        $(#[$of_group:meta])*
        pub struct $group:ident {
            $(
                $(#[doc = $doc:literal])+
                $metric:ident: $kind:ident = $name:literal $([$key:ident = $value:expr])?,
            )+
        }
        $(with {
            $($(#[$of_inner:meta])* $inner:ident: $inner_group:ident,)+
        })?
    ) => {
        $(#[$of_group])*
        pub struct $group {
            $($(#[doc = $doc])+ pub $metric: $kind,)+
            $($($(#[$of_inner])* pub $inner: $inner_group,)+)?
        }

        impl $group {
            /// Makes the handles, all of them with these labels.
            pub(crate) fn make(
                recorder: &dyn ::metrics::Recorder,
                labels: &[::metrics::Label],
            ) -> Self {
                Self {
                    $($metric: $crate::metrics::declare::make(
                        recorder,
                        $name,
                        &[$($doc),+],
                        &[labels, &[$(::metrics::Label::new(stringify!($key), $value))?]].concat(),
                    ),)+
                    $($($inner: $inner_group::make(recorder, labels),)+)?
                }
            }
        }
    };
}
pub(crate) use declare;

/// A kind of metric.
pub(crate) trait Metric {
    fn register(recorder: &dyn Recorder, key: &Key, help: String) -> Self;
}

impl Metric for Counter {
    fn register(recorder: &dyn Recorder, key: &Key, help: String) -> Self {
        recorder.describe_counter(key.name_shared(), None, help.into());
        recorder.register_counter(key, &METADATA)
    }
}

impl Metric for Gauge {
    fn register(recorder: &dyn Recorder, key: &Key, help: String) -> Self {
        recorder.describe_gauge(key.name_shared(), None, help.into());
        recorder.register_gauge(key, &METADATA)
    }
}

impl Metric for Histogram {
    fn register(recorder: &dyn Recorder, key: &Key, help: String) -> Self {
        recorder.describe_histogram(key.name_shared(), None, help.into());
        recorder.register_histogram(key, &METADATA)
    }
}

/// Makes one metric, with the first paragraph of `doc` as its help text.
pub(crate) fn make<M: Metric>(
    recorder: &dyn Recorder,
    name: &'static str,
    doc: &[&str],
    labels: &[Label],
) -> M {
    let lines = doc.iter().map(|line| line.trim());
    let paragraph: Vec<&str> = lines.take_while(|line| !line.is_empty()).collect();
    let key = Key::from_parts(name, labels.to_vec());
    M::register(recorder, &key, paragraph.join(" "))
}
