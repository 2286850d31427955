//! Decides which of several servers counts for a sequence, by rendezvous hashing. If a server is
//! added or removed, only the sequences that it gets or had move.
//!
//! Source: Thaler and Ravishankar, "Using name-based mappings to increase hit rates", 1998.

/// Returns the index of the server that counts for `sequence`: the server with the highest score.
/// All replicas must come to the same result, so it depends only on the servers' labels and the
/// name.
pub(crate) fn server_of<'a>(
    labels: impl Iterator<Item = &'a str>,
    sequence: &str,
) -> Option<usize> {
    labels
        .map(|label| score(label, sequence))
        .enumerate()
        .max_by_key(|(_, score)| *score)
        .map(|(index, _)| index)
}

/// Computes FNV-1a over label and name, and then the finalizer of MurmurHash3. Without the
/// finalizer, similar names get similar scores.
fn score(label: &str, sequence: &str) -> u64 {
    let bytes = label.bytes().chain([0]).chain(sequence.bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVERS: [&str; 3] = ["r1:6379/0", "r2:6379/0", "r3:6379/0"];

    fn of(labels: &[&'static str], name: &str) -> &'static str {
        let index = server_of(labels.iter().copied(), name).unwrap_or(usize::MAX);
        labels.get(index).copied().unwrap_or("none")
    }

    #[test]
    fn the_order_of_the_list_does_not_matter() {
        let reversed: Vec<&'static str> = SERVERS.into_iter().rev().collect();
        for n in 0..1000 {
            let name = format!("orders-{n}");
            assert_eq!(of(&SERVERS, &name), of(&reversed, &name));
        }
    }

    #[test]
    fn a_server_less_moves_only_what_it_had_and_all_get_their_part() {
        let mut n_each = [0_u32; 3];
        for n in 0..3000 {
            let name = format!("orders-{n}");
            let with_all = of(&SERVERS, &name);
            for (count, label) in n_each.iter_mut().zip(SERVERS) {
                *count += u32::from(label == with_all);
            }
            let without = [SERVERS[0], SERVERS[1]];
            if with_all != SERVERS[2] {
                assert_eq!(of(&without, &name), with_all);
            }
        }
        assert!(
            n_each.iter().all(|count| (800..1200).contains(count)),
            "{n_each:?}"
        );
    }

    #[test]
    fn without_a_server_there_is_none() {
        assert_eq!(server_of(std::iter::empty(), "orders"), None);
    }
}
