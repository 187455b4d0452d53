//! Recognising a matrix product in the code of a worker.
//!
//! Input: the lines of a block and the index of one that clears the accumulators. Output: a plan,
//! when the code from there to the exit multiplies rows.
//! Invariants: the code is followed with symbols in place of values, for several counts of its
//! loop; only when all give the same plan is it one. A plan holds for every count.
//! Length: naming words, and what follows from the names, is one step.
//! Not here: the values, and the checks that need them (see `product`).

use super::trace::{Pair, Place, Step, Stride, Trace, Word};
use crate::code::{Line, LineKind};
use crate::exec::MatrixOp;
use crate::op::Op;
use crate::worker::body;

/// Words of eight bytes in a row of operands or results.
pub(super) const ROW: usize = 4;
/// Number of the clear register, and longest code that is followed.
const CLEAR: i32 = 1;
const LINES_MAX: usize = 64;
/// Counts of the loop that are tried.
const COUNTS: [u32; 4] = [5, 2, 1, 0];

/// A sum of M registers, each once, and an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    pub registers: u16,
    pub offset: u32,
}

impl Address {
    pub fn plus(self, bytes: u32) -> Address {
        let offset = self.offset.wrapping_add(bytes);
        Address { offset, ..self }
    }

    /// The sum with an address of other registers.
    pub fn sum(self, other: Address) -> Option<Address> {
        let registers = self.registers | other.registers;
        let apart = self.registers & other.registers == 0;
        apart.then_some(Address { registers, ..self }.plus(other.offset))
    }
}

/// Where a stream begins: an address less a number of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Start {
    pub address: Address,
    pub rows: i32,
}

/// A row of memory words that is read or written from its beginning on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stream {
    Left,
    Partials,
    Out,
}

impl Stream {
    /// From the beginning of the stream to a word.
    fn step(self, word: i32) -> Step {
        let row = ROW as i32;
        match self {
            Stream::Left => Step {
                words: word.rem_euclid(row),
                rows: word.div_euclid(row),
            },
            _ => Step {
                words: word,
                rows: 0,
            },
        }
    }

    /// The word at a distance from the beginning.
    fn word(self, step: Step) -> Option<i32> {
        let word = ROW as i32 * step.rows + step.words;
        (self.step(word) == step).then_some(word)
    }
}

/// What a register holds at the end. Words are numbered from the first after the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Last {
    Constant(u32),
    Load {
        stream: Stream,
        word: i32,
        half: u8,
    },
    /// A result word of the last row.
    Result {
        word: u8,
        half: u8,
    },
}

/// Operands behind the rows: zero, or a word numbered as in [`Last`].
pub(super) type Tail = [Option<(Stream, i32)>; ROW];

/// How the packed pointers end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packed {
    pub register: u8,
    pub start: [Address; 3],
    /// How far each moves outside the loop, and in an iteration.
    pub outside: [Step; 3],
    pub inside: [Step; 3],
}

/// A launch that multiplies rows, from the clearing of the accumulators to the exit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub(super) op: MatrixOp,
    pub(super) accumulate: bool,
    /// The A register that says what is cleared.
    pub(super) clear: u8,
    /// Iterations, and rows that lie outside them.
    pub(super) count: Address,
    pub(super) outside: u32,
    /// From row to row of the left operand; rows of the others adjoin.
    pub(super) stride: Stride,
    /// M registers whose values are used.
    pub(super) reads: u32,
    /// Where each stream begins: sums that must be equal.
    pub(super) starts: [Vec<Start>; 3],
    /// Words loaded of each stream beyond the rows.
    pub(super) beyond: [i32; 3],
    /// Words that are loaded as the first half of 16 bytes.
    pub(super) wide: Vec<(Stream, i32)>,
    /// Accesses of one bundle, and whether an odd number of words lies between them.
    pub(super) together: Vec<(Stream, Stream, bool)>,
    /// Partials of the group that is left in the accumulators, and those that wait. Their left
    /// operand is zero.
    pub(super) partials: Tail,
    pub(super) waiting: Tail,
    pub(super) a: Vec<(u8, Last)>,
    pub(super) m: Vec<(u8, Address)>,
    pub(super) packed: Packed,
    /// Issues outside the loop, the exit among them.
    pub(super) issues: u64,
    /// Issues of an iteration.
    pub(super) body_issues: u64,
}

