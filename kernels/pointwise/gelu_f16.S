// gelu_f16: out[i] = gelu_tanh(a[i]). Dense arrays; out may be a.
//
// Frame: 0 a, 1 out, 2 count (multiple of 4).
// gelu = (x + x * tanh(u)) / 2, u = z * (c0 + c1 * z * z), z = x clamped to +-8: the clamp keeps
// z * z finite, and beyond it tanh is exactly +-1, so that a large x gives x or zero. All steps
// are F16 but the last, a mix with the coefficients 0.5 and 0.5 that rounds once.
// Constants: $a6 = {-8, 8}, $a7 = {c1, c0}.
// Quads go round the six workers, 9 issues a quad. A mix gives back the result of the quad before,
// so the store is one quad behind; the very first one stores zeros to the first quad, whose own
// result comes later. Nothing is loaded past the last quad.

        .section .text.gelu_f16, "ax"
        .allow_optimizations
        .align  8
        .globl  gelu_f16
        .supervisor
gelu_f16:
        setzi   $m1, .Lgelu_worker
        runall  $m1, $m0, 0
        sync    2
        br      $m10

        .align  8
        .worker
.Lgelu_worker:
        get     $m0, $WSR
        and     $m0, $m0, 7
        ld32    $m4, $mvertex_base, $mzero, 2
        shr     $m4, $m4, 2
        sub     $m4, $m4, $m0
        { add   $m4, $m4, 5
          setzi $a6, 0x0c800 }
        { mul   $m4, $m4, 21846
          or    $a6, $a6, 0x48000000 }
        { shr   $m4, $m4, 17                    // quads of this worker
          setzi $a7, 0x22891 }
        { ld32  $m1, $mvertex_base, $mzero, 0
          or    $a7, $a7, 0x3a600000 }
        { ld32  $m3, $mvertex_base, $mzero, 1
          setzi $a0, 0x03800 }
        { shl   $m0, $m0, 3
          or    $a0, $a0, 0x38000000 }
        { sub   $m3, $m3, $m1
          uput  $TAS, $a0 }
        { add   $m4, $m4, -1
          setzi $a0, 8 }
        { brneg $m4, .Lgelu_exit
          uput  $FP_CLR, $a0 }                  // accumulators start from zero
        add     $m3, $m3, -96                   // out relative to a, behind the loads by two
        add     $m1, $m1, $m0
        add     $m2, $m1, 96
        ld64step $a0:1, $mzero, $m1+=, 6
        f16v4clamp $a2:3, $a0:1, $a6
        f16v4mul $a4:5, $a2:3, $a2:3
        f16v4mul $a4:5, $a7:BL, $a4:5
.Lgelu_loop:
        f16v4add $a4:5, $a7:BU, $a4:5
        f16v4mul $a2:3, $a2:3, $a4:5
        { brz   $m4, .Lgelu_last
          f16v2tanh $a2, $a2 }
        f16v2tanh $a3, $a3
        f16v4mul $a2:3, $a2:3, $a0:1
        { ld64step $a0:1, $mzero, $m1+=, 6
          f16v4mix $a2:3, $a2:3, $a0:1 }
        { st64  $a2:3, $m2, $m3, 0
          f16v4clamp $a2:3, $a0:1, $a6 }
        { mov   $m2, $m1
          f16v4mul $a4:5, $a2:3, $a2:3 }
        { brnzdec $m4, .Lgelu_loop
          f16v4mul $a4:5, $a7:BL, $a4:5 }
.Lgelu_last:
        f16v2tanh $a3, $a3
        f16v4mul $a2:3, $a2:3, $a0:1
        f16v4mix $a2:3, $a2:3, $a0:1
        { st64  $a2:3, $m2, $m3, 0
          f16v4mix $a4:5, $azeros, $azeros }
        st64    $a4:5, $m1, $m3, 6
.Lgelu_exit:
        exitz   $mzero
