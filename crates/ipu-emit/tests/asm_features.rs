//! The assembly language beyond single statements.

mod asm_support;

use asm_support::*;
use ipu_emit::asm::{Source, assemble};
use ipu_isa::Mode;

#[test]
fn data_directives() {
    assert_eq!(bytes(".data\n.byte 1, -1, 'A'"), [1, 0xff, 65]);
    assert_eq!(
        bytes(".data\n.half 0x1234, 1.0h\n.short -2"),
        [0x34, 0x12, 0, 0x3c, 0xfe, 0xff]
    );
    assert_eq!(
        bytes(".data\n.word 0x01020304\n.quad 5"),
        [4, 3, 2, 1, 5, 0, 0, 0, 0, 0, 0, 0]
    );
    assert_eq!(
        bytes(".data\n.float 1.5, -inf"),
        [0, 0, 0xc0, 0x3f, 0, 0, 0x80, 0xff]
    );
    assert_eq!(
        bytes(".data\n.asciz \"a;b{\\n\"\n.ascii \"c\""),
        *b"a;b{\n\0c"
    );
    assert_eq!(
        bytes(".data\n.space 2\n.zero 1\n.space 2, 7\n.fill 2, 2, 0x102"),
        [0, 0, 0, 7, 7, 2, 1, 2, 1]
    );
    assert_eq!(
        bytes(".data\n.byte 1\n.align 4\n.byte 2\n.p2align 2, 9\n.byte 3"),
        [1, 0, 0, 0, 2, 9, 9, 9, 3]
    );
    assert_eq!(
        build(".data\n.balign 64\n.byte 1").object.sections[0].align,
        64
    );
    assert_eq!(
        faults(".data\n.byte 1, 256"),
        ["2:10 256 does not fit 1 bytes"]
    );
    assert_eq!(faults(".data\n.align 3").len(), 1);
}

#[test]
fn symbols_and_expressions() {
    assert_eq!(
        words("n = 5\n.set m, n * 2\n.equ k, m - 1\nadd $m0, $m1, k"),
        spelled(&["add $m0, $m1, 9"])
    );
    assert_eq!(
        words(".set n, 1\nsetzi $m0, n\n.set n, 2\nsetzi $m0, n"),
        spelled(&["setzi $m0, 1", "setzi $m0, 2"])
    );
    assert_eq!(
        words("setzi $m0, end - start\nstart: nop\nnop\nend:"),
        spelled(&["setzi $m0, 8", "nop", "nop"])
    );
    assert_eq!(
        words("a: nop\nb: nop\n.set gap, b - a\nsetzi $m0, gap"),
        spelled(&["nop", "nop", "setzi $m0, 4"])
    );
    assert_eq!(words("nop\n.long . - 4, . + 4"), [NOP, 0, 8]);
    assert_eq!(
        words("f8v8hihov4amp $a0:1, $a2:3, $azeros, TAMP_F8V8_E4_P3"),
        spelled(&["f8v8hihov4amp $a0:1, $a2:3, $a14:15, 3"])
    );
    let mut given = options(Mode::Worker);
    given.defines.insert("WIDTH".into(), 72);
    let source = Source {
        name: "k.S",
        text: "setzi $m0, WIDTH / 8",
    };
    let assembly = assemble(source, &given).expect("assembles");
    assert_eq!(linked(&assembly, 0), spelled(&["setzi $m0, 9"]));
    assert_eq!(
        faults("x: nop\nx: nop"),
        ["2:1 symbol `x` is defined twice"]
    );
    assert_eq!(
        faults("a = b\nb = a\nsetzi $m0, a"),
        ["3:12 symbol `b` refers to itself"]
    );
    assert_eq!(
        faults("ld32 $m0, $m1, later"),
        ["1:16 symbol `later` is not defined"]
    );
}

#[test]
fn register_names() {
    let text = ".set acc, $a4:5\nptr = $m3\nf16v4add acc, acc:BL, $a0:1\n";
    assert!(assemble(Source { name: "k.S", text }, &options(Mode::Worker)).is_err());
    assert_eq!(
        words("acc = $a4:5\nptr = $m3\ncopy = ptr\nst64step acc, $mzero, copy+=, 1"),
        spelled(&["st64step $a4:5, $mzero, $m3+=, 1"])
    );
}

#[test]
fn local_labels_count_by_number() {
    let text = "1: bri 1f\n1: bri 1b\nbri 1f\n2: nop\n1: bri 2b\n.Lx: bri .Lx";
    let expected = ["bri 1", "bri 1", "bri 4", "nop", "bri 3", "bri 5"];
    assert_eq!(words(text), spelled(&expected));
    assert!(build(text).object.symbols.is_empty());
    assert_eq!(faults("bri 1b"), ["1:5 no label `1:` before"]);
    assert_eq!(faults("bri 1f"), ["1:5 label `1:` is not defined"]);
}

