// copy_strided: copy rows of units of 8 bytes between row-strided areas.
//
// Row r of source begins source_stride units after row r - 1, of out out_stride units. The
// workers hold contiguous row ranges when there are at least six rows, else each row is split
// over the six; 2 bundles a unit, a load and a store, so source and out may share an element.
// Issues for m rows: 38 + m * (4 + 2 * units), with split rows 35 + rows * (4 + 2 * part).
// Frame: source, out, rows, units, source_stride, out_stride.

    .section .text.copy_strided, "ax"
    .allow_optimizations
    .globl copy_strided

    .align 8
    .supervisor
copy_strided:
    setzi      $m1, copy_strided_worker
    runall     $m1, $m0, 0
    sync       2
    br         $m10

    .align 8
    .worker
copy_strided_worker:
    ld32       $m4, $mvertex_base, $mzero, 2
    ld32       $m7, $mvertex_base, $mzero, 3
    cmpult     $m8, $m4, 6                // few rows: split units instead
    mov        $m5, $m4
    movnz      $m5, $m8, $m7
    get        $m0, $WSR
    and        $m0, $m0, 7                // worker index
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
    brz        $m5, copy_strided_done
    ld32       $m9, $mvertex_base, $mzero, 4
    ld32       $m10, $mvertex_base, $mzero, 5
    ld32       $m2, $mvertex_base, $mzero, 0
    ld32       $m3, $mvertex_base, $mzero, 1
    brnz       $m8, copy_strided_few
    mul        $m0, $m6, $m9
    mul        $m1, $m6, $m10
    mov        $m4, $m5                   // rows
    mov        $m5, $m7                   // units
    bri        copy_strided_start
copy_strided_few:
    mov        $m0, $m6
    mov        $m1, $m6
copy_strided_start:
    shl        $m0, $m0, 3
    add        $m2, $m2, $m0
    shl        $m1, $m1, 3
    add        $m3, $m3, $m1
    sub        $m9, $m9, $m5
    shl        $m9, $m9, 3                // from the end of a row to the next
    sub        $m10, $m10, $m5
    shl        $m10, $m10, 3
    add        $m4, $m4, -1
copy_strided_row:
    rpt        $m5, 1
    { ld64step   $a0:1, $mzero, $m2+=, 1 ; fnop }
    { st64step   $a0:1, $mzero, $m3+=, 1 ; fnop }
    add        $m2, $m2, $m9
    add        $m3, $m3, $m10
    brnzdec    $m4, copy_strided_row
copy_strided_done:
    exitz      $mzero
