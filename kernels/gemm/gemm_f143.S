// gemm_f143: out = left * weight^T on the matrix unit, F143 operands, F16 partials.
//
// Orders: left in units of 32 bytes, 32 values of one row; from row to row are row_words words of
// 64 bits, from panel to panel panel_units units. Panels(32) [inner/32][rows][32] has 4 and rows,
// row-major [rows][inner] has inner/8 and 1. Weight Blocks(32)
// [columns/16][inner/32][16][32], out Panels(16) [columns/16][rows][16]. Column groups outer,
// inner panels inner. The first inner panel of a group initialises out, later ones accumulate
// into it, so a partial is rounded to F16 once for each inner panel.
//
// Supervisor: for each panel 32 x ld128putcs (512 bytes of weight), runall, local sync.
// Workers: contiguous row ranges, quotient and remainder over six. Registers of the first
// launch stay for later ones: $m2 left row, $m3 word 2 of the next left row, $m4 out row, $m5
// rows - 2, $m6 left offset of the first row, $m7 bytes of a panel of out, $m9 out row + 32,
// $m10 bytes from row to row of left, $m11 paced stride from word 3 of a row to the next row,
// $a0 = 8 (clear bit). The vertex base of an accumulating launch is the left panel.
// Issues for m rows, m > 1: first launch 36 + 4m, first panel of a later group 11 + 4m,
// accumulating panel 13 + 4m; the row loop is 4 bundles a row, each a matrix instruction, and
// the last row is outside the loop, so that no word past it is loaded. Launches with fewer than
// 12 rows begin with a test for workers that have one row or none.
//
// Result words leave one row behind, partials enter one row ahead. While accumulating the
// partial load runs 11 words ahead of the store, an odd number, so that in interleaved memory
// both accesses fall in different elements. Over-read: out 24 bytes.
// Frame: left, weight, out, rows, inner, columns, row_words, panel_units, scale.

// One panel of weight; entry pairs in the order that gives natural output columns.
    .macro feed
    .irp i, 0, 8, 16, 24
    .irp j, 0, 2, 4, 6, 32, 34, 36, 38
    ld128putcs \i + \j
    .endr
    .endr
    .endm

    .set P0, TAMP_F8V8_E4_P0
    .set P1, TAMP_F8V8_E4_P1
    .set P2, TAMP_F8V8_E4_P2
    .set P3, TAMP_F8V8_E4_P3

    .section .text.gemm_f143, "ax"
    .allow_optimizations
    .globl gemm_f143

    .align 8
    .supervisor
gemm_f143:
    ld32       $m1, $m0, $mzero, 1        // weight
    ld32       $m5, $m0, $mzero, 5        // columns
    ld32       $m8, $m0, $mzero, 3        // rows
    ld32       $m4, $m0, $mzero, 4        // inner
    ld32       $m7, $m0, $mzero, 8        // product scale
    ld32       $m2, $m0, $mzero, 7        // units from panel to panel
    setzi      $m3, 3                     // both formats are F143
    setzi      $m6, gemm_f143_initialise
    shr        $m5, $m5, 4
    shr        $m4, $m4, 5                // inner panels
    shl        $m2, $m2, 5                // bytes from panel to panel
    put        $CCCSLOAD, $m1
    cmpult     $m1, $m8, 12
    put        $FP_INFMT, $m3
    put        $FP_ISCL, $m7
    setzi      $m3, gemm_f143_accumulate
    setzi      $m8, gemm_f143_first
    add        $m5, $m5, -1               // column groups - 1
    brz        $m1, gemm_f143_feed
    setzi      $m6, gemm_f143_initialise_few
    setzi      $m3, gemm_f143_accumulate_few
gemm_f143_group:
    sync       2
gemm_f143_feed:
    feed
    runall     $m8, $m0, 0
    mov        $m8, $m6
    ld32       $m1, $m0, $mzero, 0        // left
    add        $m7, $m4, -2
    brneg      $m7, gemm_f143_group_next
