//! Describes the machine of a run and the versions of what was measured. Nothing in it can identify
//! the machine.

use std::{collections::BTreeMap, fs, process::Command};

use odometer_tests::{Product, mariadb, postgres, settings};
use serde::{Deserialize, Serialize};

use crate::rows;

/// The machine of a run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Machine {
    /// The model that the processor reports.
    pub(crate) cpu: String,
    pub(crate) n_cores: usize,
    pub(crate) memory_bytes: u64,
    /// The name and release of the kernel.
    pub(crate) kernel: String,
    /// The version of each installed program that took part, by its name.
    pub(crate) versions: BTreeMap<String, String>,
}

impl Machine {
    pub(crate) fn this() -> Self {
        let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let kilobytes = field(&memory, "MemTotal").and_then(|text| {
            let number = text.split_whitespace().next()?;
            number.parse::<u64>().ok()
        });
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Self {
            // Some architectures do not report a model.
            cpu: field(&cpus, "model name").map_or(std::env::consts::ARCH.to_owned(), to_one_line),
            n_cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: kilobytes.unwrap_or_default() * 1024,
            kernel: format!("Linux {}", release.trim()),
            versions: versions(),
        }
    }

    /// Returns a machine for tests, without running any program.
    #[cfg(test)]
    pub(crate) fn example() -> Self {
        Self {
            cpu: "Example CPU".to_owned(),
            n_cores: 2,
            memory_bytes: 4 << 30,
            kernel: "Linux 6.1".to_owned(),
            versions: BTreeMap::from([("Odometer".to_owned(), "0.5.0".to_owned())]),
        }
    }

    /// Returns the model in small letters, digits and hyphens.
    pub(crate) fn cpu_slug(&self) -> String {
        let plain = self.cpu.to_lowercase();
        let plain = plain.replace("(r)", " ").replace("(tm)", " ");
        let words = plain.split(|c: char| !c.is_ascii_alphanumeric());
        let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
        words.join("-")
    }
}

/// Returns the value of the first line `name : value`.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim())
    })
}

fn to_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn versions() -> BTreeMap<String, String> {
    let mut programs = vec![
        ("Odometer", Command::new(settings::shipped_program())),
        ("rustc", Command::new("rustc")),
        (
            "PostgreSQL",
            postgres::program(Product::Postgres15, "postgres"),
        ),
        ("pgbench", postgres::program(Product::Postgres15, "pgbench")),
        ("MariaDB", mariadb::program("mariadbd")),
        ("Redis", Command::new("redis-server")),
        ("sysbench", Command::new("sysbench")),
        ("wrk", Command::new("wrk")),
    ];
    let cosid = rows::cosid_version().ok().flatten();
    if cosid.is_some() {
        programs.push(("Java", Command::new("java")));
    }
    let cosid = cosid.map(|version| ("CosId".to_owned(), version));
    let found = programs.into_iter().filter_map(|(name, mut program)| {
        // wrk does not know the argument, but it prints its version with the error.
        let output = program.arg("--version").output().ok()?;
        let said = [output.stdout, output.stderr].concat();
        Some((name.to_owned(), version(&String::from_utf8_lossy(&said))?))
    });
    found.chain(cosid).collect()
}

/// Returns the first word that contains a version, from its first digit on.
fn version(said: &str) -> Option<String> {
    said.split_whitespace().find_map(|word| {
        // This word is a path or the name of an architecture.
        if word.starts_with('/') || !word.contains('.') {
            return None;
        }
        let bare = word.trim_start_matches(|c: char| !c.is_ascii_digit());
        let bare = bare.trim_end_matches([')', ',', ';']);
        (!bare.is_empty()).then(|| bare.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_what_programs_say() {
        let known = [
            ("rustc 1.94.0 (4a4ef493e 2026-03-02)", "1.94.0"),
            ("postgres (PostgreSQL) 15.14 (Debian 15.14-0)", "15.14"),
            (
                "/a/mariadbd  Ver 10.11.14-MariaDB-0 for debian-linux-gnu on x86_64",
                "10.11.14-MariaDB-0",
            ),
            (
                "Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.2.1",
                "7.0.15",
            ),
            (
                "wrk debian/4.1.0-3+b2 [epoll] Copyright (C) 2012",
                "4.1.0-3+b2",
            ),
            ("openjdk 17.0.16 2025-07-15\nOpenJDK Runtime", "17.0.16"),
        ];
        for (said, expected) in known {
            assert_eq!(version(said).as_deref(), Some(expected), "{said}");
        }
    }

    #[test]
    fn a_model_becomes_a_name_of_a_directory() {
        let cpu = "Intel(R) Xeon(R) CPU E5-2680 v4 @ 2.40GHz".to_owned();
        let machine = Machine {
            cpu,
            ..Machine::example()
        };
        assert_eq!(machine.cpu_slug(), "intel-xeon-cpu-e5-2680-v4-2-40ghz");
    }
}
