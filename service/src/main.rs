//! The program. All of it is in the library, so that nothing is compiled twice.

use std::process::ExitCode;

fn main() -> ExitCode {
    odometer::command_line::run_program()
}
