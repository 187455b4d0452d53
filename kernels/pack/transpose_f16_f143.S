// transpose_f16_f143: blocks of 16 keys x 16 channels, in pairs, transposed and cast to F143.
//
// source F16 [2 * pairs][16 keys][16 channels], out F143 [pairs][16 channels][32 keys], code =
// F143(source * 2^-scale). The workers hold contiguous ranges of strips of eight keys (4 a
// pair). Two channels at a time, 12 bundles: nine single loads (key 7 is loaded twice, for want
// of a register; key 0 of the next channels is loaded ahead), eight permutations, two
// conversions and two stores. Issues for u strips: 27 + 104u, one more for each whole pair.
// Frame: source, out, pairs, scale.

    .section .text.transpose_f16_f143, "ax"
    .allow_optimizations
    .globl transpose_f16_f143

    .align 8
    .supervisor
transpose_f16_f143:
    ld32       $m1, $m0, $mzero, 3        // tensor scale
    setzi      $m2, 3                     // F143
    setzi      $m3, transpose_f16_f143_worker
    put        $FP_INFMT, $m2
    sub        $m1, $mzero, $m1
    put        $FP_ISCL, $m1
    runall     $m3, $m0, 0
    sync       2
    br         $m10

    .align 8
    .worker
transpose_f16_f143_worker:
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
    brz        $m5, transpose_f16_f143_done
    ld32       $m2, $mvertex_base, $mzero, 0
    shl        $m4, $m6, 8
    add        $m2, $m2, $m4              // source
    and        $m7, $m6, 3                // strip of the block
    sub        $m6, $m6, $m7
    shl        $m6, $m6, 7
    ld32       $m3, $mvertex_base, $mzero, 1
    add        $m3, $m3, $m6
    shl        $m6, $m7, 3
    add        $m3, $m3, $m6              // out
    add        $m5, $m5, -1
transpose_f16_f143_strip:
    ld32step   $a7, $mzero, $m2+=, 8
    rpt        8, 11
    { ld32step   $a1, $mzero, $m2+=, 8 ; fnop }
    { ld32step   $a2, $mzero, $m2+=, 8 ; sort4x16lo $a4, $a7, $a1 }
    { ld32step   $a3, $mzero, $m2+=, 8 ; sort4x16hi $a0, $a7, $a1 }
    { ld32step   $a6, $mzero, $m2+=, 8 ; sort4x16lo $a5, $a2, $a3 }
    { ld32step   $a7, $mzero, $m2+=, 8 ; sort4x16hi $a1, $a2, $a3 }
    { ld32step   $a3, $mzero, $m2+=, 8 ; sort4x16hi $a2, $a6, $a7 }
    { ld32       $a7, $mzero, $m2, 0 ; sort4x16lo $a6, $a6, $a7 }
    { nop ; sort4x16lo $a7, $a3, $a7 }
    { ld32step   $a6, $mzero, $m2+=, -55 ; f16v8tof8  $a4:5, $a4:7 }
    { st64step   $a4:5, $mzero, $m3+=, 4 ; sort4x16hi $a3, $a3, $a6 }
    { ld32step   $a7, $mzero, $m2+=, 8 ; f16v8tof8  $a0:1, $a0:3 }
    { st64step   $a0:1, $mzero, $m3+=, 4 ; fnop }
    add        $m2, $m2, 192
    add        $m3, $m3, -504             // the next words of the same rows
    add        $m7, $m7, 1
    and        $m7, $m7, 3
    brnz       $m7, transpose_f16_f143_next
    add        $m3, $m3, 480              // the next block
transpose_f16_f143_next:
    brnzdec    $m5, transpose_f16_f143_strip
transpose_f16_f143_done:
    exitz      $mzero
