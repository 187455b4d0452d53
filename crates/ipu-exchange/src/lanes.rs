//! The state of every tile while messages are placed, and the earliest legal offset of the next.
//!
//! Input: routes and messages, one at a time. Output: offsets, and per tile sorted sends, controls
//! and base writes for `compose`.
//! Invariants: sends of a tile are disjoint and sorted; receives are in order of their events; no
//! control falls on a send start or the event after it; elements are never shared in time.
//! Not here: the order of messages (`order`, `schedule`), words.
//!
//! A *dense* schedule differs from the published one in three ways. Two controls share an event
//! only where no later change of word parity can make the pair impossible to align, so rows never
//! fail to compose. A source that is selected already is not selected again. A message that goes
//! on where the one before it ended, in time and address, is the same message.

use crate::compose::{Control, Send, Stream, Switch, compose};
use crate::receive::{Last, Message, Receive, receive, receive_horizon};
use crate::route::Hop;
use crate::transfer::{ExchangeError, Width};
use ipu_target::TILES;
use ipu_target::exchange::BASE_WRITE_EVENTS;
use ipu_target::memory::elements_of;
use ipu_target::topology::{logical, pair_partner, physical};
use std::ops::Range;

/// The partition point of a sorted list, looked for from its end: what is asked about is mostly recent,
/// and the rest of a long list is not near.
fn late_point<T>(list: &[T], before: impl Fn(&T) -> bool) -> usize {
    let (mut high, mut step) = (list.len(), 1);
    while high > 0 {
        let low = high.saturating_sub(step);
        if before(&list[low]) {
            return low + 1 + list[low + 1..high].partition_point(before);
        }
        (high, step) = (low, 2 * step);
    }
    0
}

/// A stretch of time in which a message holds memory elements of a tile.
#[derive(Clone, Debug)]
struct Window {
    start: i32,
    end: i32,
    elements: Range<u32>,
}

/// Everything placed on one tile so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lane {
    sends: Vec<Send>,
    send_windows: Vec<Window>,
    receive_windows: Vec<Window>,
    controls: Vec<Control>,
    switches: Vec<Switch>,
    last: Option<Last>,
    /// End of the time in which the partner's paired sends use this transmit lane.
    reserved: i32,
    /// Register last written to OUTGOING_BASE, when the tile has moving sources.
    register: Option<u32>,
    /// Whether no element is both sent from and received in, so that windows never matter.
    pub windowless: bool,
    pub horizon: i32,
}

