//! What the fabric refuses: damaged published rows, and each fault made by hand.

mod support;

use ipu_exchange::check::inputs;
use ipu_exchange::fabric::{FabricError, RowInput, resolve};
use ipu_exchange::{CheckError, Moving, Row, Transfer, Width, check, place_in_order, schedule};
use support::{transfers, vectors};

/// Every bit of every word of every row of every tenth vector, one at a time.
#[test]
fn damaged_rows() {
    let Some(list) = vectors() else { return };
    let (mut damaged, mut survived) = (0u32, 0u32);
    let good = list.iter().filter(|v| v.get("expect_error").is_none());
    for vector in good.step_by(10) {
        let (wanted, requested) = transfers(vector);
        let rows = place_in_order(&wanted, &requested).unwrap().rows;
        let horizon = vector["horizon"].as_i64().unwrap() as i32;
        for row in 0..rows.len() {
            for word in 0..rows[row].words.len() {
                for bit in 0..32 {
                    let mut bad = rows.clone();
                    bad[row].words[word] ^= 1 << bit;
                    damaged += 1;
                    let same = check(&wanted, &inputs(&bad)).is_ok_and(|e| e.horizon <= horizon);
                    survived += u32::from(same);
                }
            }
        }
    }
    println!("{survived} of {damaged} damaged rows still deliver");
    // What survives: a second direction bit, the address field of an idle two-word instruction,
    // a delay changed where there is slack before the return.
    assert!(
        damaged > 10_000 && survived * 20 < damaged,
        "{survived} of {damaged}"
    );
}

fn two_tiles() -> (Vec<Transfer>, Vec<Row>) {
    let one = |source, source_address, tile, address| Transfer {
        source,
        source_address,
        words: 100,
        destinations: vec![(tile, address)],
        width: Width::Word32,
        moving: None,
    };
    let list = vec![one(0, 0x60000, 2, 0x90000), one(2, 0x64000, 0, 0x98000)];
    let rows = schedule(&list, &Default::default()).unwrap().rows;
    (list, rows)
}

