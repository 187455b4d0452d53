// gemm_f16: out = left * weight^T on the matrix unit, F16 operands, F16 partials.
//
// Orders: left Panels(16) [inner/16][rows][16], weight Blocks(16) [columns/16][inner/16][16][16],
// out Panels(16) [columns/16][rows][16]. Column groups outer, inner panels inner. The first
// inner panel of a group initialises out, later ones accumulate into it, so a partial is
// rounded to F16 once for each inner panel.
//
// Supervisor: for each panel 32 x ld128putcs (512 bytes of weight), runall, local sync.
// Workers: contiguous row ranges, quotient and remainder over six. Registers of the first
// launch stay for later ones: $m2 left row, $m3 the same + 48, $m4 out row, $m5 rows - 1,
// $m6 byte offset of the first row, $m7 bytes of a panel of left and of out, $m9 out row + 32,
// $a0 = 8 (clear bit). The vertex base of an accumulating launch is the left panel.
// Issues for m rows: first launch 34 + 4m, first panel of a later group 11 + 4m, accumulating
// panel 13 + 4m; the row loop is 4 bundles a row, each a matrix instruction.
//
// Result words leave one row behind, partials enter one row ahead. While accumulating the
// partial load runs 11 words ahead of the store, an odd number, so that in interleaved memory
// both accesses fall in different elements. Over-read: left 24 bytes, out 56 bytes.
// Frame: left, weight, out, rows, inner, columns.

// One panel of weight; entry pairs in the order that gives natural output columns.
    .macro feed
    .irp i, 0, 8, 16, 24
    .irp j, 0, 2, 4, 6, 32, 34, 36, 38
    ld128putcs \i + \j
    .endr
    .endr
    .endm

    .set P0, TAMP_F16V4_E4_P0
    .set P1, TAMP_F16V4_E4_P1
    .set P2, TAMP_F16V4_E4_P2
    .set P3, TAMP_F16V4_E4_P3

    .section .text.gemm_f16, "ax"
    .allow_optimizations
    .globl gemm_f16

    .align 8
    .supervisor
gemm_f16:
    ld32       $m1, $m0, $mzero, 1        // weight
    ld32       $m2, $m0, $mzero, 3        // rows
    ld32       $m4, $m0, $mzero, 4        // inner
    ld32       $m5, $m0, $mzero, 5        // columns
    ld32       $m9, $m0, $mzero, 0        // left
    setzi      $m6, gemm_f16_initialise
    setzi      $m3, gemm_f16_accumulate
    put        $CCCSLOAD, $m1
    cmpult     $m1, $m2, 6
    shr        $m4, $m4, 4              // inner panels
    shr        $m5, $m5, 4
    shl        $m2, $m2, 5                // bytes of a panel
    setzi      $m8, gemm_f16_first
    add        $m5, $m5, -1               // column groups - 1
    add        $m4, $m4, -1               // accumulating panels of a group
    brz        $m1, gemm_f16_group
    setzi      $m6, gemm_f16_initialise_few
    setzi      $m3, gemm_f16_accumulate_few
gemm_f16_group:
    sync       2
    feed
    runall     $m8, $m0, 0
    mov        $m8, $m6
    mov        $m1, $m9
    add        $m7, $m4, -1
    brz        $m4, gemm_f16_group_next
gemm_f16_panel:
    sync       2
    add        $m1, $m1, $m2
    feed
    runall     $m3, $m1, 0
    brnzdec    $m7, gemm_f16_panel
gemm_f16_group_next:
    brnzdec    $m5, gemm_f16_group
    sync       2
    br         $m10

    .align 8
    .worker
gemm_f16_first:
    get        $m0, $WSR
    and        $m0, $m0, 7                // worker index
    ld32       $m7, $mvertex_base, $mzero, 3
    setzi      $m1, 43691                 // ceil(2^18 / 6)
    mul        $m1, $m7, $m1
    shr        $m1, $m1, 18               // quotient
    mul        $m2, $m1, 6
    sub        $m2, $m7, $m2              // remainder
    mul        $m6, $m1, $m0
    min        $m3, $m0, $m2
    add        $m6, $m6, $m3              // first row
    cmpult     $m5, $m0, $m2
    add        $m5, $m5, $m1
    add        $m5, $m5, -1
    shl        $m6, $m6, 5
    shl        $m7, $m7, 5
    ld32       $m2, $mvertex_base, $mzero, 0
    add        $m2, $m2, $m6
    add        $m3, $m2, 48
    ld32       $m4, $mvertex_base, $mzero, 2
    add        $m4, $m4, $m6
    sub        $m4, $m4, $m7              // the next instructions advance it
gemm_f16_initialise_few:
    brneg      $m5, gemm_f16_done

