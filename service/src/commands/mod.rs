//! The commands of the program, one file each.
//!
//! This folder owns what each command does, its options, its examples and its output. The commands
//! that call a running replica are not here. The file `command_line.rs` above this folder chooses
//! the command. No command knows SQL, and only `serve`, which is not here, answers HTTP.
//!
//! `apply`, `check`, `migrate` and `recover` open the stores themselves. The others only print or
//! write text.

pub mod apply;
pub mod check;
pub mod check_caller;
pub mod check_name;
pub mod completions;
pub mod failure;
pub mod init;
pub mod manual;
pub mod migrate;
pub mod output;
pub mod progress;
pub mod recover;
pub mod show_config;
pub mod signals;
pub mod token;
