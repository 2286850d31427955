//! Counts wrong tokens: how many, from which address, and whether the next token from there has to
//! wait.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use metrics::Counter;
use odometer_process::{
    faults::{self, Fault},
    log::AUDIT,
};
use parking_lot::Mutex;

/// The time in which wrong tokens are counted together, for one line of the log.
const MINUTE: Duration = Duration::from_secs(60);

/// If one address shows this many wrong tokens in a minute, its next tokens wait.
pub(crate) const MAX_AT_ONCE: u64 = 10;

/// The most tokens of one address that wait at once. Further tokens are not compared.
pub(crate) const MAX_WAITING: usize = 8;

/// The most addresses that are counted separately in a minute. All further addresses count as one.
const MAX_ADDRESSES: usize = 1024;

/// The most addresses that a line of the log names.
const MAX_NAMED: usize = 8;

/// The wrong tokens of this replica.
pub(crate) struct WrongTokens {
    minute: Mutex<Option<Minute>>,
    /// The tokens of each address that wait now. Addresses that count as one are under `None`.
    waiting: Mutex<BTreeMap<Option<IpAddr>, Waiting>>,
    counter: Counter,
}

/// When a token is compared.
pub(crate) enum ComparisonTime {
    Now,
    /// After a delay. The caller keeps this value during the delay.
    Later(Waiting),
    /// Never, because too many tokens wait.
    Never,
}

/// Shared by the tokens of one address that wait, and by the list of them. So as many wait as there
/// are owners besides the list.
#[derive(Clone, Default)]
pub(crate) struct Waiting(Arc<()>);

impl Waiting {
    fn n_tokens(&self) -> usize {
        Arc::strong_count(&self.0) - 1
    }
}

/// The wrong tokens since the line of the log that began this minute.
struct Minute {
    began: Instant,
    /// Attempts by address. Unknown addresses, and addresses above the limit, are under `None`.
    of: BTreeMap<Option<IpAddr>, Attempts>,
}

#[derive(Clone, Copy, Default)]
struct Attempts {
    n: u64,
    n_untold: u64,
}

/// The content of a line of the log.
#[derive(PartialEq, Eq, Debug)]
struct Line {
    count: u64,
    peers: String,
}

impl WrongTokens {
    pub(crate) fn new(counter: Counter) -> Self {
        Self {
            minute: Mutex::default(),
            waiting: Mutex::default(),
            counter,
        }
    }

    /// Returns when a token from `peer` is to be compared, no matter whether the token is right.
    ///
    /// So a caller who hangs up while the token waits learns nothing about it.
    pub(crate) fn turn(&self, peer: Option<IpAddr>, now: Instant) -> ComparisonTime {
        self.tell(now);
        let peer = peer.map(network);
        let minute = self.minute.lock();
        let (peer, n) = minute.as_ref().map_or((peer, 0), |minute| {
            let peer = minute.counted_under(peer);
            (peer, minute.of.get(&peer).map_or(0, |of| of.n))
        });
        drop(minute);
        if n < MAX_AT_ONCE || faults::is(Fault::NoTokenDelay) {
            return ComparisonTime::Now;
        }
        let mut waiting = self.waiting.lock();
        waiting.retain(|_, of| of.n_tokens() > 0);
        let of_peer = waiting.entry(peer).or_default();
        if of_peer.n_tokens() >= MAX_WAITING {
            return ComparisonTime::Never;
        }
        ComparisonTime::Later(of_peer.clone())
    }

    /// Counts a wrong token from `peer`.
    pub(crate) fn note(&self, peer: Option<IpAddr>, now: Instant) {
        self.counter.increment(1);
        self.tell(now);
        write(self.count(peer, now));
    }

    /// Writes the line of a minute that is over at the time `now`. That line also begins the next
    /// minute.
    pub(crate) fn tell(&self, now: Instant) {
        write(self.line_of_the_minute_before(now));
    }

