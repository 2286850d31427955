//! Measures CosId's `SegmentChainId`, if its classes are installed: `bench/cosid/README.md`.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::Duration,
};

use async_trait::async_trait;
use odometer_tests::{keeper, settings};

use crate::{
    pace::Contender,
    reading::{Busy, Reading},
    usage,
};

pub(crate) const NAME: &str = "CosId SegmentChainId";
pub(crate) const NOT_MEASURED: &str = "CosId was not measured: BENCH_COSID_CLASSPATH does not name its classes, or java is missing (bench/cosid/README.md).";

/// The length of each of the two rounds that do not count.
pub(crate) const WARM_UP: Duration = Duration::from_millis(1_500);

/// A Java process that takes numbers on request. It stays, because Java's compiler needs time.
pub(crate) struct Chain {
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    n_threads: u32,
}

/// Returns the class path of CosId, if the environment has it.
pub(crate) fn class_path() -> Option<String> {
    given("BENCH_COSID_CLASSPATH")
}

/// Returns the version of CosId's classes: from the environment, or from the name of their jar.
/// Without classes, returns `None`.
///
/// # Errors
/// A sentence, if the version of the classes is unknown. A figure without a version has no use.
pub(crate) fn version() -> Result<Option<String>, String> {
    let Some(path) = class_path() else {
        return Ok(None);
    };
    let version = given("BENCH_COSID_VERSION").or_else(|| version_of_jar(&path));
    let version = version.ok_or("BENCH_COSID_CLASSPATH names no cosid-core-VERSION.jar: say in BENCH_COSID_VERSION which version its classes are of");
    Ok(Some(version?))
}

fn given(variable: &str) -> Option<String> {
    std::env::var(variable)
        .ok()
        .filter(|value| !value.is_empty())
}

fn version_of_jar(class_path: &str) -> Option<String> {
    std::env::split_paths(class_path).find_map(|path| {
        let name = path.file_name()?.to_str()?;
        let version = name.strip_prefix("cosid-core-")?.strip_suffix(".jar")?;
        Some(version.to_owned())
    })
}

impl Chain {
    /// Starts the process. Returns `None` without CosId's classes or without Java.
    pub(crate) fn start(segment: u64, n_threads: u32) -> Option<Self> {
        let mut child = Command::new("java")
            .args(["-cp", &class_path()?])
            .arg(settings::repository().join("bench/cosid/Chain.java"))
            .args([segment.to_string(), n_threads.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        keeper::end_with_the_run(child.id(), "KILL");
        let orders = child.stdin.take();
        let answers = child.stdout.take().expect("standard output is piped");
        let mut chain = Self {
            child,
            orders,
            answers: BufReader::new(answers),
            n_threads,
        };
        // In its first rounds, Java's compiler uses the same cores.
        chain.round(WARM_UP);
        chain.round(WARM_UP);
        Some(chain)
    }

    /// Takes numbers for `length`. Returns the numbers a second.
    fn round(&mut self, length: Duration) -> f64 {
        let orders = self.orders.as_mut().expect("it is open until the end");
        let ordered = writeln!(orders, "{}", length.as_millis());
        let mut answer = String::new();
        let answered = self.answers.read_line(&mut answer);
        let rate = ordered.and(answered).ok().and(answer.trim().parse().ok());
        rate.expect("CosId does not run with the classes of BENCH_COSID_CLASSPATH")
    }
}

#[async_trait(?Send)]
impl Contender for Chain {
    fn name(&self) -> &str {
        NAME
    }

    /// Measures for a third of `length`, like the other contenders in this process.
    async fn measure(&mut self, length: Duration) -> Reading {
        let before = usage::processor_time(self.child.id());
        let rate = self.round(length / 3);
        let used = usage::processor_time(self.child.id()).saturating_sub(before);
        let threads_s = (length / 3 * self.n_threads).as_secs_f64();
        Reading {
            busy: Some(Busy {
                server: used.as_secs_f64() / threads_s,
                client: None,
            }),
            ..Reading::of(rate)
        }
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        drop(self.orders.take());
        if self.child.kill().is_ok() && self.child.wait().is_ok() {
            keeper::has_ended(self.child.id());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jar_says_its_version() {
        let of = |path| version_of_jar(path).unwrap_or_default();
        assert_eq!(of("/a/guava.jar:/a/cosid-core-3.2.1.jar"), "3.2.1");
        assert_eq!(of("/a/classes:/a/guava-31.jar"), "");
    }
}