impl Lane {
    /// Existing controls at `event`, less those in `dropped`.
    fn at<'a>(
        &'a self,
        event: i32,
        dropped: &'a [(i32, Stream)],
    ) -> impl Iterator<Item = &'a Control> {
        let first = late_point(&self.controls, |c| c.event < event);
        self.controls[first..]
            .iter()
            .take_while(move |c| c.event == event)
            .filter(move |c| !dropped.contains(&(c.event, c.stream)))
    }

    fn pair_at(&self, event: i32) -> bool {
        self.at(event, &[]).count() > 1
    }

    fn send_at(&self, start: i32) -> bool {
        let next = late_point(&self.sends, |s| s.start < start);
        self.sends.get(next).is_some_and(|s| s.start == start)
    }

    fn end_at(&self, end: i32) -> bool {
        let next = late_point(&self.sends, |s| s.start < end);
        (next > 0 && self.sends[next - 1].end == end) || self.switches.iter().any(|s| s.end == end)
    }

    /// Whether a pair of controls at `event` could end up without room to align.
    fn pair_is_fragile(&self, event: i32, receive: &Receive, sending: Option<(i32, i32)>) -> bool {
        if sending.is_some_and(|(s, e)| event == s + 2 || event == e + 1 || event == e + 2) {
            return true;
        }
        let own = |e: i32| receive.added().iter().any(|c| c.event == e);
        let near = |d: i32| own(event - d) || self.at(event - d, &[]).next().is_some();
        near(1) || near(2) || near(65) || self.send_at(event - 2) || {
            self.end_at(event - 1) || self.end_at(event - 2)
        }
    }

    /// Whether a control may be added: 0 when it may, else how far to move. `sending` is the send of
    /// the same message when it is on this tile.
    fn control_step(
        &self,
        new: &Control,
        receive: &Receive,
        sending: Option<(i32, i32)>,
        dense: bool,
    ) -> i32 {
        for switch in &self.switches {
            let begin = switch.end - BASE_WRITE_EVENTS as i32;
            if new.event > begin && new.event <= switch.end {
                return switch.end + 1 - new.event;
            }
        }
        if self.send_at(new.event) || self.send_at(new.event - 1) {
            return 1;
        }
        let mut shared = false;
        for old in self.at(new.event, receive.dropped()) {
            let crossed = matches!(
                (old.stream, new.stream),
                (Stream::Pointer, Stream::Source) | (Stream::Source, Stream::Pointer)
            );
            if !(old.ordinary && new.ordinary && crossed) {
                return 1;
            }
            shared = true;
        }
        let own = receive
            .added()
            .iter()
            .filter(|c| c.event == new.event)
            .count()
            > 1;
        if dense {
            if (shared || own) && self.pair_is_fragile(new.event, receive, sending) {
                return 1;
            }
            if [1, 2, 65].iter().any(|&d| self.pair_at(new.event + d)) {
                return 1;
            }
        }
        0
    }

    /// How far a window must move to stay clear of `others` on the same elements.
    fn window_step(others: &[Window], start: i32, end: i32, elements: &Range<u32>) -> i32 {
        let next = late_point(others, |w| w.start < end);
        // Ends grow with starts, but for a few events.
        let recent = others[..next]
            .iter()
            .rev()
            .take_while(|w| w.end + 8 > start);
        recent
            .filter(|w| w.end > start)
            .filter(|w| w.elements.start < elements.end && elements.start < w.elements.end)
            .map(|w| w.end - start)
            .max()
            .unwrap_or(0)
    }

    fn insert_window(windows: &mut Vec<Window>, window: Window) {
        let at = late_point(windows, |w| w.start <= window.start);
        windows.insert(at, window);
    }

    fn insert_control(&mut self, control: Control) {
        let key = (control.event, control.stream);
        let at = late_point(&self.controls, |c| (c.event, c.stream) < key);
        self.controls.insert(at, control);
    }

    fn remove_control(&mut self, event: i32, stream: Stream) {
        let at = late_point(&self.controls, |c| (c.event, c.stream) < (event, stream));
        debug_assert!(self.controls[at].event == event && self.controls[at].stream == stream);
        self.controls.remove(at);
    }

    /// Whether a message from `start` on only continues the one before it.
    fn goes_on(&self, message: &Message, start: i32) -> bool {
        let next = late_point(&self.sends, |s| s.start < start);
        next > 0 && {
            let before = &self.sends[next - 1];
            before.end == start
                && before.control == message.route.control
                && before.address + (before.end - before.start) as u32 == message.address
        }
    }

    fn send_end(&self) -> i32 {
        self.sends.last().map_or(0, |s| s.end)
    }

    /// End of the latest base write.
    pub fn switch_end(&self) -> i32 {
        self.switches.last().map_or(0, |s| s.end)
    }

    /// Earliest event at which the lane is free for good.
    pub fn send_free(&self) -> i32 {
        self.send_end().max(self.switch_end()).max(self.reserved)
    }

    /// The latest receive.
    pub fn last(&self) -> Option<&Last> {
        self.last.as_ref()
    }

    /// The words of this tile's row.
    pub fn compose(&self, tile: u32) -> Result<Vec<u32>, ExchangeError> {
        compose(
            tile,
            &self.sends,
            &self.controls,
            &self.switches,
            self.horizon,
        )
    }
}

