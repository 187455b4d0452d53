//! Random inputs.
//!
//! Input: a graph, a seed, the number of the invocation. Output: the input tensor, row-major.
//! Invariants: every element is an F16 number, as the host sends it.
//! Not here: images and their preprocessing.

use half::f16;
use ipu_ir::graph::Graph;
use rayon::prelude::*;

use crate::stream::NormalStream;

/// The graph's input for one invocation: standard normal numbers, rounded to F16.
pub fn input_tensor(graph: &Graph, seed: u64, invocation: u32) -> Vec<f32> {
    let input = graph.value(graph.top.args[0]);
    let mut out = vec![0.0; input.shape.iter().map(|extent| *extent as usize).product()];
    let name = format!("input:{}:{invocation}", input.name);
    NormalStream::new(seed, &name).fill(0, 1.0, &mut out);
    out.par_iter_mut()
        .for_each(|element| *element = f16::from_f32(*element).to_f32());
    out
}
