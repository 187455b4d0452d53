// layernorm_f16: out[r][c] = n * scale[c] + bias[c], n = (x[r][c] - mean_r) / sqrt(var_r + epsilon).
// Row-major rows; out may be x. Mean and variance (mean of squared deviations) are F32 and n is
// one F32 multiply-add rounded to F16; the product with scale and the sum are F16 steps.
//
// Frame: 0 x, 1 scale, 2 bias, 3 out, 4 rows, 5 columns (multiple of 8), 6 epsilon (F32 bits).
// Six workers share every row in runs of 8 columns. Up to 20 rows go through three launches:
// sums 2 bundles for 8 halves, squared deviations 5 bundles for 4, result 7 bundles for 4.
// The last load ahead of the result loop reads one word past a worker's columns; it is not used.
//
// Kept in worker registers from launch to launch: $m0 = 256 * worker, $m4 runs of 8, $m6 bytes of
// a row, $m7 rows, $m9 byte offset of the worker's columns, $a7 = 1 / columns.
// Worker frames, row j of 20: word j sum, 20 + j part of the variance, 40 + j mean;
// words 60 to 62 of frame 0: x, out and rows of these launches.

        .set    SCRATCH, 0x580e0
        .set    BATCH, 20
        .set    WORD_PART, 20
        .set    WORD_MEAN, 40
        .set    WORD_X, 60
        .set    WORD_OUT, 61
        .set    WORD_ROWS, 62

        // $a0 = sum over the workers of the word `at` of their frames at $m8.
        .macro  COMBINE at
        ld32    $a0, $m8, $mzero, \at
        ld32    $a1, $m8, $mzero, \at + 64
        { ld32  $a2, $m8, $mzero, \at + 128
          f32add $a0, $a0, $a1 }
        { ld32  $a3, $m8, $mzero, \at + 192
          f32add $a0, $a0, $a2 }
        { ld32  $a4, $m8, $mzero, \at + 256
          f32add $a0, $a0, $a3 }
        { ld32  $a5, $m8, $mzero, \at + 320
          f32add $a0, $a0, $a4 }
        .endm

        .section .text.layernorm_f16, "ax"
        .allow_optimizations
        .align  8
        .globl  layernorm_f16
        .supervisor
layernorm_f16:
        ld32    $m1, $m0, $mzero, 4             // rows left
        ld32    $m2, $m0, $mzero, 0
        ld32    $m3, $m0, $mzero, 3
        ld32    $m5, $m0, $mzero, 5
        setzi   $m8, SCRATCH
        setzi   $m6, .Lln_sum
        setzi   $m7, .Lln_square
        setzi   $m9, .Lln_result
        mul     $m5, $m5, 2 * BATCH             // bytes of a full batch
.Lln_batch:
        min     $m4, $m1, BATCH
        st32    $m2, $m8, $mzero, WORD_X
        st32    $m3, $m8, $mzero, WORD_OUT
        add     $m2, $m2, $m5
        add     $m3, $m3, $m5
        st32    $m4, $m8, $mzero, WORD_ROWS
        runall  $m6, $m0, 0
        sub     $m1, $m1, $m4
        sync    2
        runall  $m7, $m0, 0
        sync    2
        runall  $m9, $m0, 0
        sync    2
        brnz    $m1, .Lln_batch
        br      $m10

        .align  8
        .worker
.Lln_sum:
        { get   $m0, $WSR
          setzi $a0, 8 }
        and     $m0, $m0, 7
        { ld32  $m6, $mvertex_base, $mzero, 5
          uput  $FP_CLR, $a0 }
        shr     $m4, $m6, 3
        { mul   $m5, $m4, 21846
          zero  $a0:1 }
        { shr   $m5, $m5, 17                    // runs of each worker
          zero  $a2:3 }
        { mul   $m9, $m5, 6
          zero  $a4:5 }
        sub     $m4, $m4, $m9                   // workers with one more
        { ld32  $a7, $mvertex_base, $mzero, 5
          zero  $a4:5 }
        { mul   $m9, $m5, $m0
          f32fromui32 $a7, $a7 }
        { min   $m11, $m0, $m4
          f32oox $a7, $a7 }
        add     $m9, $m9, $m11
        cmpult  $m4, $m0, $m4
        add     $m4, $m4, $m5
        shl     $m9, $m9, 4
        shl     $m6, $m6, 1
        setzi   $m8, SCRATCH
        ld32    $m1, $m8, $mzero, WORD_X
        add     $m1, $m1, $m9
        ld32    $m7, $m8, $mzero, WORD_ROWS
        shl     $m0, $m0, 8
        add     $m2, $m7, -1
