//! Measures Odometer beside what a user would pick instead: `bench/run` builds and starts this.

mod cores;
mod load;
mod pace;
mod process;
mod reading;
mod report;
mod row;
mod rows;
mod stage;
mod usage;

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::Parser;

use pace::Pace;
use rows::{ENTRIES, Entry};
use stage::Stage;

/// Measures Odometer beside what a user would pick instead, on this machine.
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
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.list {
        for entry in ENTRIES {
            println!("{}", entry.name);
        }
        return ExitCode::SUCCESS;
    }
    let chosen = chosen(&arguments);
    if chosen.is_empty() {
        eprintln!("bench/run: no entry has this name; --list says which there are");
        return ExitCode::from(64);
    }
    // One thread, because what is started runs on the cores of the thread that starts it.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime starts");
    let pace = if arguments.quick {
        Pace::Quick
    } else {
        Pace::Whole
    };
    runtime.block_on(measure(&chosen, pace));
    ExitCode::SUCCESS
}

fn chosen(arguments: &Arguments) -> Vec<&'static Entry> {
    let is_named = |entry: &Entry| {
        arguments
            .row
            .iter()
            .any(|name| entry.name.starts_with(name))
    };
    let is_chosen = |entry: &&Entry| {
        if arguments.row.is_empty() {
            entry.is_quick || !arguments.quick
        } else {
            is_named(entry)
        }
    };
    ENTRIES.iter().filter(is_chosen).collect()
}

async fn measure(chosen: &[&Entry], pace: Pace) {
    let stage = Stage::new();
    let started = Instant::now();
    let mut rows = Vec::new();
    for (at, entry) in chosen.iter().enumerate() {
        let left: Duration = chosen[at..]
            .iter()
            .map(|entry| (entry.estimate)(pace))
            .sum();
        eprintln!(
            "[{}/{}] {} ({} s so far, about {} s left)",
            at + 1,
            chosen.len(),
            entry.name,
            started.elapsed().as_secs(),
            left.as_secs()
        );
        rows.extend((entry.measure)(&stage, pace).await);
    }
    println!("{}", report::table(&rows));
}
