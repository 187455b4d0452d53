//! Route facts against published route times, and over all ordered pairs.

use ipu_target::exchange::{POINT_TO_POINT_LEAD, receive_depth};
use ipu_target::topology::{
    TILES, direction, logical, pair_partner, paired_route_time, physical, route_time,
};
use serde_json::Value;
use std::path::PathBuf;

fn vectors(name: &str) -> Option<Value> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let beside = ["../shared/reference", "../../shared/reference"].map(|f| root.join(f));
    let folder = std::env::var_os("IPUB_SHARED").map(PathBuf::from);
    let texts = folder
        .into_iter()
        .chain(beside)
        .map(|f| std::fs::read_to_string(f.join(name)));
    let Some(text) = texts.flatten().next() else {
        println!("skipped: vector folder absent");
        return None;
    };
    Some(serde_json::from_str(&text).expect("vector file is JSON"))
}

#[test]
fn numbering_is_a_bijection() {
    for tile in 0..TILES {
        assert_eq!(logical(physical(tile)), Some(tile));
    }
    assert_eq!(logical(TILES), None);
    assert_eq!([0, 2, 4, 6, 1286].map(physical), [0, 64, 128, 192, 53]);
}

#[test]
fn worked_routes() {
    assert_eq!(route_time(0, 64), -31);
    assert_eq!(route_time(128, 2), -24);
}

#[test]
fn published_routes() {
    let Some(file) = vectors("route-times.json") else {
        return;
    };
    let map = file["logical_to_physical"].as_array().unwrap();
    for (tile, expected) in map.iter().enumerate() {
        assert_eq!(u64::from(physical(tile as u32)), expected.as_u64().unwrap());
    }
    let mut rows = 0;
    for name in ["all_pairs", "sample"] {
        for row in file[name].as_array().unwrap() {
            let v: Vec<i64> = row
                .as_array()
                .unwrap()
                .iter()
                .map(|x| x.as_i64().unwrap())
                .collect();
            check_row(&v);
            rows += 1;
        }
    }
    assert_eq!(rows, 8_032);
    println!("{rows} published routes agree");
}

fn check_row(v: &[i64]) {
    let (s, d) = (v[2] as u32, v[3] as u32);
    assert_eq!((physical(v[0] as u32), physical(v[1] as u32)), (s, d));
    assert_eq!(i64::from(direction(s, d)), v[4]);
    let t = route_time(s, d);
    assert_eq!(i64::from(t), v[5]);
    assert_eq!(i64::from(POINT_TO_POINT_LEAD - t), v[6]);
    let depth = i64::from(receive_depth(d));
    assert_eq!((v[7], v[8]), (113, 113 + depth));
    let start = i64::from((-t).max(0));
    assert_eq!(v[9], start);
    assert_eq!(v[10], start + i64::from(t) + 1);
    assert_eq!(v[11], v[10] + depth);
    assert_eq!(v[12], i64::from(4 | direction(s, d)));
    assert_eq!(v[13] == 1, t < route_time(s, pair_partner(d)));
}

#[test]
fn all_pairs() {
    let (mut pairs, mut forward, mut negative) = (0u32, 0u32, 0u32);
    let (mut least, mut most) = (i32::MAX, i32::MIN);
    for s in 0..TILES {
        assert!(matches!(route_time(s, s), -29 | -28));
        for d in 0..TILES {
            let t = route_time(s, d);
            let partner = route_time(s, pair_partner(d));
            assert_eq!((t - partner).abs(), 1);
            assert_eq!(direction(s, d), direction(s, pair_partner(d)));
            assert_eq!(paired_route_time(s, d), t.max(partner));
            if s != d {
                pairs += 1;
                forward += u32::from(direction(s, d) == 1);
                negative += u32::from(t < 0);
                least = least.min(t);
                most = most.max(t);
            }
        }
    }
    assert_eq!(
        (pairs, forward, negative),
        (2_165_312, 1_082_656, 1_438_112)
    );
    assert_eq!((least, most), (-78, 112));
}
