//! What the machine that this program runs on is called.

/// The first characters of the name of this machine, at most so many, without what is not
/// printable; empty where it has none.
pub(crate) fn name(most: usize) -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let printable = name.trim().chars().filter(char::is_ascii_graphic);
    printable.take(most).collect()
}
