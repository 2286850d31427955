//! A throwaway Prometheus on loopback, which scrapes the replicas of a test and answers
//! expressions.

use std::{
    fmt::Display,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Client, Program, keeper, ports, wait};

/// How long Prometheus may take until it answers, and until it has scraped all its targets. The
/// first targets appear after about five seconds.
const START_LIMIT: Duration = Duration::from_secs(60);
/// The file with the targets. Prometheus reads it again after each change.
const TARGETS: &str = "targets.json";

/// One server process, killed when dropped or when the run ends.
pub struct Prometheus {
    process: Child,
    client: Client,
    /// The targets, in the form of the file.
    targets: Vec<Value>,
    directory: TempDir,
}

/// A rule that Prometheus has loaded.
#[derive(Clone, Debug)]
pub struct Rule {
    /// The name of the alert, or of the recorded series.
    pub name: String,
    pub expression: String,
    pub is_alert: bool,
    /// The reason why the rule could not be evaluated.
    pub error: String,
}

impl Prometheus {
    /// How often Prometheus scrapes. A window of four intervals has enough samples for a rate.
    pub const SCRAPE_INTERVAL: Duration = Duration::from_secs(1);

    /// Starts Prometheus with the rules in `rules`, and waits until it has scraped all targets.
    ///
    /// The targets are each of `replicas` under the job `odometer`, and Prometheus itself under the
    /// job
    /// `other`. The second job stands for the other things that a user's Prometheus watches.
    ///
    /// # Panics
    /// If Prometheus does not start; the message has its output.
    pub async fn start(replicas: &[Program], rules: &[PathBuf]) -> Self {
        let directory = keeper::directory("prometheus");
        let path = directory.path();
        let port = ports::free();
        let configuration = path.join("prometheus.yaml");
        std::fs::write(&configuration, configured(&path.join(TARGETS), rules, port))
            .expect("our directory");
        let log = path.join("log");
        let said = std::fs::File::create(&log).expect("our directory");
        let process = program("prometheus")
            .arg(format!("--config.file={}", configuration.display()))
            .arg(format!(
                "--storage.tsdb.path={}",
                path.join("data").display()
            ))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .current_dir(path)
            .stdin(Stdio::null())
            .stdout(said.try_clone().expect("a file can be had twice"))
            .stderr(said)
            .spawn()
            .unwrap_or_else(|error| panic!("prometheus does not start: {error}"));
        keeper::end_with_the_run(process.id(), "KILL");
        let mut server = Self {
            process,
            client: Client::new(&format!("http://127.0.0.1:{port}")),
            targets: Vec::new(),
            directory,
        };
        let addresses: Vec<&str> = replicas.iter().map(Program::address).collect();
        server.add(json!({ "targets": addresses }));
        server.answers(&log).await;
        let is_up = "up{job=\"odometer\"} == 1";
        server.all_up(is_up, addresses.len()).await;
        server.all_up("up{job=\"other\"} == 1", 1).await;
        server
    }

    /// Adds a replica to the targets, in a namespace of its own, and waits for its first scrape.
    pub async fn watch(&mut self, namespace: &str, replica: &Program) {
        let labels = json!({ "namespace": namespace });
        self.add(json!({ "targets": [replica.scraped_at()], "labels": labels }));
        let is_up = format!("up{{namespace=\"{namespace}\"}} == 1");
        self.all_up(&is_up, 1).await;
    }

    fn add(&mut self, targets: Value) {
        self.targets.push(targets);
        let path = self.directory.path();
        // The file is renamed into its place, so that Prometheus never reads half of it.
        let written = path.join("next");
        let text = Value::from(self.targets.clone()).to_string();
        std::fs::write(&written, text).expect("our directory");
        std::fs::rename(&written, path.join(TARGETS)).expect("our directory");
    }

    async fn answers(&mut self, log: &Path) {
        wait::until("prometheus answers", START_LIMIT, async || {
            let ended = self.process.try_wait().expect("our child is waited for");
            let said = || std::fs::read_to_string(log).unwrap_or_default();
            assert!(ended.is_none(), "prometheus ended:\n{}", said());
            let reply = self.client.get("/-/ready").await;
            reply.is_ok_and(|reply| reply.status == 200).then_some(())
        })
        .await;
    }

    /// Waits until `expression` finds `n_targets` targets.
    async fn all_up(&self, expression: &str, n_targets: usize) {
        wait::until("prometheus has scraped all", START_LIMIT, async || {
            let up = self.query(expression).await.expect("an expression");
            (up.len() == n_targets).then_some(())
        })
        .await;
    }

