//! What the machine that this program runs on is called.

use std::net::IpAddr;

/// Characters of the machine's name by which replicas are told apart.
const LENGTH: usize = 40;

/// This machine and this process, as the names of holders in the journal begin.
pub(crate) fn process() -> String {
    format!("{}-{}", name(LENGTH), std::process::id())
}

/// Whether this is what this machine calls itself: `localhost`, or an address of loopback, with
/// brackets or without.
pub(crate) fn is_this_machine(host: &str) -> bool {
    let in_brackets = host.strip_prefix('[').and_then(|of| of.strip_suffix(']'));
    let bare = in_brackets.unwrap_or(host);
    bare.eq_ignore_ascii_case("localhost")
        || bare
            .parse()
            .is_ok_and(|address: IpAddr| address.is_loopback())
}

/// The first characters of the name of this machine, at most so many, without what is not
/// printable; empty where it has none.
pub(crate) fn name(most: usize) -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let printable = name.trim().chars().filter(char::is_ascii_graphic);
    printable.take(most).collect()
}
