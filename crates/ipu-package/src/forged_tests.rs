//! Files whose digests hold and whose contents do not: the reader alone must refuse them.

use crate::container::{SectionEntry, header};
use crate::error::{PackageError, SectionId};
use crate::limits::GROUP_BYTES_MAX;
use crate::{Package, Segment, SegmentKind, read, section_table, write};

fn package() -> Package {
    let segment = |kind, words: &[u32]| Segment {
        kind,
        words: words.to_vec(),
    };
    Package {
        device: "c600".to_owned(),
        tiles: 1,
        segments: vec![
            segment(SegmentKind::Kernel, &[1, 2, 3]),
            segment(SegmentKind::Row, &[u32::MAX, 5]),
        ],
        images: vec![crate::TileImage {
            tile: 0,
            entry: 4,
            pieces: vec![crate::Piece {
                address: 4,
                segment: 1,
            }],
            marks: vec![crate::Mark {
                address: 9,
                step: 0,
            }],
        }],
        rest: None,
        tensors: vec![crate::Tensor {
            name: "x".to_owned(),
            role: crate::Role::Input,
            rows: 2,
            columns: 3,
            row_spans: vec![crate::Span {
                device: 0,
                logical: 0,
                count: 2,
            }],
            column_spans: vec![],
        }],
        bindings: vec![crate::Binding {
            tensor: 0,
            tile: 0,
            address: 8,
            dtype: crate::Dtype::F143,
            scale_exponent: -4,
            order: crate::Order::Blocks(32),
            row: 0,
            column: 0,
            rows: 16,
            columns: 32,
        }],
        host: crate::HostPlan {
            slots: vec![0],
            inputs: vec![crate::HostRun {
                tile: 0,
                address: 8,
                bytes: 512,
            }],
            ..crate::HostPlan::default()
        },
        steps: vec![crate::StepInfo {
            operation: "a".to_owned(),
            label: "b".to_owned(),
            kind: crate::StepKind::Control,
        }],
    }
}

/// The uncompressed sections of a file.
fn sections(file: &[u8]) -> Vec<(SectionId, Vec<u8>)> {
    let (entries, places) = crate::container::table(file).unwrap();
    let section = |(entry, place): (&SectionEntry, &std::ops::Range<usize>)| {
        (entry.id, entry.unpack(&file[place.clone()]).unwrap())
    };
    entries.iter().zip(&places).map(section).collect()
}

fn forge(sections: &[(SectionId, Vec<u8>)]) -> Vec<u8> {
    let pack = |(id, bytes): &(SectionId, Vec<u8>)| SectionEntry::pack(*id, bytes);
    let (entries, stored): (Vec<_>, Vec<_>) = sections.iter().map(pack).unzip();
    let mut file = header(&entries).unwrap();
    file.extend(stored.concat());
    file
}

#[test]
fn a_whole_forgery_is_the_file() {
    let file = write(&package()).unwrap();
    assert_eq!(forge(&sections(&file)), file);
}

#[test]
fn every_altered_section_gives_an_error_or_a_canonical_package() {
    let file = write(&package()).unwrap();
    let sections = sections(&file);
    for index in 0..sections.len() {
        let bytes = &sections[index].1;
        let mut variants = Vec::new();
        for at in 0..bytes.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff, bytes[at] ^ 1, bytes[at] ^ 2] {
                let mut altered = bytes.clone();
                altered[at] = value;
                variants.push(altered);
            }
            variants.push(bytes[..at].to_vec());
            variants.push([&bytes[..at], &[0xff, 0xff, 0xff, 0xff, 0x0f], &bytes[at..]].concat());
        }
        for bytes in variants {
            let mut forged = sections.clone();
            forged[index].1 = bytes;
            let forged = forge(&forged);
            match read(&forged) {
                Ok(package) => assert_eq!(write(&package).unwrap(), forged),
                Err(PackageError::Malformed { .. } | PackageError::SizeLimit { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }
}

#[test]
fn sizes_are_compared_before_anything_is_read() {
    let file = write(&package()).unwrap();
    let mut entries = section_table(&file).unwrap();
    entries[7].bytes = u64::from(GROUP_BYTES_MAX) + 4;
    let limit = u64::from(GROUP_BYTES_MAX);
    let expected = PackageError::SizeLimit {
        section: SectionId::Words(0),
        bytes: limit + 4,
        limit,
    };
    assert_eq!(header(&entries).unwrap_err(), expected);
    assert_eq!(read(&with_size(&file, 7, limit + 4)).unwrap_err(), expected);
    let huge = read(&with_size(&file, 4, u64::MAX)).unwrap_err();
    assert!(matches!(
        huge,
        PackageError::SizeLimit {
            section: SectionId::Bindings,
            bytes: u64::MAX,
            ..
        }
    ));
    let other = read(&with_size(&file, 2, 3)).unwrap_err();
    assert!(matches!(
        other,
        PackageError::Malformed {
            section: SectionId::Images,
            ..
        }
    ));
}

/// The file with another uncompressed size in its table, and a header digest that agrees.
fn with_size(file: &[u8], section: usize, bytes: u64) -> Vec<u8> {
    let mut file = file.to_vec();
    let at = 14 + 56 * section + 8;
    file[at..at + 8].copy_from_slice(&bytes.to_le_bytes());
    let end = 14 + 56 * 8;
    let digest = *blake3::hash(&file[..end]).as_bytes();
    file[end..end + 32].copy_from_slice(&digest);
    file
}