// Initialise: word w of left feeds instruction w; instruction w + 4 gives result word w.
gemm_f16_initialise:
    { add        $m4, $m4, $m7 ; setzi      $a0, 8 }
    { add        $m9, $m4, 32 ; uput       $FP_CLR, $a0 }
    tapack     $m0:1, $m3, $m4, $m4
    ld64       $a0:1, $m2, $mzero, 0
    { ld64       $a0:1, $m2, $mzero, 1 ; f16v4hihov4amp $azeros, $a0:1, $azeros, P0 }
    { ld64       $a0:1, $m2, $mzero, 2 ; f16v4hihov4amp $azeros, $a0:1, $azeros, P1 }
    { ld64       $a0:1, $m2, $mzero, 3 ; f16v4hihov4amp $azeros, $a0:1, $azeros, P2 }
    { ld64       $a0:1, $m2, $mzero, 4 ; f16v4hihov4amp $azeros, $a0:1, $azeros, P3 }
    { ld64       $a0:1, $m2, $mzero, 5 ; f16v4hihov4amp $a4:5, $a0:1, $azeros, P0 }
    rpt        $m5, 3
    { ldst64pace $a0:1, $a4:5, $m0:1+=, $mzero, 0 ; f16v4hihov4amp $a4:5, $a0:1, $azeros, P1 }
    { ldst64pace $a0:1, $a4:5, $m0:1+=, $mzero, 0 ; f16v4hihov4amp $a4:5, $a0:1, $azeros, P2 }
    { ldst64pace $a0:1, $a4:5, $m0:1+=, $mzero, 0 ; f16v4hihov4amp $a4:5, $a0:1, $azeros, P3 }
    { ldst64pace $a0:1, $a4:5, $m0:1+=, $mzero, 0 ; f16v4hihov4amp $a4:5, $a0:1, $azeros, P0 }
    { st64pace   $a4:5, $m0:1+=, $mzero, 0 ; f16v4hihov4amp $a4:5, $azeros, $azeros, P1 }
    { st64pace   $a4:5, $m0:1+=, $mzero, 0 ; f16v4hihov4amp $a4:5, $azeros, $azeros, P2 }
    { st64pace   $a4:5, $m0:1+=, $mzero, 0 ; f16v4hihov4amp $a4:5, $azeros, $azeros, P3 }
    { st64pace   $a4:5, $m0:1+=, $mzero, 0 ; setzi      $a0, 8 }
    exitz      $mzero

gemm_f16_accumulate_few:
    brneg      $m5, gemm_f16_done

// Accumulate: instructions 0..3 take the partials of row 0; word w of left feeds instruction
// w + 4; instruction w + 8 gives result word w, which instruction w + 10 stores.
gemm_f16_accumulate:
    { ld128      $a4:7, $m4, $mzero, 0 ; uput       $FP_CLR, $a0 }
    { ld128      $a0:3, $m4, $mzero, 1 ; f16v4hihov4amp $azeros, $azeros, $a4:5, P0 }
    { add        $m8, $mvertex_base, $m6 ; f16v4hihov4amp $azeros, $azeros, $a6:7, P1 }
    { tapack     $m0:1, $m8, $m9, $m4 ; f16v4hihov4amp $azeros, $azeros, $a0:1, P2 }
    { ld2x64pace $a0:1, $a2:3, $m0:1+=, $mzero, 0 ; f16v4hihov4amp $azeros, $azeros, $a2:3, P3 }
    { ld2x64pace $a0:1, $a2:3, $m0:1+=, $mzero, 0 ; f16v4hihov4amp $azeros, $a0:1, $a2:3, P0 }
    { ld2x64pace $a0:1, $a2:3, $m0:1+=, $mzero, 0 ; f16v4hihov4amp $azeros, $a0:1, $a2:3, P1 }
    { ld2x64pace $a0:1, $a2:3, $m0:1+=, $mzero, 0 ; f16v4hihov4amp $azeros, $a0:1, $a2:3, P2 }
    { ld2x64pace $a0:1, $a2:3, $m0:1+=, $mzero, 0 ; f16v4hihov4amp $azeros, $a0:1, $a2:3, P3 }
    { ld2x64pace $a0:1, $a2:3, $m0:1+=, $mzero, 0 ; f16v4hihov4amp $a4:5, $a0:1, $a2:3, P0 }
    { ld2x64pace $a0:1, $a2:3, $m0:1+=, $mzero, 0 ; f16v4hihov4amp $a6:7, $a0:1, $a2:3, P1 }
    rpt        $m5, 3
    { ld2xst64pace $a0:3, $a4:5, $m0:1+=, $mzero, 0 ; f16v4hihov4amp $a4:5, $a0:1, $a2:3, P2 }
    { ld2xst64pace $a0:3, $a6:7, $m0:1+=, $mzero, 0 ; f16v4hihov4amp $a6:7, $a0:1, $a2:3, P3 }
    { ld2xst64pace $a0:3, $a4:5, $m0:1+=, $mzero, 0 ; f16v4hihov4amp $a4:5, $a0:1, $a2:3, P0 }
    { ld2xst64pace $a0:3, $a6:7, $m0:1+=, $mzero, 0 ; f16v4hihov4amp $a6:7, $a0:1, $a2:3, P1 }
    { st64pace   $a4:5, $m0:1+=, $mzero, 0 ; f16v4hihov4amp $a4:5, $azeros, $azeros, P2 }
    { st64pace   $a6:7, $m0:1+=, $mzero, 0 ; f16v4hihov4amp $a6:7, $azeros, $azeros, P3 }
    { st64pace   $a4:5, $m0:1+=, $mzero, 0 ; setzi      $a0, 8 }
    st64pace   $a6:7, $m0:1+=, $mzero, 0
gemm_f16_done:
    exitz      $mzero