gemm_f143_panel:
    add        $m1, $m1, $m2
    sync       2
    feed
    runall     $m3, $m1, 0
    brnzdec    $m7, gemm_f143_panel
gemm_f143_group_next:
    brnzdec    $m5, gemm_f143_group
    sync       2
    br         $m10

    .align 8
    .worker
gemm_f143_first:
    get        $m0, $WSR
    and        $m0, $m0, 7                // worker index
    ld32       $m7, $mvertex_base, $mzero, 3
    mul        $m1, $m7, 10923            // ceil(2^16 / 6)
    shr        $m1, $m1, 16               // quotient
    mul        $m2, $m1, 6
    sub        $m2, $m7, $m2              // remainder
    mul        $m8, $m1, $m0
    min        $m3, $m0, $m2
    add        $m8, $m8, $m3              // first row
    cmpult     $m5, $m0, $m2
    add        $m5, $m5, $m1
    { add        $m5, $m5, -2 ; setzi      $a0, 8 }
    ld32       $m10, $mvertex_base, $mzero, 6
    add        $m11, $m10, -3             // words from word 3 of a row to the next row
    shl        $m10, $m10, 3
    mul        $m6, $m8, $m10
    shl        $m8, $m8, 5
    shl        $m7, $m7, 5
    ld32       $m2, $mvertex_base, $mzero, 0
    add        $m2, $m2, $m6
    add        $m3, $m2, $m10
    add        $m3, $m3, 16
    ld32       $m4, $mvertex_base, $mzero, 2
    add        $m4, $m4, $m8
    brpos      $m5, gemm_f143_initialise_rows
    sub        $m4, $m4, $m7              // the next instruction advances it

// Initialise one row: word w of left feeds instruction w; instruction w + 4 gives result word w.
gemm_f143_initialise_one:
    add        $m4, $m4, $m7
    add        $m8, $m5, 1
    brneg      $m8, gemm_f143_done
    { add        $m9, $m4, 32 ; uput       $FP_CLR, $a0 }
    tapack     $m0:1, $m3, $m4, $m4
    ld64       $a0:1, $m2, $mzero, 0
    { ld64       $a0:1, $m2, $mzero, 1 ; f8v8hihov4amp $azeros, $a0:1, $azeros, P0 }
    { ld64       $a0:1, $m2, $mzero, 2 ; f8v8hihov4amp $azeros, $a0:1, $azeros, P1 }
    { ld64       $a0:1, $m2, $mzero, 3 ; f8v8hihov4amp $azeros, $a0:1, $azeros, P2 }
    f8v8hihov4amp $azeros, $a0:1, $azeros, P3
    bri        gemm_f143_initialise_drain

// Initialise: word w of left feeds instruction w; instruction w + 4 gives result word w.
gemm_f143_initialise_few:
    brneg      $m5, gemm_f143_initialise_one
gemm_f143_initialise:
    add        $m4, $m4, $m7
