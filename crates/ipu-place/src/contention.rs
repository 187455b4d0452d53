//! Storage that delays a phase when it shares a memory element.
//!
//! Input: a tile program. Output: for each allocation, those of its tile that are received while
//! it is sent, or sent while it is received.
//! Invariants: near-linear in transfers; lists are ascending.
//! Not here: whether they can be kept apart (`fit`).

use ipu_ir::program::{AllocId, Step, TileProgram, Transfer};

/// What a phase does with the allocations of one tile.
#[derive(Clone, Default)]
struct Traffic {
    sent: Vec<u32>,
    received: Vec<u32>,
}

struct Contention<'a> {
    program: &'a TileProgram,
    /// Phase in which each allocation was last sent and received, counted from 1.
    sent_in: Vec<u32>,
    received_in: Vec<u32>,
    phase: u32,
    tiles: Vec<Traffic>,
    found: Vec<Vec<u32>>,
}

impl Contention<'_> {
    fn steps(&mut self, steps: &[Step]) {
        for step in steps {
            match step {
                Step::Repeat { body, .. } => self.steps(body),
                Step::Phase { transfers, .. } => self.phase(transfers),
                Step::HostUpload { .. } | Step::HostDownload { .. } | Step::Calls { .. } => {}
            }
        }
    }

    fn tile(&mut self, id: AllocId) -> &mut Traffic {
        let tile = self.program.allocations[id.0 as usize].tile;
        &mut self.tiles[tile as usize]
    }

    fn phase(&mut self, transfers: &[Transfer]) {
        self.phase += 1;
        let phase = self.phase;
        for transfer in transfers {
            let id = transfer.source.allocation;
            if std::mem::replace(&mut self.sent_in[id.0 as usize], phase) != phase {
                self.tile(id).sent.push(id.0);
            }
            for place in &transfer.destinations {
                let id = place.allocation;
                if std::mem::replace(&mut self.received_in[id.0 as usize], phase) != phase {
                    self.tile(id).received.push(id.0);
                }
            }
        }
        for traffic in &mut self.tiles {
            for &sent in &traffic.sent {
                for &received in traffic.received.iter().filter(|&&other| other != sent) {
                    self.found[sent as usize].push(received);
                    self.found[received as usize].push(sent);
                }
            }
            traffic.sent.clear();
            traffic.received.clear();
        }
    }
}

pub(crate) fn contenders(program: &TileProgram) -> Vec<Vec<u32>> {
    let count = program.allocations.len();
    let mut contention = Contention {
        program,
        sent_in: vec![0; count],
        received_in: vec![0; count],
        phase: 0,
        tiles: vec![Traffic::default(); program.tiles as usize],
        found: vec![Vec::new(); count],
    };
    contention.steps(&program.steps);
    for list in &mut contention.found {
        list.sort_unstable();
        list.dedup();
    }
    contention.found
}
