//! Draws random numbers.
//!
//! Each of them comes from the system, so a forked child draws other numbers than its parent.

use crate::log::TARGET;

/// How a number between two others is drawn. Tests give their own.
pub(crate) type Uniform = fn(f64, f64) -> f64;

const TRACE_BYTES: usize = 16;
const SPAN_BYTES: usize = 8;

/// Draws a number from `low` up to `high`. If the system has none, it is the middle.
pub(crate) fn uniform(low: f64, high: f64) -> f64 {
    let part = getrandom::u64().map_or(0.5, |bits| {
        // As many bits as a floating point number holds exactly.
        (bits >> 11) as f64 / (1_u64 << 53) as f64
    });
    low + (high - low) * part
}

/// Draws the `traceparent` header (W3C Trace Context) of a trace of its own, which is not sampled.
pub(crate) fn traceparent() -> String {
    let mut bytes = [1_u8; TRACE_BYTES + SPAN_BYTES];
    if let Err(error) = getrandom::fill(&mut bytes) {
        tracing::debug!(target: TARGET, %error, "a trace has no id of its own");
    }
    let (trace, span) = bytes.split_at(TRACE_BYTES);
    format!("00-{}-{}-00", hex(trace), hex(span))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
