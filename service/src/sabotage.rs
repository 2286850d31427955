//! Guards that a test may take out at run time, to see that it would notice.
//!
//! Only the cargo feature `sabotage` reads the switches; without it every
//! question is answered with a constant `false`.

/// A guard, or a fault put in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The update loses its conditions on `next_value` and `version`.
    NoConditions,
    /// An actor panics at every fifth reservation that ends well.
    ActorPanic,
    /// The first reservation of each sequence in this process fails.
    FirstRefillError,
    /// After that failure the cursor is filled with what nobody reserved.
    FirstRefillInvents,
    /// A restarted actor fills the cursor with the block that the dead one had filled in.
    TakeoverKeepsBlock,
    /// Each call that finds memory empty starts a reservation of its own.
    RefillForEach,
    /// Statements are prepared behind a pooler, too.
    PrepareAnyway,
    /// The database is told nothing of how long a statement may take.
    NoServerBounds,
    /// A database may show any certificate.
    AnyCertificate,
    /// Drain and unload do not give back what was not issued.
    NoReturn,
}

#[cfg(feature = "sabotage")]
impl Fault {
    const ALL: [(Fault, &'static str); 10] = [
        (Fault::NoConditions, "no-conditions"),
        (Fault::ActorPanic, "actor-panic"),
        (Fault::FirstRefillError, "first-refill-error"),
        (Fault::FirstRefillInvents, "first-refill-invents"),
        (Fault::TakeoverKeepsBlock, "takeover-keeps-block"),
        (Fault::RefillForEach, "refill-for-each"),
        (Fault::PrepareAnyway, "prepare-anyway"),
        (Fault::NoServerBounds, "no-server-bounds"),
        (Fault::AnyCertificate, "any-certificate"),
        (Fault::NoReturn, "no-return"),
    ];
}

/// Whether `fault` was asked for in `ODOMETER_SABOTAGE`.
#[cfg(feature = "sabotage")]
pub(crate) fn is(fault: Fault) -> bool {
    use std::sync::OnceLock;

    static CHOSEN: OnceLock<Vec<Fault>> = OnceLock::new();
    CHOSEN
        .get_or_init(|| {
            let words = crate::config::sabotage_words();
            Fault::ALL
                .into_iter()
                .filter(|(_, word)| words.iter().any(|chosen| chosen == word))
                .map(|(fault, _)| fault)
                .collect()
        })
        .contains(&fault)
}

/// Always false: this build has no switches.
#[cfg(not(feature = "sabotage"))]
pub(crate) const fn is(_fault: Fault) -> bool {
    false
}