    /// Returns the rules that Prometheus has loaded, as Prometheus understands them.
    pub async fn rules(&self) -> Vec<Rule> {
        let found = self.api("rules", &[]).await.expect("it tells its rules");
        let groups = found["groups"].as_array().cloned().unwrap_or_default();
        let rules = groups.iter().flat_map(|group| group["rules"].as_array());
        let text = |of: &Value| of.as_str().unwrap_or_default().to_owned();
        rules
            .flatten()
            .map(|rule| Rule {
                name: text(&rule["name"]),
                expression: text(&rule["query"]),
                is_alert: rule["type"] == "alerting",
                error: text(&rule["lastError"]),
            })
            .collect()
    }

    /// Returns the present values of `expression`, of which there may be none. Returns an error if
    /// the text is no expression.
    pub async fn query(&self, expression: &str) -> Result<Vec<f64>, String> {
        let found = self.api("query", &[("query", expression)]).await?;
        let samples = match found["resultType"].as_str() {
            Some("vector") => found["result"].as_array().cloned().unwrap_or_default(),
            Some("scalar") => return Ok(vec![number(&found["result"][1])]),
            other => return Err(format!("a result of type {other:?}: {expression}")),
        };
        let values = samples.iter().map(|sample| number(&sample["value"][1]));
        Ok(values.collect())
    }

    /// Returns the `data` of a reply of the API, or its error.
    async fn api(&self, call: &str, parameters: &[(&str, &str)]) -> Result<Value, String> {
        // Only the part after the host is used.
        let base = format!("http://127.0.0.1/api/v1/{call}");
        let url = reqwest::Url::parse_with_params(&base, parameters).expect("a URL");
        let path = format!("{}?{}", url.path(), url.query().unwrap_or_default());
        let reply = self.client.get(&path).await.expect("prometheus answers");
        let mut reply = reply.json();
        match reply["error"].as_str() {
            Some(error) => Err(error.to_owned()),
            None => Ok(reply["data"].take()),
        }
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let number = self.process.id();
        // Nobody needs the scraped data, so a kill does no harm.
        if self.process.kill().is_ok() && self.process.wait().is_ok() {
            keeper::has_ended(number);
        }
    }
}

/// Checks a file with `promtool check KIND`, for example `config` or `rules`.
///
/// # Panics
/// If `promtool` refuses the file; the message has the reason.
pub fn check(kind: &str, file: &Path) {
    let mut command = program("promtool");
    super::server::run_to_the_end(command.args(["check", kind]).arg(file));
}

fn program(name: &str) -> Command {
    let path = PathBuf::from("/usr/bin").join(name);
    assert!(
        path.is_file(),
        "{name} is missing: apt-get install prometheus"
    );
    Command::new(path)
}

fn configured(targets: &Path, rules: &[PathBuf], port: u16) -> String {
    let interval = Prometheus::SCRAPE_INTERVAL.as_secs();
    let rules = quoted(rules.iter().map(|rule| rule.display()));
    let targets = quoted([targets.display()].iter());
    format!(
        "global:\n  scrape_interval: {interval}s\n  evaluation_interval: {interval}s\n\
         rule_files: [{rules}]\n\
         scrape_configs:\n  - job_name: odometer\n    file_sd_configs:\n      \
         - files: [{targets}]\n        refresh_interval: {interval}s\n\
         \x20 - job_name: other\n    static_configs:\n      \
         - targets: [\"127.0.0.1:{port}\"]\n"
    )
}

fn quoted(items: impl Iterator<Item = impl Display>) -> String {
    let items: Vec<String> = items.map(|item| format!("\"{item}\"")).collect();
    items.join(", ")
}

fn number(text: &Value) -> f64 {
    let number = text.as_str().and_then(|text| text.parse().ok());
    number.unwrap_or_else(|| panic!("not a number: {text}"))
}

#[test]
fn targets_and_rules_are_named() {
    let rules = [PathBuf::from("/a/b.yaml"), PathBuf::from("/a/c.yaml")];
    assert_eq!(
        configured(Path::new("/t/targets.json"), &rules, 9090),
        "global:\n  scrape_interval: 1s\n  evaluation_interval: 1s\n\
         rule_files: [\"/a/b.yaml\", \"/a/c.yaml\"]\n\
         scrape_configs:\n  - job_name: odometer\n    file_sd_configs:\n      \
         - files: [\"/t/targets.json\"]\n        refresh_interval: 1s\n\
         \x20 - job_name: other\n    static_configs:\n      \
         - targets: [\"127.0.0.1:9090\"]\n"
    );
}
