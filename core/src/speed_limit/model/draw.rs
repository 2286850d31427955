//! Draws random numbers for a model.

/// Draws numbers: xorshift64*, by S. Vigna.
pub(super) struct Draw(pub(super) u64);

impl Draw {
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) % bound
    }

    pub(super) fn up_to(&mut self, most: i64) -> i64 {
        let bound = most.unsigned_abs().saturating_add(1);
        i64::try_from(self.below(bound)).unwrap_or(0)
    }

    /// Draws an end of the range half of the time, because most faults are seen there.
    pub(super) fn within(&mut self, most: i64) -> i64 {
        match self.below(4) {
            0 => 0,
            1 => most,
            _ => self.up_to(most),
        }
    }

    pub(super) fn is_one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}
