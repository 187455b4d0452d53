//! The file format: round trips, and every kind of damage.

mod support;

use ipu_package::{
    HostPlan, Package, PackageError, SectionId, digest, digest_of_sections, read, section_table,
    write,
};
use support::{Rng, small};

fn empty() -> Package {
    Package {
        device: String::new(),
        tiles: 0,
        segments: vec![],
        images: vec![],
        rest: None,
        tensors: vec![],
        bindings: vec![],
        host: HostPlan::default(),
        steps: vec![],
    }
}

/// A typed error, or the package itself.
fn refused_or_equal(file: &[u8], package: &Package) -> Option<PackageError> {
    match read(file) {
        Ok(read) => {
            assert_eq!(&read, package);
            None
        }
        Err(error) => Some(error),
    }
}

#[test]
fn packages_come_back() {
    for package in [empty(), small()] {
        let file = write(&package).unwrap();
        assert_eq!(read(&file).unwrap(), package);
        assert_eq!(write(&package).unwrap(), file);
        let table = section_table(&file).unwrap();
        assert_eq!(digest_of_sections(&table), digest(&package).unwrap());
    }
}

#[test]
fn the_digest_follows_the_contents() {
    let before = digest(&small()).unwrap();
    let mut other = small();
    other.segments[1].words[3] ^= 1;
    assert_ne!(digest(&other).unwrap(), before);
    let mut other = small();
    other.bindings[0].scale_exponent = -5;
    assert_ne!(digest(&other).unwrap(), before);
    // A format change must change this on purpose.
    assert_eq!(&before.to_string()[..16], "783df045e0450cbd");
}

#[test]
fn one_and_many_threads_write_the_same_bytes() {
    let package = support::wide(64, 20_000);
    let with = |threads| {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap();
        pool.install(|| write(&package).unwrap())
    };
    let file = with(1);
    assert_eq!(file, with(4));
    assert!(
        section_table(&file).unwrap().len() > 7,
        "more than one group"
    );
    assert_eq!(read(&file).unwrap(), package);
}

#[test]
fn every_truncation_is_named() {
    let file = write(&small()).unwrap();
    for end in 0..file.len() {
        let expected = PackageError::Truncated { at: end as u64 };
        assert_eq!(read(&file[..end]), Err(expected), "cut at {end}");
    }
    let mut longer = file.clone();
    longer.push(0);
    let error = read(&longer).unwrap_err();
    assert!(matches!(
        error,
        PackageError::Malformed {
            section: SectionId::Header,
            ..
        }
    ));
}

#[test]
fn every_flipped_byte_is_found_or_harmless() {
    let package = small();
    let file = write(&package).unwrap();
    let mut harmless = 0;
    for at in 0..file.len() {
        for flip in [1, 2, 4, 8, 16, 32, 64, 128, 0xff] {
            let mut altered = file.clone();
            altered[at] ^= flip;
            let error = refused_or_equal(&altered, &package);
            match (at, &error) {
                (..6, error) => assert_eq!(error, &Some(PackageError::BadMagic)),
                (6..10, error) => {
                    assert!(matches!(
                        error,
                        Some(PackageError::Version { supported: 2, .. })
                    ));
                }
                _ => harmless += u32::from(error.is_none()),
            }
        }
    }
    // Only bits that a zstd frame does not use.
    assert!(
        (harmless as usize) < file.len() / 4,
        "{harmless} of {}",
        file.len()
    );
}

#[test]
fn random_bytes_are_refused() {
    let mut rng = Rng(1);
    let start = write(&small()).unwrap();
    for round in 0..4_000 {
        let length = rng.next() as usize % 2_000;
        let mut bytes: Vec<u8> = (0..length).map(|_| rng.next() as u8).collect();
        let keep = [0, 6, 10, 14, 300][round % 5].min(length).min(start.len());
        bytes[..keep].copy_from_slice(&start[..keep]);
        assert!(read(&bytes).is_err());
    }
}

#[test]
fn an_unwritable_package_is_refused() {
    let mut package = small();
    package.tiles = 1_473;
    let error = write(&package).unwrap_err();
    assert!(matches!(
        error,
        PackageError::Malformed {
            section: SectionId::Program,
            ..
        }
    ));
    let mut package = small();
    package.segments[0].words = vec![0; 0x34000 / 4 + 1];
    assert!(write(&package).is_err());
    let mut package = small();
    package.steps[0].label = "x".repeat(5_000);
    assert!(write(&package).is_err());
}