gemm_f143_initialise_rows:
    { add        $m9, $m4, 32 ; uput       $FP_CLR, $a0 }
    tapack     $m0:1, $m3, $m4, $m4
    ld64       $a0:1, $m2, $mzero, 0
    { ld64       $a0:1, $m2, $mzero, 1 ; f8v8hihov4amp $azeros, $a0:1, $azeros, P0 }
    { ld64       $a0:1, $m2, $mzero, 2 ; f8v8hihov4amp $azeros, $a0:1, $azeros, P1 }
    { ld64       $a0:1, $m2, $mzero, 3 ; f8v8hihov4amp $azeros, $a0:1, $azeros, P2 }
    { ld64       $a0:1, $m2, $m10, 0 ; f8v8hihov4amp $azeros, $a0:1, $azeros, P3 }
    { ld64       $a0:1, $m2, $m10, 1 ; f8v8hihov4amp $a4:5, $a0:1, $azeros, P0 }
    rpt        $m5, 3
    { ldst64pace $a0:1, $a4:5, $m0:1+=, $m11, 0 ; f8v8hihov4amp $a4:5, $a0:1, $azeros, P1 }
    { ldst64pace $a0:1, $a4:5, $m0:1+=, $m11, 1 ; f8v8hihov4amp $a4:5, $a0:1, $azeros, P2 }
    { ldst64pace $a0:1, $a4:5, $m0:1+=, $m11, 0 ; f8v8hihov4amp $a4:5, $a0:1, $azeros, P3 }
    { ldst64pace $a0:1, $a4:5, $m0:1+=, $m11, 0 ; f8v8hihov4amp $a4:5, $a0:1, $azeros, P0 }
    { ldst64pace $a0:1, $a4:5, $m0:1+=, $m11, 0 ; f8v8hihov4amp $a4:5, $a0:1, $azeros, P1 }
    { ldst64pace $a0:1, $a4:5, $m0:1+=, $m11, 0 ; f8v8hihov4amp $a4:5, $a0:1, $azeros, P2 }
    { st64pace   $a4:5, $m0:1+=, $mzero, 0 ; f8v8hihov4amp $a4:5, $a0:1, $azeros, P3 }
    { st64pace   $a4:5, $m0:1+=, $mzero, 0 ; f8v8hihov4amp $a4:5, $azeros, $azeros, P0 }
    { st64pace   $a4:5, $m0:1+=, $mzero, 0 ; f8v8hihov4amp $a4:5, $azeros, $azeros, P1 }
    { st64pace   $a4:5, $m0:1+=, $mzero, 0 ; f8v8hihov4amp $a4:5, $azeros, $azeros, P2 }
    { st64pace   $a4:5, $m0:1+=, $mzero, 0 ; f8v8hihov4amp $a4:5, $azeros, $azeros, P3 }
    { st64pace   $a4:5, $m0:1+=, $mzero, 0 ; setzi      $a0, 8 }
    exitz      $mzero

gemm_f143_accumulate_few:
    brpos      $m5, gemm_f143_accumulate
    add        $m8, $m5, 1
    brneg      $m8, gemm_f143_done

// Accumulate one row: instructions 0..3 take the partials, 4..7 the words of left.
    { ld128      $a4:7, $m4, $mzero, 0 ; uput       $FP_CLR, $a0 }
    { ld128      $a0:3, $m4, $mzero, 1 ; f8v8hihov4amp $azeros, $azeros, $a4:5, P0 }
    { add        $m8, $mvertex_base, $m6 ; f8v8hihov4amp $azeros, $azeros, $a6:7, P1 }
    { ld64       $a4:5, $m8, $mzero, 0 ; f8v8hihov4amp $azeros, $azeros, $a0:1, P2 }
    { ld64       $a6:7, $m8, $mzero, 1 ; f8v8hihov4amp $azeros, $azeros, $a2:3, P3 }
    { ld64       $a0:1, $m8, $mzero, 2 ; f8v8hihov4amp $azeros, $a4:5, $azeros, P0 }
    { ld64       $a2:3, $m8, $mzero, 3 ; f8v8hihov4amp $azeros, $a6:7, $azeros, P1 }
    { tapack     $m0:1, $m8, $m9, $m4 ; f8v8hihov4amp $azeros, $a0:1, $azeros, P2 }
    f8v8hihov4amp $azeros, $a2:3, $azeros, P3

// The words of the one result row.
gemm_f143_initialise_drain:
    f8v8hihov4amp $a4:5, $azeros, $azeros, P0
    { st64pace   $a4:5, $m0:1+=, $mzero, 0 ; f8v8hihov4amp $a4:5, $azeros, $azeros, P1 }
    { st64pace   $a4:5, $m0:1+=, $mzero, 0 ; f8v8hihov4amp $a4:5, $azeros, $azeros, P2 }
    { st64pace   $a4:5, $m0:1+=, $mzero, 0 ; f8v8hihov4amp $a4:5, $azeros, $azeros, P3 }
    { st64pace   $a4:5, $m0:1+=, $mzero, 0 ; setzi      $a0, 8 }
    exitz      $mzero

