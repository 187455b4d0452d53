// cast_panels_f16_f143: out code = F143(source * 2^-scale), Panels(16) to Panels(32).
//
// source [2 * panels][rows][16], out [panels][rows][32]. The workers hold contiguous row
// ranges of every panel, or ranges of panels when there are fewer than six rows. 8 bundles a
// row of 32: two sources, the lower and the upper half of the row, each with a stepping load
// of its even words and a paced pair for its odd words and for half of the stores, so that
// every step is constant: 16 bytes for loads, 24 and 8 for stores. The first 16 bytes of the
// next row are loaded ahead: past the last row of a lower half these are the upper half, so
// nothing is read past the source.
// Issues for m rows and p panels of a worker: 32 + p * (14 + 8m), 2 more for few rows.
// Overflow saturates while the program keeps the NANOO bit of $FP_ICTL clear.
// Frame: source, out, panels, rows, scale.

    .section .text.cast_panels_f16_f143, "ax"
    .allow_optimizations
    .globl cast_panels_f16_f143

    .align 8
    .supervisor
cast_panels_f16_f143:
    ld32       $m1, $m0, $mzero, 4        // tensor scale
    setzi      $m2, 3                     // F143
    setzi      $m3, cast_panels_f16_f143_worker
    put        $FP_INFMT, $m2
    sub        $m1, $mzero, $m1
    put        $FP_ISCL, $m1
    runall     $m3, $m0, 0
    sync       2
    br         $m10

    .align 8
    .worker
cast_panels_f16_f143_worker:
    get        $m0, $WSR
    and        $m0, $m0, 7                // worker index
    ld32       $m4, $mvertex_base, $mzero, 3        // rows
    ld32       $m10, $mvertex_base, $mzero, 2
    shl        $m11, $m4, 5               // bytes of a panel
    cmpult     $m7, $m4, 6                // few rows: split panels instead
    mov        $m5, $m4
    movnz      $m5, $m7, $m10
    setzi      $m1, 43691                 // ceil(2^18 / 6)
    mul        $m1, $m5, $m1
    shr        $m1, $m1, 18               // quotient
    mul        $m2, $m1, 6
    sub        $m2, $m5, $m2              // remainder
    mul        $m6, $m1, $m0
    min        $m3, $m0, $m2
    add        $m6, $m6, $m3              // first part
    cmpult     $m5, $m0, $m2
    add        $m5, $m5, $m1              // parts of this worker
    brz        $m5, cast_panels_f16_f143_done
    ld32       $m8, $mvertex_base, $mzero, 0
    ld32       $m9, $mvertex_base, $mzero, 1
    brnz       $m7, cast_panels_f16_f143_few
    shl        $m6, $m6, 5
    add        $m8, $m8, $m6              // lower half
    bri        cast_panels_f16_f143_start
cast_panels_f16_f143_few:
    mov        $m10, $m5
    mov        $m5, $m4
    mul        $m6, $m6, $m11
    add        $m8, $m8, $m6
    add        $m8, $m8, $m6
cast_panels_f16_f143_start:
    add        $m9, $m9, $m6              // out
    add        $m10, $m10, -1
    setzi      $m7, 3074                  // strides: 0 two words, 1 three words
cast_panels_f16_f143_panel:
    add        $m4, $m8, $m11             // upper half
    ld64step   $a0:1, $mzero, $m8+=, 1
    ld64step   $a2:3, $mzero, $m8+=, 1    // even words of the lower half follow
    add        $m6, $m8, 8
    tapack     $m0:1, $m6, $m9, $m9       // lower odd words, stores 0 and 3 of a row
    add        $m6, $m4, 8
    add        $m3, $m9, 8
    tapack     $m2:3, $m6, $m3, $m3       // upper odd words, stores 1 and 2 of a row
    mov        $m6, $m8
    rpt        $m5, 7
    { ld64step   $a0:1, $mzero, $m6+=, 2 ; f16v8tof8  $a4:5, $a0:3 }
    { ldst64pace $a2:3, $a4:5, $m0:1+=, $m7, 9 ; fnop }
    { ld64step   $a0:1, $mzero, $m4+=, 2 ; f16v8tof8  $a4:5, $a0:3 }
    { ldst64pace $a2:3, $a4:5, $m2:3+=, $m7, 1 ; fnop }
    { ld64step   $a0:1, $mzero, $m4+=, 2 ; f16v8tof8  $a4:5, $a0:3 }
    { ldst64pace $a2:3, $a4:5, $m2:3+=, $m7, 9 ; fnop }
    { ld64step   $a0:1, $mzero, $m6+=, 2 ; f16v8tof8  $a4:5, $a0:3 }
    { ldst64pace $a2:3, $a4:5, $m0:1+=, $m7, 1 ; fnop }
    add        $m9, $m9, $m11
    add        $m8, $m8, -16
    add        $m8, $m8, $m11
    add        $m8, $m8, $m11
    brnzdec    $m10, cast_panels_f16_f143_panel
cast_panels_f16_f143_done:
    exitz      $mzero
