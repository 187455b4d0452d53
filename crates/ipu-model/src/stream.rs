//! Counter-based streams of normal numbers.
//!
//! Input: a seed, a name. Output: element `i` of the stream, for any range of `i`.
//! Invariants: an element depends only on the seed, the name and `i`: not on the range asked for,
//! the number of threads or the machine.
//! Not here: distributions other than the normal one, names of tensors.
//!
//! Elements `2 j` and `2 j + 1` come by the Box-Muller transform from bytes `8 j .. 8 j + 8` of
//! the extended output of BLAKE3, which can be entered at any block.

use std::f32::consts::TAU;

use blake3::OutputReader;
use rayon::prelude::*;

const CONTEXT: &str = "ipub: seeded tensor stream, version 1";
/// Elements of one parallel piece: even, and whole blocks of BLAKE3 output.
const CHUNK: usize = 1 << 14;
/// Pairs whose bytes are drawn at once.
const PAIRS: usize = 512;

/// The stream of one tensor.
#[derive(Clone)]
pub struct NormalStream {
    reader: OutputReader,
}

impl NormalStream {
    pub fn new(seed: u64, name: &str) -> NormalStream {
        let mut hasher = blake3::Hasher::new_derive_key(CONTEXT);
        hasher.update(&seed.to_le_bytes());
        hasher.update(name.as_bytes());
        NormalStream {
            reader: hasher.finalize_xof(),
        }
    }

    /// Elements `first ..`, with mean zero and standard deviation `std`.
    pub fn fill(&self, first: u64, std: f32, out: &mut [f32]) {
        let head = out.len().min((first % 2) as usize);
        let (odd, even) = out.split_at_mut(head);
        if let [element] = odd {
            let mut pair = [0.0; 2];
            self.fill_pairs(first - 1, std, &mut pair);
            *element = pair[1];
        }
        let first = first + head as u64;
        even.par_chunks_mut(CHUNK)
            .enumerate()
            .for_each(|(index, chunk)| {
                self.fill_pairs(first + (index * CHUNK) as u64, std, chunk);
            });
    }

    /// Elements from an even `first`.
    fn fill_pairs(&self, first: u64, std: f32, out: &mut [f32]) {
        let mut reader = self.reader.clone();
        reader.set_position(first * 4);
        let mut bytes = [0u8; PAIRS * 8];
        for piece in out.chunks_mut(PAIRS * 2) {
            let pairs = piece.len().div_ceil(2);
            let drawn = &mut bytes[..pairs * 8];
            reader.fill(drawn);
            for (elements, word) in piece.chunks_mut(2).zip(drawn.chunks_exact(8)) {
                let pair = box_muller(word.try_into().expect("a chunk of eight bytes"));
                for (element, normal) in elements.iter_mut().zip(pair) {
                    *element = normal * std;
                }
            }
        }
    }
}

/// Two independent standard normal numbers from 64 random bits.
fn box_muller(bits: [u8; 8]) -> [f32; 2] {
    let word = u64::from_le_bytes(bits);
    // In (0, 1]: never zero, so the logarithm is finite.
    let radial = ((word as u32) as f32 + 0.5) * (1.0 / 4_294_967_296.0);
    let turn = ((word >> 40) as u32) as f32 * (1.0 / 16_777_216.0);
    let radius = (-2.0 * libm::logf(radial)).sqrt();
    let (sine, cosine) = libm::sincosf(TAU * turn);
    [radius * cosine, radius * sine]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draw(first: u64, len: usize) -> Vec<f32> {
        let mut out = vec![0.0; len];
        NormalStream::new(7, "head.probe").fill(first, 1.0, &mut out);
        out
    }

    #[test]
    fn first_elements_are_fixed() {
        assert_eq!(
            draw(0, 5),
            [-0.020075183, -0.3897552, -1.1538002, 0.48888806, -1.9513291]
        );
    }

    #[test]
    fn any_range_gives_the_same_elements() {
        let whole = draw(0, 3 * CHUNK + 5);
        for (first, len) in [
            (0, 1),
            (1, 1),
            (1, 2),
            (3, 2 * CHUNK),
            (CHUNK - 1, CHUNK + 3),
        ] {
            assert_eq!(draw(first as u64, len), whole[first..first + len]);
        }
        assert_eq!(draw(5, 0), [0.0f32; 0]);
    }

    #[test]
    fn moments_are_those_of_the_normal_distribution() {
        let sample = draw(0, 1 << 18);
        let mean_of = |power: i32| {
            sample
                .iter()
                .map(|x| f64::from(*x).powi(power))
                .sum::<f64>()
                / sample.len() as f64
        };
        assert!(mean_of(1).abs() < 0.01);
        assert!((mean_of(2) - 1.0).abs() < 0.02);
        assert!(mean_of(3).abs() < 0.03);
        assert!((mean_of(4) - 3.0).abs() < 0.1);
    }

    #[test]
    fn extreme_bits_are_finite() {
        for bits in [[0; 8], [255; 8]] {
            assert!(
                box_muller(bits)
                    .iter()
                    .all(|x| x.is_finite() && x.abs() < 7.0)
            );
        }
    }

    #[test]
    fn streams_differ_by_seed_and_name() {
        let mut out = [[0.0; 4]; 3];
        NormalStream::new(1, "a").fill(0, 1.0, &mut out[0]);
        NormalStream::new(2, "a").fill(0, 1.0, &mut out[1]);
        NormalStream::new(1, "b").fill(0, 1.0, &mut out[2]);
        assert!(out[0] != out[1] && out[0] != out[2] && out[1] != out[2]);
    }
}
