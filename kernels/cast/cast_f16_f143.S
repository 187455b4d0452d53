// cast_f16_f143: out code = F143(source * 2^-scale), linear order, count a multiple of 8.
//
// Groups of 8 values, contiguous ranges for the workers. The loop is 2 bundles a group: even
// words come through a stepping load, odd words through the load of the paced load and store;
// the conversion of a group runs beside the loads of the next. The last group is outside the
// loop, so nothing is read past the source. Issues for n groups: 29 + 2n.
// Overflow saturates while the program keeps the NANOO bit of $FP_ICTL clear.
// Frame: source, out, count, scale.

    .section .text.cast_f16_f143, "ax"
    .allow_optimizations
    .globl cast_f16_f143

    .align 8
    .supervisor
cast_f16_f143:
    ld32       $m1, $m0, $mzero, 3        // tensor scale
    setzi      $m2, 3                     // F143
    setzi      $m3, cast_f16_f143_worker
    put        $FP_INFMT, $m2
    sub        $m1, $mzero, $m1
    put        $FP_ISCL, $m1
    runall     $m3, $m0, 0
    sync       2
    br         $m10

    .align 8
    .worker
cast_f16_f143_worker:
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
    brz        $m5, cast_f16_f143_done
    ld32       $m2, $mvertex_base, $mzero, 0
    shl        $m3, $m6, 4
    add        $m2, $m2, $m3              // even words
    ld32       $m4, $mvertex_base, $mzero, 1
    shl        $m6, $m6, 3
    add        $m4, $m4, $m6
    ld64step   $a0:1, $mzero, $m2+=, 1
    ld64step   $a2:3, $mzero, $m2+=, 1
    add        $m3, $m2, 8                // odd words
    tapack     $m0:1, $m3, $m4, $m4
    add        $m5, $m5, -1
    setzi      $m7, 2                     // stride 0: two words
    rpt        $m5, 1
    { ld64step   $a0:1, $mzero, $m2+=, 2 ; f16v8tof8  $a4:5, $a0:3 }
    { ldst64pace $a2:3, $a4:5, $m0:1+=, $m7, 1 ; fnop }
    f16v8tof8  $a4:5, $a0:3
    st64pace   $a4:5, $m0:1+=, $mzero, 0
cast_f16_f143_done:
    exitz      $mzero
