//! Stores a run: every reading, the machine, and what was measured.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

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

/// The directory of the runs of the rows. Each run has its own directory there.
pub(crate) const RESULTS: &str = "bench/results";
/// The directory of the runs of the study.
pub(crate) const RESULTS_OF_STUDY: &str = "bench/results/pages";

/// One run, with everything that was measured so far.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Run {
    /// The start in UTC, to the second, as `2026-11-20T13:22:05Z`.
    pub(crate) started_at: String,
    pub(crate) took_s: u64,
    /// Whether every entry was measured at the size that is published.
    pub(crate) is_whole: bool,
    /// The study that this run measured, if it is one. A study has a document of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) study: Option<String>,
    /// The command that started the run.
    pub(crate) command: String,
    pub(crate) configuration: Configuration,
    /// The commit of the sources, if they are under version control.
    pub(crate) commit: Option<String>,
    /// Whether the sources were changed since the commit.
    pub(crate) is_dirty: bool,
    pub(crate) machine: Machine,
    /// Entries that were measured again, later than the rest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) again: Vec<Again>,
    #[serde(serialize_with = "with_summaries")]
    pub(crate) rows: Vec<Row>,
}

/// Rows that were measured again and that replaced earlier rows.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Again {
    pub(crate) command: String,
    pub(crate) started_at: String,
    /// The sources, as [`Run::sources`] describes them.
    pub(crate) sources: String,
    /// The earlier rows with every reading, or nothing in runs that did not keep them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) before: Vec<Row>,
}

/// How a run measures.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Configuration {
    pub(crate) pace: Pace,
    /// How often each contender is measured.
    pub(crate) n_rounds: usize,
    /// Seconds of one measurement.
    pub(crate) length_s: f64,
}

/// The summary of a series. It is for readers of the file, and is never read back.
#[derive(Serialize)]
struct Summary<'a> {
    name: &'a str,
    value: Option<Spread>,
    cpu_us: Option<Spread>,
    busy: Option<Busy>,
    is_bound_by_client: bool,
    /// The subject's value divided by the value of this series, round by round.
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
    /// Returns the directory below `root` in which the run is kept, next to others of its kind.
    pub(crate) fn kept(&self, root: &Path) -> PathBuf {
        let results = match self.study {
            None => RESULTS,
            Some(_) => RESULTS_OF_STUDY,
        };
        root.join(results).join(self.name())
    }

    /// Begins a run now, without rows.
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

    /// Puts the rows of `later` in the place of the rows with the same names, and keeps the earlier
    /// rows in `again`. So readers see if a row was measured again until its result was good.
    ///
    /// # Errors
    /// A sentence, if `later` has another machine or pace, or if a row of `later` replaces no row.
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

    /// Returns the day in UTC, as `2026-11-20`.
    pub(crate) fn date(&self) -> String {
        self.started_at.chars().take(10).collect()
    }

    /// Returns the name of the directory of this run.
    pub(crate) fn name(&self) -> String {
        format!("{}-{}", self.date(), self.machine.cpu_slug())
    }

    /// Returns the name with the time in UTC, so that several runs of a day have different names.
    pub(crate) fn unpublished_name(&self) -> String {
        let time: String = self.started_at.chars().skip(11).take(8).collect();
        format!("{}-{}", self.name(), time.replace(':', ""))
    }

    /// Returns the short commit, and says whether the sources were changed.
    pub(crate) fn sources(&self) -> String {
        let Some(commit) = &self.commit else {
            return "sources without a commit".to_owned();
        };
        let short: String = commit.chars().take(12).collect();
        let changed = if self.is_dirty { " with changes" } else { "" };
        format!("commit `{short}`{changed}")
    }

    /// Writes figures and table into `directory`, in the place of earlier ones.
    ///
    /// # Errors
    /// A sentence, if a file cannot be written.
    pub(crate) fn write(&self, directory: &Path) -> Result<(), String> {
        let figures = serde_json::to_string_pretty(self).map_err(|error| error.to_string())?;
        replace(&directory.join(FIGURES), &(figures + "\n"))?;
        replace(&directory.join("table.md"), &super::table(self))
    }

    /// Reads the run of `directory`.
    ///
    /// # Errors
    /// A sentence, if there is no run or the run has another form.
    pub(crate) fn read(directory: &Path) -> Result<Self, String> {
        let path = directory.join(FIGURES);
        let say = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let text = fs::read_to_string(&path).map_err(|error| say(&error))?;
        serde_json::from_str(&text).map_err(|error| say(&error))
    }
}

/// Writes a whole file or nothing. Creates the directories above the file.
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
