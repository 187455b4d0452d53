//! The logical file of a host call: the words of all runs, one run after another.
//!
//! Input: runs of a host plan, ascending by tile and address. Output: places of bindings and of
//! slices in the file.
//! Invariants: a place lies inside one run.
//! Not here: which tensor elements the bytes are (`host`).

use std::ops::Range;

use ipu_package::host::HostRun;

/// Words of the runs of one call.
pub struct Files {
    /// Runs, and the first word of each.
    runs: Vec<(HostRun, usize)>,
    pub words: Vec<u32>,
    /// Which words the device gave a defined value; of downloads only.
    pub defined: Vec<bool>,
}

impl Files {
    pub fn new(runs: &[HostRun]) -> Files {
        let mut start = 0;
        let runs = runs.iter().map(|run| {
            let first = start;
            start += run.bytes as usize / 4;
            (*run, first)
        });
        let runs: Vec<(HostRun, usize)> = runs.collect();
        Files {
            runs,
            words: vec![0; start],
            defined: vec![false; start],
        }
    }

    /// Where the words of some bytes stand; nothing when they are in no run.
    pub fn place(&self, part: &HostRun) -> Option<Range<usize>> {
        let key = (part.tile, part.address);
        let before = |(run, _): &(HostRun, usize)| (run.tile, run.address) <= key;
        let after = self.runs.partition_point(before);
        let (run, first) = &self.runs[after.checked_sub(1)?];
        if run.tile != part.tile {
            return None;
        }
        let offset = part.address - run.address;
        if u64::from(offset) + u64::from(part.bytes) > run.bytes.into() {
            return None;
        }
        let start = first + offset as usize / 4;
        Some(start..start + part.bytes as usize / 4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_lie_inside_runs() {
        let run = |tile, address, bytes| HostRun {
            tile,
            address,
            bytes,
        };
        let files = Files::new(&[run(1, 0x100, 16), run(1, 0x200, 8), run(4, 0x100, 32)]);
        assert_eq!(files.words.len(), 14);
        assert_eq!(files.place(&run(1, 0x104, 12)), Some(1..4));
        assert_eq!(files.place(&run(1, 0x104, 16)), None);
        assert_eq!(files.place(&run(4, 0x110, 16)), Some(10..14));
        assert_eq!(files.place(&run(1, 0x80, 4)), None);
        assert_eq!(files.place(&run(2, 0x100, 4)), None);
    }
}
