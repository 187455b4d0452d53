//! One tile's sends, receive controls and base writes become the words of its row.
//!
//! Input: sorted, legal state of one tile. Output: words, or an alignment failure.
//! Invariants: two controls share an event only as ordinary pointer and ordinary source.
//! Not here: choosing events (`place`), reading rows (`fabric`).

use crate::transfer::ExchangeError;
use crate::word;
use ipu_target::exchange::{
    BASE_WRITE_EVENTS, CONTINUATION_ITEMS_MAX, DELAY_MAX, PIC_DELAY_MAX, SEND_ITEMS_MAX,
    XPIC_DELAY_MAX,
};

/// Which register a control writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stream {
    Pointer,
    Format,
    Source,
    PairedSource,
}

/// A receive control: `value` holds from `event` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Control {
    pub event: i32,
    pub stream: Stream,
    pub value: u32,
    /// Belongs to an ordinary receive, so it may share its event.
    pub ordinary: bool,
}

/// One message as its sender sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Send {
    pub start: i32,
    pub end: i32,
    /// First item address.
    pub address: u32,
    pub control: u32,
}

/// A base register write inside the row, `[end - 13, end)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Switch {
    pub end: i32,
    pub register: u32,
}

#[derive(Clone, Copy, Debug)]
enum Group {
    One(Control),
    Two {
        event: i32,
        pointer: u32,
        source: u32,
    },
    Base(Switch),
}

impl Group {
    fn event(&self) -> i32 {
        match *self {
            Group::One(c) => c.event,
            Group::Two { event, .. } => event,
            Group::Base(s) => s.end,
        }
    }

    /// The event at which the instruction that carries it must start at the latest.
    fn start(&self) -> i32 {
        match *self {
            Group::Base(s) => s.end - BASE_WRITE_EVENTS as i32,
            _ => self.event() - 1,
        }
    }
}

fn groups(
    tile: u32,
    controls: &[Control],
    switches: &[Switch],
) -> Result<Vec<Group>, ExchangeError> {
    let mut out: Vec<Group> = Vec::with_capacity(controls.len() + switches.len());
    for &c in controls {
        match out.last() {
            Some(&Group::One(p)) if p.event == c.event => {
                let (pointer, source) = match (p.stream, c.stream) {
                    (Stream::Pointer, Stream::Source) => (p.value, c.value),
                    (Stream::Source, Stream::Pointer) => (c.value, p.value),
                    _ => {
                        return Err(ExchangeError::Overlap {
                            tile,
                            event: c.event,
                        });
                    }
                };
                *out.last_mut().unwrap() = Group::Two {
                    event: c.event,
                    pointer,
                    source,
                };
            }
            Some(last) if last.event() == c.event => {
                return Err(ExchangeError::Overlap {
                    tile,
                    event: c.event,
                });
            }
            _ => out.push(Group::One(c)),
        }
    }
    if !switches.is_empty() {
        out.extend(switches.iter().map(|&s| Group::Base(s)));
        out.sort_by_key(Group::event);
    }
    Ok(out)
}

struct Writer {
    tile: u32,
    words: Vec<u32>,
    now: i32,
}

/// The words of a row.
pub(crate) fn compose(
    tile: u32,
    sends: &[Send],
    controls: &[Control],
    switches: &[Switch],
    horizon: i32,
) -> Result<Vec<u32>, ExchangeError> {
    let groups = groups(tile, controls, switches)?;
    let capacity = groups.len() + 2 * sends.len() + 4;
    let mut writer = Writer {
        tile,
        words: Vec::with_capacity(capacity),
        now: 0,
    };
    let mut next = 0;
    for send in sends {
        while next < groups.len() && groups[next].event() <= send.start {
            writer.idle(&groups, next, send.start)?;
            next += 1;
        }
        writer.delay_to(send.start)?;
        next = writer.message(send, &groups, next)?;
    }
    while next < groups.len() {
        writer.idle(&groups, next, horizon)?;
        next += 1;
    }
    writer.delay_to(horizon)?;
    writer.words.push(word::RETURN);
    Ok(writer.words)
}

impl Writer {
    fn overlap(&self, event: i32) -> ExchangeError {
        ExchangeError::Overlap {
            tile: self.tile,
            event,
        }
    }

    fn delay_to(&mut self, event: i32) -> Result<(), ExchangeError> {
        if event < self.now {
            return Err(self.overlap(event));
        }
        let mut left = (event - self.now) as u32;
        while left > 0 {
            let part = left.min(DELAY_MAX);
            self.words.push(word::delay(part));
            left -= part;
        }
        self.now = event;
        Ok(())
    }