.Lln_sum_row:
        { mov   $m3, $m1
          zero  $a0:1 }
        { rpt   $m4, 1
          zero  $a2:3 }
        { ld64  $a2:3, $m3, $mzero, 1
          f16v8acc $a0:3 }
        { ld64step $a0:1, $mzero, $m3+=, 2
          fnop }
        f16v8acc $a0:3
        f32v2gina $a0:1, $azeros, 0
        f32v2gina $a2:3, $azeros, 0
        f32v2gina $a4:5, $azeros, 0
        f32v2add $a0:1, $a0:1, $a2:3
        f32v2gina $a2:3, $azeros, 0
        f32v2add $a0:1, $a0:1, $a4:5
        f32v2add $a0:1, $a0:1, $a2:3
        { add   $m1, $m1, $m6
          f32add $a0, $a0, $a1 }
        st32    $a0, $m8, $m0, 0
        add     $m8, $m8, 4
        brnzdec $m2, .Lln_sum_row
        exitz   $mzero

        .align  8
.Lln_square:
        setzi   $m8, SCRATCH
        ld32    $m1, $m8, $mzero, WORD_X
        add     $m1, $m1, $m9
        shl     $m5, $m4, 1                     // quads
        add     $m2, $m7, -1
.Lln_square_row:
        COMBINE 0
        { mov   $m3, $m1
          f32add $a0, $a0, $a5 }
        f32mul  $a6, $a0, $a7                   // mean
        { st32  $a6, $m8, $m0, WORD_MEAN
          zero  $a0:1 }
        { rpt   $m5, 4
          zero  $a2:3 }
        { ld64step $a4:5, $mzero, $m3+=, 1
          f32v4sqacc $a0:3 }
        { nop
          f16v2tof32 $a0:1, $a4 }
        { nop
          f16v2tof32 $a2:3, $a5 }
        { nop
          f32v2sub $a0:1, $a6:B, $a0:1 }
        { nop
          f32v2sub $a2:3, $a6:B, $a2:3 }
        f32v4sqacc $a0:3
        f32v2gina $a0:1, $azeros, 0
        f32v2gina $a2:3, $azeros, 0
        f32v2add $a0:1, $a0:1, $a2:3
        f32add  $a0, $a0, $a1
        { add   $m1, $m1, $m6
          f32mul $a0, $a0, $a7 }
        st32    $a0, $m8, $m0, WORD_PART
        add     $m8, $m8, 4
        brnzdec $m2, .Lln_square_row
        exitz   $mzero

        .align  8
.Lln_result:
        shl     $m4, $m4, 1
        add     $m4, $m4, -1                    // quads - 1
        brneg   $m4, .Lln_exit
        setzi   $m8, SCRATCH
        ld32    $m1, $m8, $mzero, WORD_X
        ld32    $m2, $mvertex_base, $mzero, 1
        ld32    $m3, $mvertex_base, $mzero, 2
        ld32    $m11, $m8, $mzero, WORD_OUT
        add     $m1, $m1, $m9
        add     $m2, $m2, $m9
        add     $m3, $m3, $m9
        add     $m11, $m11, $m9
        add     $m7, $m7, -1
.Lln_result_row:
        COMBINE WORD_PART
        { ld32  $a1, $mvertex_base, $mzero, 6
          f32add $a0, $a0, $a5 }
        { ld32  $a6, $m8, $m0, WORD_MEAN
          f32add $a0, $a0, $a1 }
        f32oorx $a0, $a0
        uput    $TAS, $a0                       // 1 / deviation
        f32mul  $a6, $a6, $a0
        { setzi $m10, 0
          f32sub $a6, $azero, $a6 }
        { ld32  $a4, $m1, $m10, 0
          mov   $a7, $a6 }                      // -mean / deviation
        // x and n are pairs 01 and 23 of a quad; axpy gives back the pair before its own.
        f16v2tof32 $a4:5, $a4
        { ld32  $a4, $m1, $m10, 1
          f32v2axpy $a0:1, $a4:5, $a6:7 }
        f16v2tof32 $a4:5, $a4
        { ld32  $a4, $m1, $m10, 2
          f32v2axpy $a0:1, $a4:5, $a6:7 }
        { rpt   $m4, 6
          f16v2tof32 $a4:5, $a4 }
        { ld32  $a4, $m1, $m10, 3
          f32v2axpy $a2:3, $a4:5, $a6:7 }
        { ld64  $a2:3, $m2, $m10, 0
          f32v4tof16 $a0:1, $a0:3 }
        { nop
          f16v2tof32 $a4:5, $a4 }
        { nop
          f16v4mul $a2:3, $a0:1, $a2:3 }
        { ld64  $a4:5, $m3, $m10, 0
          f32v2axpy $a0:1, $a4:5, $a6:7 }
        { ld32  $a4, $m1, $m10, 4
          f16v4add $a2:3, $a2:3, $a4:5 }
        { st64step $a2:3, $m11, $m10+=, 1
          f16v2tof32 $a4:5, $a4 }
        f32v2axpy $a2:3, $a4:5, $a6:7
        { ld64  $a2:3, $m2, $m10, 0
          f32v4tof16 $a0:1, $a0:3 }
        { ld64  $a4:5, $m3, $m10, 0
          f16v4mul $a2:3, $a0:1, $a2:3 }
        { add   $m1, $m1, $m6
          f16v4add $a2:3, $a2:3, $a4:5 }
        st64    $a2:3, $m11, $m10, 0
        add     $m11, $m11, $m6
        add     $m8, $m8, 4
        brnzdec $m7, .Lln_result_row
.Lln_exit:
        exitz   $mzero
