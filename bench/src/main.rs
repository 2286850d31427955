//! Measures Odometer next to what a user would pick instead. `bench/run` builds and starts this
//! program.

mod cores;
mod load;
mod machine;
mod pace;
mod process;
mod reading;
mod report;
mod row;
mod rows;
mod stage;
mod usage;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::Parser;
use odometer_tests::settings;

use machine::Machine;
use pace::Pace;
use report::Run;
use rows::{ENTRIES, Entry, STUDIES};
use stage::Stage;

/// Measures Odometer and what a user would pick instead, on this machine.
#[derive(Parser)]
#[command(name = "bench/run")]
struct Arguments {
    /// Whether all works, in less than a minute; its figures are too few to publish
    #[arg(long)]
    quick: bool,
    /// Only this entry, or those whose name begins so; may be given several times
    #[arg(long, value_name = "NAME")]
    row: Vec<String>,
    /// Says which entries there are
    #[arg(long)]
    list: bool,
    /// Rows of each table of a study, in the place of those that its document is about
    #[arg(long, value_name = "ROWS", requires = "row")]
    size: Option<u64>,
    /// Writes figures and table there, and changes no document
    #[arg(long, value_name = "DIRECTORY")]
    results: Option<PathBuf>,
    /// Puts the rows in the place of those of the whole run there; the page shows the earlier ones,
    /// too
    #[arg(long, value_name = "DIRECTORY", requires = "row", conflicts_with_all = ["quick", "results"])]
    into: Option<PathBuf>,
    /// Measures nothing: writes pictures and tables of the documents from the figures there
    #[arg(long, value_name = "DIRECTORY", conflicts_with_all = ["quick", "row", "results", "into"])]
    redraw: Option<PathBuf>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.list {
        for entry in every_entry() {
            println!("{:<14} {}", entry.name, entry.title);
        }
        return ExitCode::SUCCESS;
    }
    let done = match &arguments.redraw {
        Some(directory) => redraw(directory).map(|()| 0),
        None => measure(&arguments),
    };
    match done {
        Ok(0) => ExitCode::SUCCESS,
        Ok(n_failed) => {
            eprintln!("bench/run: {n_failed} requests failed");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("bench/run: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Writes the pictures and tables of the documents from the figures in `directory`.
///
/// # Errors
/// A sentence, also if the run in `directory` must not be published.
fn redraw(directory: &Path) -> Result<(), String> {
    report::publish(&whole_run(directory)?, &settings::repository())
}

fn every_entry() -> impl Iterator<Item = &'static Entry> {
    ENTRIES.iter().chain(STUDIES)
}

/// Reads a run of all rows.
///
/// # Errors
/// A sentence, also if the run has only some of the rows.
fn whole_run(directory: &Path) -> Result<Run, String> {
    let run = Run::read(directory)?;
    if !run.is_whole {
        return Err(format!("{} has no whole run", directory.display()));
    }
    Ok(run)
}

/// Measures, prints, and writes the figures. Returns how many requests failed.
fn measure(arguments: &Arguments) -> Result<u64, String> {
    let chosen = chosen(arguments);
    let is_there = |name: &str| every_entry().any(|entry| entry.name.starts_with(name));
    if let Some(name) = arguments.row.iter().find(|name| !is_there(name)) {
        return Err(format!(
            "no entry has the name {name}; --list says which there are"
        ));
    }
    let pace = if arguments.quick {
        Pace::Quick
    } else {
        Pace::Whole
    };
    // Checks this now, so that nothing is measured in vain.
    rows::cosid_version()?;
    let study = study(&chosen);
    let is_whole = pace == Pace::Whole && (arguments.row.is_empty() || study.is_some());
    let mut run = Run::begin(pace, command(arguments), Machine::this());
    run.study = study;
    let earlier = arguments.into.as_deref().map(whole_run).transpose()?;
    let root = settings::repository();
    let unpublished = root.join("target/bench").join(run.unpublished_name());
    let directory = arguments.results.clone().unwrap_or(unpublished);
    // The runtime has one thread, because a started process runs on the cores of the thread that
    // starts it.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime starts");
    let stage = Stage::new(arguments.size);
    runtime.block_on(take(&chosen, &stage, pace, &mut run, &directory))?;
    println!("{}", report::table(&run));
    if is_whole {
        run.is_whole = true;
        run.write(&directory)?;
    }
    eprintln!("figures: {}", directory.display());
    if is_whole && arguments.results.is_none() {
        let published = run.kept(&root);
        run.write(&published)?;
        // Reads the figures from their file, as any other reader does.
        report::publish(&Run::read(&published)?, &root)?;
        eprintln!("published: {}", published.display());
    }
    let n_failed = report::n_failed(&run.rows);
    if let (Some(earlier), Some(directory)) = (earlier, &arguments.into) {
        earlier.measured_again(run)?.write(directory)?;
        redraw(directory)?;
    }
    Ok(n_failed)
}

/// Returns the command line without the place for the figures.
fn command(arguments: &Arguments) -> String {
    let quick = if arguments.quick { " --quick" } else { "" };
    let rows = arguments.row.iter().map(|name| format!(" --row {name}"));
    let size = arguments.size.map(|size| format!(" --size {size}"));
    let rows = rows.collect::<String>();
    format!("bench/run{quick}{rows}{}", size.unwrap_or_default())
}

/// Returns the name of the chosen study, if nothing else is chosen.
fn study(chosen: &[&Entry]) -> Option<String> {
    let [only] = chosen else {
        return None;
    };
    let is_study = STUDIES.iter().any(|study| study.name == only.name);
    is_study.then(|| only.name.to_owned())
}

fn chosen(arguments: &Arguments) -> Vec<&'static Entry> {
    let is_named = |entry: &Entry| {
        arguments
            .row
            .iter()
            .any(|name| entry.name.starts_with(name))
    };
    let is_chosen = |entry: &&Entry| match (arguments.row.is_empty(), arguments.quick) {
        (true, true) => entry.is_quick,
        (true, false) => STUDIES.iter().all(|study| study.name != entry.name),
        (false, _) => is_named(entry),
    };
    every_entry().filter(is_chosen).collect()
}

/// Measures all chosen entries. Writes the figures so far after each entry.
async fn take(
    chosen: &[&Entry],
    stage: &Stage,
    pace: Pace,
    run: &mut Run,
    directory: &Path,
) -> Result<(), String> {
    let started = Instant::now();
    for (at, entry) in chosen.iter().enumerate() {
        let (done, ahead) = chosen.split_at(at);
        let left = left(
            estimate(done, pace),
            started.elapsed(),
            estimate(ahead, pace),
        );
        eprintln!(
            "[{}/{}] {} ({} so far, about {} left)",
            at + 1,
            chosen.len(),
            entry.name,
            minutes(started.elapsed()),
            minutes(left)
        );
        let rows = (entry.measure)(stage, pace).await;
        rows::check(&rows);
        run.rows.extend(rows);
        run.took_s = started.elapsed().as_secs();
        run.write(directory)?;
    }
    Ok(())
}

fn estimate(entries: &[&Entry], pace: Pace) -> Duration {
    entries.iter().map(|entry| (entry.estimate)(pace)).sum()
}

/// Returns the time that is left, if the rest differs from its estimate by the same factor as the
/// part that is done.
fn left(done: Duration, took: Duration, ahead: Duration) -> Duration {
    if done.is_zero() {
        return ahead;
    }
    ahead.mul_f64(took.as_secs_f64() / done.as_secs_f64())
}

fn minutes(length: Duration) -> String {
    format!("{} min {} s", length.as_secs() / 60, length.as_secs() % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_slower_than_estimated_makes_the_rest_longer() {
        let seconds = Duration::from_secs;
        assert_eq!(left(seconds(0), seconds(0), seconds(90)), seconds(90));
        assert_eq!(left(seconds(10), seconds(20), seconds(90)), seconds(180));
        assert_eq!(minutes(seconds(135)), "2 min 15 s");
    }

    #[test]
    fn entries_have_names_of_their_own() {
        let all: Vec<&Entry> = every_entry().collect();
        for (at, entry) in all.iter().enumerate() {
            let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            assert!(entry.name.chars().all(is_plain), "{}", entry.name);
            assert!(all[..at].iter().all(|other| other.name != entry.name));
        }
    }
}