/// Whether a line clears the accumulators.
pub(crate) fn may_begin(line: &Line) -> bool {
    line.kind == LineKind::Bundle && line.aux.op == Op::Uput && line.aux.imm == CLEAR
}

/// The plan of the code from a line that clears the accumulators.
pub(crate) fn plan(lines: &[Line], base: u32, start: usize) -> Option<Plan> {
    let mut found: Option<Plan> = None;
    for count in COUNTS {
        let mut next = follow(lines, base, start, count, found.as_ref())?;
        let Some(plan) = &found else {
            found = Some(next);
            continue;
        };
        // A short loop has some of the pairs of accesses.
        if !next
            .together
            .iter()
            .all(|pair| plan.together.contains(pair))
        {
            return None;
        }
        next.together.clone_from(&plan.together);
        if *plan != next {
            return None;
        }
    }
    found
}

/// Follow the code with a count. How its pointers move in the loop is known from a plan of more.
fn follow(
    lines: &[Line],
    base: u32,
    start: usize,
    count: u32,
    more: Option<&Plan>,
) -> Option<Plan> {
    let mut trace = Trace::new(lines[start].aux.r[0]);
    if let Some(plan) = more {
        trace.stride = Some(plan.stride);
        trace.moving = plan.packed.inside.map(|by| by != Step::default());
        trace.strided = plan.packed.inside.map(|by| by.rows != 0);
    }
    let mut at = start;
    let mut loops = None;
    let (mut issues, mut body_issues) = (0, 0);
    while at < start + LINES_MAX {
        let line = lines.get(at)?;
        issues += u64::from(line.issues);
        match line.kind {
            LineKind::Control(_) if line.aux.op != Op::Nop => return None,
            LineKind::Control(_) if line.main.op == Op::Exit => {
                let loops = loops?;
                return resolve(&trace, count, loops, (issues, body_issues));
            }
            LineKind::Control(paired) if line.main.op == Op::RepeatRegister => {
                at += 1 + usize::from(paired);
                let times = trace.address(line.main.r[0])?;
                let bundles = line.main.imm as usize + 1;
                let body = body(lines, base, at, bundles).ok()?;
                let before = trace.steps();
                for _ in 0..count {
                    for line in body.iter().step_by(2) {
                        trace.bundle(line)?;
                    }
                }
                if bundles != ROW || loops.is_some() {
                    return None;
                }
                body_issues = body.iter().step_by(2).map(|l| u64::from(l.issues)).sum();
                let after = trace.steps();
                let moved = std::array::from_fn(|i| after[i].minus(before[i]));
                loops = Some((times, moved));
                at += 2 * bundles;
            }
            LineKind::Main | LineKind::Aux => {
                trace.bundle(line)?;
                at += 1;
            }
            LineKind::Bundle => {
                // The first line clears; only its main slot is followed.
                trace.bundle(line)?;
                at += 2;
            }
            _ => return None,
        }
    }
    None
}

/// The streams of a trace: which words its accesses are.
struct Streams<'t> {
    trace: &'t Trace,
    /// Stream and word of each load.
    loads: Vec<Option<(Stream, i32)>>,
    /// Stream of each packed pointer and where in it the pointer began.
    slots: [Option<(Stream, Step)>; 3],
}

impl Streams<'_> {
    /// A load is used as this word.
    fn assign(&mut self, pair: Pair, stream: Stream, word: i32) -> Option<()> {
        let Pair::Load(load) = pair else {
            return None;
        };
        let expected = (stream, word);
        if let Place::Packed { slot, step } = self.trace.loads[load].place {
            let origin = (stream, stream.step(word).minus(step));
            if *self.slots[slot].get_or_insert(origin) != origin {
                return None;
            }
        }
        (*self.loads[load].get_or_insert(expected) == expected).then_some(())
    }

    /// Name the loads that are used by no row: those of a packed pointer.
    fn complete(&mut self) -> Option<()> {
        for (load, name) in self.trace.loads.iter().zip(&mut self.loads) {
            if name.is_none() {
                let Place::Packed { slot, step } = load.place else {
                    return None;
                };
                let (stream, first) = self.slots[slot]?;
                *name = Some((stream, stream.word(first.plus(step))?));
            }
        }
        Some(())
    }

    fn tail(&self, pairs: impl Iterator<Item = Pair>, end: i32) -> Option<Tail> {
        let mut tail = [None; ROW];
        for (slot, pair) in tail.iter_mut().zip(pairs) {
            *slot = match pair {
                Pair::Zero => None,
                Pair::Load(load) => {
                    let (stream, word) = self.loads[load]?;
                    Some((stream, word - end))
                }
                _ => return None,
            };
        }
        Some(tail)
    }
}

