//! The memo of one stage execution: loaded from the store when first asked, saved when it grew.

use std::sync::OnceLock;

use ipub_base::{Digest, KeyWriter, Memo};
use ipub_store::{MemoUse, PackMemo, Store, StoreError};

use crate::inputs::StageImpl;

/// What a saved pack holds at most besides the entries that its execution used.
const PACK_BYTES_MAX: usize = 256 << 20;

pub(crate) struct StageMemo<'a> {
    store: &'a Store,
    /// The pack of this stage for this target, and that of this stage for any target.
    slots: [Digest; 2],
    pack: OnceLock<PackMemo>,
}

impl<'a> StageMemo<'a> {
    pub(crate) fn new(store: &'a Store, stage: &dyn StageImpl, label: &str) -> Self {
        let slot = |label: &str| {
            let mut writer = KeyWriter::digest_only("ipub.memo.v1");
            writer.text("stage", stage.name());
            writer.digest("fingerprint", stage.fingerprint());
            writer.text("label", label);
            writer.finish().digest
        };
        Self {
            store,
            slots: [slot(label), slot("")],
            pack: OnceLock::new(),
        }
    }

    fn pack(&self) -> &PackMemo {
        self.pack.get_or_init(|| {
            let load = |slot| self.store.load_memo(slot).unwrap_or_default();
            let mut pack = load(self.slots[0]);
            if pack.entries.is_empty() {
                pack = load(self.slots[1]);
            }
            PackMemo::new(pack)
        })
    }

    /// Keeps what was learnt; tells how the memo served.
    pub(crate) fn save(self) -> Result<MemoUse, StoreError> {
        let Some(pack) = self.pack.into_inner() else {
            return Ok(MemoUse::default());
        };
        let usage = pack.usage();
        if pack.has_grown() {
            self.store
                .save_memo(&self.slots, &pack.into_pack(PACK_BYTES_MAX))?;
        }
        Ok(usage)
    }
}

impl Memo for StageMemo<'_> {
    fn get(&self, kind: &'static str, key: Digest) -> Option<Vec<u8>> {
        self.pack().get(kind, key)
    }

    fn put(&self, kind: &'static str, key: Digest, value: Vec<u8>) {
        self.pack().put(kind, key, value);
    }
}