/// All tiles of the chip.
#[derive(Clone, Debug)]
pub(crate) struct Lanes {
    pub tiles: Vec<Lane>,
    dense: bool,
}

/// The tile that shares an exchange pair with `tile`.
pub(crate) fn partner_of(tile: u32) -> u32 {
    logical(pair_partner(physical(tile))).expect("partner of a tile is a tile")
}

impl Lanes {
    pub fn new(dense: bool) -> Self {
        Lanes {
            tiles: vec![Lane::default(); TILES as usize],
            dense,
        }
    }

    /// Declares that a tile has moving sources: its rows start with OUTGOING_BASE from `$m6`.
    pub fn start_moving(&mut self, tile: u32) {
        self.tiles[tile as usize].register = Some(6);
    }

    /// Puts a base write on a tile if its next send needs another base; tells whether it did.
    pub fn switch_base(&mut self, tile: u32, register: u32, not_before: i32) -> bool {
        let lane = &mut self.tiles[tile as usize];
        if lane.register.is_none_or(|now| now == register) {
            return false;
        }
        let width = BASE_WRITE_EVENTS as i32;
        let mut start = lane.send_free().max(not_before);
        let first = late_point(&lane.controls, |c| c.event <= start);
        for control in &lane.controls[first..] {
            if control.event <= start + width {
                start = control.event;
            }
        }
        while self.dense && (lane.pair_at(start + width + 1) || lane.pair_at(start + width + 2)) {
            let blocked = |s: i32| {
                lane.controls
                    .iter()
                    .any(|c| c.event > s && c.event <= s + width)
            };
            start += 1;
            while blocked(start) {
                start += 1;
            }
        }
        self.write_base(tile, register, start + width);
        true
    }

    /// Records a base write that ends at `end`.
    pub fn write_base(&mut self, tile: u32, register: u32, end: i32) {
        let lane = &mut self.tiles[tile as usize];
        lane.switches.push(Switch { end, register });
        lane.register = Some(register);
        lane.horizon = lane.horizon.max(end);
    }

    /// The earliest legal offset from `least` on.
    pub fn earliest(&self, message: &Message, least: i32) -> i32 {
        let mut offset = self.free_from(message, least);
        loop {
            let step = self.step(message, offset);
            if step == 0 {
                return offset;
            }
            offset += step;
        }
    }

    /// The constraints that only ever say "not before".
    pub fn free_from(&self, message: &Message, least: i32) -> i32 {
        let route = message.route;
        let lane = &self.tiles[route.source as usize];
        let mut offset = least.max(lane.reserved.max(lane.switch_end()) - route.start);
        if route.width == Width::Paired64 {
            let partner = &self.tiles[partner_of(route.source) as usize];
            offset = offset.max(partner.send_end()).max(partner.reserved);
        }
        for hop in &route.hops {
            if let Some(last) = self.tiles[hop.tile as usize].last {
                let pointer = hop.select + hop.depth;
                offset = offset
                    .max(last.source_end - hop.select)
                    .max(last.payload_end - pointer);
                if last.ordinary && route.width == Width::Paired64 {
                    offset = offset.max(last.payload_end - (pointer - 2));
                }
                if !last.ordinary && last.mux.is_none() && route.width == Width::Word32 {
                    // The late member of a pair is occupied while its format is on.
                    offset = offset.max(last.payload_end - 2 - hop.select);
                }
            }
        }
        offset
    }

