//! Matrix products in FP32.
//!
//! Input: row-major matrices. Output: their product, row-major.
//! Invariants: the library cuts the contraction into pieces at fixed places and adds the pieces in
//! ascending order, whatever the caches and the number of threads: threads share out rows and
//! columns only. What is left to the machine is whether a multiply-add rounds once.
//! Not here: rounding of operands and results.

use ndarray::linalg::general_mat_mul;
use ndarray::parallel::prelude::*;
use ndarray::{ArrayView2, ArrayViewMut2, Axis};

/// Rows that one thread takes at a time.
const ROWS: usize = 128;

/// How the right operand is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Right {
    /// `[inner, columns]`
    Stored,
    /// `[columns, inner]`
    Transposed,
}

/// Whether one product uses all threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Threads {
    One,
    All,
}

/// What decides the last bits of the products: library, element type, kernel.
pub fn kernel_identity() -> String {
    format!(
        "matrixmultiply-0.3 f32 {} {}",
        std::env::consts::ARCH,
        flavour()
    )
}

#[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
fn flavour() -> &'static str {
    if std::arch::is_x86_feature_detected!("fma") {
        "fma"
    } else {
        "scalar"
    }
}

#[cfg(not(any(target_arch = "x86", target_arch = "x86_64")))]
fn flavour() -> &'static str {
    "baseline"
}

/// `left [rows, inner] * right`, where `rows` and `columns` follow from the lengths.
pub(crate) fn multiply(
    left: &[f32],
    right: &[f32],
    inner: usize,
    order: Right,
    threads: Threads,
) -> Vec<f32> {
    let (rows, columns) = (left.len() / inner, right.len() / inner);
    let mut out = vec![0.0f32; rows * columns];
    let shape = "the lengths are whole rows";
    let left = ArrayView2::from_shape((rows, inner), left).expect(shape);
    let right = match order {
        Right::Stored => ArrayView2::from_shape((inner, columns), right).expect(shape),
        Right::Transposed => ArrayView2::from_shape((columns, inner), right)
            .expect(shape)
            .reversed_axes(),
    };
    let mut result = ArrayViewMut2::from_shape((rows, columns), &mut out).expect(shape);
    match threads {
        Threads::One => general_mat_mul(1.0, &left, &right, 0.0, &mut result),
        Threads::All => result
            .axis_chunks_iter_mut(Axis(0), ROWS)
            .into_par_iter()
            .zip(left.axis_chunks_iter(Axis(0), ROWS))
            .for_each(|(mut out, left)| general_mat_mul(1.0, &left, &right, 0.0, &mut out)),
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(len: usize, step: usize) -> Vec<f32> {
        (0..len).map(|i| ((i * step) % 23) as f32 - 11.0).collect()
    }

    #[test]
    fn products_of_small_integers_are_exact() {
        for (rows, columns, inner) in [(1, 1, 1), (1, 40, 600), (5, 3, 2), (37, 70, 1100)] {
            let left = numbers(rows * inner, 7);
            let right = numbers(inner * columns, 5);
            let mut transposed = vec![0.0; right.len()];
            let mut expected = vec![0.0; rows * columns];
            for k in 0..inner {
                for n in 0..columns {
                    transposed[n * inner + k] = right[k * columns + n];
                    for r in 0..rows {
                        expected[r * columns + n] += left[r * inner + k] * right[k * columns + n];
                    }
                }
            }
            for threads in [Threads::One, Threads::All] {
                let product = multiply(&left, &right, inner, Right::Stored, threads);
                assert_eq!(product, expected);
                let product = multiply(&left, &transposed, inner, Right::Transposed, threads);
                assert_eq!(product, expected);
            }
        }
    }
}
