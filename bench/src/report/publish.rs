//! Writes what the documents show of a run.
//!
//! This part of a document stands between two comments. The rest is written by hand.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{
    pictures::{self, Picture},
    raw::{Run, replace},
    study, table, units,
};
use crate::row::{MIN_BUSY_CLIENT, MIN_BUSY_SERVER, Unit};

const BEGIN: &str = "<!-- Written by bench/run, from here -->\n";
const END: &str = "<!-- to here -->\n";
const README: &str = "README.md";
const WHOLE: &str = "docs/speed.md";
const WHICH_KIND: &str = "docs/which-kind.md";
/// What the README shows: the names of rows, each with the reference that its line compares with.
const IN_README: [(&str, &str); 3] = [
    ("single-cost", "Redis INCR"),
    ("single-cost", "PostgreSQL nextval, cache 1"),
    ("away", "the same, database healthy"),
];

/// What the runs of one kind change, and where these runs are kept.
struct Publication {
    sections: &'static [Section],
    draw: fn(&Run) -> Result<Vec<Picture>, String>,
    /// The files of all possible pictures, in `docs`.
    files: &'static [&'static str],
}

/// A document, and what stands between its two comments.
type Section = (&'static str, fn(&Run, &[Picture]) -> String);

/// A whole run of the rows.
const SPEED: Publication = Publication {
    sections: &[(README, |run, _| short(run)), (WHOLE, whole)],
    draw: pictures::draw,
    files: &pictures::FILES,
};

/// A run of the study of pages.
const STUDY: Publication = Publication {
    sections: &[(WHICH_KIND, study::section)],
    draw: pictures::draw_study,
    files: &pictures::FILES_OF_STUDY,
};

impl Publication {
    fn of(run: &Run) -> Self {
        match run.study {
            None => SPEED,
            Some(_) => STUDY,
        }
    }
}

/// Writes what `run` changes in the documents below `root`.
///
/// # Errors
/// A sentence, if a document lacks its two comments or cannot be written.
pub(crate) fn publish(run: &Run, root: &Path) -> Result<(), String> {
    let publication = Publication::of(run);
    let documents = documents(&publication, Some(run), root)?;
    // Removes the pictures of the earlier run, even if this run has no rows for them.
    for file in publication.files {
        let path = root.join("docs").join(file);
        if path.exists() {
            fs::remove_file(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        }
    }
    for (path, text) in documents {
        replace(&root.join(path), &text)?;
    }
    Ok(())
}

/// Returns the documents and pictures below `root` as they must be after `run`. Without a run, the
/// documents say so.
fn documents(
    publication: &Publication,
    run: Option<&Run>,
    root: &Path,
) -> Result<Vec<(PathBuf, String)>, String> {
    let drawn = run.map(publication.draw).transpose()?.unwrap_or_default();
    let mut found = Vec::new();
    for (path, section) in publication.sections {
        let section = run.map(|run| section(run, &drawn));
        let text = fs::read_to_string(root.join(path));
        let text = text.map_err(|error| format!("{path}: {error}"))?;
        let section = section.unwrap_or_else(|| "No run was published yet.\n".to_owned());
        let text = with_section(&text, &section).ok_or(format!("{path} lacks {BEGIN}{END}"))?;
        found.push((PathBuf::from(path), text));
    }
    let pictures = drawn.into_iter().map(|it| (it.path(), it.svg));
    found.extend(pictures);
    Ok(found)
}

/// Returns `text` with `section` between the two comments.
fn with_section(text: &str, section: &str) -> Option<String> {
    let (before, rest) = text.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n{section}\n{END}{after}"))
}

fn short(run: &Run) -> String {
    let mut text = table::excerpt(&run.rows, &IN_README);
    text.push_str(&format!(
        "\nMeasured on {} on {} ({} cores), {}, by `{}`; [docs/speed.md](docs/speed.md) has all rows, with their bounds and notes, and how it was done.\n",
        run.date(),
        run.machine.cpu,
        run.machine.n_cores,
        run.sources(),
        run.command,
    ));
    if !run.again.is_empty() {
        text.push_str("Some rows were measured again later, and that page names them.\n");
    }
    text
}

/// Returns the text before the table: what a number costs, and which rates are no results.
fn headline(run: &Run) -> String {
    let has_busy = run
        .rows
        .iter()
        .flat_map(|row| &row.series)
        .any(|series| series.busy().is_some());
    if !has_busy {
        return "This run did not record how busy each core was. \
                If a client bounded a rate, the table does not show that.\n\n"
            .to_owned();
    }
    let costs = table::costs(&run.rows);
    let mut text = String::new();
    if !costs.is_empty() {
        text.push_str(&format!(
            "Processor time of the server for each number, user and system, as the kernel counts it:\n\n{costs}\n"
        ));
    }
    text.push_str(&format!(
        "A rate is *{}* if the server's core was less than {} busy, while the client's core was at least {} busy.\n\
         Such a rate says nothing about the server, so the table shows no ratio of that rate.\n\n",
        table::BOUND_BY_CLIENT,
        units::percent(MIN_BUSY_SERVER),
        units::percent(MIN_BUSY_CLIENT),
    ));
    text
}

fn whole(run: &Run, drawn: &[Picture]) -> String {
    let machine = &run.machine;
    let mut text = format!(
        "Measured on {} by `{}` in {} min, in {} rounds of {} s unless the row says something else.\n\n",
        run.date(),
        run.command,
        run.took_s.div_ceil(60),
        run.configuration.n_rounds,
        run.configuration.length_s,
    );
    for again in &run.again {
        text.push_str(&format!(
            "Measured again by `{}` at {}, {}: the rows of that command.{}\n\n",
            again.command,
            again.started_at,
            again.sources,
            if again.before.is_empty() {
                ""
            } else {
                " The earlier rows are below the table."
            }
        ));
    }
    text.push_str("| Of | What it was |\n|---|---|\n");
    let mut line = |name: &str, value: &str| {
        text.push_str(&format!("| {name} | {value} |\n"));
    };
    line("Sources", &run.sources());
    line(
        "Processor",
        &format!("{}, {} cores", machine.cpu, machine.n_cores),
    );
    line(
        "Memory",
        &units::value(machine.memory_bytes as f64, Unit::Bytes),
    );
    line("Kernel", &machine.kernel);
    for (name, version) in &machine.versions {
        line(name, version);
    }
    text.push_str(&format!("\n{}{}", headline(run), table::table(&run.rows)));
    for again in run.again.iter().filter(|again| !again.before.is_empty()) {
        text.push_str(&format!(
            "\nBefore `{}` at {}:\n\n{}",
            again.command,
            again.started_at,
            table::table(&again.before)
        ));
    }
    for picture in drawn {
        text.push_str(&format!("\n![{}]({})\n", picture.title, picture.file));
    }
    text
}

#[cfg(test)]
mod tests {
    use odometer_tests::settings;

    use super::*;
    use crate::{
        machine::Machine,
        pace::Pace,
        report::raw::{FIGURES, RESULTS, RESULTS_OF_STUDY},
    };

    /// Returns the run that began last, or `None` if there is no directory of runs.
    fn newest(results: &str, root: &Path) -> Option<Run> {
        let folders = fs::read_dir(root.join(results)).ok()?;
        // Older runs may have an older form, so only the field `started_at` is read here.
        let runs = folders.flatten().filter_map(|folder| {
            let text = fs::read_to_string(folder.path().join(FIGURES)).ok()?;
            let figures: serde_json::Value = serde_json::from_str(&text).ok()?;
            Some((figures["started_at"].as_str()?.to_owned(), folder.path()))
        });
        let (_, newest) = runs.max().expect("the directory has a run");
        let run = Run::read(&newest);
        Some(run.unwrap_or_else(|error| panic!("not a run: {error}")))
    }

    /// Returns the documents and pictures that differ from what `run` makes.
    fn stale(publication: &Publication, run: Option<&Run>, root: &Path) -> Vec<PathBuf> {
        let expected = documents(publication, run, root);
        let mut expected = expected.expect("the documents have their comments");
        expected
            .retain(|(path, text)| fs::read_to_string(root.join(path)).ok().as_ref() != Some(text));
        expected.into_iter().map(|(path, _)| path).collect()
    }

    #[test]
    fn the_documents_show_the_newest_run() {
        let root = settings::repository();
        for (publication, results) in [(SPEED, RESULTS), (STUDY, RESULTS_OF_STUDY)] {
            let run = newest(results, &root);
            let stale = stale(&publication, run.as_ref(), &root);
            assert_eq!(stale, Vec::<PathBuf>::new());
            assert!(run.is_none_or(|run| run.is_whole), "a part was published");
        }
    }

    #[test]
    fn the_readme_shows_each_of_its_rows() {
        let Some(run) = newest(RESULTS, &settings::repository()) else {
            return;
        };
        for (name, beside) in IN_README {
            let text = table::excerpt(&run.rows, &[(name, beside)]);
            assert!(text.contains(beside), "no {name} with {beside}");
        }
    }

    /// Returns the part of `text` that is written by hand.
    fn by_hand(text: &str) -> String {
        let (before, rest) = text.split_once(BEGIN).expect("it has both comments");
        let (_, after) = rest.split_once(END).expect("it has both comments");
        format!("{before}{after}")
    }

    /// Returns everything that looks like a measured value: a number before a unit that no setting
    /// has.
    fn figures(text: &str) -> Vec<String> {
        let units = [
            "k/s", "M/s", "µs", "ns", "B", "KiB", "MiB", "bytes", "%", "times",
        ];
        let words: Vec<&str> = text.split_whitespace().collect();
        let pairs = words.windows(2).filter(|pair| {
            let is_number = pair[0].starts_with(|c: char| c.is_ascii_digit());
            is_number && units.contains(&pair[1].trim_end_matches(['.', ',', ';', ':', ')']))
        });
        pairs.map(|pair| pair.join(" ")).collect()
    }

    #[test]
    fn no_figure_of_speed_is_written_by_hand() {
        let root = settings::repository();
        let text = |path| fs::read_to_string(root.join(path)).expect("it is there");
        assert_eq!(figures(&by_hand(&text(WHOLE))), Vec::<String>::new());
        let readme = by_hand(&text(README));
        let (_, section) = readme
            .split_once("\n## Speed\n")
            .expect("it has the section");
        let section = section.split("\n## ").next().unwrap_or_default();
        assert_eq!(figures(section), Vec::<String>::new());
        // Negative control: the figures of a generated part are found.
        let written = "- A figure of 1.15 times, 166 k/s (159–167), 55 µs, and 98 %.";
        assert_eq!(figures(written).len(), 4);
    }

    /// Negative control of `the_documents_show_the_newest_run`.
    #[test]
    fn what_is_edited_by_hand_is_noticed() {
        let copy = odometer_tests::directory("speed");
        for path in [README, WHOLE] {
            let text = fs::read_to_string(settings::repository().join(path));
            replace(&copy.path().join(path), &text.expect("it is there")).expect("our directory");
        }
        let run = example();
        publish(&run, copy.path()).expect("the documents have their comments");
        assert_eq!(
            stale(&SPEED, Some(&run), copy.path()),
            Vec::<PathBuf>::new()
        );
        let picture = "docs/speed-throughput.svg";
        for (path, shown, edited) in [
            (README, "6.1 µs", "5.1 µs"),
            (WHOLE, "0.960", "0.990"),
            (picture, "159 k/s", "169 k/s"),
        ] {
            let file = copy.path().join(path);
            let text = fs::read_to_string(&file).expect("it was written");
            assert!(text.contains(shown), "{path} shows no {shown}");
            replace(&file, &text.replace(shown, edited)).expect("our directory");
            assert_eq!(
                stale(&SPEED, Some(&run), copy.path()),
                [PathBuf::from(path)]
            );
            replace(&file, &text).expect("our directory");
        }
        fs::remove_file(copy.path().join(picture)).expect("it is there");
        assert_eq!(
            stale(&SPEED, Some(&run), copy.path()),
            [PathBuf::from(picture)]
        );
        assert!(!stale(&SPEED, None, copy.path()).is_empty());
        let without_rows = Run {
            rows: Vec::new(),
            ..run
        };
        publish(&without_rows, copy.path()).expect("the documents have their comments");
        assert!(
            !copy.path().join(picture).exists(),
            "an old picture is left"
        );
    }

    #[test]
    fn what_is_edited_by_hand_of_a_study_is_noticed() {
        let copy = odometer_tests::directory("study");
        let text = fs::read_to_string(settings::repository().join(WHICH_KIND));
        let document = copy.path().join(WHICH_KIND);
        replace(&document, &text.expect("it is there")).expect("our directory");
        let run = Run {
            study: Some("pages".to_owned()),
            rows: study::example_rows(),
            ..example()
        };
        publish(&run, copy.path()).expect("the document has its comments");
        let stale = || stale(&STUDY, Some(&run), copy.path());
        assert_eq!(stale(), Vec::<PathBuf>::new());
        for (path, shown, edited) in [
            (WHICH_KIND, "| 4 | 2 |", "| 4 | 1 |"),
            ("docs/which-kind-splits.svg", "high worker", "high time"),
            ("docs/which-kind-fill.svg", "81 %", "91 %"),
        ] {
            let file = copy.path().join(path);
            let text = fs::read_to_string(&file).expect("it was written");
            assert!(text.contains(shown), "{path} shows no {shown}");
            replace(&file, &text.replace(shown, edited)).expect("our directory");
            assert_eq!(stale(), [PathBuf::from(path)]);
            replace(&file, &text).expect("our directory");
        }
        // The runs of each kind have their own directory.
        let place = |run: &Run| run.kept(Path::new(""));
        assert!(place(&run).starts_with("bench/results/pages"));
        assert!(!place(&example()).starts_with("bench/results/pages"));
    }

    #[test]
    fn a_run_is_read_as_it_was_written() {
        let home = odometer_tests::directory("speed");
        let run = example();
        run.write(home.path()).expect("our directory");
        let read = Run::read(home.path()).expect("it was just written");
        assert_eq!(format!("{read:?}"), format!("{run:?}"));
    }

    #[test]
    fn rows_measured_again_take_the_place_of_earlier_ones() {
        let (earlier, mut later) = (example(), example());
        later.rows.truncate(1);
        later.rows[0].title = "later".to_owned();
        later.command = "bench/run --row later".to_owned();
        let n_rows = earlier.rows.len();
        let both = earlier
            .clone()
            .measured_again(later.clone())
            .expect("alike");
        assert_eq!(
            (both.rows.len(), both.rows[0].title.as_str()),
            (n_rows, "later")
        );
        let said = "Measured again by `bench/run --row later` at ";
        assert!(whole(&both, &[]).contains(said));
        let n_lines =
            |run: &Run, title: &str| whole(run, &[]).matches(&format!("| {title}")).count();
        let n_before = n_lines(&earlier, &earlier.rows[0].title);
        assert_eq!(n_lines(&both, &earlier.rows[0].title), n_before);
        // The page keeps the earlier figures of rows that were measured again. So readers see if
        // a measurement was repeated until its result was good.
        let n_once = n_lines(&both, "later");
        let twice = both.measured_again(later.clone()).expect("alike");
        assert_eq!(whole(&twice, &[]).matches(said).count(), 2);
        assert_eq!(n_lines(&twice, "later"), 2 * n_once);
        later.rows[0].name = "unknown".to_owned();
        assert!(earlier.clone().measured_again(later.clone()).is_err());
        later.machine.n_cores += 1;
        later.rows.clear();
        assert!(earlier.measured_again(later).is_err());
    }

    /// Returns a run with every row from which a picture is made.
    fn example() -> Run {
        let mut run = Run::begin(Pace::Quick, "bench/run".to_owned(), Machine::example());
        run.rows = pictures::example_rows();
        run
    }
}
