// gelu_f16: out[i] = gelu_tanh(a[i]). Dense arrays; out may be a.
//
// Frame: 0 a, 1 out, 2 count (multiple of 4).
// gelu = h + h * tanh(u), h = x / 2, u = z * (c0 + c1 * z * z), z = x clamped to +-8: the clamp
// keeps z * z finite, and beyond it tanh is exactly +-1, so that a large x gives x or zero.
// All steps are F16; constants $a6 = {-8, 8}, $a7 = {c1, c0}, 0.5 comes from the text.
// Quads go round the six workers. Loop: 10 bundles a quad, the next quad's load inside; the last
// quad is peeled, so nothing is read past the arrays.

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
        ld32    $m3, $mvertex_base, $mzero, 1
        brz     $m4, .Lgelu_exit
        setzi   $m8, .Lgelu_half
        shl     $m0, $m0, 3
        ld64step $a0:1, $m0, $m1+=, 6
        { add   $m4, $m4, -1
          f16v4clamp $a2:3, $a0:1, $a6 }
        { rpt   $m4, 9
          fnop }
        { nop
          f16v4mul $a4:5, $a2:3, $a2:3 }
        { nop
          f16v4mul $a4:5, $a7:BL, $a4:5 }
        { nop
          f16v4add $a4:5, $a7:BU, $a4:5 }
        { nop
          f16v4mul $a2:3, $a2:3, $a4:5 }
        { nop
          f16v2tanh $a2, $a2 }
        { ld32  $a4, $m8, $mzero, 0
          f16v2tanh $a3, $a3 }
        { nop
          f16v4mul $a0:1, $a4:BL, $a0:1 }
        { nop
          f16v4mul $a4:5, $a2:3, $a0:1 }
        { ld64step $a0:1, $m0, $m1+=, 6
          f16v4add $a4:5, $a4:5, $a0:1 }
        { st64step $a4:5, $m0, $m3+=, 6
          f16v4clamp $a2:3, $a0:1, $a6 }

        f16v4mul $a4:5, $a2:3, $a2:3
        f16v4mul $a4:5, $a7:BL, $a4:5
        f16v4add $a4:5, $a7:BU, $a4:5
        f16v4mul $a2:3, $a2:3, $a4:5
        f16v2tanh $a2, $a2
        { ld32  $a4, $m8, $mzero, 0
          f16v2tanh $a3, $a3 }
        f16v4mul $a0:1, $a4:BL, $a0:1
        f16v4mul $a4:5, $a2:3, $a0:1
        f16v4add $a4:5, $a4:5, $a0:1
        st64step $a4:5, $m0, $m3+=, 6
.Lgelu_exit:
        exitz   $mzero
        .align  4
.Lgelu_half:
        .long   0x38003800