    /// 0 when the offset is legal, else a step that skips illegal offsets only.
    fn step(&self, message: &Message, offset: i32) -> i32 {
        let sender = self.sender_step(message, offset);
        if sender > 0 {
            return sender;
        }
        let mut most = 0;
        for (hop, &target) in message.route.hops.iter().zip(message.targets) {
            let lane = &self.tiles[hop.tile as usize];
            let address = target + message.shift;
            let receive = receive(
                lane.last.as_ref(),
                hop,
                message,
                address,
                offset,
                self.dense,
            );
            let own = hop.tile == message.route.source;
            let sending = own.then(|| (message.start(offset), message.end(offset)));
            for control in receive.added() {
                most = most.max(lane.control_step(control, &receive, sending, self.dense));
            }
            let start = hop.select + hop.depth + offset;
            let end = receive_horizon(hop, message, offset);
            if !lane.send_windows.is_empty() {
                let elements = elements_of(address, message.bytes());
                most = most.max(Lane::window_step(&lane.send_windows, start, end, &elements));
            }
        }
        most
    }

    fn sender_step(&self, message: &Message, offset: i32) -> i32 {
        let lane = &self.tiles[message.route.source as usize];
        let (start, end) = (message.start(offset), message.end(offset));
        let next = late_point(&lane.sends, |s| s.start < end);
        if next > 0 && lane.sends[next - 1].end > start {
            return lane.sends[next - 1].end - start;
        }
        let joins = self.dense && lane.goes_on(message, start);
        let opens = |&e: &i32| lane.at(e, &[]).next().is_some();
        if !joins && [start, start + 1].iter().any(opens) {
            return 1;
        }
        let fragile = |&e: &i32| lane.pair_at(e);
        if self.dense
            && ([end + 1, end + 2].iter().any(fragile) || (!joins && fragile(&(start + 2))))
        {
            return 1;
        }
        let horizon = message.sender_horizon(offset);
        Lane::window_step(&lane.receive_windows, start, horizon, &message.elements)
    }

    /// Records a message at a legal offset.
    pub fn commit(&mut self, message: &Message, offset: i32) {
        let route = message.route;
        let horizon = message.sender_horizon(offset);
        let (start, end) = (message.start(offset), message.end(offset));
        let lane = &mut self.tiles[route.source as usize];
        let at = late_point(&lane.sends, |s| s.start < start);
        if self.dense && lane.goes_on(message, start) {
            lane.sends[at - 1].end = end;
        } else {
            let send = Send {
                start,
                end,
                address: message.address,
                control: route.control,
            };
            lane.sends.insert(at, send);
        }
        if !lane.windowless {
            let window = Window {
                start,
                end: horizon,
                elements: message.elements.clone(),
            };
            Lane::insert_window(&mut lane.send_windows, window);
        }
        lane.horizon = lane.horizon.max(horizon);
        if route.width == Width::Paired64 {
            let partner = &mut self.tiles[partner_of(route.source) as usize];
            partner.reserved = partner.reserved.max(horizon);
            partner.horizon = partner.horizon.max(horizon);
        }
        for (hop, &target) in route.hops.iter().zip(message.targets) {
            self.commit_hop(hop, message, target + message.shift, offset);
        }
    }

    fn commit_hop(&mut self, hop: &Hop, message: &Message, address: u32, offset: i32) {
        let lane = &mut self.tiles[hop.tile as usize];
        let receive = receive(
            lane.last.as_ref(),
            hop,
            message,
            address,
            offset,
            self.dense,
        );
        for &(event, stream) in receive.dropped() {
            lane.remove_control(event, stream);
        }
        for &control in receive.added() {
            lane.insert_control(control);
        }
        let start = hop.select + hop.depth + offset;
        let end = receive_horizon(hop, message, offset);
        if !lane.windowless {
            let window = Window {
                start,
                end,
                elements: elements_of(address, message.bytes()),
            };
            Lane::insert_window(&mut lane.receive_windows, window);
        }
        let items = message.items as i32;
        lane.last = Some(Last {
            ordinary: message.route.width == Width::Word32,
            format: hop.format,
            mux: hop.mux,
            source_end: hop.select + offset + items,
            payload_end: start + items,
            end_address: address + message.bytes(),
        });
        lane.horizon = lane.horizon.max(end);
    }
}
