//! Carries out `odometer top`: the sequences in a replica's memory, refreshed in place.

use std::cmp::Ordering;
use std::io::{self, IsTerminal as _};
use std::time::Duration;

use clap::{Args, ValueEnum};
use jiff::Timestamp;
use odometer_core::duration;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::facts;
use super::figures;
use super::options::ReplicaOptions;
use super::replica_client::{ApiCall, ReplicaClient};
use super::replies::{MemoryPage, RunningReplica, SequenceInMemory};
use super::screen::Screen;
use super::status;
use super::table::{self, Side};
use crate::commands::{failure::CommandFailure, output};

/// How many sequences are asked for at once: the most that the API gives.
const PAGE: u32 = 1000;
/// The most pages that are asked for, as on the page.
const MAX_PAGES: usize = 10;
const SIDES: [Side; 5] = [
    Side::Left,
    Side::Left,
    Side::Right,
    Side::Right,
    Side::Right,
];

/// How to show them.
#[derive(Debug, Args)]
pub(crate) struct TopOptions {
    /// Print the picture once, and end.
    #[arg(long)]
    once: bool,
    /// The time between two pictures, at least 1s.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = every)]
    every: Duration,
    /// What comes first: the shortest reserve, the highest rate, or the first name.
    #[arg(long, value_name = "COLUMN", default_value = "left")]
    by: SortColumn,
    #[command(flatten)]
    pub(crate) replica: ReplicaOptions,
}

/// The column by which sequences are sorted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum SortColumn {
    Left,
    Rate,
    Name,
}

/// What is in a replica's memory.
pub(crate) struct MemoryView {
    pub(crate) sequences: Vec<SequenceInMemory>,
    /// Whether there were more sequences than are asked for.
    pub(crate) is_cut_off: bool,
}

fn every(text: &str) -> Result<Duration, String> {
    let every = duration::parse(text).map_err(|error| format!("`{text}` {error}"))?;
    if every < Duration::from_secs(1) {
        return Err("give at least 1s".to_owned());
    }
    Ok(every)
}

