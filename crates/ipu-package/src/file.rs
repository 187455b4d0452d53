//! A package to the bytes of an `.ipuexe` file and back.
//!
//! Input: a package, or any bytes. Output: bytes, or a package or a typed error.
//! Invariants: equal packages give equal bytes, for any number of threads; any bytes give a package
//! or an error, never a panic, within the limits of `limits`; of several faults the first in file
//! order is reported.
//! Not here: whether the package makes sense (`check`).

use std::fmt;
use std::ops::Range;

use rayon::prelude::*;

use crate::column::ColumnWriter;
use crate::container::{SectionEntry, header, table};
use crate::error::{PackageError, SectionId};
use crate::limits::{
    BINDINGS_MAX, MARKS_MAX, NAME_BYTES_MAX, PIECES_MAX, RUNS_MAX, SEGMENT_WORDS_MAX, SEGMENTS_MAX,
    SPANS_MAX, STEPS_MAX, TENSORS_MAX, TILES_MAX,
};
use crate::sections;
use crate::types::{FORMAT, Package, Segment, SegmentKind};
use crate::words::{group_bytes, groups, take_words};

/// BLAKE3 over the uncompressed contents of a package: format version and, for each section, its
/// name, size and digest. Compression is not in it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PackageDigest(pub [u8; 32]);

impl fmt::Display for PackageDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for PackageDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The `.ipuexe` file of a package.
pub fn write(package: &Package) -> Result<Vec<u8>, PackageError> {
    let packed = each_section(package, SectionEntry::pack)?;
    let (entries, stored): (Vec<_>, Vec<_>) = packed.into_iter().unzip();
    let mut file = header(&entries)?;
    file.reserve_exact(stored.iter().map(Vec::len).sum());
    for section in stored {
        file.extend(section);
    }
    Ok(file)
}

/// The package of an `.ipuexe` file.
pub fn read(file: &[u8]) -> Result<Package, PackageError> {
    let (entries, places) = table(file)?;
    let (fixed, words) = entries.split_at(SectionId::FIXED.len());
    let at = |index: usize| fixed[index].unpack(&file[places[index].clone()]);
    let (device, tiles) = sections::take_program(&at(0)?)?;
    let segments = sections::take_segments(&at(1)?)?;
    let (images, rest) = sections::take_images(&at(2)?)?;
    let tensors = sections::take_tensors(&at(3)?)?;
    let bindings = sections::take_bindings(&at(4)?)?;
    let host = sections::take_host(&at(5)?)?;
    let steps = sections::take_steps(&at(6)?)?;
    let places = &places[SectionId::FIXED.len()..];
    let segments = read_words(file, &segments, words, places)?;
    Ok(Package {
        device,
        tiles,
        segments,
        images,
        rest,
        tensors,
        bindings,
        host,
        steps,
    })
}

/// The section table of a file; sections are not read.
pub fn section_table(file: &[u8]) -> Result<Vec<SectionEntry>, PackageError> {
    Ok(table(file)?.0)
}

/// The digest of a package.
pub fn digest(package: &Package) -> Result<PackageDigest, PackageError> {
    let entries = each_section(package, SectionEntry::describe)?;
    Ok(digest_of_sections(&entries))
}

/// The digest of the package that has these sections.
pub fn digest_of_sections(entries: &[SectionEntry]) -> PackageDigest {
    let mut hasher = blake3::Hasher::new();
    hasher.update(b"ipuexe contents");
    hasher.update(&FORMAT.to_le_bytes());
    for entry in entries {
        let (kind, index) = entry.id.code();
        hasher.update(&kind.to_le_bytes());
        hasher.update(&index.to_le_bytes());
        hasher.update(&entry.bytes.to_le_bytes());
        hasher.update(&entry.digest);
    }
    PackageDigest(*hasher.finalize().as_bytes())
}

/// What `f` makes of each section's uncompressed bytes, in file order.
fn each_section<T: Send>(
    package: &Package,
    f: impl Fn(SectionId, &[u8]) -> T + Sync,
) -> Result<Vec<T>, PackageError> {
    check_counts(package)?;
    let lengths = package.segments.iter().map(|s| s.words.len() as u64);
    let groups = groups(lengths);
    let words = (0..groups.len() as u32).map(SectionId::Words);
    let ids: Vec<SectionId> = SectionId::FIXED.into_iter().chain(words).collect();
    let section = |&id: &SectionId| f(id, &section_bytes(package, &groups, id));
    Ok(ids.par_iter().map(section).collect())
}

fn section_bytes(package: &Package, groups: &[Range<usize>], id: SectionId) -> Vec<u8> {
    let mut out = ColumnWriter::default();
    match id {
        SectionId::Header => {}
        SectionId::Program => sections::put_program(package, &mut out),
        SectionId::Segments => sections::put_segments(&package.segments, &mut out),
        SectionId::Images => sections::put_images(package, &mut out),
        SectionId::Tensors => sections::put_tensors(&package.tensors, &mut out),
        SectionId::Bindings => sections::put_bindings(&package.bindings, &mut out),
        SectionId::Host => sections::put_host(&package.host, &mut out),
        SectionId::Steps => sections::put_steps(&package.steps, &mut out),
        SectionId::Words(group) => {
            return group_bytes(&package.segments[groups[group as usize].clone()]);
        }
    }
    out.bytes
}