    /// A control while nothing is sent; `limit` is the next send's start or the horizon.
    fn idle(&mut self, groups: &[Group], index: usize, limit: i32) -> Result<(), ExchangeError> {
        match groups[index] {
            Group::Base(switch) => {
                self.delay_to(groups[index].start())?;
                self.words.push(word::put_outgoing_base(switch.register));
                self.now = switch.end;
            }
            Group::One(c) => {
                let pointer = matches!(c.stream, Stream::Pointer | Stream::Format);
                let max = if pointer {
                    PIC_DELAY_MAX
                } else {
                    XPIC_DELAY_MAX
                } as i32;
                if c.event - self.now > max {
                    self.delay_to(c.event - max)?;
                }
                let events = c.event - self.now;
                if events < 1 {
                    return Err(self.overlap(c.event));
                }
                self.words.push(match c.stream {
                    Stream::Pointer => word::delay_pic(events as u32, 0, c.value),
                    Stream::Format => word::delay_pic(events as u32, 1, c.value),
                    Stream::Source => word::delay_xpic(events as u32, 0, c.value),
                    Stream::PairedSource => word::delay_xpic(events as u32, 1, c.value),
                });
                self.now = c.event;
            }
            Group::Two {
                event,
                pointer,
                source,
            } => {
                self.align(event)?;
                let next = groups
                    .get(index + 1)
                    .map_or(limit, |g| g.start().min(limit));
                let items = (next - self.now).clamp(1, SEND_ITEMS_MAX as i32);
                self.words
                    .extend(word::send_picp(items as u32, 0, 0, pointer, source));
                self.now += items;
            }
        }
        Ok(())
    }

    /// Plain delays up to `event - 1` that leave an even word index.
    fn align(&mut self, event: i32) -> Result<(), ExchangeError> {
        let gap = event - 1 - self.now;
        if gap < 0 {
            return Err(self.overlap(event));
        }
        let mut parts = (gap as u32).div_ceil(DELAY_MAX);
        if (self.words.len() as u32 + parts) % 2 == 1 {
            parts += 1;
        }
        if (gap as u32) < parts {
            return Err(ExchangeError::Alignment {
                tile: self.tile,
                event,
            });
        }
        if parts > 0 {
            self.words.push(word::delay(gap as u32 - (parts - 1)));
            self.words.extend((1..parts).map(|_| word::delay(1)));
        }
        self.now = event - 1;
        Ok(())
    }

    /// One message with the controls that fall inside it; returns the next group.
    fn message(
        &mut self,
        send: &Send,
        groups: &[Group],
        mut next: usize,
    ) -> Result<usize, ExchangeError> {
        while let Some(group) = groups.get(next).filter(|g| g.event() <= send.end) {
            let event = group.event();
            if event < send.start + 2 {
                return Err(ExchangeError::SendStart {
                    tile: self.tile,
                    event,
                });
            }
            let two = matches!(group, Group::Two { .. });
            self.stretch(send, event - 1, two.then_some(event))?;
            let later = groups.get(next + 1);
            let room = later.map_or(send.end, |g| g.start().min(send.end)) - self.now;
            let mut items = room.min(SEND_ITEMS_MAX as i32);
            if items < 1 {
                return Err(self.overlap(event));
            }
            let width = if two { 2 } else { 1 };
            let odd_after = (self.words.len() + width) % 2 == 1;
            if odd_after
                && items > 1
                && later
                    .is_some_and(|g| matches!(g, Group::Two { event, .. } if *event <= send.end))
            {
                items -= 1;
            }
            match *group {
                Group::Base(_) => return Err(self.overlap(event)),
                Group::One(c) => {
                    let selector = match c.stream {
                        Stream::Source => 0,
                        Stream::PairedSource => 1,
                        Stream::Pointer => 2,
                        Stream::Format => 3,
                    };
                    self.words
                        .push(word::send_pic(items as u32, selector, c.value));
                }
                Group::Two {
                    pointer, source, ..
                } => {
                    let address = send.address + (self.now - send.start) as u32;
                    let control = send.control;
                    let pair = word::send_picp(items as u32, address, control, pointer, source);
                    self.words.extend(pair);
                }
            }
            self.now += items;
            next += 1;
        }
        self.stretch(send, send.end, None)?;
        Ok(next)
    }

    /// Plain pieces of a message up to `until`; with `pair`, they must leave an even word index.
    fn stretch(&mut self, send: &Send, until: i32, pair: Option<i32>) -> Result<(), ExchangeError> {
        let mut pieces: Vec<u32> = Vec::new();
        let mut left = until - self.now;
        if left < 0 {
            return Err(self.overlap(until));
        }
        let first = self.now == send.start;
        while left > 0 {
            let opening = first && pieces.is_empty();
            let max = if opening {
                SEND_ITEMS_MAX
            } else {
                CONTINUATION_ITEMS_MAX
            };
            let part = left.min(max as i32);
            pieces.push(part as u32);
            left -= part;
        }
        if let Some(event) = pair
            && (self.words.len() + pieces.len()) % 2 == 1
        {
            let Some(index) = pieces.iter().rposition(|&p| p >= 2) else {
                return Err(ExchangeError::Alignment {
                    tile: self.tile,
                    event,
                });
            };
            pieces[index] -= 1;
            pieces.insert(index, 1);
        }
        for (index, &items) in pieces.iter().enumerate() {
            self.words.push(if first && index == 0 {
                word::send(items, send.address, send.control)
            } else {
                word::send_off(items, send.control)
            });
        }
        self.now = until;
        Ok(())
    }
}
