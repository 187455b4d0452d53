//! Alignment, objects, relocations, disassembly.

mod asm_support;

use asm_support::*;
use ipu_emit::asm::disassemble;
use ipu_emit::link::{LinkError, Placed, link};
use ipu_emit::object::{CodeSpan, RelocationKind, Target};
use ipu_isa::Mode;
use std::collections::BTreeMap;

#[test]
fn bundles_are_aligned_without_an_executed_nop() {
    let head = ".allow_optimizations\n";
    // One solo instruction before: it is paired.
    assert_eq!(
        words(&format!(
            "{head}add $m0, $m1, $m2\n{{ add $m3, $m4, $m5 ; fnop }}"
        )),
        spelled(&["*add $m0, $m1, $m2", "*fnop", "*add $m3, $m4, $m5", "*fnop"])
    );
    // An A instruction is paired with nop.
    assert_eq!(
        words(&format!("{head}setzi $a0, 1\n{{ nop ; fnop }}")),
        spelled(&["*nop", "*setzi $a0, 1", "*nop", "*fnop"])
    );
    // Of three, the last is at zero modulo eight; two need nothing.
    assert_eq!(
        words(&format!(
            "{head}setzi $m0, 0\nsetzi $m1, 1\nsetzi $m2, 2\n{{ nop ; fnop }}"
        )),
        spelled(&[
            "setzi $m0, 0",
            "setzi $m1, 1",
            "*setzi $m2, 2",
            "*fnop",
            "*nop",
            "*fnop"
        ])
    );
    assert_eq!(
        words(&format!(
            "{head}setzi $m0, 0\nsetzi $m1, 1\n{{ nop ; fnop }}"
        )),
        spelled(&["setzi $m0, 0", "setzi $m1, 1", "*nop", "*fnop"])
    );
    // After an exit no path runs: padding; the label binds after it.
    assert_eq!(
        words(&format!("{head}exitz $mzero\nloop: {{ bri loop ; fnop }}")),
        spelled(&["exitz $m15", "nop", "*bri 2", "*fnop"])
    );
    // Labels between keep their instructions, and label differences see the result.
    let text =
        format!("{head}setzi $m9, 2f - 1f\nsetzi $m0, 7\n1: setzi $m1, 1\n2: {{ nop ; fnop }}");
    assert_eq!(
        words(&text),
        spelled(&[
            "setzi $m9, 8",
            "setzi $m0, 7",
            "*setzi $m1, 1",
            "*fnop",
            "*nop",
            "*fnop"
        ])
    );
    // An alignment directive is met in the same way, and with a nop otherwise.
    assert_eq!(
        words(&format!("{head}setzi $m0, 1\n.align 8\nsetzi $m0, 2")),
        spelled(&["*setzi $m0, 1", "*fnop", "setzi $m0, 2"])
    );
    assert_eq!(
        words("setzi $m0, 1\n.align 8\nnop"),
        spelled(&["setzi $m0, 1", "nop", "nop"])
    );
    assert_eq!(
        faults("nop\n{ nop ; fnop }")[0][..25],
        *"2:1 bundle is not 8-byte "
    );
    assert_eq!(
        faults(&format!("{head}.long 1\n{{ nop ; fnop }}")),
        ["3:1 bundle is not 8-byte aligned, and no instruction before it can be paired"]
    );
}

#[test]
fn repeat_bodies_are_aligned_and_checked() {
    let body = "(2f - 1f) / 8 - 1\n1:\n{ add $m1, $m1, 1 ; fnop }\n2:\nexitz $mzero";
    let text = format!(".allow_optimizations\nrpt $m0, {body}");
    assert_eq!(
        words(&text),
        spelled(&[
            "*rpt $m0, 0",
            "*fnop",
            "*add $m1, $m1, 1",
            "*fnop",
            "exitz $m15"
        ])
    );
    let text = format!(".allow_optimizations\nsetzi $m0, 3\nrpt $m0, {body}");
    assert_eq!(
        words(&text),
        spelled(&[
            "setzi $m0, 3",
            "rpt $m0, 0",
            "*add $m1, $m1, 1",
            "*fnop",
            "exitz $m15"
        ])
    );
    let text = format!(
        ".allow_optimizations\nsetzi $m0, 3\n{{ rpt $m0, {}",
        body.replacen('\n', " ; fnop }\n", 1)
    );
    assert_eq!(
        words(&text),
        spelled(&[
            "setzi $m0, 3",
            "rpt $m0, 0",
            "*add $m1, $m1, 1",
            "*fnop",
            "exitz $m15"
        ])
    );
    let cut = build(".allow_optimizations\nrpt 4, 1\n{ nop ; fnop }");
    assert_eq!(cut.warnings.len(), 1);
    assert_eq!(
        faults(".allow_optimizations\nrpt 4, 0\n{ brnz $m0, 0 ; fnop }"),
        ["3:1 control instruction `brnz` in an rpt body"]
    );
    assert_eq!(
        faults(".allow_optimizations\nnop\nrpt 4, 0\nnop\nnop"),
        ["4:1 an rpt body holds bundles only"]
    );
}

