//! Price of a mid: simulated cycles of its kernel calls, closed-form cycles of its exchanges.
//!
//! Input: a mid, kernel costs. Output: cycles of one invocation, by which recipes are compared.
//! Invariants: every step of the mid counts, as often as its `Repeat` runs it; a compute step costs
//! its dearest call.
//! Not here: local copies, memory elements and rows (they follow from addresses), the search.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{PoisonError, RwLock};

use ipu_ir::layout::{Extent, Layout, Region, Shard};
use ipu_ir::mid::{
    Compute, Copy, Exchange, Filter, Mid, Operand, ScalarRule, Step, Tensor, TensorId, View,
};
use ipu_package::Order;
use ipub_base::{CostError, KernelCost};

use crate::build::PlanError;

/// Sync, set-up and row of an exchange phase, and by how much the median schedule of the full
/// model exceeds its busiest tile.
const PHASE_CYCLES: u64 = 260 + 1000;
/// Shortest contiguous run that the tiles of a pair receive 64 bits at a time.
const PAIRED_BYTES_MIN: u32 = 96;

/// Prices mids; remembers the price of each step that it has met.
pub struct Prices<'a> {
    costs: &'a dyn KernelCost,
    known: RwLock<HashMap<StepKey, u64>>,
}

/// What the price of a step depends on.
#[derive(Clone, PartialEq, Eq, Hash)]
enum StepKey {
    Compute {
        kernel: String,
        only: bool,
        scalars: Vec<(String, ScalarRule)>,
        operands: Vec<(String, TensorKey)>,
    },
    Exchange(Vec<(TensorKey, TensorKey, View)>),
}

/// A tensor without its name and use.
type TensorKey = ([Extent; 2], u32, Layout);

impl<'a> Prices<'a> {
    pub fn new(costs: &'a dyn KernelCost) -> Self {
        Self {
            costs,
            known: RwLock::default(),
        }
    }

    /// Cycles of one invocation.
    pub fn price(&self, mid: &Mid) -> Result<u64, PlanError> {
        let pricer = Pricer {
            mid,
            prices: self,
            shards: vec![OnceCell::new(); mid.tensors.len()],
        };
        pricer.steps(&mid.steps)
    }

    fn remembered(
        &self,
        key: StepKey,
        make: impl FnOnce() -> Result<u64, PlanError>,
    ) -> Result<u64, PlanError> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(cycles) = known.get(&key) {
            return Ok(*cycles);
        }
        drop(known);
        let cycles = make()?;
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.insert(key, cycles);
        Ok(cycles)
    }
}

/// The shard of one tensor on each tile.
type ByTile = Vec<Option<Shard>>;

struct Pricer<'a> {
    mid: &'a Mid,
    prices: &'a Prices<'a>,
    shards: Vec<OnceCell<ByTile>>,
}