/// Reads what is in a replica's memory.
///
/// # Errors
/// The replica cannot be asked.
pub(crate) fn memory(client: &ReplicaClient) -> Result<MemoryView, CommandFailure> {
    let path = ["v1", "replica", "sequences"];
    let mut sequences = Vec::new();
    let mut after = None;
    for _ in 0..MAX_PAGES {
        let call = ApiCall::get(&path)
            .with("after", after.as_ref())
            .with("limit", Some(PAGE));
        let (page, _) = client.read::<MemoryPage>(&call)?;
        sequences.extend(page.sequences);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    Ok(MemoryView {
        sequences,
        is_cut_off: after.is_some(),
    })
}

/// Shows the sequences in a replica's memory, once or until a signal comes.
///
/// # Errors
/// The replica cannot be asked at first, or the terminal cannot be written.
pub(crate) fn top(client: ReplicaClient, options: &TopOptions) -> Result<(), CommandFailure> {
    if options.once || !io::stdout().is_terminal() {
        return output::print_lines(&picture(&client, options.by)?);
    }
    let started = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = started.map_err(|error| {
        CommandFailure::other(format!("the picture cannot be refreshed ({error})"))
    })?;
    let outcome = runtime.block_on(refresh(client, options));
    // A call that is under way need not end before the process.
    runtime.shutdown_background();
    outcome
}

/// Draws one picture after the other until a signal comes. A replica that is away later is no
/// reason to end: the picture says so.
async fn refresh(client: ReplicaClient, options: &TopOptions) -> Result<(), CommandFailure> {
    let mut ends = Ends::listen()?;
    let mut screen: Option<Screen> = None;
    let by = options.by;
    loop {
        let client = client.clone();
        let looking = tokio::task::spawn_blocking(move || picture(&client, by));
        let looked = tokio::select! {
            () = ends.come() => return Ok(()),
            looked = looking => looked,
        };
        let looked = looked.map_err(|error| CommandFailure::other(error.to_string()))?;
        let lines = match (looked, &screen) {
            (Ok(lines), _) => lines,
            (Err(failure), None) => return Err(failure),
            (Err(failure), Some(_)) => vec![failure.to_string()],
        };
        let screen = match &mut screen {
            Some(screen) => screen,
            none => none.insert(Screen::open()?),
        };
        screen.draw(&lines)?;
        tokio::select! {
            () = ends.come() => return Ok(()),
            () = tokio::time::sleep(options.every) => {}
        }
    }
}

/// The signals that end the picture.
struct Ends([Signal; 3]);

impl Ends {
    fn listen() -> Result<Self, CommandFailure> {
        let listen = |kind| {
            let failed = |error| format!("signals cannot be received ({error})");
            signal(kind).map_err(|error| CommandFailure::other(failed(error)))
        };
        Ok(Self([
            listen(SignalKind::interrupt())?,
            listen(SignalKind::terminate())?,
            listen(SignalKind::hangup())?,
        ]))
    }

    async fn come(&mut self) {
        let [interrupt, terminate, hangup] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}

fn picture(client: &ReplicaClient, by: SortColumn) -> Result<Vec<String>, CommandFailure> {
    let (replica, _) = client.read::<RunningReplica>(&ApiCall::get(&["v1", "replica"]))?;
    let view = memory(client)?;
    Ok(lines(&replica, view, by, Timestamp::now()))
}

fn lines(
    replica: &RunningReplica,
    view: MemoryView,
    by: SortColumn,
    now: Timestamp,
) -> Vec<String> {
    let mut sequences = view.sequences;
    sequences.sort_by(|one, other| order(one, other, by));
    let sum = sequences.iter().map(|sequence| sequence.rate).sum();
    let more = if view.is_cut_off { " and more" } else { "" };
    let mut lines = vec![format!(
        "{} · {} · Ready: {} · {}{more} · {}",
        replica.holder,
        replica.version,
        status::ready(replica),
        figures::plural(
            u64::try_from(sequences.len()).unwrap_or(u64::MAX),
            "sequence",
            "sequences"
        ),
        figures::rate(Some(sum)),
    )];
    for store in &replica.stores {
        let places = store.databases.iter().chain(&store.redis);
        let bad = places.filter(|place| !place.is_good());
        lines.extend(bad.map(|place| format!("{} {}", place.database, place.word())));
    }
    lines.push(String::new());
    if sequences.is_empty() {
        lines.push("No sequence is in memory yet. `odometer list` shows all.".to_owned());
        return lines;
    }
    let head = ["Sequence", "Block left", "Rate", "Reserve", "Runway"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(sequences.iter().map(|sequence| row(sequence, now)));
    lines.extend(table::lines(&SIDES, &rows));
    lines
}

fn row(sequence: &SequenceInMemory, now: Timestamp) -> Vec<String> {
    let words = sequence.traits().words();
    let name = if words.is_empty() {
        sequence.sequence.clone()
    } else {
        format!("{} ({})", sequence.sequence, words.join(" · "))
    };
    vec![
        name,
        sequence.block_used(),
        figures::rate(Some(sequence.rate)),
        sequence.reserve(now),
        facts::runway(sequence.runway.as_ref(), sequence.outlasts_its_period(now)),
    ]
}

/// Orders two sequences. A reserve that is not known comes last.
fn order(one: &SequenceInMemory, other: &SequenceInMemory, by: SortColumn) -> Ordering {
    let left = |sequence: &SequenceInMemory| sequence.lasts_seconds().unwrap_or(f64::INFINITY);
    let first = match by {
        SortColumn::Left => left(one).total_cmp(&left(other)),
        SortColumn::Rate => other.rate.total_cmp(&one.rate),
        SortColumn::Name => Ordering::Equal,
    };
    first.then_with(|| one.sequence.cmp(&other.sequence))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use serde_json::json;

    use super::*;

    fn view() -> MemoryView {
        let sequence = |name: &str, rate: f64, reserve: Option<f64>| {
            facts::in_memory(
                json!({"sequence": name, "rate": rate, "reserve_seconds": reserve,
                "hold_seconds": 60, "order": if reserve.is_none() { "strict" } else { "relaxed" }}),
            )
        };
        MemoryView {
            sequences: vec![
                sequence("strict", 3.0, None),
                sequence("slow", 0.5, Some(30.0)),
                sequence("busy", 12.0, Some(90.0)),
            ],
            is_cut_off: false,
        }
    }

    fn replica() -> RunningReplica {
        serde_json::from_value(json!({
            "holder": "host-1-a", "version": "0.1.0", "started": "", "ready": true, "why": null,
            "live_sequences": 3, "token_needed": false, "stores": [{"name": "default",
                "databases": [{"database": "sqlite:a.db", "up": false}], "redis": []}],
        }))
        .unwrap()
    }

    fn names(by: SortColumn) -> Vec<String> {
        let lines = lines(&replica(), view(), by, Timestamp::UNIX_EPOCH);
        let rows = lines.iter().skip(4);
        let names = rows.map(|row| row.split_whitespace().next().unwrap_or_default().to_owned());
        names.collect()
    }

    #[test]
    fn the_shortest_reserve_comes_first_unless_another_column_is_asked_for() {
        assert_eq!(names(SortColumn::Left), ["slow", "busy", "strict"]);
        assert_eq!(names(SortColumn::Rate), ["busy", "strict", "slow"]);
        assert_eq!(names(SortColumn::Name), ["busy", "slow", "strict"]);
    }

    #[test]
    fn a_picture_has_a_head_and_a_row_for_each_sequence() {
        let shown = lines(&replica(), view(), SortColumn::Left, Timestamp::UNIX_EPOCH);
        let expected = [
            "host-1-a · 0.1.0 · Ready: Yes · 3 sequences · 15.5 /s",
            "sqlite:a.db does not answer",
            "",
            "Sequence         Block left                 Rate     Reserve  Runway",
            "slow             400 of 1,000 left        0.5 /s  30 s · low       –",
            "busy             400 of 1,000 left         12 /s        90 s       –",
            "strict (strict)  Keeps nothing in memory    3 /s           –       –",
        ];
        assert_eq!(shown, expected);
        let nothing = MemoryView {
            sequences: Vec::new(),
            is_cut_off: true,
        };
        let shown = lines(&replica(), nothing, SortColumn::Left, Timestamp::UNIX_EPOCH);
        assert!(shown[0].contains("0 sequences and more"), "{shown:?}");
        assert!(shown[3].contains("`odometer list`"), "{shown:?}");
    }

    #[test]
    fn the_time_between_two_pictures_is_at_least_a_second() {
        assert_eq!(every("5s"), Ok(Duration::from_secs(5)));
        assert_eq!(every("1000ms"), Ok(Duration::from_secs(1)));
        assert!(every("999ms").is_err());
        assert!(every("5").unwrap_err().contains("is no duration"));
    }
}