#[test]
fn supervisor_code_is_not_paired() {
    let text = ".supervisor\n.allow_optimizations\nbr $lr\n.worker\n{ nop ; fnop }";
    let assembly = build(text);
    let spans = [
        CodeSpan {
            start: 0,
            end: 8,
            mode: Mode::Supervisor,
        },
        CodeSpan {
            start: 8,
            end: 16,
            mode: Mode::Worker,
        },
    ];
    assert_eq!(assembly.object.sections[0].code, spans);
    let text = ".supervisor\nsendpicp 3, 1, 0x1234, 5, 0x2001, 0x155";
    assert_eq!(
        words(text),
        [
            0xf000_0000 | 1 << 27 | 3 << 21 | 0x1234 << 3 | 5,
            0x2001 << 18 | 0x155
        ]
    );
    assert_eq!(
        faults(&format!(".supervisor\nnop\n{}", &text[12..])).len(),
        1
    );
}

#[test]
fn sections_symbols_and_relocations() {
    let text = "
.section .text.entry, \"ax\", @progbits
.supervisor
.globl entry
entry:
    setzi $m0, worker
    run $m0, $m1, frame
    call $lr, outside
    bri back
.section .data.frame
frame: .long 1, entry, outside + 4, frame + 8
.section .text.entry
back:
    br $lr
.section .text.worker
.worker
worker: exitz $mzero
.section .unused
";
    let assembly = build(text);
    let object = &assembly.object;
    let names: Vec<_> = object
        .sections
        .iter()
        .map(|section| section.name.as_str())
        .collect();
    assert_eq!(names, [".text.entry", ".data.frame", ".text.worker"]);
    let symbols: Vec<_> = object
        .symbols
        .iter()
        .map(|s| (s.name.as_str(), s.global))
        .collect();
    assert_eq!(
        symbols,
        [
            ("back", false),
            ("entry", true),
            ("frame", false),
            ("worker", false)
        ]
    );
    assert_eq!(object.symbol("back").map(|symbol| symbol.value), Some(16));
    let kinds: Vec<_> = object
        .relocations
        .iter()
        .map(|r| (r.kind, r.target.clone(), r.addend))
        .collect();
    let outside = || Target::Symbol("outside".into());
    assert_eq!(
        kinds,
        [
            (RelocationKind::Absolute20, Target::Section(2), 0),
            (RelocationKind::Run16, Target::Section(1), 0),
            (RelocationKind::Branch19, outside(), 0),
            (RelocationKind::Branch19, Target::Section(0), 16),
            (RelocationKind::Word32, Target::Section(0), 0),
            (RelocationKind::Word32, outside(), 4),
            (RelocationKind::Word32, Target::Section(1), 8),
        ]
    );
    let placed = || Placed {
        object,
        addresses: vec![0x4_c000, 0x8_0000, 0x5_0000],
    };
    let externals = BTreeMap::from([("outside".to_string(), 0x6_0000)]);
    let image = link(&[placed()], &externals, 0x4_c000).expect("links");
    let word = |segment: usize, at: usize| {
        u32::from_le_bytes(
            image.segments[segment].bytes[at..at + 4]
                .try_into()
                .expect("word"),
        )
    };
    assert_eq!(word(0, 0), 0x1905_0000);
    let run = (0x8_0000 - 0x4_c000) / 4;
    assert_eq!(
        word(0, 4),
        0x1400_1000 | ((run & 0xf000) << 4) | (run & 0xfff)
    );
    assert_eq!(word(0, 8), 0x18a0_0000 | (0x6_0000 / 4));
    assert_eq!(word(0, 12), 0x4080_0000 | (0x4_c010 / 4));
    assert_eq!(
        [word(1, 4), word(1, 8), word(1, 12)],
        [0x4_c000, 0x6_0004, 0x8_0008]
    );
    assert_eq!(image.globals["entry"], 0x4_c000);
    assert_eq!(image.symbols[0]["worker"], 0x5_0000);
    let missing = link(&[placed()], &BTreeMap::new(), 0x4_c000);
    assert!(matches!(missing, Err(LinkError::Undefined { ref symbol, .. }) if symbol == "outside"));
    let twice = link(&[placed(), placed()], &externals, 0x4_c000);
    assert!(matches!(twice, Err(LinkError::Overlap { .. })));
    let text = serde_json::to_string(object).expect("serialises");
    assert_eq!(
        serde_json::from_str::<ipu_emit::object::Object>(&text).expect("reads back"),
        *object
    );
}

