// add_f16: out[i] = a[i] + b[i], one F16 rounding. Dense arrays; out may be a or b.
//
// Frame: 0 a, 1 b, 2 out, 3 count (multiple of 4).
// Quads of 4 halves go round the six workers: worker w takes quads w, w + 6, ...
// Loop: 3 bundles a quad (two loads, one store with the sum). 14 issues before it, 2 after it.

        .section .text.add_f16, "ax"
        .allow_optimizations
        .align  8
        .globl  add_f16
        .supervisor
add_f16:
        setzi   $m1, add_f16_worker
        runall  $m1, $m0, 0
        sync    2
        br      $m10

        .align  8
        .worker
add_f16_worker:
        get     $m0, $WSR
        and     $m0, $m0, 7
        ld32    $m4, $mvertex_base, $mzero, 3
        shr     $m4, $m4, 2
        sub     $m4, $m4, $m0
        add     $m4, $m4, 5
        mul     $m4, $m4, 21846
        shr     $m4, $m4, 17                    // quads of this worker
        ld32    $m1, $mvertex_base, $mzero, 0
        ld32    $m2, $mvertex_base, $mzero, 1
        ld32    $m3, $mvertex_base, $mzero, 2
        brz     $m4, .Ladd_f16_exit
        shl     $m0, $m0, 3                     // byte offset of the first quad
        ld64step $a0:1, $m0, $m1+=, 6
        ld64step $a2:3, $m0, $m2+=, 6
        { add   $m4, $m4, -1
          f16v4add $a4:5, $a0:1, $a2:3 }
        { rpt   $m4, 2
          fnop }
        { ld64step $a0:1, $m0, $m1+=, 6
          fnop }
        { ld64step $a2:3, $m0, $m2+=, 6
          fnop }
        { st64step $a4:5, $m0, $m3+=, 6
          f16v4add $a4:5, $a0:1, $a2:3 }
        st64step $a4:5, $m0, $m3+=, 6
.Ladd_f16_exit:
        exitz   $mzero
