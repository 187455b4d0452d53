//! Cycles along the critical path, by step.
//!
//! Between two releases the tile that arrives last decides; its own steps are charged with the
//! time it spent in each, and the step in which it arrived with the latency of the sync.
//! Invariants: the parts are disjoint and sum to the whole.

use std::collections::BTreeMap;

use ipu_package::{StepInfo, StepKind};

use crate::tile::StepTrack;

/// Cycles by step since the count began.
#[derive(Clone, Debug, Default)]
pub struct CycleCount {
    by_step: Vec<u64>,
    /// Spent before any step.
    outside: u64,
    /// Up to here everything is charged.
    charged: Option<u64>,
    /// Step in which the last critical tile arrived.
    arrived_in: Option<u32>,
}

/// Cycles of one kind of step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct KindCycles {
    pub kind: StepKind,
    pub cycles: u64,
}

/// Cycles of one operation.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct OperationCycles {
    pub operation: String,
    pub cycles: u64,
}

impl PartialEq for CycleCount {
    fn eq(&self, other: &Self) -> bool {
        (&self.by_step, self.outside) == (&other.by_step, other.outside)
    }
}

impl CycleCount {
    pub(super) fn new(steps: usize) -> CycleCount {
        CycleCount {
            by_step: vec![0; steps],
            ..CycleCount::default()
        }
    }

    fn charge(&mut self, step: Option<u32>, until: u64) {
        // Nothing is charged before the count begins.
        let from = self.charged.unwrap_or(until);
        let cycles = until.saturating_sub(from);
        match step.and_then(|step| self.by_step.get_mut(step as usize)) {
            Some(slot) => *slot += cycles,
            None => self.outside += cycles,
        }
        self.charged = Some(from.max(until));
    }

    /// The critical tile arrived.
    pub(super) fn interval(&mut self, steps: &StepTrack, arrival: u64) {
        if self.charged.is_some() {
            let mut current = steps.at_release;
            for &(time, step) in &steps.log {
                self.charge(current, time.min(arrival));
                current = Some(step);
            }
            self.charge(current, arrival);
        }
        self.arrived_in = steps.current;
    }

    /// The tiles were released.
    pub(super) fn released(&mut self, time: u64) {
        if self.charged.is_some() {
            self.charge(self.arrived_in, time);
        }
    }

    /// The count begins at this cycle, from zero.
    pub(super) fn begin(&mut self, time: u64) {
        self.by_step.fill(0);
        self.outside = 0;
        self.charged = Some(time);
    }

    /// All cycles counted.
    pub fn total(&self) -> u64 {
        self.outside + self.by_step.iter().sum::<u64>()
    }

    /// By step of the package; the second part was spent outside any step.
    pub fn by_step(&self) -> (&[u64], u64) {
        (&self.by_step, self.outside)
    }

    /// By kind of step; time outside steps counts as control.
    pub fn by_kind(&self, steps: &[StepInfo]) -> Vec<KindCycles> {
        let mut sums = BTreeMap::new();
        for (step, cycles) in steps.iter().zip(&self.by_step) {
            *sums.entry(step.kind).or_insert(0) += cycles;
        }
        if self.outside > 0 {
            *sums.entry(StepKind::Control).or_insert(0) += self.outside;
        }
        let row = |(kind, cycles)| KindCycles { kind, cycles };
        sums.into_iter().map(row).collect()
    }

    /// By operation, in name order; time outside steps has an empty name.
    pub fn by_operation(&self, steps: &[StepInfo]) -> Vec<OperationCycles> {
        let mut sums = BTreeMap::new();
        for (step, cycles) in steps.iter().zip(&self.by_step) {
            *sums.entry(step.operation.clone()).or_insert(0) += cycles;
        }
        if self.outside > 0 {
            *sums.entry(String::new()).or_insert(0) += self.outside;
        }
        let row = |(operation, cycles)| OperationCycles { operation, cycles };
        sums.into_iter().map(row).collect()
    }
}