    fn line_of_the_minute_before(&self, now: Instant) -> Option<Line> {
        let mut minute = self.minute.lock();
        let mut over =
            minute.take_if(|minute| now.saturating_duration_since(minute.began) >= MINUTE)?;
        let line = over.line();
        if line.is_some() {
            *minute = Some(Minute::begin(now));
        }
        line
    }

    /// Counts a wrong token. Returns a line if the token is the first of a minute.
    fn count(&self, peer: Option<IpAddr>, now: Instant) -> Option<Line> {
        let mut minute = self.minute.lock();
        let is_first = minute.is_none();
        let minute = minute.get_or_insert_with(|| Minute::begin(now));
        let peer = minute.counted_under(peer.map(network));
        let attempts = minute.of.entry(peer).or_default();
        attempts.n += 1;
        attempts.n_untold += 1;
        is_first.then(|| minute.line()).flatten()
    }
}

impl Minute {
    fn begin(began: Instant) -> Self {
        Self {
            began,
            of: BTreeMap::new(),
        }
    }

    /// Returns the address, or `None` if there are too many addresses to tell this one apart.
    fn counted_under(&self, peer: Option<IpAddr>) -> Option<IpAddr> {
        peer.filter(|_| self.of.contains_key(&peer) || self.of.len() < MAX_ADDRESSES)
    }

    /// Returns a line about everything that no line has reported yet, if there is anything.
    fn line(&mut self) -> Option<Line> {
        let untold = self.of.iter().filter(|(_, of)| of.n_untold > 0);
        let mut untold: Vec<(u64, String)> = untold
            .map(|(peer, of)| {
                let peer = peer.as_ref().map_or_else(|| "others".to_owned(), named);
                (of.n_untold, peer)
            })
            .collect();
        untold.sort_unstable_by(|left, right| right.cmp(left));
        let count = untold.iter().map(|(n, _)| n).sum();
        for attempts in self.of.values_mut() {
            attempts.n_untold = 0;
        }
        let n_more = untold.len().saturating_sub(MAX_NAMED);
        let named = untold.into_iter().take(MAX_NAMED);
        let mut peers: Vec<String> = named.map(|(n, peer)| format!("{peer} {n}")).collect();
        if n_more > 0 {
            peers.push(format!("{n_more} more"));
        }
        let peers = peers.join(", ");
        (count > 0).then_some(Line { count, peers })
    }
}

/// Returns what counts as one address. For IPv6 that is a network of 64 bits, because one caller
/// may have all of it.
fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => IpAddr::from(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        address => address,
    }
}

/// Returns how the log names an address.
fn named(network: &IpAddr) -> String {
    match network {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(network) => format!("{network}/64"),
    }
}

