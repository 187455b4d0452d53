//! What the public record does not fix, and what is assumed instead.
//!
//! Input: nothing. Output: a static list for people. Invariants: names are unique and sorted.
//! Not here: published facts.

/// A machine detail that had to be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Assumption {
    /// Short stable name.
    pub name: &'static str,
    /// What is assumed.
    pub value: &'static str,
    /// Why this, and what would settle it.
    pub reason: &'static str,
}

const fn assume(name: &'static str, value: &'static str, reason: &'static str) -> Assumption {
    Assumption {
        name,
        value,
        reason,
    }
}

/// All assumptions, by name.
pub fn assumptions() -> &'static [Assumption] {
    ASSUMPTIONS
}

static ASSUMPTIONS: &[Assumption] = &[
    assume(
        "amp-accumulation",
        "fused multiply-adds in F32, ascending k for each channel, from the widened F16 partial",
        "the internal width and order of the accumulation tree are not published; this order is \
         one that vector loops compute exactly",
    ),
    assume(
        "amp-fp8-scale",
        "2^s is applied exactly to the F143 weight as it is widened",
        "the product scale is the sum of two operand scales; where it is applied is not published",
    ),
    assume(
        "amp-result-rounding",
        "one rounding to F16, nearest even, for each K panel as results leave; F32 forms unrounded",
        "the rounding of half-accumulate forms is not published bit by bit",
    ),
    assume(
        "ans-dcount",
        "no effect beyond answering `n + 1` syncs after `sans n`",
        "only the uses `sans 0` and `sans 1` are published",
    ),
    assume(
        "branch-untaken-supervisor",
        "3 cycles",
        "1 to 4 fit the published counts alike",
    ),
    assume(
        "call-return-split",
        "call 7, br $m 13",
        "only the sum, about 20, is fixed by the published counts",
    ),
    assume(
        "coefficient-pointer-use",
        "8 cycles after the put",
        "0 to 12 are not visible in the published counts",
    ),
    assume(
        "exchange-incoming-dcount",
        "1 is written before an internal phase and is not counted down by it",
        "the programs write it; whether the hardware counts internal words is not published",
    ),
    assume(
        "exchange-memory-windows",
        "a send holds its elements from its first event to the sender horizon, a receive from its \
         first word to the receiver horizon",
        "the exact read and write cycles are not published; these windows are safe bounds",
    ),
    assume(
        "exchange-row-entry",
        "event 0 is the row's first word, and every tile enters its row at the same time after \
         the sync",
        "inferred from rows that work; every active tile runs the same call sequence",
    ),
    assume(
        "exchange-self-control-at-start",
        "a receive control at the first event of a send on the same tile is never produced",
        "published rows show it encodable; whether all hardware accepts it is not published",
    ),
    assume(
        "host-closing-read",
        "the zero-byte read that closes a download counts as one word and writes none",
        "programs wait for one word after it; whether one is written is not published",
    ),
    assume(
        "host-link",
        "words from the host arrive 1,000 cycles after a tile waits for them, then one a cycle",
        "link rates, latency and arbitration are not published; no reported figure includes them",
    ),
    assume(
        "host-sync-latency",
        "as the internal sync, released at a multiple of 6 cycles",
        "not published; the cycle figure starts and ends at such syncs, the host's time excluded",
    ),
    assume(
        "host-window-base",
        "host packets address the aperture whatever INCOMING_BASE holds",
        "phases leave that register set and host programs do not reset it",
    ),
    assume(
        "idle-tiles",
        "one `sans` answers up to 524,288 syncs of any zone; tiles without an image of their own \
         run a loop of it, and one tile stands for all of them",
        "the field has 19 bits; only answers to one and two syncs are published",
    ),
    assume(
        "internal-sync-latency",
        "62 cycles from the last arrival, equal on all tiles",
        "published phases cost their horizon and 229 to 295 cycles when sampled; the constant \
         centres the sum",
    ),
    assume(
        "local-sync-split",
        "launch 6, sync 6 after issue and 8 after the last exit",
        "only the sum 14 of launch and join is fixed by the published counts",
    ),
    assume(
        "memory-conflict-cost",
        "conflicting accesses of one element are refused, never stalled",
        "the cost of a real conflict is not published; programs are placed so that none occurs",
    ),
    assume(
        "special-function-last-bit",
        "exp, log, tanh, sigmoid, reciprocal and root are rounded to nearest even from a wider \
         evaluation",
        "the last bits of the hardware functions are not published",
    ),
    assume(
        "sync-answered-latency",
        "6 cycles",
        "the time of an answered sync on an inactive tile is not published and is never critical",
    ),
    assume(
        "tamp-values",
        "flag values as named in the instruction model",
        "the encoding of the accumulator mode values is not fully published",
    ),
    assume(
        "tapack-layout",
        "three 21-bit fields of 8-byte atoms, first operand lowest",
        "the packed pointer layout is not published; programs only build it by `tapack` itself",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_and_unique() {
        assert!(assumptions().windows(2).all(|w| w[0].name < w[1].name));
        assert!(
            assumptions()
                .iter()
                .all(|a| !a.value.is_empty() && !a.reason.is_empty())
        );
    }
}
