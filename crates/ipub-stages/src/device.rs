//! The device that is built for, as keys name it.

use ipu_target::{CLOCK_HZ, TILES, WORKERS, assumptions, memory};
use ipub_base::KeyWriter;
use ipub_engine::TargetId;

/// The device named in the workspace file, if it is known.
pub fn device(name: &str) -> Option<TargetId> {
    (name == "c600").then(|| {
        let mut writer = KeyWriter::digest_only("ipub.device");
        writer.text("name", name);
        writer.u64("clock", CLOCK_HZ);
        writer.u64("tiles", u64::from(TILES));
        writer.u64("workers", u64::from(WORKERS));
        writer.u64("memory.base", u64::from(memory::SRAM_BASE));
        writer.u64("memory.bytes", u64::from(memory::SRAM_BYTES));
        writer.u64("memory.region1", u64::from(memory::REGION_BOUNDARY));
        writer.list("assumptions", assumptions(), |writer, assumption| {
            writer.text("name", assumption.name);
            writer.text("value", assumption.value);
        });
        TargetId {
            name: name.to_owned(),
            digest: writer.finish().digest,
        }
    })
}
