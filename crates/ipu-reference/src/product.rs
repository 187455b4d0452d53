//! Matrix products in FP32.
//!
//! Input: row-major matrices. Output: their product, row-major.
//! Invariants: the contraction is cut into pieces of [`INNER`] at fixed places. Within a piece the
//! library forms each element by one chain of multiply-adds in ascending order (products of a few
//! rows: by lanes of a fixed width), whatever the caches and the number of threads; the pieces are
//! added in ascending order. What is left to the machine is whether a multiply-add rounds once.
//! Not here: rounding of operands and results.

use gemm::{Parallelism, gemm};

/// Contraction steps of one piece: the library never cuts a contraction of this length.
const INNER: usize = 512;

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

/// What decides the last bits of the products: library, element type, kernel, piece length.
pub fn kernel_identity() -> String {
    let arch = std::env::consts::ARCH;
    format!("gemm-0.19 f32 {arch} {} k{INNER}", flavour())
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
    assert_eq!((rows * inner, columns * inner), (left.len(), right.len()));
    let mut out = vec![0.0f32; rows * columns];
    let (right_row, right_column) = match order {
        Right::Stored => (columns, 1),
        Right::Transposed => (1, inner),
    };
    let parallelism = match threads {
        Threads::One => Parallelism::None,
        Threads::All => Parallelism::Rayon(0),
    };
    for first in (0..inner).step_by(INNER) {
        let left = &left[first..];
        let right = &right[first * right_row..];
        // SAFETY: `out` is `rows * columns` elements. For `k` below the piece length the largest
        // offsets read are `(rows - 1) * inner + first + k` in `left`, and the like in `right`,
        // which the assertion above places inside the slices. `out` is borrowed by nobody else.
        #[allow(unsafe_code)]
        unsafe {
            gemm(
                rows,
                columns,
                INNER.min(inner - first),
                out.as_mut_ptr(),
                1,
                columns as isize,
                first > 0,
                left.as_ptr(),
                1,
                inner as isize,
                right.as_ptr(),
                right_column as isize,
                right_row as isize,
                1.0,
                1.0,
                false,
                false,
                false,
                parallelism,
            );
        }
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

    #[test]
    fn an_element_is_one_chain_of_fused_steps_in_each_piece() {
        if flavour() != "fma" {
            return;
        }
        let (rows, columns, inner) = (40, 50, 700);
        let left: Vec<f32> = numbers(rows * inner, 7).iter().map(|x| x / 7.0).collect();
        let right: Vec<f32> = numbers(inner * columns, 5)
            .iter()
            .map(|x| x / 3.0)
            .collect();
        let product = multiply(&left, &right, inner, Right::Transposed, Threads::All);
        for (r, n) in [(0, 0), (17, 31), (39, 49)] {
            let mut sum = 0.0f32;
            for first in (0..inner).step_by(INNER) {
                let piece = first..inner.min(first + INNER);
                sum += piece.fold(0.0f32, |chain, k| {
                    left[r * inner + k].mul_add(right[n * inner + k], chain)
                });
            }
            assert_eq!(product[r * columns + n], sum);
        }
    }
}