#[test]
fn faults_by_name() {
    let (list, rows) = two_tiles();
    let whole = inputs(&rows);
    assert!(check(&list, &whole).is_ok());
    let alone = resolve(&whole[..1]);
    assert!(
        matches!(alone, Err(FabricError::EmptySlot { source_tile: 2, .. })),
        "{alone:?}"
    );
    let empty = RowInput {
        words: &[],
        ..whole[0]
    };
    assert_eq!(resolve(&[empty]), Err(FabricError::NoReturn { tile: 0 }));
    let silent = RowInput {
        words: &[0x43a0_0000],
        ..whole[1]
    };
    let error = resolve(&[whole[0], silent]).unwrap_err();
    assert!(
        matches!(
            error,
            FabricError::EmptySlot {
                tile: 0,
                source_tile: 2,
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(
        resolve(&[whole[0], whole[0]]),
        Err(FabricError::Twice { tile: 0 })
    );
    let row_at = |address| RowInput {
        row_address: Some(address),
        ..whole[0]
    };
    assert!(resolve(&[row_at(0x70000), whole[1]]).is_ok());
    let error = resolve(&[row_at(0x60800), whole[1]]).unwrap_err();
    assert_eq!(
        error,
        FabricError::RowElement {
            tile: 0,
            element: 24
        }
    );
    let error = resolve(&[row_at(0x88000), whole[1]]).unwrap_err();
    assert!(matches!(error, FabricError::Address { .. }), "{error}");
}

/// A sender and a receiver written by hand: `edit` changes them.
fn by_hand(edit: impl Fn(&mut Vec<u32>, &mut Vec<u32>)) -> Result<(), FabricError> {
    let mut sender = vec![0x40a0_001e, 0x7fec_0003, 0x7460_0003, 0x43a0_0000];
    let mut receiver = vec![
        0x6400_0000,
        0x61aa_4000,
        0x640b_4640,
        0x40a0_003a,
        0x43a0_0000,
    ];
    edit(&mut sender, &mut receiver);
    let input = |tile, words| RowInput {
        tile,
        words,
        incoming_base: 0,
        outgoing_base: 0,
        moving_base: 0,
        row_address: None,
    };
    resolve(&[input(0, &sender), input(2, &receiver)]).map(|_| ())
}

#[test]
fn faults_by_hand() {
    use FabricError as E;
    assert_eq!(by_hand(|_, _| {}), Ok(()));
    let open = by_hand(|_, r| r[2] = 0x640b_4000);
    assert_eq!(open, Err(E::MuxOpen { tile: 2 }));
    let late = by_hand(|_, r| {
        r[1] += 1 << 19;
        r[2] -= 1 << 14;
    });
    assert!(
        matches!(late, Err(E::NoPointer { tile: 2, .. })),
        "{late:?}"
    );
    let short = by_hand(|_, r| r[3] = 0x40a0_0001);
    assert!(
        matches!(short, Err(E::Unfinished { tile: 2, .. })),
        "{short:?}"
    );
    let missed = by_hand(|s, _| s[2] += 1 << 21);
    assert_eq!(
        missed,
        Err(E::Missed {
            tile: 0,
            event: 131
        })
    );
    let empty = by_hand(|s, _| s[2] -= 1 << 21);
    assert!(
        matches!(empty, Err(E::EmptySlot { tile: 2, .. })),
        "{empty:?}"
    );
    let turned = by_hand(|s, _| {
        s[1] -= 1;
        s[2] -= 1;
    });
    assert!(
        matches!(turned, Err(E::Direction { tile: 2, .. })),
        "{turned:?}"
    );
    let format = by_hand(|_, r| r.insert(3, 0x6004_0001));
    assert!(
        matches!(format, Err(E::FormatOpen { tile: 2 })),
        "{format:?}"
    );
    let unknown = by_hand(|_, r| r[0] = 0x6400_05ff);
    assert!(
        matches!(unknown, Err(E::Source { tile: 2, .. })),
        "{unknown:?}"
    );
    let word = by_hand(|_, r| r[3] = 0x4180_0003);
    assert!(
        matches!(
            word,
            Err(E::Word {
                tile: 2,
                index: 3,
                ..
            })
        ),
        "{word:?}"
    );
    let outside = by_hand(|_, r| r[1] = 0x61a8_0000);
    assert!(
        matches!(outside, Err(E::Address { tile: 2, .. })),
        "{outside:?}"
    );
}

#[test]
fn elements_in_time() {
    let (list, rows) = two_tiles();
    // The same rows with tile 0's receive moved into the element it sends from.
    let mut bad = inputs(&rows);
    bad[0].incoming_base = 0x60400u32.wrapping_sub(0x98000);
    let error = check(&list, &bad).unwrap_err();
    let element = |e: &CheckError| matches!(e, CheckError::Fabric(FabricError::Element { .. }));
    assert!(element(&error), "{error}");
    bad[0].incoming_base = 4;
    assert!(matches!(
        check(&list, &bad),
        Err(CheckError::Missing(_) | CheckError::Extra(_))
    ));
}

#[test]
fn a_repeat_moves_its_sources() {
    let moving = |source_address: u32| Transfer {
        source: 0,
        source_address,
        words: 64,
        destinations: vec![(2, 0x90000)],
        width: Width::Word32,
        moving: Some(Moving {
            base: source_address - 0x100,
            extent: 0x60000..0x64000,
        }),
    };
    let fixed = Transfer {
        source_address: 0x70000,
        destinations: vec![(2, 0x91000)],
        moving: None,
        ..moving(0x60100)
    };
    let first = vec![fixed.clone(), moving(0x60100)];
    let made = schedule(&first, &Default::default()).unwrap();
    check(&first, &inputs(&made.rows)).unwrap();
    // The same words serve a later iteration once the base has moved on.
    let mut later = made.rows.clone();
    later[0].moving_base = Some(0x61000);
    check(&[fixed, moving(0x61100)], &inputs(&later)).unwrap();
}
