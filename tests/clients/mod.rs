//! The client libraries: which numbers their callers get, and which calls they make.
//!
//! Each language has a driver. This is a program that reads steps from standard input, takes
//! numbers with the library of its language, and prints them. The same tests drive all of them.
//! The replicas of `scripted` answer by a script, and those of `replicas` are the real program on
//! real databases. A test names the rule of the library's contract that it is about.

mod driver;
mod frameworks;
mod jar;
mod language;
mod packages;
mod replicas;
mod scripted;
mod typescript;