#[test]
fn macros() {
    let text = "
.macro load reg, at=0, base:req
    ld32 \\reg, \\base, \\at
.endm
    load $m1, 3, $m2
    load $m1, base=$m2
    load reg=$m4, base=$m5, at=(1 + 1) * 2
";
    assert_eq!(
        words(text),
        spelled(&["ld32 $m1, $m2, 3", "ld32 $m1, $m2, 0", "ld32 $m4, $m5, 4"])
    );
    let text = "
.macro each op, regs:vararg
  .irp r, \\regs
    \\op \\r, \\r, 1
  .endr
.endm
each add, $m0, $m1 ; each shl, $m2
";
    assert_eq!(
        words(text),
        spelled(&["add $m0, $m0, 1", "add $m1, $m1, 1", "shl $m2, $m2, 1"])
    );
    let text = "
.macro spin n
again\\@\\(): brnzdec \\n, again\\@
.endm
spin $m0
spin $m1
";
    assert_eq!(words(text), spelled(&["brnzdec $m0, 0", "brnzdec $m1, 1"]));
    let text = "
.macro recur n
  .if \\n
    setzi $m0, \\n
    recur (\\n - 1)
  .endif
.endm
recur 2
";
    assert_eq!(words(text), spelled(&["setzi $m0, 2", "setzi $m0, 1"]));
    let text = ".macro pair\n { nop\n fnop }\n .endm\n pair ; pair";
    assert_eq!(words(text), spelled(&["*nop", "*fnop", "*nop", "*fnop"]));
    let text =
        ".macro quit x\n nop\n .ifb \\x\n .exitm\n .endif\n setzi $m0, \\x\n.endm\nquit\nquit 3";
    assert_eq!(words(text), spelled(&["nop", "nop", "setzi $m0, 3"]));
    let text = ".macro both\n.macro inner x\nsetzi $m0, \\x\n.endm\ninner 4\n.endm\nboth";
    assert_eq!(words(text), spelled(&["setzi $m0, 4"]));
}

#[test]
fn macro_faults() {
    assert_eq!(
        faults(".macro m a:req\n nop\n.endm\nm"),
        ["4:1 macro `m` needs `a`"]
    );
    assert_eq!(
        faults(".macro m a\n nop\n.endm\nm 1, 2"),
        ["4:1 too many arguments for macro `m`"]
    );
    assert_eq!(faults(".macro m\nnop"), ["1:1 `.macro` without end"]);
    assert_eq!(
        faults(".macro m\nm\n.endm\nm"),
        ["2:1 macros and repetitions nest too deeply"]
    );
    assert_eq!(faults(".endr"), ["1:1 `.endr` without its beginning"]);
    let found = errors(".macro m r\n add \\r, 1\n.endm\n.rept 1\n m $m1\n.endr");
    assert_eq!(found[0].statement, "add $m1, 1");
    assert_eq!(
        (found[0].line, found[0].reason.as_str()),
        (2, "too few operands")
    );
    assert_eq!(found[0].context, ["macro `m` at k.S:5", "`.rept` at k.S:4"]);
}

#[test]
fn repetition() {
    assert_eq!(words(".rept 3\nnop\n.endr"), [NOP; 3]);
    assert!(
        build(".rept 0\nbad\n.endr\nnop").object.sections[0]
            .bytes
            .len()
            == 4
    );
    assert_eq!(
        words(".irp n, 1, 2\nsetzi $m\\n, \\n\n.endr"),
        spelled(&["setzi $m1, 1", "setzi $m2, 2"])
    );
    assert_eq!(
        words(".irpc n, 12\nsetzi $m\\n, 0\n.endr"),
        spelled(&["setzi $m1, 0", "setzi $m2, 0"])
    );
    let text = ".set i, 0\n.rept 2\n.rept 2\nsetzi $m0, i\n.set i, i + 1\n.endr\n.endr";
    let expected = [
        "setzi $m0, 0",
        "setzi $m0, 1",
        "setzi $m0, 2",
        "setzi $m0, 3",
    ];
    assert_eq!(words(text), spelled(&expected));
}

