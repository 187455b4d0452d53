//! Words of segments: grouping and compression.
//!
//! Input: segments, or a group's compressed bytes. Output: bytes, or words.
//! Invariants: groups follow from segment lengths alone: as many whole segments as fit
//! [`GROUP_BYTES_MAX`]. The digest is over the little-endian words; compression first splits them
//! into four byte planes (rows shrink to two thirds of what they are without, and faster).
//! Not here: the section table.

use std::ops::Range;

use crate::limits::{GROUP_BYTES_MAX, SEGMENT_WORDS_MAX};
use crate::types::Segment;

/// The zstd level of every section.
const LEVEL: i32 = 3;
const GROUP_WORDS_MAX: u64 = GROUP_BYTES_MAX as u64 / 4;
const _: () = assert!(SEGMENT_WORDS_MAX as u64 <= GROUP_WORDS_MAX);

/// Segment numbers of each group, for segments of these lengths in words.
pub(crate) fn groups(lengths: impl Iterator<Item = u64>) -> Vec<Range<usize>> {
    let mut groups: Vec<Range<usize>> = Vec::new();
    let mut room = 0;
    for (index, words) in lengths.enumerate() {
        match groups.last_mut() {
            Some(group) if words <= room => {
                group.end = index + 1;
                room -= words;
            }
            _ => {
                groups.push(index..index + 1);
                room = GROUP_WORDS_MAX.saturating_sub(words);
            }
        }
    }
    groups
}

/// Little-endian words of a group's segments.
pub(crate) fn group_bytes(segments: &[Segment]) -> Vec<u8> {
    let words: usize = segments.iter().map(|segment| segment.words.len()).sum();
    let mut bytes = Vec::with_capacity(4 * words);
    for segment in segments {
        bytes.extend(segment.words.iter().flat_map(|word| word.to_le_bytes()));
    }
    bytes
}

/// The next `count` words of `bytes`, which holds them.
pub(crate) fn take_words(bytes: &mut &[u8], count: usize) -> Vec<u32> {
    let (head, rest) = bytes.split_at(4 * count);
    *bytes = rest;
    let word = |word: &[u8; 4]| u32::from_le_bytes(*word);
    head.as_chunks().0.iter().map(word).collect()
}

/// Byte `p` of every word, for each `p`.
pub(crate) fn split_planes(bytes: &[u8]) -> Vec<u8> {
    let words = bytes.as_chunks::<4>().0;
    let mut planes = Vec::with_capacity(bytes.len());
    for plane in 0..4 {
        planes.extend(words.iter().map(|word| word[plane]));
    }
    planes
}

/// The reverse of [`split_planes`], for a whole number of words.
pub(crate) fn join_planes(planes: &[u8]) -> Vec<u8> {
    let words = planes.len() / 4;
    let plane = |p: usize| &planes[p * words..(p + 1) * words];
    let (a, b, c, d) = (plane(0), plane(1), plane(2), plane(3));
    let mut bytes = vec![0; 4 * words];
    for (index, word) in bytes.as_chunks_mut::<4>().0.iter_mut().enumerate() {
        *word = [a[index], b[index], c[index], d[index]];
    }
    bytes
}

/// One zstd frame.
pub(crate) fn compress(bytes: &[u8]) -> Vec<u8> {
    zstd::bulk::compress(bytes, LEVEL).expect("memory compression does not fail")
}

/// The `size` bytes that a frame holds; `None` when it holds anything else.
pub(crate) fn decompress(stored: &[u8], size: usize) -> Option<Vec<u8>> {
    let bytes = zstd::bulk::decompress(stored, size).ok()?;
    (bytes.len() == size).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planes_come_back() {
        let bytes: Vec<u8> = (0..=255).cycle().take(4 * 333).collect();
        assert_eq!(join_planes(&split_planes(&bytes)), bytes);
        assert_eq!(join_planes(&split_planes(&[])), []);
    }

    #[test]
    fn groups_hold_whole_segments_and_fill_up() {
        let max = GROUP_WORDS_MAX;
        let lengths = [max / 2, max / 2, 0, 1, max, 7, max - 7];
        let expected = [0..3, 3..4, 4..5, 5..7];
        assert_eq!(groups(lengths.into_iter()), expected);
        assert_eq!(groups(std::iter::empty()), []);
    }

    #[test]
    fn a_frame_of_another_size_is_refused() {
        let stored = compress(&[7; 100]);
        assert_eq!(decompress(&stored, 100), Some(vec![7; 100]));
        assert_eq!(decompress(&stored, 99), None);
        assert_eq!(decompress(&stored, 101), None);
    }
}
