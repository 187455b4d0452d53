//! The operations that are not plain products.
//!
//! Input: row-major tensors. Output: the same.
//! Invariants: statistics and denominators are summed in F64 in ascending order; exponentials and
//! tangents are those of `libm`; rows are independent, so threads do not matter.
//! Not here: which operations follow each other.

use rayon::prelude::*;

use crate::product::{Right, Threads, multiply};
use crate::quantise::Quantise;

/// Rows of `addend` repeat.
pub(crate) fn add_rows(x: &mut [f32], addend: &[f32]) {
    x.par_chunks_mut(addend.len()).for_each(|block| {
        block
            .iter_mut()
            .zip(addend)
            .for_each(|(element, other)| *element += other);
    });
}

pub(crate) fn layer_norm(x: &[f32], scale: &[f32], bias: &[f32], epsilon: f32) -> Vec<f32> {
    let columns = scale.len();
    let mut out = vec![0.0; x.len()];
    out.par_chunks_mut(columns)
        .zip(x.par_chunks(columns))
        .for_each(|(out, row)| {
            let mean = row.iter().map(|x| f64::from(*x)).sum::<f64>() / columns as f64;
            let squares = row.iter().map(|x| (f64::from(*x) - mean).powi(2));
            let variance = squares.sum::<f64>() / columns as f64;
            let inverse = 1.0 / (variance + f64::from(epsilon)).sqrt();
            for (index, element) in out.iter_mut().enumerate() {
                let normal = ((f64::from(row[index]) - mean) * inverse) as f32;
                *element = normal * scale[index] + bias[index];
            }
        });
    out
}

/// Tanh form.
pub(crate) fn gelu(x: &mut [f32]) {
    const SQRT_2_OVER_PI: f32 = 0.797_884_6;
    const CUBIC: f32 = 0.044_715;
    x.par_chunks_mut(1 << 12).for_each(|chunk| {
        for element in chunk {
            let x = *element;
            let tangent = libm::tanhf(SQRT_2_OVER_PI * (x + CUBIC * x * x * x));
            *element = 0.5 * x * (1.0 + tangent);
        }
    });
}

/// Columns `first .. first + width` of rows of `columns`.
pub(crate) fn slice_columns(x: &[f32], columns: usize, first: usize, width: usize) -> Vec<f32> {
    x.chunks_exact(columns)
        .flat_map(|row| &row[first..first + width])
        .copied()
        .collect()
}

/// Exchange the two middle axes of `[batch, outer, inner, depth]`: splits heads, and joins them.
pub(crate) fn swap_middle(x: &[f32], outer: usize, inner: usize, depth: usize) -> Vec<f32> {
    let mut out = vec![0.0; x.len()];
    let member = outer * inner * depth;
    for (out, x) in out.chunks_exact_mut(member).zip(x.chunks_exact(member)) {
        for (index, run) in x.chunks_exact(depth).enumerate() {
            let target = (index % inner * outer + index / inner) * depth;
            out[target..target + depth].copy_from_slice(run);
        }
    }
    out
}

/// The extents and the scale of an attention.
#[derive(Clone, Copy)]
pub(crate) struct AttentionShape {
    pub queries: usize,
    pub keys: usize,
    pub depth: usize,
    pub scale: f32,
}

/// `softmax(scale * q k^T) v` for each group.
///
/// With `probabilities` it takes the device's steps: scores and the weighted sum are rounded to
/// F16, exponentials to that format, and the division comes last.
pub(crate) fn attention(
    q: &[f32],
    k: &[f32],
    v: &[f32],
    shape: AttentionShape,
    probabilities: Option<Quantise>,
) -> Vec<f32> {
    let (query_group, key_group) = (shape.queries * shape.depth, shape.keys * shape.depth);
    let mut out = vec![0.0; q.len()];
    out.par_chunks_mut(query_group)
        .zip(q.par_chunks(query_group))
        .zip(k.par_chunks(key_group).zip(v.par_chunks(key_group)))
        .for_each(|((out, q), (k, v))| {
            let mut scores = multiply(q, k, shape.depth, Right::Transposed, Threads::One);
            if probabilities.is_some() {
                Quantise::F16.apply_here(&mut scores);
            }
            let denominators: Vec<f32> = scores
                .chunks_exact_mut(shape.keys)
                .map(|row| exponentials(row, shape.scale))
                .collect();
            if let Some(format) = probabilities {
                format.apply_here(&mut scores);
            }
            let mut sums = multiply(&scores, v, shape.keys, Right::Stored, Threads::One);
            if probabilities.is_some() {
                Quantise::F16.apply_here(&mut sums);
            }
            for ((out, sums), denominator) in out
                .chunks_exact_mut(shape.depth)
                .zip(sums.chunks_exact(shape.depth))
                .zip(denominators)
            {
                for (element, sum) in out.iter_mut().zip(sums) {
                    *element = sum / denominator;
                }
            }
        });
    out
}

/// Replace scores by `exp(scale * (score - maximum))` and give their sum.
fn exponentials(row: &mut [f32], scale: f32) -> f32 {
    let maximum = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut sum = 0.0f64;
    for element in row {
        *element = libm::expf(scale * (*element - maximum));
        sum += f64::from(*element);
    }
    sum as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splitting_and_joining_heads_are_inverse() {
        // Two batch members, three tokens, two heads of two.
        let x: Vec<f32> = (0..24).map(|i| i as f32).collect();
        let split = swap_middle(&x, 3, 2, 2);
        assert_eq!(split[..8], [0.0, 1.0, 4.0, 5.0, 8.0, 9.0, 2.0, 3.0]);
        assert_eq!(split[12..14], [12.0, 13.0]);
        assert_eq!(swap_middle(&split, 2, 3, 2), x);
    }

    #[test]
    fn gelu_has_its_known_values() {
        let mut x = [-10.0, -1.0, 0.0, 1.0, 10.0];
        gelu(&mut x);
        let expected = [0.0, -0.158_808, 0.0, 0.841_192, 10.0];
        for (found, expected) in x.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-5, "{found} {expected}");
        }
    }

    #[test]
    fn a_softmax_over_equal_scores_is_a_mean() {
        let shape = AttentionShape {
            queries: 1,
            keys: 4,
            depth: 1,
            scale: 0.5,
        };
        let out = attention(&[0.0], &[1.0; 4], &[1.0, 2.0, 3.0, 6.0], shape, None);
        assert_eq!(out, [3.0]);
    }
}
