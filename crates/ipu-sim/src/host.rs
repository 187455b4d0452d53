//! Tensors of the host to bytes on tiles, and back.
//!
//! Input: a tensor's spans, a binding, a logical matrix in row-major order. Output: the bytes of
//! the shard, or logical elements from them.
//! Invariants: elements that no span names are written as zero and never read back.
//! Not here: when the host may touch memory (see `session`).

use ipu_isa::float::{F8, Overflow, pow2};
use ipu_package::{Binding, Dtype, Span, Tensor};

use crate::numeric::{NanOnOverflow, narrow, widen};

/// Logical index of each device index in `first .. first + count`.
fn logical(spans: &[Span], first: u32, count: u32) -> Vec<Option<u32>> {
    let mut map = vec![None; count as usize];
    for span in spans {
        let (low, high) = (
            span.device.max(first),
            (span.device + span.count).min(first + count),
        );
        for device in low..high {
            map[(device - first) as usize] = Some(span.logical + device - span.device);
        }
    }
    map
}

/// Logical rows and columns of a shard.
struct Shard<'a> {
    binding: &'a Binding,
    rows: Vec<Option<u32>>,
    columns: Vec<Option<u32>>,
    /// Columns of the logical matrix.
    width: u32,
}

impl<'a> Shard<'a> {
    fn new(tensor: &Tensor, binding: &'a Binding) -> Shard<'a> {
        Shard {
            binding,
            rows: logical(&tensor.row_spans, binding.row, binding.rows),
            columns: logical(&tensor.column_spans, binding.column, binding.columns),
            width: tensor.columns,
        }
    }

    /// Calls `f(element offset in the shard, index in the logical matrix)` for each element.
    fn for_each(&self, mut f: impl FnMut(usize, usize)) {
        let Binding {
            order,
            rows,
            columns,
            ..
        } = *self.binding;
        for (r, row) in self.rows.iter().enumerate() {
            let Some(row) = row else { continue };
            for (c, column) in self.columns.iter().enumerate() {
                if let Some(column) = column {
                    let offset = order.offset(rows, columns, r as u32, c as u32);
                    f(offset as usize, (row * self.width + column) as usize);
                }
            }
        }
    }
}

/// The bytes of a shard, padded with zeros to whole words.
pub fn pack(tensor: &Tensor, binding: &Binding, matrix: &[f32]) -> Vec<u8> {
    let mut bytes = vec![0; binding.bytes().next_multiple_of(4) as usize];
    let scale = pow2(-i32::from(binding.scale_exponent));
    Shard::new(tensor, binding).for_each(|offset, index| {
        let value = matrix[index];
        match binding.dtype {
            Dtype::F16 => {
                let code = narrow(value, NanOnOverflow(false));
                bytes[2 * offset..][..2].copy_from_slice(&code.to_le_bytes());
            }
            Dtype::F143 => {
                bytes[offset] = F8::F143.encode(f64::from(value) * scale, Overflow::Saturate);
            }
            Dtype::F32 => bytes[4 * offset..][..4].copy_from_slice(&value.to_le_bytes()),
            Dtype::U32 => bytes[4 * offset..][..4].copy_from_slice(&(value as u32).to_le_bytes()),
        }
    });
    bytes
}

/// Logical elements of a shard into the matrix. NaN becomes the canonical one.
pub fn unpack(tensor: &Tensor, binding: &Binding, bytes: &[u8], matrix: &mut [f32]) {
    let scale = pow2(i32::from(binding.scale_exponent));
    let four = |at: usize| [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
    Shard::new(tensor, binding).for_each(|offset, index| {
        let value = match binding.dtype {
            Dtype::F16 => widen(u16::from_le_bytes([
                bytes[2 * offset],
                bytes[2 * offset + 1],
            ])),
            Dtype::F143 => (f64::from(F8::F143.decode(bytes[offset])) * scale) as f32,
            Dtype::F32 => f32::from_le_bytes(four(4 * offset)),
            Dtype::U32 => u32::from_le_bytes(four(4 * offset)) as f32,
        };
        matrix[index] = if value.is_nan() { f32::NAN } else { value };
    });
}

/// Word offsets of a shard that hold logical elements, ascending.
pub fn words_in_use(tensor: &Tensor, binding: &Binding) -> Vec<u32> {
    let mut used = vec![false; binding.bytes().div_ceil(4) as usize];
    let bytes = binding.dtype.bytes() as usize;
    Shard::new(tensor, binding).for_each(|offset, _| used[offset * bytes / 4] = true);
    let indices = used.iter().enumerate().filter(|(_, used)| **used);
    indices.map(|(word, _)| word as u32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ipu_package::{Order, Role};

    #[test]
    fn shards_come_back() {
        let tensor = Tensor {
            name: "x".to_owned(),
            role: Role::Output,
            rows: 5,
            columns: 40,
            row_spans: vec![
                Span {
                    device: 0,
                    logical: 0,
                    count: 3,
                },
                Span {
                    device: 8,
                    logical: 3,
                    count: 2,
                },
            ],
            column_spans: vec![Span {
                device: 0,
                logical: 0,
                count: 40,
            }],
        };
        let matrix: Vec<f32> = (0..200).map(|i| (i % 100) as f32 - 50.0).collect();
        for (dtype, exponent) in [(Dtype::F16, 0), (Dtype::F143, 2), (Dtype::F32, 0)] {
            for order in [Order::RowMajor, Order::Panels(16), Order::Blocks(16)] {
                let mut found = vec![0.0; 200];
                for column in [0, 16, 32] {
                    let binding = Binding {
                        tensor: 0,
                        tile: 0,
                        address: 0x60000,
                        dtype,
                        scale_exponent: exponent,
                        order,
                        row: 0,
                        column,
                        rows: 16,
                        columns: 16,
                    };
                    let bytes = pack(&tensor, &binding, &matrix);
                    assert_eq!(bytes.len() as u32, binding.bytes());
                    unpack(&tensor, &binding, &bytes, &mut found);
                    let words = words_in_use(&tensor, &binding);
                    assert!(!words.is_empty() && (words.len() as u32) < binding.bytes() / 4);
                }
                let close = |(x, y): (&f32, &f32)| (x - y).abs() <= x.abs() / 16.0;
                assert!(matrix.iter().zip(&found).all(close));
                assert!(dtype == Dtype::F143 || found == matrix);
            }
        }
    }
}