// Accumulate: instructions 0..3 take the partials of row 0; word w of left feeds instruction
// w + 4; instruction w + 8 gives result word w, which instruction w + 10 stores.
gemm_f143_accumulate:
    { ld128      $a4:7, $m4, $mzero, 0 ; uput       $FP_CLR, $a0 }
    { ld128      $a0:3, $m4, $mzero, 1 ; f8v8hihov4amp $azeros, $azeros, $a4:5, P0 }
    { add        $m8, $mvertex_base, $m6 ; f8v8hihov4amp $azeros, $azeros, $a6:7, P1 }
    { tapack     $m0:1, $m8, $m9, $m4 ; f8v8hihov4amp $azeros, $azeros, $a0:1, P2 }
    { ld2x64pace $a0:1, $a2:3, $m0:1+=, $m11, 0 ; f8v8hihov4amp $azeros, $azeros, $a2:3, P3 }
    { ld2x64pace $a0:1, $a2:3, $m0:1+=, $m11, 0 ; f8v8hihov4amp $azeros, $a0:1, $a2:3, P0 }
    { ld2x64pace $a0:1, $a2:3, $m0:1+=, $m11, 0 ; f8v8hihov4amp $azeros, $a0:1, $a2:3, P1 }
    { ld2x64pace $a0:1, $a2:3, $m0:1+=, $m11, 1 ; f8v8hihov4amp $azeros, $a0:1, $a2:3, P2 }
    { ld2x64pace $a0:1, $a2:3, $m0:1+=, $m11, 0 ; f8v8hihov4amp $azeros, $a0:1, $a2:3, P3 }
    { ld2x64pace $a0:1, $a2:3, $m0:1+=, $m11, 0 ; f8v8hihov4amp $a4:5, $a0:1, $a2:3, P0 }
    { ld2x64pace $a0:1, $a2:3, $m0:1+=, $m11, 0 ; f8v8hihov4amp $a6:7, $a0:1, $a2:3, P1 }
    rpt        $m5, 3
    { ld2xst64pace $a0:3, $a4:5, $m0:1+=, $m11, 1 ; f8v8hihov4amp $a4:5, $a0:1, $a2:3, P2 }
    { ld2xst64pace $a0:3, $a6:7, $m0:1+=, $m11, 0 ; f8v8hihov4amp $a6:7, $a0:1, $a2:3, P3 }
    { ld2xst64pace $a0:3, $a4:5, $m0:1+=, $m11, 0 ; f8v8hihov4amp $a4:5, $a0:1, $a2:3, P0 }
    { ld2xst64pace $a0:3, $a6:7, $m0:1+=, $m11, 0 ; f8v8hihov4amp $a6:7, $a0:1, $a2:3, P1 }
    { ldst64pace $a0:1, $a4:5, $m0:1+=, $m11, 0 ; f8v8hihov4amp $a4:5, $a0:1, $a2:3, P2 }
    { st64pace   $a6:7, $m0:1+=, $mzero, 0 ; f8v8hihov4amp $a6:7, $a0:1, $azeros, P3 }
    { st64pace   $a4:5, $m0:1+=, $mzero, 0 ; f8v8hihov4amp $a4:5, $azeros, $azeros, P0 }
    { st64pace   $a6:7, $m0:1+=, $mzero, 0 ; f8v8hihov4amp $a6:7, $azeros, $azeros, P1 }
    { st64pace   $a4:5, $m0:1+=, $mzero, 0 ; f8v8hihov4amp $a4:5, $azeros, $azeros, P2 }
    { st64pace   $a6:7, $m0:1+=, $mzero, 0 ; f8v8hihov4amp $a6:7, $azeros, $azeros, P3 }
    { st64pace   $a4:5, $m0:1+=, $mzero, 0 ; setzi      $a0, 8 }
    st64pace   $a6:7, $m0:1+=, $mzero, 0
gemm_f143_done:
    exitz      $mzero
