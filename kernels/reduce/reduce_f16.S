// reduce_f16: out = sum of count partials in F16, ascending, each addition rounded.
//
// partials [count] at a distance of stride elements, out [elements]; linear order. Words of
// four elements, contiguous ranges for the workers. Two words at a time: both of partial 0,
// then an addition beside every load; an odd last word on its own. All partials of a word are
// read before it is stored, so out may be partial 0.
// Issues for w words of p partials: 36 + floor(w/2) * (2p + 5), p + 3 more for an odd word;
// for one partial 25 + 2w.
// Frame: partials, out, elements, count, stride.

    .section .text.reduce_f16, "ax"
    .allow_optimizations
    .globl reduce_f16

    .align 8
    .supervisor
reduce_f16:
    setzi      $m1, reduce_f16_worker
    runall     $m1, $m0, 0
    sync       2
    br         $m10

    .align 8
    .worker
reduce_f16_worker:
    get        $m0, $WSR
    and        $m0, $m0, 7                // worker index
    ld32       $m5, $mvertex_base, $mzero, 2
    shr        $m5, $m5, 2
    setzi      $m1, 43691                 // ceil(2^18 / 6)
    mul        $m1, $m5, $m1
    shr        $m1, $m1, 18               // quotient
    mul        $m2, $m1, 6
    sub        $m2, $m5, $m2              // remainder
    mul        $m6, $m1, $m0
    min        $m3, $m0, $m2
    add        $m6, $m6, $m3              // first word
    cmpult     $m5, $m0, $m2
    add        $m5, $m5, $m1              // words of this worker
    brz        $m5, reduce_f16_done
    shl        $m6, $m6, 3
    ld32       $m2, $mvertex_base, $mzero, 0
    add        $m2, $m2, $m6              // partials
    ld32       $m3, $mvertex_base, $mzero, 1
    add        $m3, $m3, $m6              // out
    ld32       $m4, $mvertex_base, $mzero, 3
    add        $m4, $m4, -2               // partials after the second
    brneg      $m4, reduce_f16_copy
    ld32       $m6, $mvertex_base, $mzero, 4
    shr        $m6, $m6, 2                // words between partials
    add        $m7, $m6, -1
    add        $m8, $m4, 2
    mul        $m8, $m8, $m6
    shl        $m8, $m8, 3
    sub        $m8, 16, $m8               // bytes from the last partial to the next words
    shr        $m9, $m5, 1                // pairs of words
    brz        $m9, reduce_f16_single
    add        $m9, $m9, -1
reduce_f16_pair:
    ld64step   $a4:5, $mzero, $m2+=, 1
    ld64step   $a6:7, $mzero, $m2+=, $m7
    ld64step   $a0:1, $mzero, $m2+=, 1
    { ld64step   $a2:3, $mzero, $m2+=, $m7 ; f16v4add   $a4:5, $a4:5, $a0:1 }
    rpt        $m4, 1
    { ld64step   $a0:1, $mzero, $m2+=, 1 ; f16v4add   $a6:7, $a6:7, $a2:3 }
    { ld64step   $a2:3, $mzero, $m2+=, $m7 ; f16v4add   $a4:5, $a4:5, $a0:1 }
    { st64step   $a4:5, $mzero, $m3+=, 1 ; f16v4add   $a6:7, $a6:7, $a2:3 }
    st64step   $a6:7, $mzero, $m3+=, 1
    add        $m2, $m2, $m8
    brnzdec    $m9, reduce_f16_pair
reduce_f16_single:
    and        $m5, $m5, 1
    brz        $m5, reduce_f16_done
    ld64step   $a4:5, $mzero, $m2+=, $m6
    ld64step   $a0:1, $mzero, $m2+=, $m6
    rpt        $m4, 0
    { ld64step   $a0:1, $mzero, $m2+=, $m6 ; f16v4add   $a4:5, $a4:5, $a0:1 }
    f16v4add   $a4:5, $a4:5, $a0:1
    st64       $a4:5, $m3, $mzero, 0
reduce_f16_done:
    exitz      $mzero
reduce_f16_copy:
    rpt        $m5, 1
    { ld64step   $a0:1, $mzero, $m2+=, 1 ; fnop }
    { st64step   $a0:1, $mzero, $m3+=, 1 ; fnop }
    exitz      $mzero
