//! Logs who changed what: one line for each change of a sequence that was made.

use std::sync::Arc;

use odometer_core::{block::Block, definition::Definition, name::SequenceName, period::CounterKey};
use odometer_process::log::AUDIT;
use odometer_store::{Act, Altered, ReleasedWorkers, Snapshot};
use serde_json::{Map, Value};

/// What a release of worker ids is called.
const RELEASE: &str = "release-workers";

/// Who asks for a change, as far as that can be known. A token is never part of this.
#[derive(Clone, Debug)]
pub struct Author {
    /// The name of a caller, `anonymous` for one without a token, `administrator` for a caller who
    /// showed the administrator's token, or `loopback` for a caller who needs none.
    pub who: Arc<str>,
    /// By what the caller is known: `token`, `certificate` or `nothing`; `None` if nobody called.
    pub how: Option<&'static str>,
    /// The role of the caller; `None` for an administrator.
    pub role: Option<Arc<str>>,
    /// The address at the other end of the connection.
    pub peer: String,
    /// The origin of the call, as proxies reported it. Any caller can invent this value.
    pub forwarded_for: Option<String>,
    pub request_id: String,
}

/// Logs a line with what is known of its author. The subject says what the line is about, and the
/// other fields come with the text.
macro_rules! audit {
    ($log:ident, $author:expr, $what:expr, { $($subject:tt)* }, $($rest:tt)+) => {{
        let author: &Author = $author;
        tracing::$log!(
            target: AUDIT,
            $($subject)*
            request_id = author.request_id,
            what = $what,
            who = &*author.who,
            how = author.how,
            role = author.role.as_deref(),
            peer = author.peer,
            forwarded_for = author.forwarded_for,
            $($rest)+
        );
    }};
}

/// Logs a change that was made.
pub fn note(author: &Author, name: &SequenceName, act: &Act, altered: &Altered) {
    if !altered.is_written {
        return;
    }
    let (before, after) = difference(altered);
    let what = what(act, altered.before.is_none());
    audit!(
        info, author, what,
        { sequence = name.as_str(), period = act.period().shown(), },
        before, after, version = altered.after.version, "a sequence was changed"
    );
}

/// Logs a change whose outcome is unknown.
pub fn note_uncertain(author: &Author, name: &SequenceName, act: &Act) {
    audit!(
        warn, author, what(act, false),
        { sequence = name.as_str(), period = act.period().shown(), },
        "a sequence may have been changed: the database has not said"
    );
}

/// Logs a release of worker ids: what it did, and that it may have done more.
pub(crate) fn note_release(
    author: &Author,
    pool: &SequenceName,
    worker: Option<u32>,
    released: &ReleasedWorkers,
) {
    if released.n_leases > 0 {
        audit!(
            info, author, RELEASE,
            { pool = pool.as_str(), worker, n_leases = released.n_leases, },
            "worker ids were released"
        );
    }
    if released.may_be_more {
        audit!(
            warn, author, RELEASE,
            { pool = pool.as_str(), worker, },
            "more worker ids may have been released: the database has not said"
        );
    }
}

/// What a caller takes that nobody had before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Taking {
    /// A sequence, or a key of it, that nobody has used.
    FirstUse,
    /// A block, to count by itself.
    Block,
}

impl Taking {
    fn word(self) -> &'static str {
        match self {
            Self::FirstUse => "first-use",
            Self::Block => "reserve-block",
        }
    }
}

/// Logs that a caller took what nobody had before, with the block if it took one.
pub fn note_taking(author: &Author, counter: &CounterKey, what: Taking, block: Option<&Block>) {
    audit!(
        info, author, what.word(),
        { sequence = counter.sequence.as_str(), period = counter.period.shown(), },
        first = block.map(Block::first), last = block.map(Block::last),
        "a caller took what nobody had before"
    );
}

/// Logs that a caller may have taken what nobody had before: it did not wait for the reply, or its
/// time was over.
pub fn note_taking_uncertain(author: &Author, counter: &CounterKey, what: Taking) {
    audit!(
        warn, author, what.word(),
        { sequence = counter.sequence.as_str(), period = counter.period.shown(), },
        "a caller may have taken what nobody had before: the outcome of the call is not known"
    );
}

/// Logs that a caller leased the first worker id of a pool.
pub fn note_new_pool(author: &Author, pool: &SequenceName) {
    audit!(
        info, author, "new-pool",
        { pool = pool.as_str(), },
        "a caller leased the first worker id of a pool"
    );
}

fn what(act: &Act, creates: bool) -> &'static str {
    match act {
        Act::Define { .. } if creates => "create",
        Act::Define { .. } => "define",
        Act::Advance { .. } => "advance",
        Act::Retire => "retire",
        Act::Restore => "restore",
        Act::RemovePeriod { .. } => "remove-period",
    }
}

/// Returns the fields that changed, as JSON before and after the change.
fn difference(altered: &Altered) -> (Option<String>, String) {
    let mut after = fields(&altered.after);
    let Some(before) = &altered.before else {
        return (None, Value::Object(after).to_string());
    };
    let mut before = fields(before);
    before.retain(|field, value| {
        let changed = after.get(field) != Some(value);
        if !changed {
            after.remove(field);
        }
        changed
    });
    let before = Value::Object(before).to_string();
    (Some(before), Value::Object(after).to_string())
}

fn fields(snapshot: &Snapshot) -> Map<String, Value> {
    let definition: &Definition = &snapshot.definition;
    let mut fields = match serde_json::to_value(definition) {
        Ok(Value::Object(fields)) => fields,
        // Only values with keys that are not strings cannot be written, and there are none.
        Ok(_) | Err(_) => Map::new(),
    };
    let state = if snapshot.is_live { "live" } else { "retired" };
    fields.insert("state".to_owned(), state.into());
    if snapshot.is_removed {
        fields.insert("removed".to_owned(), true.into());
    }
    fields.insert("floor".to_owned(), snapshot.floor.to_string().into());
    let high_water_mark = snapshot.next_value.to_string();
    fields.insert("high_water_mark".to_owned(), high_water_mark.into());
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(description: &str, floor: i64) -> Snapshot {
        Snapshot {
            is_live: true,
            definition: Arc::new(Definition {
                description: description.to_owned(),
                ..Definition::default()
            }),
            version: 1,
            period: odometer_core::period::Period::none(),
            is_removed: false,
            floor,
            next_value: 9,
            rate: 0.5,
        }
    }

    #[test]
    fn only_what_is_not_as_it_was_is_told() {
        let altered = Altered {
            before: Some(snapshot("old", 1)),
            after: snapshot("new", 5),
            is_written: true,
        };
        let expected = (
            Some(r#"{"description":"old","floor":"1"}"#.to_owned()),
            r#"{"description":"new","floor":"5"}"#.to_owned(),
        );
        assert_eq!(difference(&altered), expected);
    }

    #[test]
    fn a_new_sequence_is_told_whole() {
        let (before, after) = difference(&Altered {
            before: None,
            after: snapshot("new", 1),
            is_written: true,
        });
        assert_eq!(before, None);
        assert!(after.contains("\"max\":") && after.contains("\"state\":\"live\""));
    }
}
