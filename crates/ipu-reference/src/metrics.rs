//! How far an output is from its reference.
//!
//! Input: two tensors of one shape, the columns of a row. Output: [`Metrics`].
//! Invariants: sums are in F64 in ascending order; every figure is a finite number.
//! Not here: thresholds.

use serde::{Deserialize, Serialize};

/// The comparison of an output with its reference; a row is one embedding, or one token.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    pub rows: u64,
    /// The smallest cosine of a row; -1 for a row that holds a number that is not finite.
    pub cosine_min: f64,
    /// The first row with that cosine.
    pub cosine_min_row: u64,
    /// Over elements that are finite in both.
    pub max_abs_error: f64,
    /// Elements that are infinite or not a number, in either.
    pub non_finite: u64,
}

impl Metrics {
    pub fn finite(&self) -> bool {
        self.non_finite == 0
    }
}

/// Compare row by row.
///
/// # Panics
/// When the lengths differ or are no multiple of `columns`.
pub fn compare(actual: &[f32], reference: &[f32], columns: usize) -> Metrics {
    assert_eq!(actual.len(), reference.len(), "tensors of one shape");
    assert_eq!(actual.len() % columns, 0, "whole rows");
    let mut metrics = Metrics {
        rows: (actual.len() / columns) as u64,
        cosine_min: 1.0,
        cosine_min_row: 0,
        max_abs_error: 0.0,
        non_finite: 0,
    };
    for (row, (actual, reference)) in actual
        .chunks_exact(columns)
        .zip(reference.chunks_exact(columns))
        .enumerate()
    {
        let cosine = cosine(actual, reference);
        if cosine < metrics.cosine_min {
            metrics.cosine_min = cosine;
            metrics.cosine_min_row = row as u64;
        }
        for (a, b) in actual.iter().zip(reference) {
            if a.is_finite() && b.is_finite() {
                let error = (f64::from(*a) - f64::from(*b)).abs();
                metrics.max_abs_error = metrics.max_abs_error.max(error);
            } else {
                metrics.non_finite += 1;
            }
        }
    }
    metrics
}

/// The cosine of two vectors: 1 for two zero vectors, 0 if one is zero, -1 if one is not finite.
pub fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot = |x: &[f32], y: &[f32]| -> f64 {
        let products = x.iter().zip(y).map(|(x, y)| f64::from(*x) * f64::from(*y));
        products.sum()
    };
    let (aa, bb, ab) = (dot(a, a), dot(b, b), dot(a, b));
    if !(aa.is_finite() && bb.is_finite()) {
        -1.0
    } else if aa == 0.0 && bb == 0.0 {
        1.0
    } else if aa == 0.0 || bb == 0.0 {
        0.0
    } else {
        (ab / (aa.sqrt() * bb.sqrt())).clamp(-1.0, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_row_counts() {
        let metrics = compare(&[1.0, 0.0, 1.0, 1.0], &[2.0, 0.0, 1.0, 0.0], 2);
        assert!((metrics.cosine_min - 0.5f64.sqrt()).abs() < 1e-15);
        assert_eq!((metrics.rows, metrics.cosine_min_row), (2, 1));
        assert_eq!(metrics.max_abs_error, 1.0);
        assert!(metrics.finite());
    }

    #[test]
    fn numbers_that_are_not_finite_are_counted_and_fail_their_row() {
        let metrics = compare(&[1.0, f32::NAN, f32::INFINITY, 1.0], &[1.0; 4], 2);
        assert_eq!((metrics.non_finite, metrics.cosine_min), (2, -1.0));
        assert_eq!(metrics.max_abs_error, 0.0);
        assert!(!metrics.finite());
        let text = serde_json::to_string(&metrics).unwrap();
        assert_eq!(serde_json::from_str::<Metrics>(&text).unwrap(), metrics);
    }

    #[test]
    fn zero_vectors_have_a_defined_cosine() {
        assert_eq!(cosine(&[0.0], &[0.0]), 1.0);
        assert_eq!(cosine(&[0.0], &[1.0]), 0.0);
        assert_eq!(cosine(&[3.0, 4.0], &[-3.0, -4.0]), -1.0);
        assert!(cosine(&[1e-30; 3], &[1e-30; 3]) > 1.0 - 1e-15);
    }
}
