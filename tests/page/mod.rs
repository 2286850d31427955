//! Tests the page for people: its files, and the page in a real browser.

mod driver;
mod files;
mod stages;
