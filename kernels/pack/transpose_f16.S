// transpose_f16: each 16 x 16 block of F16 transposed.
//
// source [blocks][16][16], out [blocks][16][16]. The workers hold contiguous ranges of strips
// of four source rows (4 a block). Two columns at a time, 6 bundles: four single loads, two
// stores of four elements and the four permutations beside them.
// Issues for u strips: 27 + 56u, one more for each whole block.
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
    shl        $m5, $m5, 2                // strips
    setzi      $m1, 43691                 // ceil(2^18 / 6)
    mul        $m1, $m5, $m1
    shr        $m1, $m1, 18               // quotient
    mul        $m2, $m1, 6
    sub        $m2, $m5, $m2              // remainder
    mul        $m6, $m1, $m0
    min        $m3, $m0, $m2
    add        $m6, $m6, $m3              // first strip
    cmpult     $m5, $m0, $m2
    add        $m5, $m5, $m1              // strips of this worker
    brz        $m5, transpose_f16_done
    ld32       $m2, $mvertex_base, $mzero, 0
    shl        $m4, $m6, 7
    add        $m2, $m2, $m4              // source
    and        $m7, $m6, 3                // strip of the block
    sub        $m6, $m6, $m7
    shl        $m6, $m6, 7
    ld32       $m3, $mvertex_base, $mzero, 1
    add        $m3, $m3, $m6
    shl        $m6, $m7, 3
    add        $m3, $m3, $m6              // out
    add        $m5, $m5, -1
transpose_f16_strip:
    ld32step   $a0, $mzero, $m2+=, 8
    ld32step   $a1, $mzero, $m2+=, 8
    { ld32step   $a2, $mzero, $m2+=, 8 ; sort4x16lo $a4, $a0, $a1 }
    { ld32step   $a3, $mzero, $m2+=, -23 ; sort4x16hi $a6, $a0, $a1 }
    rpt        7, 5
    { ld32step   $a0, $mzero, $m2+=, 8 ; sort4x16lo $a5, $a2, $a3 }
    { st64step   $a4:5, $mzero, $m3+=, 4 ; sort4x16hi $a7, $a2, $a3 }
    { ld32step   $a1, $mzero, $m2+=, 8 ; fnop }
    { st64step   $a6:7, $mzero, $m3+=, 4 ; fnop }
    { ld32step   $a2, $mzero, $m2+=, 8 ; sort4x16lo $a4, $a0, $a1 }
    { ld32step   $a3, $mzero, $m2+=, -23 ; sort4x16hi $a6, $a0, $a1 }
    sort4x16lo $a5, $a2, $a3
    { st64step   $a4:5, $mzero, $m3+=, 4 ; sort4x16hi $a7, $a2, $a3 }
    st64step   $a6:7, $mzero, $m3+=, 4
    add        $m2, $m2, 96
    add        $m3, $m3, -504             // the next words of the same rows
    add        $m7, $m7, 1
    and        $m7, $m7, 3
    brnz       $m7, transpose_f16_next
    add        $m3, $m3, 480              // the next block
transpose_f16_next:
    brnzdec    $m5, transpose_f16_strip
transpose_f16_done:
    exitz      $mzero
