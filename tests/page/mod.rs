//! The page for people, as files and in a real browser.

mod driver;
mod files;
mod stages;
