//! The program. All of it is in the library, so that nothing is compiled twice.

use std::process::ExitCode;

use tikv_jemallocator::Jemalloc;

/// The allocator of the program: see ADR 27.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

fn main() -> ExitCode {
    odometer::command_line::run_program()
}
