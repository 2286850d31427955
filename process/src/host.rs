//! What the machine that this program runs on is called.

use std::net::{IpAddr, Ipv6Addr};

/// Characters of the machine's name by which replicas are told apart.
const LENGTH: usize = 40;

/// This machine and this process, as the names of holders in the journal begin.
pub fn process() -> String {
    format!("{}-{}", name(LENGTH), std::process::id())
}

/// Whether this is what this machine calls itself: `localhost`, or an address of loopback, with
/// brackets or without.
pub fn is_this_machine(host: &str) -> bool {
    let in_brackets = host.strip_prefix('[').and_then(|of| of.strip_suffix(']'));
    let bare = in_brackets.unwrap_or(host);
    bare.eq_ignore_ascii_case("localhost")
        || bare
            .parse()
            .is_ok_and(|address: IpAddr| address.is_loopback())
}

/// A host without its port, which follows the last colon, unless that is within the brackets of an
/// address.
pub fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

/// Whether it can be the name in a `Host` header: a name, or an address, an IPv6 address in brackets.
pub fn is_name(host: &str) -> bool {
    let in_brackets = host.strip_prefix('[').and_then(|of| of.strip_suffix(']'));
    if let Some(address) = in_brackets {
        return address.parse::<Ipv6Addr>().is_ok();
    }
    let is_of_names = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    !host.is_empty() && host.bytes().all(is_of_names)
}

/// The first characters of the name of this machine, at most so many, without what is not
/// printable; empty where it has none.
pub fn name(most: usize) -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let printable = name.trim().chars().filter(char::is_ascii_graphic);
    printable.take(most).collect()
}