fn resolve(
    trace: &Trace,
    count: u32,
    (times, moved): (Address, [Step; 3]),
    (issues, body_issues): (u64, u64),
) -> Option<Plan> {
    let (op, amps) = (trace.op?, &trace.amps);
    // A group of partials comes before the rows, a group of zeros behind them.
    let accumulate = amps.first()?.left == Pair::Zero;
    let first = usize::from(accumulate) * ROW;
    let groups = amps.len().checked_sub(first + ROW)?;
    let rows = groups / ROW;
    let outside = (rows as u32).checked_sub(count)?;
    if !groups.is_multiple_of(ROW) || rows == 0 {
        return None;
    }
    let end = first + ROW * rows;
    let rows_end = (ROW * rows) as i32;
    let mut streams = Streams {
        trace,
        loads: vec![None; trace.loads.len()],
        slots: [None; 3],
    };
    for (word, amp) in (0..).zip(&amps[first..end]) {
        streams.assign(amp.left, Stream::Left, word)?;
    }
    for (word, amp) in (0..).zip(&amps[..end - ROW]) {
        match (accumulate, amp.partials) {
            (true, partials) => streams.assign(partials, Stream::Partials, word)?,
            (false, Pair::Zero) => {}
            _ => return None,
        }
    }
    let mut others = amps[..first].iter().chain(&amps[end..]);
    if others.any(|amp| amp.left != Pair::Zero) {
        return None;
    }
    stores(trace, &mut streams, first + ROW, rows)?;
    streams.complete()?;
    ordered(&streams)?;
    let (starts, reads) = starts(&streams, times)?;
    let beyond = beyond(&streams, rows_end);
    if beyond[Stream::Left as usize] != 0 {
        return None;
    }
    let plan = Plan {
        op,
        accumulate,
        clear: trace.clear,
        count: times,
        outside,
        stride: trace.stride?,
        reads,
        starts,
        beyond,
        wide: wide(&streams)?,
        together: together(&streams)?,
        partials: streams.tail(amps[end - ROW..end].iter().map(|a| a.partials), rows_end)?,
        waiting: streams.tail(amps[end..].iter().map(|amp| amp.partials), rows_end)?,
        a: last(&streams, end, rows_end)?,
        m: trace.changed(),
        packed: packed(trace, count, moved)?,
        issues,
        body_issues,
    };
    Some(plan)
}

/// Every store writes the next result word.
fn stores(trace: &Trace, streams: &mut Streams, first: usize, rows: usize) -> Option<()> {
    if trace.stores.len() != ROW * rows {
        return None;
    }
    let Place::Packed { slot, step: from } = trace.stores[0].place else {
        return None;
    };
    for (word, store) in trace.stores.iter().enumerate() {
        let words = from.words + word as i32;
        let step = Step { words, ..from };
        if store.place != (Place::Packed { slot, step })
            || store.value != Pair::Result(first + word)
        {
            return None;
        }
    }
    match streams.slots[slot] {
        None => streams.slots[slot] = Some((Stream::Out, Step::default().minus(from))),
        Some(_) => return None,
    }
    Some(())
}

/// A word of the partials is loaded no later than the result in its place is stored.
fn ordered(streams: &Streams) -> Option<()> {
    let stores = &streams.trace.stores;
    for (load, name) in streams.trace.loads.iter().zip(&streams.loads) {
        if let Some((Stream::Partials, word)) = *name
            && let Some(store) = stores.get(usize::try_from(word).ok()?)
            && load.time > store.time
        {
            return None;
        }
    }
    Some(())
}