#[test]
fn conditionals() {
    let choose = |n: i32| {
        words(&format!(
            ".set n, {n}\n.if n == 1\nsetzi $m0, 1\n.elseif n == 2\nsetzi $m0, 2\n.else\n.if n > 5\n\
             setzi $m0, 6\n.else\nsetzi $m0, 3\n.endif\n.endif"
        ))
    };
    for (n, value) in [(1, 1), (2, 2), (3, 3), (9, 6)] {
        assert_eq!(choose(n), spelled(&[&format!("setzi $m0, {value}")]));
    }
    assert_eq!(
        words(".if 0\n.if 1\nbad\n.else\nbad\n.endif\n.macro x\n.endif\n.endm\n.else\nnop\n.endif"),
        [NOP]
    );
    assert_eq!(
        words("a = 1\n.ifdef a\nnop\n.endif\n.ifndef b\nnop\n.endif\n.ifdef b\nbad\n.endif"),
        [NOP; 2]
    );
    assert_eq!(
        words(
            ".ifc a, a\nnop\n.endif\n.ifnc a, b\nnop\n.endif\n.ifb\nnop\n.endif\n.ifnb \"\"\nbad\n.endif"
        ),
        [NOP; 3]
    );
    assert_eq!(faults(".if 1\nnop"), ["1:1 conditional without `.endif`"]);
    assert_eq!(faults(".else"), ["1:1 `.else` without `.if`"]);
    assert_eq!(
        faults(".if 1\n.else\n.else\n.endif")[0],
        "3:1 `.else` after `.else`"
    );
    assert_eq!(
        faults(".if x\nbad\n.else\nbad\n.endif"),
        ["1:1 a number known at this place is needed"]
    );
    assert_eq!(faults(".error \"no\""), ["1:8 no"]);
}

#[test]
fn comments_and_separators() {
    let plain = build("start:\n add $m0, $m1, $m2\n nop\n { nop\n fnop }\n.data\n");
    let noisy = "/* head\n # not a line */ start: // label\n# whole line\nadd /* in */ $m0 ,$m1,  $m2 ; \
                 nop\n  {nop;fnop}";
    assert_eq!(build(noisy).object, plain.object);
    let lines = &build("# 40 \"first.S\"\nnop\n# 7 \"other.S\"\nnop").lines;
    let places: Vec<_> = lines
        .iter()
        .map(|line| (line.offset, line.file.as_str(), line.line))
        .collect();
    assert_eq!(places, [(0, "first.S", 40), (4, "other.S", 7)]);
    assert_eq!(faults("nop\n#include \"x\"").len(), 1);
    assert_eq!(faults("nop /* open"), ["1:5 comment without end"]);
}

#[test]
fn faults_are_collected_with_their_places() {
    let text = "nop\n  add $m0, $m1\nlabel: foo $m1\n{ nop ; add $m0, $m0, 1 }\n{ exitz $m0 ; fnop }\n\
                ld32 $m0, $m1, $a2, 0\nput $CTXT_STS, $m0\nbri lost + more";
    assert_eq!(
        faults(text),
        [
            "2:3 too few operands",
            "3:8 unknown instruction `foo`",
            "4:9 `add` does not issue in the auxiliary slot",
            "5:3 `exitz` cannot stand in a bundle",
            "6:16 single $m register expected",
            "7:5 $CTXT_STS is not a worker register",
        ]
    );
    assert_eq!(
        faults("bri lost + more"),
        ["1:5 addresses of this kind cannot be combined"]
    );
    assert_eq!(faults(&"bad\n".repeat(100)).len(), 20);
    let shown = errors("  bad $m0")[0].to_string();
    assert_eq!(shown, "k.S:1:3: unknown instruction `bad`\n    bad $m0");
    assert_eq!(build("put $TAS, $m0").warnings.len(), 1);
}

/// Damaged texts give faults, never a panic, and equal results when repeated.
#[test]
fn damaged_texts_are_only_refused() {
    let sample = ".macro m a, b=2, c:vararg\n.irp r, \\c\nadd \\r, \\a, \\b\n.endr\n.endm\n\
                  .allow_optimizations\n.set x, 4 * (1 << 3)\nstart: m $m1, 3, $m2, $m4\n.align 8\n\
                  rpt $m3, (2f - 1f) / 8 - 1\n1: { ld64step $a0:1, $mzero, $m1+=, 1 ; \
                  f16v4add $a2:3, $a4:BL, $a6:7 }\n2: .if x > 3\nbrnzdec $m0, start\n.else\nnop\n\
                  .endif\nldconst $a1, 1.5h\nput $FP_CTL, $a0\n.long start + 4, 'c'\n.rept 2\nnop\n\
                  .endr\n.ascii \"t\\n\" // end\n.align 4\nexitz $mzero";
    build(sample);
    let alphabet: Vec<char> = "{};:,$\\\"'@().+-=<>*/% \n#aAm019fbhé".chars().collect();
    let mut seed = 7u64;
    let mut random = move |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) as usize % below
    };
    let original: Vec<char> = sample.chars().collect();
    for _ in 0..3_000 {
        let mut text = original.clone();
        for _ in 0..=random(4) {
            let (at, c) = (random(text.len()), alphabet[random(alphabet.len())]);
            match random(4) {
                0 => text.insert(at, c),
                1 => drop(text.remove(at)),
                2 => text.truncate(text.len().min(at + 200)),
                _ => text[at] = c,
            }
        }
        let text: String = text.into_iter().collect();
        let run = || {
            assemble(
                Source {
                    name: "k.S",
                    text: &text,
                },
                &options(Mode::Worker),
            )
        };
        assert_eq!(run(), run(), "{text}");
    }
}
