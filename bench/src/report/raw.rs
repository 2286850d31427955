//! A run as it is kept: every reading, where and of what they were made.

use std::{fs, path::Path, process::Command};

use jiff::Timestamp;
use odometer_tests::settings;
use serde::{Deserialize, Serialize};

use crate::{
    machine::Machine,
    pace::Pace,
    reading::{Busy, Spread},
    row::Row,
};

pub(crate) const FIGURES: &str = "run.json";

/// One run, as far as it has come.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Run {
    /// In UTC, to the second, as `2026-11-20T13:22:05Z`.
    pub(crate) started_at: String,
    pub(crate) took_s: u64,
    /// Whether every entry was measured at the size that is published.
    pub(crate) is_whole: bool,
    /// The study that it is, which has a document of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) study: Option<String>,
    /// How it was called.
    pub(crate) command: String,
    pub(crate) configuration: Configuration,
    /// Of the sources, if they are under version control.
    pub(crate) commit: Option<String>,
    /// Whether the sources were changed since.
    pub(crate) is_dirty: bool,
    pub(crate) machine: Machine,
    /// Entries whose rows are of a later time than the rest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) again: Vec<Again>,
    #[serde(serialize_with = "with_summaries")]
    pub(crate) rows: Vec<Row>,
}

/// Rows that were measured again, in the place of earlier ones.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Again {
    pub(crate) command: String,
    pub(crate) started_at: String,
    /// As [`Run::sources`] says it.
    pub(crate) sources: String,
    /// The rows as they were before, with every reading; none in runs that did not keep them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) before: Vec<Row>,
}

/// How a run measures.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Configuration {
    pub(crate) pace: Pace,
    /// Turns of each contender.
    pub(crate) n_rounds: usize,
    /// Seconds of one measurement of a load.
    pub(crate) length_s: f64,
}

/// What the readings of a series come to; for readers of the file, and never read back.
#[derive(Serialize)]
struct Summary<'a> {
    name: &'a str,
    value: Option<Spread>,
    cpu_us: Option<Spread>,
    busy: Option<Busy>,
    is_bound_by_client: bool,
    /// The subject's value divided by this one's, round by round.
    ratio: Option<Spread>,
    n_failed: u64,
}

#[derive(Serialize)]
struct Summarised<'a> {
    #[serde(flatten)]
    row: &'a Row,
    summary: Vec<Summary<'a>>,
}

fn with_summaries<S: serde::Serializer>(rows: &[Row], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(rows.iter().map(|row| {
        Summarised {
            row,
            summary: row
                .series
                .iter()
                .map(|series| Summary {
                    name: &series.name,
                    value: series.value(),
                    cpu_us: series.cpu_us(),
                    busy: series.busy(),
                    is_bound_by_client: row.unit.is_rate() && series.is_bound_by_client(),
                    ratio: row.ratio(series),
                    n_failed: series.n_failed(),
                })
                .collect(),
        }
    }))
}

impl Run {
    /// One that begins now, without rows.
    pub(crate) fn begin(pace: Pace, command: String, machine: Machine) -> Self {
        Self {
            started_at: Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            took_s: 0,
            is_whole: false,
            study: None,
            command,
            configuration: Configuration {
                pace,
                n_rounds: pace.n_rounds(),
                length_s: pace.length().as_secs_f64(),
            },
            commit: git(&["rev-parse", "HEAD"]),
            is_dirty: git(&["status", "--porcelain"]).is_some_and(|changes| !changes.is_empty()),
            machine,
            again: Vec::new(),
            rows: Vec::new(),
        }
    }

    /// Puts the rows of `later` in the place of those of the same name, keeps those, and says so:
    /// a row that was measured until it pleased is seen to have been.
    ///
    /// # Errors
    /// A sentence, when they are of another machine or pace, or there is none to replace.
    pub(crate) fn measured_again(mut self, later: Self) -> Result<Self, String> {
        if self.machine != later.machine || self.configuration != later.configuration {
            return Err("that run is of another machine, version or pace".to_owned());
        }
        let mut again = Again {
            command: later.command.clone(),
            started_at: later.started_at.clone(),
            sources: later.sources(),
            before: Vec::new(),
        };
        for row in later.rows {
            let place = self
                .rows
                .iter_mut()
                .find(|earlier| earlier.name == row.name);
            let place = place.ok_or_else(|| format!("that run has no row {}", row.name))?;
            again.before.push(std::mem::replace(place, row));
        }
        self.again.push(again);
        Ok(self)
    }

    /// The day in UTC, as `2026-11-20`.
    pub(crate) fn date(&self) -> String {
        self.started_at.chars().take(10).collect()
    }

    /// What its directory is called.
    pub(crate) fn name(&self) -> String {
        format!("{}-{}", self.date(), self.machine.cpu_slug())
    }

    /// The same with the time in UTC: one of many of its day, none of which takes another's place.
    pub(crate) fn unpublished_name(&self) -> String {
        let time: String = self.started_at.chars().skip(11).take(8).collect();
        format!("{}-{}", self.name(), time.replace(':', ""))
    }

    /// The commit in short, with a word about changes.
    pub(crate) fn sources(&self) -> String {
        let Some(commit) = &self.commit else {
            return "sources without a commit".to_owned();
        };
        let short: String = commit.chars().take(12).collect();
        let changed = if self.is_dirty { " with changes" } else { "" };
        format!("commit `{short}`{changed}")
    }

    /// Writes figures and table into `directory`, in the place of those that are there.
    ///
    /// # Errors
    /// A sentence, when it cannot be written.
    pub(crate) fn write(&self, directory: &Path) -> Result<(), String> {
        let figures = serde_json::to_string_pretty(self).map_err(|error| error.to_string())?;
        replace(&directory.join(FIGURES), &(figures + "\n"))?;
        replace(&directory.join("table.md"), &super::table(self))
    }

    /// The one that `directory` has.
    ///
    /// # Errors
    /// A sentence, when there is none or it is of another form.
    pub(crate) fn read(directory: &Path) -> Result<Self, String> {
        let path = directory.join(FIGURES);
        let say = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let text = fs::read_to_string(&path).map_err(|error| say(&error))?;
        serde_json::from_str(&text).map_err(|error| say(&error))
    }
}

/// Writes a file as a whole or not at all, with the directories above it.
pub(crate) fn replace(path: &Path, text: &str) -> Result<(), String> {
    let say = |error: std::io::Error| format!("{}: {error}", path.display());
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).map_err(say)?;
    }
    let new = path.with_added_extension("new");
    fs::write(&new, text).map_err(say)?;
    fs::rename(&new, path).map_err(say)
}

fn git(arguments: &[&str]) -> Option<String> {
    let mut command = Command::new("git");
    command.args(arguments).current_dir(settings::repository());
    let output = command.output().ok().filter(|it| it.status.success())?;
    let said = String::from_utf8(output.stdout).ok()?;
    Some(said.trim().to_owned())
}
