//! Asks cargo for the packages of the workspace.

use std::process::Command;

use serde_json::Value;

use crate::support::settings;

/// Returns what `cargo metadata` says about the packages of the workspace.
pub(crate) fn metadata() -> Value {
    let mut metadata = Command::new("cargo");
    metadata.current_dir(settings::repository()).args([
        "metadata",
        "--locked",
        "--offline",
        "--no-deps",
        "--format-version",
        "1",
    ]);
    let output = metadata.output().expect("cargo runs");
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("it is JSON")
}
