//! Kernels of `kernels/`, assembled, and calls of one on a simulated tile.

use half::f16;
use ipu_emit::asm::{Options, Source, assemble};
use ipu_emit::object::Object;
use ipu_ir::contract::{Arg, Contract, Family};
use ipu_package::Dtype;
use ipu_sim::TileRun;
use ipub_stages::{KernelCall, Scalars};

use crate::{Failure, read, root};

/// A kernel and the object it was assembled to.
pub struct Kernel {
    pub contract: Contract,
    pub object: Object,
}

/// All kernels, in order of family and contract.
pub fn kernels() -> Result<Vec<Kernel>, Failure> {
    let mut folders = Vec::new();
    for entry in std::fs::read_dir(root().join("kernels"))? {
        folders.push(entry?.path());
    }
    folders.retain(|path| path.is_dir());
    folders.sort();
    let mut kernels = Vec::new();
    for folder in folders {
        for contract in Family::parse(&read(&folder.join("kernel.toml"))?)?.kernels {
            let text = read(&folder.join(&contract.source))?;
            let source = Source {
                name: &contract.source,
                text: &text,
            };
            let assembly = assemble(source, &Options::default());
            let assembly = assembly.map_err(|errors| format!("{}: {errors}", contract.source))?;
            let object = assembly.object;
            kernels.push(Kernel { contract, object });
        }
    }
    Ok(kernels)
}

impl Kernel {
    /// A tile with this kernel and a frame for these scalars, and where to call it. With data, the
    /// arguments hold reproducible numbers.
    pub fn tile(&self, scalars: &Scalars, data: bool) -> Result<(TileRun, u32), Failure> {
        let call = KernelCall::new(&self.contract, &self.object, scalars)?;
        let (mut tile, spans) = (call.tile, call.spans);
        if !data {
            tile.without_data();
        }
        let mut random = Random(1);
        for arg in self.contract.args.iter().filter(|_| data) {
            if let Arg::In(pointer) | Arg::Inout(pointer) = arg {
                let span = &spans[&*pointer.name];
                let bytes = random.bytes(pointer.dtype, span.len().next_multiple_of(4));
                let written = tile.write(span.start, &bytes);
                written.map_err(|fault| fault.to_string())?;
            }
        }
        Ok((tile, call.entry))
    }
}

/// Reproducible numbers: one step of a linear congruence each.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u32 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 32) as u32
    }

    /// Finite numbers of a type, those of the float types at most 1 in size, or F143 codes of at
    /// most 120.
    fn bytes(&mut self, dtype: Dtype, count: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(count + 4);
        while bytes.len() < count {
            let bits = self.next();
            let unit = bits as i32 as f32 / 2_147_483_648.0;
            match dtype {
                Dtype::F16 => bytes.extend(f16::from_f32(unit).to_le_bytes()),
                Dtype::F32 => bytes.extend(unit.to_le_bytes()),
                Dtype::F143 => bytes.push((bits & 0x80) as u8 | (1 + (bits >> 8) as u8 % 119)),
                Dtype::U32 => bytes.extend(bits.to_le_bytes()),
            }
        }
        bytes
    }
}
