//! Tile numbers and the exchange route between two tiles.
//!
//! Input: tile numbers. Output: physical numbers, route times, send directions.
//! Invariants: a physical number is `64*row + 4*column + lane`, 23 rows, 16 columns, 4 lanes.
//! Not here: schedules. Source: rows (closed forms that agree with every ordered pair published).

/// Tiles of the chip.
pub const TILES: u32 = 1_472;
/// Rows of tiles.
pub const ROWS: u32 = 23;

/// The physical number of a logical tile.
pub fn physical(logical: u32) -> u32 {
    debug_assert!(logical < TILES);
    let (pair, lane) = (logical / 2, logical % 2);
    let (band, step) = (pair / ROWS, pair % ROWS);
    let row = if band.is_multiple_of(2) {
        step
    } else {
        ROWS - 1 - step
    };
    64 * row + 4 * (band / 2) + band % 2 + 2 * lane
}

/// The logical number of a physical tile, `None` when there is no such tile.
pub fn logical(physical: u32) -> Option<u32> {
    let row = row(physical);
    if row >= ROWS {
        return None;
    }
    let band = 2 * ((physical >> 2) & 15) + (physical & 1);
    let step = if band.is_multiple_of(2) {
        row
    } else {
        ROWS - 1 - row
    };
    Some(2 * (ROWS * band + step) + ((physical >> 1) & 1))
}

/// The row of a physical tile.
pub fn row(physical: u32) -> u32 {
    physical >> 6
}

/// The physical tile that shares an exchange pair with this one.
pub fn pair_partner(physical: u32) -> u32 {
    physical ^ 2
}

fn fold(column: i32) -> i32 {
    if column < 8 { column } else { 15 - column }
}

fn edge(column: i32) -> i32 {
    if column < 8 {
        4 * column
    } else {
        60 - 4 * column
    }
}

/// Signed column distance from `s` to `d` in exchange events; its sign decides the direction.
fn column_delta(s: i32, d: i32) -> i32 {
    let (source_column, column) = ((s >> 2) & 15, (d >> 2) & 15);
    let half = column >> 3;
    let lane = if d & 3 > 1 {
        if half == d & 1 { 2 } else { 4 }
    } else if half == d & 3 {
        1
    } else {
        5
    };
    6 * (fold(column) - fold(source_column) - ((source_column >> 3) ^ (s & 1))) + lane
}

/// Direction bit of a send from physical `source` to physical `destination`: 1 or 2.
pub fn direction(source: u32, destination: u32) -> u32 {
    if column_delta(source as i32, destination as i32) < 1 {
        2
    } else {
        1
    }
}

/// Route time in events from physical `source` to physical `destination`. A word sent at event
/// `e` stands at the destination's mux at event `e + 1 + route_time`. Ranges over -78..=112.
pub fn route_time(source: u32, destination: u32) -> i32 {
    let (s, d) = (source as i32, destination as i32);
    let (source_column, column) = ((s >> 2) & 15, (d >> 2) & 15);
    let bits = (s >> 2) & 7;
    let turn = if (s ^ d) & 0x20 == 0 {
        bits + 1
    } else {
        16 - bits
    };
    (((s >> 2) & 8) | ((s >> 3) & 3)) - column + ((bits >> 1) ^ 3) + edge(source_column) + turn
        - edge(column)
        + 2 * ((s >> 6) - (d >> 6))
        + column_delta(s, d).abs()
        - 34
}

/// Route time of a 64-bit item to the pair that holds physical `destination`: that of its later
/// member.
pub fn paired_route_time(source: u32, destination: u32) -> i32 {
    route_time(source, destination).max(route_time(source, pair_partner(destination)))
}

/// Mux value of the host endpoint that serves a physical tile (source: rows).
pub fn host_endpoint_mux(physical: u32) -> u32 {
    0x600 + serving_tile(physical)
}

/// The physical tile that requests host packets for a physical tile.
pub fn serving_tile(physical: u32) -> u32 {
    physical & 0x3d
}