impl Pricer<'_> {
    fn tensor(&self, id: TensorId) -> &Tensor {
        self.mid.tensor(id)
    }

    fn key(&self, id: TensorId) -> TensorKey {
        let tensor = self.tensor(id);
        ([tensor.rows, tensor.columns], tensor.groups, tensor.layout)
    }

    fn compute_key(&self, compute: &Compute) -> StepKey {
        let operand = |operand: &Operand| (operand.argument.clone(), self.key(operand.tensor));
        let scalar = |(name, rule): (&String, &ScalarRule)| (name.clone(), rule.clone());
        StepKey::Compute {
            kernel: compute.kernel.clone(),
            only: compute.only == Filter::Padded,
            scalars: compute.scalars.iter().map(scalar).collect(),
            operands: compute.operands.iter().map(operand).collect(),
        }
    }

    fn exchange_key(&self, exchange: &Exchange) -> StepKey {
        let copy = |copy: &Copy| (self.key(copy.source), self.key(copy.destination), copy.view);
        StepKey::Exchange(exchange.copies.iter().map(copy).collect())
    }

    fn shards(&self, id: TensorId) -> &ByTile {
        self.shards[id.0 as usize].get_or_init(|| {
            let mut by_tile = vec![None; self.mid.tiles as usize];
            for shard in self.tensor(id).shards(self.mid.tiles) {
                let tile = shard.tile as usize;
                by_tile[tile] = Some(shard);
            }
            by_tile
        })
    }

    fn steps(&self, steps: &[Step]) -> Result<u64, PlanError> {
        let mut sum = 0;
        for step in steps {
            sum += match step {
                Step::Compute(compute) => {
                    let key = self.compute_key(compute);
                    self.prices.remembered(key, || self.compute(compute))?
                }
                Step::Exchange(exchange) => {
                    let key = self.exchange_key(exchange);
                    self.prices
                        .remembered(key, || Ok(self.exchange(exchange)))?
                }
                Step::Repeat { count, body } => u64::from(*count) * self.steps(body)?,
            };
        }
        Ok(sum)
    }

    /// The dearest of the calls of a step.
    fn compute(&self, compute: &Compute) -> Result<u64, PlanError> {
        let mut seen: BTreeSet<Vec<i64>> = BTreeSet::new();
        let driver = compute.operands[0].tensor;
        let rules = self.rules(compute);
        for (tile, shard) in self.shards(driver).iter().enumerate() {
            let Some(shard) = shard else { continue };
            if compute.only == Filter::Padded && !self.tensor(driver).is_padded(shard) {
                continue;
            }
            let value = |(rule, tensor): &(&ScalarRule, Option<TensorId>)| match (rule, tensor) {
                (
                    ScalarRule::Measure {
                        measure, divisor, ..
                    },
                    Some(id),
                ) => self.shards(*id)[tile]
                    .as_ref()
                    .map_or(0, |shard| measure.of(self.tensor(*id), shard) / divisor)
                    .into(),
                (ScalarRule::Const(value), _) => *value,
                (ScalarRule::Measure { .. }, None) => 0,
            };
            seen.insert(rules.iter().map(value).collect());
        }
        let mut dearest = 0;
        for values in seen {
            let scalars: BTreeMap<String, i64> =
                compute.scalars.keys().cloned().zip(values).collect();
            let cycles = self.prices.costs.cycles(&compute.kernel, &scalars);
            let operation = || compute.operation.clone();
            let cycles = cycles.map_err(|error| match error {
                CostError::Refused(what) => PlanError::Illegal {
                    operation: operation(),
                    what,
                },
                CostError::Fault(what) => PlanError::Fault {
                    operation: operation(),
                    what,
                },
            })?;
            dearest = dearest.max(cycles.get());
        }
        Ok(dearest)
    }

    /// The rule of each scalar with the tensor that it measures.
    fn rules<'c>(&self, compute: &'c Compute) -> Vec<(&'c ScalarRule, Option<TensorId>)> {
        let tensor = |name: &str| {
            let mut operands = compute.operands.iter();
            operands
                .find(|operand| operand.argument == name)
                .map(|operand| operand.tensor)
        };
        let with_tensor = |rule: &'c ScalarRule| match rule {
            ScalarRule::Const(_) => (rule, None),
            ScalarRule::Measure { argument, .. } => (rule, tensor(argument)),
        };
        compute.scalars.values().map(with_tensor).collect()
    }

    /// The busiest tile's words in or out.
    fn exchange(&self, exchange: &Exchange) -> u64 {
        let tiles = self.mid.tiles as usize;
        let (mut receive, mut send) = (vec![0_u64; tiles], vec![0_u64; tiles]);
        for copy in &exchange.copies {
            self.copy(copy, &mut receive, &mut send);
        }
        let busiest = receive.iter().chain(&send).max();
        PHASE_CYCLES + busiest.copied().unwrap_or(0)
    }

    fn copy(&self, copy: &Copy, receive: &mut [u64], send: &mut [u64]) {
        let (source, destination) = (self.tensor(copy.source), self.tensor(copy.destination));
        let bytes = source.layout.dtype.bytes();
        let (from, to) = (self.shards(copy.source), self.shards(copy.destination));
        let mut wanted = 0;
        for (tile, shard) in to.iter().enumerate() {
            let Some(shard) = shard else { continue };
            let local = from[tile].as_ref();
            let local = local.map_or(0, |held| local_elements(copy.view, held, shard));
            let elements = shard.region.elements().saturating_sub(local);
            wanted += u64::from(elements);
            let words = u64::from((elements * bytes).div_ceil(4));
            let partner = to.get(tile ^ 1).and_then(Option::as_ref);
            let paired = partner.is_some_and(|other| other.region == shard.region)
                && run(source, destination, shard) * bytes >= PAIRED_BYTES_MIN;
            receive[tile] += if paired { words.div_ceil(2) } else { words };
        }
        let held: u64 = from
            .iter()
            .flatten()
            .map(|shard| u64::from(shard.region.elements()))
            .sum();
        for (tile, shard) in from.iter().enumerate() {
            let Some(shard) = shard else { continue };
            let elements = u64::from(shard.region.elements());
            // A source that is read in part sends that part.
            let sent = (elements * wanted.min(held)).div_ceil(held.max(1));
            send[tile] += (sent * u64::from(bytes)).div_ceil(4);
        }
    }
}

/// Elements of a destination shard that its tile holds already.
fn local_elements(view: View, held: &Shard, wanted: &Shard) -> u32 {
    let View::Same { group, column } = view else {
        return 0;
    };
    let shifted = Region {
        groups: wanted.region.groups.start + group..wanted.region.groups.end + group,
        rows: wanted.region.rows.clone(),
        columns: wanted.region.columns.start + column..wanted.region.columns.end + column,
    };
    let meet = held.region.intersect(&shifted);
    meet.map_or(0, |region| region.elements())
}

/// Elements that lie together in both tensors.
fn run(source: &Tensor, destination: &Tensor, shard: &Shard) -> u32 {
    let part = |tensor: &Tensor| {
        let tiling = &tensor.layout.tiling;
        tiling.region(tensor.shape(), &ipu_ir::layout::Coordinates::default())
    };
    let held = part(source);
    let rows = held.row_count().min(shard.region.row_count());
    let columns = held.column_count().min(shard.region.column_count());
    match (source.layout.order, destination.layout.order) {
        (Order::RowMajor, Order::RowMajor) => columns,
        (Order::Panels(a), Order::Panels(b)) if a == b => a * rows,
        (Order::Blocks(a), Order::Blocks(b)) if a == b => a * 16,
        (Order::RowMajor, Order::Panels(g) | Order::Blocks(g))
        | (Order::Panels(g) | Order::Blocks(g), Order::RowMajor) => g,
        _ => 16,
    }
}