fn read_words(
    file: &[u8],
    segments: &[(SegmentKind, u32)],
    entries: &[SectionEntry],
    places: &[Range<usize>],
) -> Result<Vec<Segment>, PackageError> {
    let malformed = |section, what| PackageError::Malformed { section, what };
    let groups = groups(segments.iter().map(|&(_, words)| u64::from(words)));
    if groups.len() != entries.len() {
        let what = "its lengths ask for another number of groups";
        return Err(malformed(SectionId::Segments, what));
    }
    for (entry, group) in entries.iter().zip(&groups) {
        let words = segments[group.clone()].iter().map(|s| u64::from(s.1));
        if entry.bytes != 4 * words.sum::<u64>() {
            return Err(malformed(entry.id, "its size is not that of its segments"));
        }
    }
    let read = |index: usize| {
        let bytes = entries[index].unpack(&file[places[index].clone()])?;
        let mut rest = &bytes[..];
        let segment = |&(kind, words): &(SegmentKind, u32)| Segment {
            kind,
            words: take_words(&mut rest, words as usize),
        };
        let group = segments[groups[index].clone()].iter().map(segment);
        Ok(group.collect::<Vec<_>>())
    };
    let read: Vec<Result<Vec<Segment>, PackageError>> =
        (0..groups.len()).into_par_iter().map(read).collect();
    let mut all = Vec::with_capacity(segments.len());
    for group in read {
        all.extend(group?);
    }
    Ok(all)
}

/// Section, number of things, limit, and what is wrong beyond it.
type Count = (SectionId, usize, u32, &'static str);

/// Refuse to write what the reader would refuse to read.
fn check_counts(package: &Package) -> Result<(), PackageError> {
    let counts = code_counts(package).into_iter().chain(host_counts(package));
    match counts.into_iter().find(|count| count.1 > count.2 as usize) {
        Some((section, _, _, what)) => Err(PackageError::Malformed { section, what }),
        None => Ok(()),
    }
}

fn code_counts(package: &Package) -> [Count; 7] {
    let images = || package.images.iter().chain(&package.rest);
    let steps = &package.steps;
    let step_names = steps
        .iter()
        .flat_map(|s| [s.operation.len(), s.label.len()]);
    let names = package.tensors.iter().map(|t| t.name.len());
    let names = names.chain(step_names).chain([package.device.len()]);
    let longest = names.max().unwrap_or(0);
    let segments = &package.segments;
    let longest_segment = segments.iter().map(|s| s.words.len()).max().unwrap_or(0);
    let pieces = images().map(|image| image.pieces.len()).sum();
    let marks = images().map(|image| image.marks.len()).sum();
    let (program, code) = (SectionId::Program, SectionId::Segments);
    let tiles = package.tiles as usize;
    [
        (program, tiles, TILES_MAX, "too many tiles"),
        (program, longest, NAME_BYTES_MAX, "a name is too long"),
        (code, segments.len(), SEGMENTS_MAX, "too many segments"),
        (
            code,
            longest_segment,
            SEGMENT_WORDS_MAX,
            "a segment is too long",
        ),
        (
            SectionId::Images,
            images().count(),
            TILES_MAX,
            "too many images",
        ),
        (SectionId::Images, pieces, PIECES_MAX, "too many pieces"),
        (SectionId::Images, marks, MARKS_MAX, "too many marks"),
    ]
}

fn host_counts(package: &Package) -> [Count; 7] {
    let (tensors, plan) = (&package.tensors, &package.host);
    let rows = tensors.iter().map(|tensor| tensor.row_spans.len()).sum();
    let columns = tensors.iter().map(|tensor| tensor.column_spans.len()).sum();
    let runs = [&plan.parameters, &plan.inputs, &plan.outputs].map(Vec::len);
    let runs = runs.into_iter().max().unwrap_or(0);
    let bindings = package.bindings.len();
    let of_tensors = SectionId::Tensors;
    [
        (of_tensors, tensors.len(), TENSORS_MAX, "too many tensors"),
        (of_tensors, rows, SPANS_MAX, "too many spans"),
        (of_tensors, columns, SPANS_MAX, "too many spans"),
        (
            SectionId::Bindings,
            bindings,
            BINDINGS_MAX,
            "too many bindings",
        ),
        (
            SectionId::Host,
            plan.slots.len(),
            TILES_MAX,
            "too many slots",
        ),
        (SectionId::Host, runs, RUNS_MAX, "too many runs"),
        (
            SectionId::Steps,
            package.steps.len(),
            STEPS_MAX,
            "too many steps",
        ),
    ]
}
