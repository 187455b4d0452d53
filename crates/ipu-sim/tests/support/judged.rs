//! Runs a kernel and gives its outputs, for results that are judged by tolerance, for outputs that
//! stand on inputs, and for kernels that use the worker frames.

use std::collections::BTreeMap;
use std::ops::Range;

use ipu_sim::{CallResult, TileRun};
use ipu_target::memory::SRAM_BASE;

use super::{Data, FRAME, Kernel, Layout, POISON, Scalars, memory, poison};

/// Six worker frames that any kernel may use.
const WORKER_FRAMES: Range<u32> = 0x580e0..0x586e0;

/// Bytes of the outputs by name.
pub type Outputs = BTreeMap<String, Vec<u8>>;

/// An output on the address of an input.
pub type Alias = (&'static str, &'static str);

impl Kernel {
    /// Run a shape; nothing but outputs and worker frames may change.
    pub fn outputs(
        &self,
        layout: Layout,
        alias: Option<Alias>,
        scalars: &Scalars,
        inputs: &BTreeMap<&str, Data>,
    ) -> (Outputs, CallResult) {
        self.contract.check_scalars(scalars).expect("legal scalars");
        let mut addresses = self.place(layout, scalars);
        if let Some((output, input)) = alias {
            addresses.insert(output.to_owned(), addresses[input]);
        }
        let place = format!(
            "{} {scalars:?} {layout:?} {alias:?} {addresses:x?}",
            self.contract.name
        );
        let mut tile = TileRun::new(&self.code).expect("code");
        poison(&mut tile, &self.code);
        for (name, data) in inputs {
            put(&mut tile, addresses[*name], data);
        }
        tile.frame(FRAME, &self.frame(scalars, &addresses))
            .expect("frame");
        let before = memory(&tile);
        let result = tile.call(self.entry);
        let result = result.unwrap_or_else(|fault| panic!("{place}: {fault}"));
        assert_eq!(result, self.time(layout, scalars), "{place}: without data");

        let mut writable = vec![WORKER_FRAMES];
        let mut outputs = Outputs::new();
        for arg in self.contract.args.iter().filter(|arg| arg.writes()) {
            let pointer = arg.pointer().expect("a pointer is written");
            let (address, bytes) = (addresses[&pointer.name], self.bytes(pointer, scalars));
            writable.push(address..address + bytes);
            let found = tile.read(address, bytes);
            let found = found.unwrap_or_else(|fault| panic!("{place}: {fault}"));
            outputs.insert(pointer.name.clone(), found);
        }
        let after = memory(&tile);
        for i in (0..before.len()).filter(|&i| before[i] != after[i]) {
            let at = SRAM_BASE + 4 * i as u32;
            let legal = writable.iter().any(|range| range.contains(&at));
            assert!(legal, "{place}: wrote {:#010x} at {at:#x}", after[i]);
        }
        (outputs, result)
    }
}

fn put(tile: &mut TileRun, address: u32, data: &Data) {
    tile.write(address, &data.bytes).expect("input");
    for hole in &data.holes {
        let words = (hole.end - hole.start) / 4;
        tile.write_words(address + hole.start, &vec![POISON; words as usize])
            .and_then(|tile| tile.poison(address + hole.start, words))
            .expect("hole");
    }
}
