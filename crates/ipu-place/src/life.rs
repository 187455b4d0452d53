//! Lifetimes of transient storage, in events of the flattened program.
//!
//! Input: a tile program and which frame words its kernels read. Output: `life` of every
//! allocation that is not persistent.
//! Invariants: a life covers every use; what enters a loop from outside, or is read in it before
//! it is written there, lives through the whole loop.
//! Not here: addresses.

use ipu_ir::program::{AllocId, Life, Step, TileProgram, Word};

const NEVER: u32 = u32::MAX;

/// First use of an allocation inside a loop body.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    None,
    Write,
    Read,
}

struct Walk<'a> {
    /// For each kernel and frame word: whether the word is a pointer that is only written.
    only_written: &'a [Vec<bool>],
    event: u32,
    first: Vec<u32>,
    last: Vec<u32>,
}

/// Uses of the innermost body, in order of first use.
struct Body {
    uses: Vec<Use>,
    touched: Vec<AllocId>,
}

impl Body {
    fn new(allocations: usize) -> Self {
        Body {
            uses: vec![Use::None; allocations],
            touched: Vec::new(),
        }
    }

    fn note(&mut self, id: AllocId, how: Use) {
        let known = &mut self.uses[id.0 as usize];
        if *known == Use::None {
            *known = how;
            self.touched.push(id);
        }
    }
}

impl Walk<'_> {
    fn touch(&mut self, body: &mut Body, id: AllocId, how: Use) {
        body.note(id, how);
        let at = id.0 as usize;
        if self.first[at] == NEVER {
            self.first[at] = self.event;
        }
        self.last[at] = self.last[at].max(self.event);
    }

    fn steps(&mut self, steps: &[Step], body: &mut Body) {
        for step in steps {
            match step {
                Step::HostUpload { .. } | Step::HostDownload { .. } => self.event += 1,
                Step::Calls { calls, .. } => {
                    for call in calls {
                        let written = &self.only_written[call.kernel as usize];
                        for (word, &written) in call.frame.iter().zip(written) {
                            if let Word::Address(place) = word {
                                let how = if written { Use::Write } else { Use::Read };
                                self.touch(body, place.allocation, how);
                            }
                        }
                    }
                    self.event += 1;
                }
                Step::Phase { transfers, .. } => {
                    for transfer in transfers {
                        self.touch(body, transfer.source.allocation, Use::Read);
                        for place in &transfer.destinations {
                            self.touch(body, place.allocation, Use::Write);
                        }
                    }
                    self.event += 1;
                }
                Step::Repeat { body: inner, .. } => self.repeat(inner, body),
            }
        }
    }

    fn repeat(&mut self, steps: &[Step], outer: &mut Body) {
        let begin = self.event;
        let mut body = Body::new(self.first.len());
        self.steps(steps, &mut body);
        let end = self.event.max(begin + 1) - 1;
        for &id in &body.touched {
            let at = id.0 as usize;
            let how = body.uses[at];
            if self.first[at] < begin || how == Use::Read {
                self.first[at] = self.first[at].min(begin);
                self.last[at] = self.last[at].max(end);
            }
            outer.note(id, how);
        }
    }
}

/// Set the lives of all allocations that are not persistent. `inputs` and `outputs` name those
/// that the host fills or reads.
pub(crate) fn assign(
    program: &mut TileProgram,
    only_written: &[Vec<bool>],
    inputs: &[AllocId],
    outputs: &[AllocId],
) {
    let count = program.allocations.len();
    let mut walk = Walk {
        only_written,
        event: 0,
        first: vec![NEVER; count],
        last: vec![0; count],
    };
    let mut body = Body::new(count);
    for &id in inputs {
        walk.touch(&mut body, id, Use::Write);
    }
    walk.steps(&program.steps, &mut body);
    walk.event = walk.event.max(1) - 1;
    for &id in outputs {
        walk.touch(&mut body, id, Use::Read);
    }
    for (at, allocation) in program.allocations.iter_mut().enumerate() {
        if let Life::Events { first, last } = &mut allocation.life {
            *first = walk.first[at].min(walk.last[at]);
            *last = walk.last[at];
        }
    }
}
