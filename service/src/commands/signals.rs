//! Receives the signals that stop the service, end another command, or let files be read again.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::{self, Receiver};

use super::failure::CommandFailure;

/// Runs a command until it ends or until the first signal.
///
/// As the first process of a container, the program would otherwise ignore signals. Changes that
/// the command's statements made by then stay, as after a kill.
///
/// # Errors
/// The command failed, or a signal ended it.
pub async fn until_signal(
    command: impl Future<Output = Result<(), CommandFailure>>,
) -> Result<(), CommandFailure> {
    let mut signals = signals()?;
    tokio::select! {
        outcome = command => outcome,
        Some(signal) = signals.recv() => Err(CommandFailure::other(format!(
            "ended by {signal} before it was done; what it had done by then stays: look before you \
             run it again"
        ))),
    }
}

/// Returns a channel that gets the name of each SIGTERM and SIGINT.
///
/// # Errors
/// Signals cannot be received.
pub fn signals() -> Result<Receiver<&'static str>, CommandFailure> {
    let mut terminate = listen(SignalKind::terminate())?;
    let mut interrupt = listen(SignalKind::interrupt())?;
    let (sender, receiver) = mpsc::channel(2);
    tokio::spawn(async move {
        loop {
            let name = tokio::select! {
                _ = terminate.recv() => "SIGTERM",
                _ = interrupt.recv() => "SIGINT",
            };
            if sender.send(name).await.is_err() {
                return;
            }
        }
    });
    Ok(receiver)
}

/// Returns what receives SIGHUP from now on. The signal then no longer ends the program.
///
/// # Errors
/// The signal cannot be received.
pub fn hangup() -> Result<Signal, CommandFailure> {
    listen(SignalKind::hangup())
}

fn listen(kind: SignalKind) -> Result<Signal, CommandFailure> {
    signal(kind)
        .map_err(|error| CommandFailure::other(format!("signals cannot be received: {error}")))
}
