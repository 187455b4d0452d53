//! The memo of one stage execution: loaded from the store when first asked, saved when it grew.

use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock, PoisonError};

use ipub_base::{Digest, KeyWriter, Memo};
use ipub_store::{MemoUse, PackMemo, Store, StoreError};
use serde::Serialize;

use crate::inputs::StageImpl;

/// Bytes up to which a saved pack keeps entries that its execution did not use.
const PACK_BYTES_MAX: usize = 48 << 20;

/// How the memo served one stage execution.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MemoReport {
    /// Sub-results found.
    pub reused: u64,
    /// Sub-results asked for.
    pub asked: u64,
    /// The same by kind of sub-result.
    pub kinds: BTreeMap<String, MemoUse>,
}

pub(crate) struct StageMemo<'a> {
    store: &'a Store,
    /// The pack of this stage for this target, and that of this stage for any target.
    slots: [Digest; 2],
    pack: OnceLock<PackMemo>,
    served: Mutex<BTreeMap<&'static str, MemoUse>>,
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
            served: Mutex::default(),
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
    pub(crate) fn save(self) -> Result<MemoReport, StoreError> {
        let served = self.served.into_inner();
        let served = served.unwrap_or_else(PoisonError::into_inner);
        let report = MemoReport {
            reused: served.values().map(|served| served.reused).sum(),
            asked: served.values().map(|served| served.asked).sum(),
            kinds: served
                .into_iter()
                .map(|(kind, served)| (kind.to_owned(), served))
                .collect(),
        };
        if let Some(pack) = self.pack.into_inner()
            && pack.has_grown()
        {
            self.store
                .save_memo(&self.slots, &pack.into_pack(PACK_BYTES_MAX))?;
        }
        Ok(report)
    }
}

impl Memo for StageMemo<'_> {
    fn get(&self, kind: &'static str, key: Digest) -> Option<Vec<u8>> {
        let value = self.pack().get(kind, key);
        let mut served = self.served.lock().unwrap_or_else(PoisonError::into_inner);
        let served = served.entry(kind).or_default();
        served.asked += 1;
        served.reused += u64::from(value.is_some());
        value
    }

    fn put(&self, kind: &'static str, key: Digest, value: Vec<u8>) {
        self.pack().put(kind, key, value);
    }
}
