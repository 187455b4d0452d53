// transpose_f16: each 16 x 16 block of F16 transposed.
//
// source [blocks][16][16], out [blocks][16][16]. The workers hold contiguous ranges of column
// pairs (8 a block): 16 single loads give two rows of out. Four rows at a time, 6 bundles:
// four loads, two stores and the four permutations beside them.
// Issues for u column pairs: 29 + 32u.
// Frame: source, out, blocks.

    .section .text.transpose_f16, "ax"
    .allow_optimizations
    .globl transpose_f16

    .align 8
    .supervisor
transpose_f16:
    setzi      $m1, transpose_f16_worker
    runall     $m1, $m0, 0
    sync       2
    br         $m10

    .align 8
    .worker
transpose_f16_worker:
    get        $m0, $WSR
    and        $m0, $m0, 7                // worker index
    ld32       $m5, $mvertex_base, $mzero, 2
    shl        $m5, $m5, 3                // column pairs
    setzi      $m1, 43691                 // ceil(2^18 / 6)
    mul        $m1, $m5, $m1
    shr        $m1, $m1, 18               // quotient
    mul        $m2, $m1, 6
    sub        $m2, $m5, $m2              // remainder
    mul        $m6, $m1, $m0
    min        $m3, $m0, $m2
    add        $m6, $m6, $m3              // first column pair
    cmpult     $m5, $m0, $m2
    add        $m5, $m5, $m1              // column pairs of this worker
    brz        $m5, transpose_f16_done
    ld32       $m3, $mvertex_base, $mzero, 1
    shl        $m4, $m6, 6
    add        $m3, $m3, $m4              // out
    ld32       $m2, $mvertex_base, $mzero, 0
    and        $m7, $m6, 7
    sub        $m4, $m6, $m7
    shl        $m4, $m4, 6
    add        $m2, $m2, $m4
    shl        $m4, $m7, 2
    add        $m2, $m2, $m4              // source
    add        $m5, $m5, -1
    setzi      $m8, 3                     // row groups after the first
transpose_f16_pair:
    ld32step   $a0, $mzero, $m2+=, 8
    ld32step   $a1, $mzero, $m2+=, 8
    { ld32step   $a2, $mzero, $m2+=, 8 ; sort4x16lo $a4, $a0, $a1 }
    { ld32step   $a3, $mzero, $m2+=, 8 ; sort4x16hi $a6, $a0, $a1 }
    rpt        $m8, 5
    { ld32step   $a0, $mzero, $m2+=, 8 ; sort4x16lo $a5, $a2, $a3 }
    { st64step   $a4:5, $mzero, $m3+=, 4 ; sort4x16hi $a7, $a2, $a3 }
    { ld32step   $a1, $mzero, $m2+=, 8 ; fnop }
    { st64step   $a6:7, $mzero, $m3+=, -3 ; fnop }
    { ld32step   $a2, $mzero, $m2+=, 8 ; sort4x16lo $a4, $a0, $a1 }
    { ld32step   $a3, $mzero, $m2+=, 8 ; sort4x16hi $a6, $a0, $a1 }
    sort4x16lo $a5, $a2, $a3
    { st64step   $a4:5, $mzero, $m3+=, 4 ; sort4x16hi $a7, $a2, $a3 }
    st64step   $a6:7, $mzero, $m3+=, -3
    add        $m3, $m3, 32
    add        $m2, $m2, -508
    add        $m7, $m7, 1
    and        $m7, $m7, 7
    brnz       $m7, transpose_f16_next
    add        $m2, $m2, 480
transpose_f16_next:
    brnzdec    $m5, transpose_f16_pair
transpose_f16_done:
    exitz      $mzero
