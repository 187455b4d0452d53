//! Properties of the whole instruction table.

use ipu_isa::form::{COISSUE_BIT, Class};
use ipu_isa::text::{assemble_statement, print, word_target};
use ipu_isa::{Decoded, FORMS, FormId, Mode, Operands, decode, encode};

/// Seeded generator, so that every run tries the same operands.
struct Lcg(u64);

impl Lcg {
    fn next(&mut self) -> u32 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as u32
    }
}

fn random_operands(id: FormId, random: &mut Lcg) -> Operands {
    let mut ops = [0; 6];
    for (value, operand) in ops.iter_mut().zip(id.form().operands) {
        *value = match operand.class {
            Class::APair => (random.next() % 8 * 2) as i32,
            Class::MPair | Class::MPairPost(_) => (random.next() % 6 * 2) as i32,
            Class::AQuad => (random.next() % 4 * 4) as i32,
            Class::Iz12 => (random.next() << 20) as i32,
            class => {
                let (lo, hi) = class.range();
                (lo + i64::from(random.next()) % (hi - lo + 1)) as i32
            }
        };
    }
    ops
}

fn a_mode(id: FormId) -> Mode {
    if id.form().mode.contains(Mode::Worker) {
        Mode::Worker
    } else {
        Mode::Supervisor
    }
}

#[test]
fn keys_are_sorted_and_unique() {
    assert_eq!(FORMS.len(), 368);
    assert!(FORMS.windows(2).all(|pair| pair[0].key < pair[1].key));
    for id in FormId::all() {
        assert_eq!(FormId::by_key(id.form().key), Some(id));
        assert!(FormId::by_mnemonic(id.form().mnemonic).any(|other| other == id));
    }
    assert_eq!(FormId::by_mnemonic("nothing").count(), 0);
}

#[test]
fn no_two_forms_overlap() {
    for (i, a) in FORMS.iter().enumerate() {
        for b in &FORMS[i + 1..] {
            let bit31 = if a.can_coissue || b.can_coissue {
                0
            } else {
                COISSUE_BIT
            };
            let common = a.mask & b.mask | bit31;
            assert_ne!(
                a.value & common,
                b.value & common,
                "{} and {}",
                a.key,
                b.key
            );
        }
    }
}

#[test]
fn encode_and_decode_are_inverse() {
    let mut random = Lcg(1);
    for id in FormId::all() {
        for _ in 0..200 {
            let ops = random_operands(id, &mut random);
            let word = encode(id, &ops).expect("operands are in range");
            let decoded = decode(word, a_mode(id));
            assert_eq!(
                decoded,
                Some(Decoded {
                    form: id,
                    coissue: false,
                    ops
                }),
                "{}",
                id.form().key
            );
            let paired = decode(word | COISSUE_BIT, a_mode(id));
            if id.form().can_coissue {
                assert_eq!(
                    paired,
                    Some(Decoded {
                        form: id,
                        coissue: true,
                        ops
                    })
                );
            }
        }
    }
}

#[test]
fn wrong_mode_does_not_decode() {
    for id in FormId::all() {
        let word = encode(id, &[0; 6]).expect("zero is in range");
        for mode in [Mode::Worker, Mode::Supervisor] {
            assert_eq!(decode(word, mode).is_some(), id.form().mode.contains(mode));
        }
    }
}

#[test]
fn out_of_range_operands_do_not_encode() {
    for id in FormId::all() {
        for (index, operand) in id.form().operands.iter().enumerate() {
            let (lo, hi) = operand.class.range();
            let bad = match operand.class {
                Class::Iz12 => vec![1],
                Class::APair | Class::MPair | Class::MPairPost(_) => vec![1, -2, 16],
                Class::AQuad => vec![1, 2, -4, 16],
                _ => vec![lo as i32 - 1, hi as i32 + 1],
            };
            for value in bad {
                let mut ops = [0; 6];
                ops[index] = value;
                let error = encode(id, &ops).expect_err("out of range");
                assert_eq!((error.index, error.value), (index, value));
            }
        }
    }
}

#[test]
fn register_use_covers_every_register_operand() {
    for id in FormId::all() {
        let form = id.form();
        for (i, operand) in form.operands.iter().enumerate() {
            let used = (form.reads | form.writes) & (1 << i) != 0;
            assert_eq!(used, operand.class.is_register(), "{}", form.key);
            if matches!(operand.class, Class::MPost(_) | Class::MPairPost(_)) {
                assert!(form.reads & form.writes & (1 << i) != 0, "{}", form.key);
            }
        }
    }
}

#[test]
fn print_and_parse_are_inverse() {
    let mut random = Lcg(2);
    for id in FormId::all() {
        for _ in 0..200 {
            let ops = random_operands(id, &mut random);
            let word = encode(id, &ops).expect("operands are in range");
            let mut decoded = decode(word, a_mode(id)).expect("decodes");
            let mut words = vec![word];
            if id.form().words() == 2 {
                words.push(random.next());
                decoded = decoded.with_inline(words[1]);
            }
            let text = print(&decoded, &mut word_target);
            assert_eq!(assemble_statement(&text, a_mode(id)), Ok(words), "{text}");
        }
    }
}

#[test]
fn statements_of_the_other_mode_are_refused() {
    for id in FormId::all() {
        let mode = a_mode(id);
        let decoded = decode(encode(id, &[0; 6]).expect("in range"), mode).expect("decodes");
        let text = print(&decoded, &mut word_target);
        let other = assemble_statement(&text, mode.other());
        assert_eq!(
            other.is_ok(),
            id.form().mode.contains(mode.other()),
            "{text}"
        );
    }
}
