// cast_f143_f16: out = source code value * 2^scale in F16, linear order, count a multiple of 8.
//
// Groups of 8 values, contiguous ranges for the workers, 2 bundles a group: one load and two
// stores with both conversions beside them. The last group is outside the loop, so nothing is
// read past the source. Issues for n groups: 26 + 2n.
// Frame: source, out, count, scale.

    .section .text.cast_f143_f16, "ax"
    .allow_optimizations
    .globl cast_f143_f16

    .align 8
    .supervisor
cast_f143_f16:
    ld32       $m1, $m0, $mzero, 3        // tensor scale
    setzi      $m2, 3                     // F143
    setzi      $m3, cast_f143_f16_worker
    put        $FP_INFMT, $m2
    put        $FP_ISCL, $m1
    runall     $m3, $m0, 0
    sync       2
    br         $m10

    .align 8
    .worker
cast_f143_f16_worker:
    get        $m0, $WSR
    and        $m0, $m0, 7                // worker index
    ld32       $m5, $mvertex_base, $mzero, 2
    shr        $m5, $m5, 3
    setzi      $m1, 43691                 // ceil(2^18 / 6)
    mul        $m1, $m5, $m1
    shr        $m1, $m1, 18               // quotient
    mul        $m2, $m1, 6
    sub        $m2, $m5, $m2              // remainder
    mul        $m6, $m1, $m0
    min        $m3, $m0, $m2
    add        $m6, $m6, $m3              // first group
    cmpult     $m5, $m0, $m2
    add        $m5, $m5, $m1              // groups of this worker
    brz        $m5, cast_f143_f16_done
    ld32       $m2, $mvertex_base, $mzero, 0
    shl        $m3, $m6, 3
    add        $m2, $m2, $m3
    ld32       $m4, $mvertex_base, $mzero, 1
    shl        $m6, $m6, 4
    add        $m4, $m4, $m6
    ld64step   $a0:1, $mzero, $m2+=, 1
    { tapack     $m0:1, $m2, $m4, $m4 ; f8v4tof16  $a2:3, $a0 }
    add        $m5, $m5, -1
    rpt        $m5, 1
    { ldst64pace $a0:1, $a2:3, $m0:1+=, $mzero, 0 ; f8v4tof16  $a4:5, $a1 }
    { st64pace   $a4:5, $m0:1+=, $mzero, 0 ; f8v4tof16  $a2:3, $a0 }
    { st64pace   $a2:3, $m0:1+=, $mzero, 0 ; f8v4tof16  $a4:5, $a1 }
    st64pace   $a4:5, $m0:1+=, $mzero, 0
cast_f143_f16_done:
    exitz      $mzero
