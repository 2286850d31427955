//! Starts the programs that are measured next to Odometer. A program ends when it is dropped, or
//! when the run ends.

use std::{
    net::TcpStream,
    process::{Child, Command, Stdio},
    time::Duration,
};

use odometer_tests::{keeper, wait};

use crate::cores::{Cores, Side};

const START_LIMIT: Duration = Duration::from_secs(20);

/// A server that listens on a port of loopback.
pub(crate) struct Process {
    child: Child,
    port: u16,
}

impl Process {
    /// Starts `command` and waits until it listens on `port`.
    ///
    /// # Panics
    /// If the command cannot be started, or does not listen in time.
    pub(crate) async fn start(cores: &Cores, side: Side, command: &mut Command, port: u16) -> Self {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = cores.start(side, async { command.spawn() }).await;
        let mut child = child.unwrap_or_else(|error| panic!("{command:?} does not start: {error}"));
        keeper::end_with_the_run(child.id(), "KILL");
        let what = format!("{command:?} listens");
        wait::until(&what, START_LIMIT, async || {
            // If the command has ended, another program listens on the port and would be measured.
            let ended = child.try_wait().expect("our child can be waited for");
            assert!(ended.is_none(), "{command:?} has ended: {ended:?}");
            TcpStream::connect(("127.0.0.1", port)).ok()
        })
        .await;
        Self { child, port }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Returns the address, as `host:port`.
    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.child.kill().is_ok() && self.child.wait().is_ok() {
            keeper::has_ended(self.child.id());
        }
    }
}