#[test]
fn disassembly_names_its_targets() {
    let symbols = BTreeMap::from([(0x5_0000, "entry".to_string())]);
    let base = 0x5_0000;
    let relinked = linked(
        &build("setzi $m0, 1\nnop\n1: { nop ; f32add $a0, $a1, $a2 }\nbrnzdec $m0, 1b\nbri 77"),
        base,
    );
    let lines = disassemble(&relinked, base, Mode::Worker, &symbols);
    assert_eq!(
        lines,
        [
            ".allow_invalid_repeat",
            "entry:",
            ".worker",
            "    setzi $m0, 1",
            "    nop",
            ".L50008:",
            "    { nop ; f32add $a0, $a1, $a2 }",
            "    brnzdec $m0, .L50008",
            "    bri 77",
        ]
    );
    assert_eq!(linked(&build(&lines.join("\n")), base), relinked);
}

/// Any words, whether code or not, disassemble to text that gives them again.
#[test]
fn any_words_survive_disassembly() {
    let mut seed = 11u64;
    let mut random = move || {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (seed >> 32) as u32
    };
    for round in 0..300 {
        // Random fixed bits are rarely an instruction, so most words start from a form.
        let mut code = Vec::new();
        for _ in 0..40 {
            let form = ipu_isa::FORMS[random() as usize % ipu_isa::FORMS.len()];
            let filled = form.value | (random() & !form.mask & 0x7fff_ffff);
            code.push(match random() % 8 {
                0 => random(),
                1..4 => filled | 1 << 31,
                _ => filled,
            });
        }
        let mode = if round % 2 == 0 {
            Mode::Worker
        } else {
            Mode::Supervisor
        };
        let base = 0x4_c000 + 4 * (random() % 2);
        let lines = disassemble(&code, base, mode, &BTreeMap::new()).join("\n");
        let object = &build(&lines).object;
        // At an odd word the section cannot keep its alignment: compare the bytes of the field.
        let placed = Placed {
            object,
            addresses: object.addresses_from(base & !7),
        };
        let image = link(&[placed], &BTreeMap::new(), 0x4_c000).expect("links");
        let bytes = &image.segments[0].bytes;
        if base % 8 == 0 {
            let expected: Vec<u8> = code.iter().flat_map(|word| word.to_le_bytes()).collect();
            assert_eq!(*bytes, expected, "{lines}");
        } else {
            assert_eq!(bytes.len(), 4 * code.len(), "{lines}");
        }
    }
}

/// Time grows with the text, not with its square.
#[test]
fn long_texts_are_quick() {
    let mut text = String::from(".allow_optimizations\n.macro step r\nadd \\r, \\r, 1\n.endm\n");
    for i in 0..20_000 {
        text += &format!(
            "l{i}: ld32 $m1, $m2, {}\nstep $m1\nbrnzdec $m3, l{i}\n",
            i % 4096
        );
        text += "{ st32 $a0, $m2, $mzero, 1 ; f32add $a0, $a1, $a2 }\n";
    }
    let assembly = build(&text);
    assert_eq!(assembly.object.relocations.len(), 20_000);
    assert_eq!(linked(&assembly, 0x4_c000).len(), 20_000 * 6);
}
