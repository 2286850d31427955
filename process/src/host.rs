//! Names the machine that this program runs on, and checks the names of hosts.

use std::net::{IpAddr, Ipv6Addr};

/// Bounds how many characters of the machine's name tell replicas apart.
const LENGTH: usize = 40;

/// Returns the name of this machine and this process. The names of holders in the journal begin
/// with it.
pub fn process() -> String {
    format!("{}-{}", name(LENGTH), std::process::id())
}

/// Returns whether `host` is how this machine calls itself: `localhost`, or a loopback address,
/// with brackets or without.
pub fn is_this_machine(host: &str) -> bool {
    let in_brackets = host.strip_prefix('[').and_then(|of| of.strip_suffix(']'));
    let bare = in_brackets.unwrap_or(host);
    bare.eq_ignore_ascii_case("localhost")
        || bare
            .parse()
            .is_ok_and(|address: IpAddr| address.is_loopback())
}

/// Returns a host without its port. The port follows the last colon, unless that colon is within
/// the brackets of an address.
pub fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

/// Returns whether `host` can be the name in a `Host` header: a name or an address. An IPv6 address
/// must be in brackets.
pub fn is_name(host: &str) -> bool {
    let in_brackets = host.strip_prefix('[').and_then(|of| of.strip_suffix(']'));
    if let Some(address) = in_brackets {
        return address.parse::<Ipv6Addr>().is_ok();
    }
    let is_of_names = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    !host.is_empty() && host.bytes().all(is_of_names)
}

/// Returns the first printable characters of this machine's name, at most `most`. Empty if the
/// machine has no name.
pub fn name(most: usize) -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let printable = name.trim().chars().filter(char::is_ascii_graphic);
    printable.take(most).collect()
}