fn write(line: Option<Line>) {
    if let Some(Line { count, peers }) = line {
        tracing::warn!(target: AUDIT, count, peers, "wrong tokens were shown");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(last: u8) -> Option<IpAddr> {
        Some(IpAddr::from([192, 0, 2, last]))
    }

    fn n_waiting(tokens: &WrongTokens) -> usize {
        tokens.waiting.lock().values().map(Waiting::n_tokens).sum()
    }

    #[test]
    fn after_ten_a_minute_an_address_waits_and_others_do_not() {
        let tokens = WrongTokens::new(Counter::noop());
        let now = Instant::now();
        for n in 0..20 {
            let waits = !matches!(tokens.turn(peer(1), now), ComparisonTime::Now);
            assert_eq!(waits, n >= 10, "{n}");
            tokens.note(peer(1), now);
        }
        assert!(matches!(tokens.turn(peer(2), now), ComparisonTime::Now));
        assert!(matches!(
            tokens.turn(peer(1), now + MINUTE),
            ComparisonTime::Now
        ));
    }

    #[test]
    fn eight_of_an_address_wait_at_once_whenever_the_minute_ends() {
        let tokens = WrongTokens::new(Counter::noop());
        let start = Instant::now();
        let guess = |at| (0..MAX_AT_ONCE).for_each(|_| tokens.note(peer(1), at));
        guess(start);
        let mut waiting: Vec<_> = (0..5).map(|_| tokens.turn(peer(1), start)).collect();
        let later = start + MINUTE;
        assert!(matches!(tokens.turn(peer(1), later), ComparisonTime::Now));
        guess(later);
        waiting.extend((0..3).map(|_| tokens.turn(peer(1), later)));
        assert!(
            waiting
                .iter()
                .all(|turn| matches!(turn, ComparisonTime::Later(_)))
        );
        assert_eq!(n_waiting(&tokens), MAX_WAITING);
        assert!(matches!(tokens.turn(peer(1), later), ComparisonTime::Never));
        waiting.pop();
        assert!(matches!(
            tokens.turn(peer(1), later),
            ComparisonTime::Later(_)
        ));
        drop(waiting);
        assert_eq!(n_waiting(&tokens), 0);
    }

    #[test]
    fn addresses_of_one_network_count_as_one() {
        let tokens = WrongTokens::new(Counter::noop());
        let now = Instant::now();
        let address = |text: &str| text.parse().ok();
        for n in 0..MAX_AT_ONCE {
            tokens.note(address(&format!("2001:db8:0:1::{n:x}")), now);
            tokens.note(address(&format!("::ffff:192.0.2.{n}")), now);
        }
        let waits = |text: &str| !matches!(tokens.turn(address(text), now), ComparisonTime::Now);
        assert!(waits("2001:db8:0:1:ffff::1"));
        assert!(!waits("2001:db8:0:2::1"));
        assert!(!waits("192.0.2.1") && !waits("::ffff:192.0.2.1"));
        let line = tokens.minute.lock().as_mut().and_then(Minute::line);
        let peers = line.map(|line| line.peers).unwrap_or_default();
        assert!(peers.starts_with("2001:db8:0:1::/64 9, "), "{peers}");
    }

    fn line(count: u64, peers: &str) -> Option<Line> {
        let peers = peers.to_owned();
        Some(Line { count, peers })
    }

    #[test]
    fn one_line_a_minute_says_how_many_came_from_where() {
        let tokens = WrongTokens::new(Counter::noop());
        let now = Instant::now();
        assert_eq!(tokens.count(peer(1), now), line(1, "192.0.2.1 1"));
        for _ in 0..3 {
            assert_eq!(tokens.count(peer(2), now), None);
        }
        for last in 10..20 {
            assert_eq!(tokens.count(peer(last), now), None);
        }
        let mut minute = tokens.minute.lock().take();
        let told = minute.as_mut().and_then(Minute::line);
        let told = told
            .map(|line| (line.count, line.peers))
            .unwrap_or_default();
        assert_eq!(told.0, 13);
        assert!(
            told.1.starts_with("192.0.2.2 3, ") && told.1.ends_with(", 3 more"),
            "{told:?}"
        );
        assert_eq!(minute.as_mut().and_then(Minute::line), None);
    }

    #[test]
    fn an_attack_that_lasts_is_one_line_a_minute() {
        let tokens = WrongTokens::new(Counter::noop());
        let start = Instant::now();
        let (mut n_lines, mut count) = (0, 0);
        for second in 0..600 {
            let now = start + Duration::from_secs(second);
            let told = tokens.line_of_the_minute_before(now);
            for line in [told, tokens.count(peer(1), now)].into_iter().flatten() {
                n_lines += 1;
                count += line.count;
            }
        }
        assert_eq!(n_lines, 10);
        let rest = tokens.minute.lock().as_mut().and_then(Minute::line);
        assert_eq!(count + rest.map_or(0, |rest| rest.count), 600);
        // A minute without wrong tokens ends the count, and the next wrong token is logged at once.
        let end = start + Duration::from_secs(700);
        assert_eq!(tokens.line_of_the_minute_before(end), None);
        assert_eq!(tokens.count(peer(1), end), line(1, "192.0.2.1 1"));
    }
}
