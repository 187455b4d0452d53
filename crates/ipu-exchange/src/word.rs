//! Words of the timed instructions, for writing.
//!
//! Input: counts, events and values within their fields. Output: instruction words.
//! Invariants: counts are at least 1 (fields hold count less 1). Not here: reading words.

/// Return from a row.
pub(crate) const RETURN: u32 = 0x43a0_0000;

/// Nothing for `events`.
pub(crate) fn delay(events: u32) -> u32 {
    0x40a0_0000 | (events - 1)
}

/// After `events`, write `value` to pointer stream `stream`.
pub(crate) fn delay_pic(events: u32, stream: u32, value: u32) -> u32 {
    0x6000_0000 | (events - 1) << 19 | stream << 18 | value
}

/// After `events`, write `value` to source stream `stream`.
pub(crate) fn delay_xpic(events: u32, stream: u32, value: u32) -> u32 {
    0x6400_0000 | (events - 1) << 14 | stream << 13 | value
}

/// Start a message of `items` at item address `address`.
pub(crate) fn send(items: u32, address: u32, control: u32) -> u32 {
    0x7800_0000 | (items - 1) << 21 | address << 3 | control
}

/// Continue a message.
pub(crate) fn send_off(items: u32, control: u32) -> u32 {
    let field = items - 1;
    0x7000_0000 | (field & 63) << 21 | (field >> 6) << 14 | control
}

/// Continue a message and write `value` to stream `selector` (source 0, 1, pointer 2, 3).
pub(crate) fn send_pic(items: u32, selector: u32, value: u32) -> u32 {
    0x7010_0000 | (items - 1) << 21 | selector << 18 | value
}

/// Continue a message (or wait, with control 0) and write the ordinary pointer and source.
pub(crate) fn send_picp(
    items: u32,
    address: u32,
    control: u32,
    pointer: u32,
    source: u32,
) -> [u32; 2] {
    [
        0xf000_0000 | (items - 1) << 21 | address << 3 | control,
        source << 18 | pointer,
    ]
}

/// Write register `$m<register>` to OUTGOING_BASE.
pub(crate) fn put_outgoing_base(register: u32) -> u32 {
    0x4300_80a7 | register << 20
}
