// unpack_panels_f16: Panels(16) to row-major F16 rows.
//
// source [columns/16][rows][16]; out row r begins pitch elements after row r - 1. The workers
// hold contiguous row ranges, or ranges of panels when there are fewer than six rows; panels
// outer, rows inner, one paced load and store for a word of four elements. The jump to the next
// row must fit ten bits (pitch at most 2056). The last row is outside the loop, so nothing is
// read past the source. Issues for m rows and p panels of a worker: 36 + p * (7 + 4m).
// Frame: source, out, rows, columns, pitch.

    .section .text.unpack_panels_f16, "ax"
    .allow_optimizations
    .globl unpack_panels_f16

    .align 8
    .supervisor
unpack_panels_f16:
    setzi      $m1, unpack_panels_f16_worker
    runall     $m1, $m0, 0
    sync       2
    br         $m10

    .align 8
    .worker
unpack_panels_f16_worker:
    get        $m0, $WSR
    and        $m0, $m0, 7                // worker index
    ld32       $m4, $mvertex_base, $mzero, 2        // rows
    ld32       $m10, $mvertex_base, $mzero, 3
    shr        $m10, $m10, 4             // panels
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
    brz        $m5, unpack_panels_f16_done
    mov        $m3, $m7
    ld32       $m7, $mvertex_base, $mzero, 4       // pitch
    ld32       $m9, $mvertex_base, $mzero, 1
    ld32       $m8, $mvertex_base, $mzero, 0
    brnz       $m3, unpack_panels_f16_few
    mul        $m4, $m6, $m7
    add        $m4, $m4, $m4
    shl        $m6, $m6, 5
    bri        unpack_panels_f16_start
unpack_panels_f16_few:
    mov        $m10, $m5
    mov        $m5, $m4
    mul        $m4, $m6, 32
    mul        $m6, $m6, $m11
unpack_panels_f16_start:
    add        $m9, $m9, $m4              // row-major side
    add        $m8, $m8, $m6              // panel side
    add        $m10, $m10, -1
    shr        $m7, $m7, 2
    add        $m7, $m7, -3               // stride 0: words to the next row
    add        $m5, $m5, -1
unpack_panels_f16_panel:
    ld64       $a0:1, $m8, $mzero, 0
    add        $m4, $m8, 8
    tapack     $m2:3, $m4, $m9, $m9
    rpt        $m5, 3
    { ldst64pace $a2:3, $a0:1, $m2:3+=, $m7, 0 ; fnop }
    { ldst64pace $a0:1, $a2:3, $m2:3+=, $m7, 0 ; fnop }
    { ldst64pace $a2:3, $a0:1, $m2:3+=, $m7, 0 ; fnop }
    { ldst64pace $a0:1, $a2:3, $m2:3+=, $m7, 4 ; fnop }
    ldst64pace $a2:3, $a0:1, $m2:3+=, $mzero, 0
    ldst64pace $a0:1, $a2:3, $m2:3+=, $mzero, 0
    ldst64pace $a2:3, $a0:1, $m2:3+=, $mzero, 0
    st64pace   $a2:3, $m2:3+=, $mzero, 0
    add        $m9, $m9, 32
    add        $m8, $m8, $m11
    brnzdec    $m10, unpack_panels_f16_panel
unpack_panels_f16_done:
    exitz      $mzero
