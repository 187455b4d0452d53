// cast_rows_f16_f143: out code = F143(source * 2^-scale), row-major rows to Panels(32).
//
// source row r begins pitch elements after row r - 1; out [columns/32][rows][32]. The workers
// hold contiguous row ranges, or ranges of panels when there are fewer than six rows; panels
// outer, rows inner. 8 bundles a row of 32: even words by a stepping load, odd words by the
// paced load, whose jump to the next row must fit ten bits (pitch at most 2068). The last row
// is outside the loop, so nothing is read past the source.
// Issues for m rows and p panels of a worker: 38 + p * (9 + 8m).
// Overflow saturates while the program keeps the NANOO bit of $FP_ICTL clear.
// Frame: source, out, rows, columns, pitch, scale.

    .section .text.cast_rows_f16_f143, "ax"
    .allow_optimizations
    .globl cast_rows_f16_f143

    .align 8
    .supervisor
cast_rows_f16_f143:
    ld32       $m1, $m0, $mzero, 5        // tensor scale
    setzi      $m2, 3                     // F143
    setzi      $m3, cast_rows_f16_f143_worker
    put        $FP_INFMT, $m2
    sub        $m1, $mzero, $m1
    put        $FP_ISCL, $m1
    runall     $m3, $m0, 0
    sync       2
    br         $m10

    .align 8
    .worker
cast_rows_f16_f143_worker:
    get        $m0, $WSR
    and        $m0, $m0, 7                // worker index
    ld32       $m4, $mvertex_base, $mzero, 2        // rows
    ld32       $m10, $mvertex_base, $mzero, 3
    shr        $m10, $m10, 5             // panels
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
    brz        $m5, cast_rows_f16_f143_done
    mov        $m3, $m7
    ld32       $m7, $mvertex_base, $mzero, 4       // pitch
    ld32       $m8, $mvertex_base, $mzero, 0
    ld32       $m9, $mvertex_base, $mzero, 1
    brnz       $m3, cast_rows_f16_f143_few
    mul        $m4, $m6, $m7
    add        $m4, $m4, $m4
    shl        $m6, $m6, 5
    bri        cast_rows_f16_f143_start
cast_rows_f16_f143_few:
    mov        $m10, $m5
    mov        $m5, $m4
    mul        $m4, $m6, 64
    mul        $m6, $m6, $m11
cast_rows_f16_f143_start:
    add        $m8, $m8, $m4              // row-major side
    add        $m9, $m9, $m6              // panel side
    add        $m10, $m10, -1
    shr        $m6, $m7, 2
    add        $m6, $m6, -6               // words to the next row
    shl        $m7, $m6, 10
    or         $m7, $m7, 2                // strides: 0 two words, 1 to the next row
    add        $m5, $m5, -1
cast_rows_f16_f143_panel:
    mov        $m4, $m8
    ld64step   $a0:1, $mzero, $m4+=, 1
    ld64step   $a2:3, $mzero, $m4+=, 1
    add        $m3, $m4, 8
    tapack     $m2:3, $m3, $m9, $m9
    rpt        $m5, 7
    { ld64step   $a0:1, $mzero, $m4+=, 2 ; f16v8tof8  $a4:5, $a0:3 }
    { ldst64pace $a2:3, $a4:5, $m2:3+=, $m7, 1 ; fnop }
    { ld64step   $a0:1, $mzero, $m4+=, 2 ; f16v8tof8  $a4:5, $a0:3 }
    { ldst64pace $a2:3, $a4:5, $m2:3+=, $m7, 1 ; fnop }
    { ld64step   $a0:1, $mzero, $m4+=, $m6 ; f16v8tof8  $a4:5, $a0:3 }
    { ldst64pace $a2:3, $a4:5, $m2:3+=, $m7, 2 ; fnop }
    { ld64step   $a0:1, $mzero, $m4+=, 2 ; f16v8tof8  $a4:5, $a0:3 }
    { ldst64pace $a2:3, $a4:5, $m2:3+=, $m7, 1 ; fnop }
    { ld64step   $a0:1, $mzero, $m4+=, 2 ; f16v8tof8  $a4:5, $a0:3 }
    ldst64pace $a2:3, $a4:5, $m2:3+=, $m7, 1
    { ld64step   $a0:1, $mzero, $m4+=, 2 ; f16v8tof8  $a4:5, $a0:3 }
    ldst64pace $a2:3, $a4:5, $m2:3+=, $m7, 1
    { ld64step   $a0:1, $mzero, $m4+=, 2 ; f16v8tof8  $a4:5, $a0:3 }
    ldst64pace $a2:3, $a4:5, $m2:3+=, $m7, 1
    f16v8tof8  $a4:5, $a0:3
    st64pace   $a4:5, $m2:3+=, $mzero, 0
    add        $m8, $m8, 64
    add        $m9, $m9, $m11
    brnzdec    $m10, cast_rows_f16_f143_panel
cast_rows_f16_f143_done:
    exitz      $mzero