/// Where streams begin, and all M registers that say so.
fn starts(streams: &Streams, times: Address) -> Option<([Vec<Start>; 3], u32)> {
    let trace = streams.trace;
    let mut starts: [Vec<Start>; 3] = Default::default();
    let mut add = |stream: Stream, address: Address, step: Step| {
        let list = &mut starts[stream as usize];
        let start = Start {
            address: address.plus((-8 * step.words) as u32),
            rows: step.rows,
        };
        if !list.contains(&start) {
            list.push(start);
        }
    };
    let pointers = trace.packed?;
    for (slot, start) in streams.slots.iter().zip(pointers.start) {
        if let Some((stream, step)) = *slot {
            add(stream, start, step);
        }
    }
    for (load, name) in trace.loads.iter().zip(&streams.loads) {
        if let (Place::Direct(address), Some((stream, word))) = (load.place, *name) {
            add(stream, address, stream.step(word));
        }
    }
    let mut reads = u32::from(times.registers | trace.stride?.address.registers);
    let all = starts.iter().flatten().map(|start| &start.address);
    for address in all.chain(&pointers.start) {
        reads |= u32::from(address.registers);
    }
    for (_, address) in trace.changed() {
        reads |= u32::from(address.registers);
    }
    Some((starts, reads))
}

fn beyond(streams: &Streams, end: i32) -> [i32; 3] {
    let mut beyond = [0; 3];
    for (stream, word) in streams.loads.iter().flatten() {
        let slot = &mut beyond[*stream as usize];
        *slot = (*slot).max(word + 1 - end);
    }
    beyond
}

fn wide(streams: &Streams) -> Option<Vec<(Stream, i32)>> {
    let trace = streams.trace;
    let wide = trace.loads.iter().zip(&streams.loads);
    wide.filter(|(load, _)| load.wide)
        .map(|(_, name)| *name)
        .collect()
}

fn together(streams: &Streams) -> Option<Vec<(Stream, Stream, bool)>> {
    let trace = streams.trace;
    let mut all: Vec<(u32, Stream, i32)> = Vec::new();
    for (load, name) in trace.loads.iter().zip(&streams.loads) {
        // A load of 16 bytes is one access.
        if !matches!(load.place, Place::Direct(_)) {
            let (stream, word) = (*name)?;
            all.push((load.time, stream, word));
        }
    }
    for (word, store) in (0..).zip(&trace.stores) {
        all.push((store.time, Stream::Out, word));
    }
    all.sort_unstable();
    let mut together = Vec::new();
    for (i, a) in all.iter().enumerate() {
        for b in all[i + 1..].iter().take_while(|b| b.0 == a.0) {
            let entry = (a.1, b.1, (a.2 - b.2) & 1 != 0);
            if !together.contains(&entry) {
                together.push(entry);
            }
        }
    }
    together.sort_unstable();
    Some(together)
}

fn last(streams: &Streams, end: usize, rows_end: i32) -> Option<Vec<(u8, Last)>> {
    let mut last = Vec::new();
    for (register, word) in (0..14).zip(streams.trace.a) {
        let value = match word {
            Word::Entry => continue,
            Word::Constant(value) => Last::Constant(value),
            Word::Load { load, half } => {
                let (stream, word) = streams.loads[load]?;
                let word = word - rows_end;
                Last::Load { stream, word, half }
            }
            Word::Result { amp, half } => {
                let word = amp.checked_sub(end)?;
                Last::Result {
                    word: word as u8,
                    half,
                }
            }
        };
        last.push((register, value));
    }
    Some(last)
}

fn packed(trace: &Trace, count: u32, moved: [Step; 3]) -> Option<Packed> {
    let pointers = trace.packed?;
    let mut packed = Packed {
        register: pointers.register,
        start: pointers.start,
        outside: [Step::default(); 3],
        inside: [Step::default(); 3],
    };
    for (i, moved) in moved.into_iter().enumerate() {
        packed.outside[i] = pointers.steps[i].minus(moved);
        // Streams move a row in an iteration, or not at all.
        let (words, rows) = match (trace.moving[i], trace.strided[i]) {
            (false, _) => (0, 0),
            (true, false) => (ROW as i32, 0),
            (true, true) => (0, 1),
        };
        packed.inside[i] = Step { words, rows };
        let count = count as i32;
        let (words, rows) = (words * count, rows * count);
        if moved != (Step { words, rows }) {
            return None;
        }
    }
    Some(packed)
}
