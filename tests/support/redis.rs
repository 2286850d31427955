//! A throwaway Redis on loopback, in a directory of its own. A test can kill it, restart it with an
//! older dump, make it a follower, and promote it.

use std::{
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use tempfile::TempDir;

use super::{
    Authority, Proxy, certificates::Certificate, child::wait_with_limit, keeper, ports,
    server::pid, wait,
};

const START_LIMIT: Duration = Duration::from_secs(30);
const END_LIMIT: Duration = Duration::from_secs(10);
/// The file to which Redis saves its data.
const DUMP: &str = "dump.rdb";

/// One server process, killed when dropped or when the run ends.
pub struct Redis {
    directory: TempDir,
    port: u16,
    process: Option<Child>,
    /// The port for TLS, and the arguments for it.
    tls: Option<(u16, Vec<String>)>,
}

/// The data of a server at one moment.
pub struct RedisDump(Vec<u8>);

impl Redis {
    /// Starts an empty server, which saves its data only on demand.
    pub async fn start() -> Self {
        let mut server = Self {
            directory: keeper::directory("redis"),
            port: ports::free(),
            process: None,
            tls: None,
        };
        server.start_again().await;
        server
    }

    /// Starts an empty server that also listens for TLS.
    pub async fn start_with_tls(certificate: &Certificate, authority: &Authority) -> Self {
        let path = |path: &std::path::Path| path.display().to_string();
        let port = ports::free();
        let mut server = Self {
            directory: keeper::directory("redis"),
            port: ports::free(),
            process: None,
            tls: None,
        };
        let arguments = [
            ("--tls-port", port.to_string()),
            ("--tls-cert-file", path(&certificate.certificate)),
            ("--tls-key-file", path(&certificate.key)),
            ("--tls-ca-cert-file", path(&authority.certificate())),
            ("--tls-auth-clients", "no".to_owned()),
        ];
        let arguments = arguments.map(|(name, value)| [name.to_owned(), value]);
        server.tls = Some((port, arguments.concat()));
        server.start_again().await;
        server
    }

    /// Returns the port for TLS.
    ///
    /// # Panics
    /// If the server does not listen for TLS.
    pub fn tls_port(&self) -> u16 {
        self.tls.as_ref().expect("it listens for TLS").0
    }

    /// Starts the server with the dump in its directory, if there is one. Waits until the server
    /// answers.
    pub async fn start_again(&mut self) {
        assert!(self.process.is_none(), "the server is running");
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.directory.path().join("server.log"))
            .expect("the server's directory is ours");
        let process = Command::new("redis-server")
            .args(["--bind", "127.0.0.1", "--port", &self.port.to_string()])
            .args(["--save", "", "--appendonly", "no"])
            .args(self.tls.iter().flat_map(|(_, arguments)| arguments))
            // With these options a follower gets its copy at once.
            .args(["--repl-diskless-sync", "yes"])
            .args(["--repl-diskless-sync-delay", "0"])
            .args(["--dbfilename", DUMP, "--dir"])
            .arg(self.directory.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a file can be had twice"))
            .stderr(log)
            .spawn()
            .unwrap_or_else(|error| panic!("redis-server does not start: {error}"));
        keeper::end_with_the_run(process.id(), "KILL");
        self.process = Some(process);
        let started = Instant::now();
        while self.try_ask(&["PING"]).as_deref() != Some("PONG") {
            assert!(started.elapsed() < START_LIMIT, "redis does not answer");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the id of the server's process.
    ///
    /// # Panics
    /// If the server is not running.
    pub fn id(&self) -> u32 {
        self.process.as_ref().expect("the server is running").id()
    }

    /// Returns the URL by which the program under test reaches the server.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Kills the server, as a power cut would.
    pub fn kill(&mut self) {
        let mut process = self.process.take().expect("the server is running");
        process.kill().expect("our child can be killed");
        process.wait().expect("our child can be waited for");
        keeper::has_ended(process.id());
    }

    /// Saves the data of the server and returns them.
    pub fn dump(&self) -> RedisDump {
        assert_eq!(self.ask(&["SAVE"]), "OK");
        let dump = std::fs::read(self.directory.path().join(DUMP));
        let dump = RedisDump(dump.expect("it has saved"));
        self.forget();
        dump
    }

    /// Writes `dump` to the file that the next start reads.
    pub fn put_back(&self, dump: &RedisDump) {
        std::fs::write(self.directory.path().join(DUMP), &dump.0).expect("our directory");
    }

    /// Removes the dump, so that the next start finds no data.
    pub fn forget(&self) {
        // There may be no dump.
        let _none = std::fs::remove_file(self.directory.path().join(DUMP));
    }

    /// Sends a command and returns the server's answer.
    ///
    /// # Panics
    /// If the server does not answer.
    pub fn ask(&self, words: &[&str]) -> String {
        self.try_ask(words)
            .unwrap_or_else(|| panic!("{words:?}: redis on {} does not answer", self.port))
    }

    fn try_ask(&self, words: &[&str]) -> Option<String> {
        let output = Command::new("redis-cli")
            .args(["-h", "127.0.0.1", "-p", &self.port.to_string()])
            .args(words)
            .stdin(Stdio::null())
            .output()
            .unwrap_or_else(|error| panic!("redis-cli does not start: {error}"));
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        output.status.success().then_some(text)
    }

    /// Lists the keys that match a pattern.
    pub fn keys(&self, pattern: &str) -> Vec<String> {
        let keys = self.ask(&["KEYS", pattern]);
        let keys = keys.lines().filter(|key| !key.is_empty());
        keys.map(str::to_owned).collect()
    }

    /// Makes this server follow the server behind `link`, which replaces its data. Waits until the
    /// copy is complete, and checks that `master` is a master.
    pub async fn follow(&self, link: &Proxy, master: &Redis) {
        let port = link.port().to_string();
        assert_eq!(self.ask(&["REPLICAOF", "127.0.0.1", &port]), "OK");
        wait::until("the follower has its copy", START_LIMIT, async || {
            let is_up = self.ask(&["INFO", "replication"]);
            (is_up.contains("master_link_status:up") && is_up.contains("role:slave")).then_some(())
        })
        .await;
        let followed = master.ask(&["INFO", "replication"]);
        assert!(followed.contains("role:master"), "{followed}");
    }

    /// Makes a follower a master.
    pub fn promote(&self) {
        assert_eq!(self.ask(&["REPLICAOF", "NO", "ONE"]), "OK");
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let Some(mut process) = self.process.take() else {
            return;
        };
        let number = pid(process.id());
        if rustix::process::kill_process(number, rustix::process::Signal::KILL).is_ok() {
            wait_with_limit(&mut process, END_LIMIT);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;
    use crate::{Link, run};

    #[test]
    fn a_server_comes_back_with_what_it_is_given() {
        run(async {
            let mut server = Redis::start().await;
            server.ask(&["SET", "a", "1"]);
            let dump = server.dump();
            server.ask(&["SET", "a", "2"]);
            server.kill();
            server.put_back(&dump);
            server.start_again().await;
            assert_eq!(server.ask(&["GET", "a"]), "1");
            assert_eq!(server.keys("*"), ["a"]);
            server.kill();
            server.forget();
            server.start_again().await;
            assert_eq!(server.keys("*"), Vec::<String>::new());
        });
    }

    #[test]
    fn a_follower_that_lags_is_promoted_without_what_it_missed() {
        run(async {
            let (master, follower) = (Redis::start().await, Redis::start().await);
            let link = Proxy::to(master.port()).await;
            master.ask(&["SET", "a", "1"]);
            follower.follow(&link, &master).await;
            link.set(Link::RepliesLost);
            master.ask(&["SET", "a", "2"]);
            follower.promote();
            assert_eq!(follower.ask(&["GET", "a"]), "1");
        });
    }

    #[test]
    fn one_of_two_callers_is_led_elsewhere() {
        run(async {
            let (here, there) = (Redis::start().await, Redis::start().await);
            here.ask(&["SET", "who", "here"]);
            there.ask(&["SET", "who", "there"]);
            let proxy = Proxy::by_caller(here.port()).await;
            let ask_by_another = || {
                // The shell waits for a line, and then becomes the process that asks.
                let ask = format!("read go; exec redis-cli -p {} get who", proxy.port());
                let mut another = tokio::process::Command::new("sh");
                let another = another.args(["-c", &ask]);
                let another = another.stdin(Stdio::piped()).stdout(Stdio::piped());
                another.spawn().expect("sh starts")
            };
            let (led, other) = (ask_by_another(), ask_by_another());
            proxy.lead_to_for(led.id().expect("it runs"), there.port());
            let said = async |mut process: tokio::process::Child| {
                let mut input = process.stdin.take().expect("standard input is piped");
                input.write_all(b"go\n").await.expect("it reads");
                let output = process.wait_with_output().await.expect("it ends");
                String::from_utf8_lossy(&output.stdout).trim().to_owned()
            };
            assert_eq!(said(led).await, "there");
            assert_eq!(said(other).await, "here");
        });
    }
}
