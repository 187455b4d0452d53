// softmax_f16: out[r][k] = exp(scale * (s[r][k] - max over valid keys of s[r])), not normalised.
// scores and out are Panels(16) of rows x keys: key k of row r is half (k/16)*rows*16 + r*16 + k%16.
// sums[r] is the F32 sum of the F16 exponentials over the valid keys. Padded keys of out are zero;
// padded keys of scores are never used (whole words of them are not even loaded beyond
// the word of the last valid key). out may be scores.
//
// Frame: 0 scores, 1 out, 2 sums, 3 rows, 4 valid_keys, 5 keys (multiple of 16), 6 scale (F32 bits).
// The difference, the product with -scale (rounded to F16) and the exponential are F16.
//
// Rows are given whole to the workers, six at a time. The rest of rows mod 6 is shared by panels
// when that is cheaper: launch 1 does the whole rows and the maxima of each worker's panels,
// launch 2 the exponentials of the shared rows, launch 3 adds their sums.
// A panel of a row takes 4 issues for the maximum and 18 for the exponentials; the last full panel
// is peeled, so that the load ahead never leaves the array.
//
// Worker frames: word j (< 5) of frame w: maximum of worker w's part of shared row j, twice in F16;
// word 8 + j: its sum; words 16 and 17 of frame 0: rows done whole, rows shared.

        .set    SCRATCH, 0x580e0
        .set    WORD_SUM, 8
        .set    WORD_WHOLE, 16
        .set    WORD_SHARED, 17

        // One panel of one row. $a4:5 holds quad 0; `ahead` loads quad 0 of the next panel.
        .macro  EXP_PANEL ahead
        { ld64step $a4:5, $mzero, $m9+=, 1
          f16v4sub $a0:1, $a6:BL, $a4:5 }
        { ld64step $a4:5, $mzero, $m9+=, 1
          f16v4sub $a2:3, $a6:BL, $a4:5 }
        { nop
          f16v4mul $a0:1, $a7:BL, $a0:1 }
        { nop
          f16v4mul $a2:3, $a7:BL, $a2:3 }
        { nop
          f16v2exp $a0, $a0 }
        { nop
          f16v2exp $a1, $a1 }
        { st64step $a0:1, $mzero, $m11+=, 1
          f16v2exp $a2, $a2 }
        { nop
          f16v2exp $a3, $a3 }
        { st64step $a2:3, $mzero, $m11+=, 1
          f16v8acc $a0:3 }
        { ld64step $a4:5, $mzero, $m9+=, $m3
          f16v4sub $a0:1, $a6:BL, $a4:5 }
        { \ahead
          f16v4sub $a2:3, $a6:BL, $a4:5 }
        { nop
          f16v4mul $a0:1, $a7:BL, $a0:1 }
        { nop
          f16v4mul $a2:3, $a7:BL, $a2:3 }
        { nop
          f16v2exp $a0, $a0 }
        { nop
          f16v2exp $a1, $a1 }
        { st64step $a0:1, $mzero, $m11+=, 1
          f16v2exp $a2, $a2 }
        { nop
          f16v2exp $a3, $a3 }
        { st64step $a2:3, $mzero, $m11+=, $m3
          f16v8acc $a0:3 }
        .endm

        // $a7 = -scale in both halves; accumulators cleared.
        .macro  EXP_CONSTANTS
        ld32    $a7, $mvertex_base, $mzero, 6
        f32tof16 $a7, $a7
        f16v2sub $a7, $azero, $a7
        setzi   $a0, 8
        uput    $FP_CLR, $a0
        .endm

        .section .text.softmax_f16, "ax"
        .allow_optimizations
        .align  8
        .globl  softmax_f16
        .supervisor
softmax_f16:
        ld32    $m1, $m0, $mzero, 3             // rows
        ld32    $m5, $m0, $mzero, 5
        setzi   $m8, SCRATCH
        mul     $m2, $m1, 21846
        shr     $m5, $m5, 4                     // panels
        shr     $m2, $m2, 17
        add     $m6, $m5, 5
        mul     $m2, $m2, 6
        mul     $m6, $m6, 21846
        sub     $m2, $m1, $m2                   // rows mod 6
        shr     $m6, $m6, 17                    // panels of a worker
        add     $m6, $m6, 2                     // 44 issues are the overhead of a shared row
        mul     $m6, $m6, $m2
        add     $m6, $m6, 1
        cmpult  $m6, $m6, $m5
        mul     $m2, $m2, $m6                   // shared rows
        setzi   $m3, .Lsoftmax_whole
        sub     $m1, $m1, $m2
        st32    $m2, $m8, $mzero, WORD_SHARED
        st32    $m1, $m8, $mzero, WORD_WHOLE
        runall  $m3, $m0, 0
        setzi   $m4, .Lsoftmax_shared
        setzi   $m5, .Lsoftmax_sums
        sync    2
        brz     $m2, .Lsoftmax_return
        runall  $m4, $m0, 0
        sync    2
        runall  $m5, $m0, 0
        sync    2
.Lsoftmax_return:
        br      $m10

        .align  8
        .worker
.Lsoftmax_whole:
        get     $m0, $WSR
        and     $m0, $m0, 7
        EXP_CONSTANTS
        setzi   $m11, SCRATCH
        ld32    $m7, $m11, $mzero, WORD_WHOLE
        sub     $m7, $m7, $m0
        add     $m7, $m7, 5
        mul     $m7, $m7, 21846
        shr     $m7, $m7, 17                    // rows of this worker
        brz     $m7, .Lsoftmax_part_maxima
        ld32    $m1, $mvertex_base, $mzero, 0
        ld32    $m2, $mvertex_base, $mzero, 1
        sub     $m2, $m2, $m1
        ld32    $m8, $mvertex_base, $mzero, 2
        shl     $m9, $m0, 2
        add     $m8, $m8, $m9
        shl     $m9, $m0, 5
        add     $m1, $m1, $m9
        ld32    $m3, $mvertex_base, $mzero, 3
        shl     $m3, $m3, 2
        add     $m3, $m3, -3                    // from quad 3 to quad 0 of the next panel
        ld32    $m5, $mvertex_base, $mzero, 4
        ld32    $m6, $mvertex_base, $mzero, 5
        shr     $m4, $m5, 4                     // full panels
        and     $m5, $m5, 15                    // keys in the last one
        shr     $m6, $m6, 4
        sub     $m6, $m6, $m4
        cmpult  $m9, $mzero, $m5
        sub     $m6, $m6, $m9                   // panels of padding
        add     $m0, $m4, -1
        bri     .Lsoftmax_whole_next
.Lsoftmax_whole_row:
        call    $m10, .Lsoftmax_maximum
        call    $m10, .Lsoftmax_exponentials
        st32step $a0, $mzero, $m8+=, 6
        add     $m1, $m1, 192
.Lsoftmax_whole_next:
        brnzdec $m7, .Lsoftmax_whole_row
.Lsoftmax_part_maxima:
        setzi   $m11, SCRATCH
        ld32    $m7, $m11, $mzero, WORD_SHARED
        brz     $m7, .Lsoftmax_exit
        call    $m10, .Lsoftmax_part
        shl     $m8, $m8, 8
        add     $m8, $m8, $m11
        bri     .Lsoftmax_part_next
.Lsoftmax_part_row:
        call    $m10, .Lsoftmax_maximum
        st32step $a6, $mzero, $m8+=, 1
        add     $m1, $m1, 32
.Lsoftmax_part_next:
        brnzdec $m7, .Lsoftmax_part_row
.Lsoftmax_exit:
        exitz   $mzero

        .align  8
.Lsoftmax_shared:
        // Registers are as launch 1 left them; $m1 stands behind the shared rows.
        setzi   $m8, SCRATCH
        ld32    $m7, $m8, $mzero, WORD_SHARED
        shl     $m9, $m7, 5
        sub     $m1, $m1, $m9
        bri     .Lsoftmax_shared_next
.Lsoftmax_shared_row:
        ld32    $a0, $m8, $mzero, 0
        ld32    $a1, $m8, $mzero, 64
        { ld32  $a2, $m8, $mzero, 128
          f16v2max $a0, $a0, $a1 }
        { ld32  $a3, $m8, $mzero, 192
          f16v2max $a0, $a0, $a2 }
        { ld32  $a4, $m8, $mzero, 256
          f16v2max $a0, $a0, $a3 }
        { ld32  $a5, $m8, $mzero, 320
          f16v2max $a0, $a0, $a4 }
        { call  $m10, .Lsoftmax_exponentials
          f16v2max $a6, $a0, $a5 }
        get     $m9, $WSR
        and     $m9, $m9, 7
        shl     $m9, $m9, 8
        st32    $a0, $m8, $m9, WORD_SUM
        add     $m8, $m8, 4
        add     $m1, $m1, 32
.Lsoftmax_shared_next:
        brnzdec $m7, .Lsoftmax_shared_row
        exitz   $mzero

        .align  8
.Lsoftmax_sums:
        get     $m0, $WSR
        and     $m0, $m0, 7
        setzi   $m1, SCRATCH
        ld32    $m2, $m1, $mzero, WORD_SHARED
        cmpult  $m2, $m0, $m2
        brz     $m2, .Lsoftmax_sums_exit
        ld32    $m3, $m1, $mzero, WORD_WHOLE
        shl     $m2, $m0, 2
        add     $m3, $m3, $m0                   // row
        ld32    $a0, $m1, $m2, WORD_SUM
        ld32    $a1, $m1, $m2, WORD_SUM + 64
        { ld32  $a2, $m1, $m2, WORD_SUM + 128
          f32add $a0, $a0, $a1 }
        { ld32  $a3, $m1, $m2, WORD_SUM + 192
          f32add $a0, $a0, $a2 }
        { ld32  $a4, $m1, $m2, WORD_SUM + 256
          f32add $a0, $a0, $a3 }
        { ld32  $a5, $m1, $m2, WORD_SUM + 320
          f32add $a0, $a0, $a4 }
        { ld32  $m4, $mvertex_base, $mzero, 2
          f32add $a0, $a0, $a5 }
        st32    $a0, $m4, $mzero, $m3
.Lsoftmax_sums_exit:
        exitz   $mzero

        // Panels of this worker in the first shared row: $m1 its scores, $m2 out - scores, $m3 step
        // from quad 3 on, $m4 full panels, $m0 = $m4 - 1, $m5 valid keys of a partial panel or 0,
        // $m6 panels of padding, $m7 shared rows, $m8 worker, $m11 scratch. Uses $m9.
.Lsoftmax_part:
        get     $m8, $WSR
        and     $m8, $m8, 7
        ld32    $m4, $mvertex_base, $mzero, 5
        shr     $m4, $m4, 4
        add     $m5, $m4, 5
        mul     $m5, $m5, 21846
        shr     $m5, $m5, 17                    // panels a worker
        mul     $m6, $m5, $m8
        min     $m6, $m6, $m4                   // first panel
        add     $m7, $m6, $m5
        min     $m7, $m7, $m4
        sub     $m7, $m7, $m6                   // panels
        ld32    $m1, $mvertex_base, $mzero, 0
        ld32    $m2, $mvertex_base, $mzero, 1
        sub     $m2, $m2, $m1
        ld32    $m3, $mvertex_base, $mzero, 3
        setzi   $m11, SCRATCH
        mul     $m9, $m6, $m3
        ld32    $m4, $m11, $mzero, WORD_WHOLE
        add     $m9, $m9, $m4
        shl     $m9, $m9, 5
        add     $m1, $m1, $m9
        shl     $m3, $m3, 2
        add     $m3, $m3, -3
        ld32    $m5, $mvertex_base, $mzero, 4
        shr     $m4, $m5, 4
        sub     $m4, $m4, $m6                   // full panels from here, may be negative
        and     $m5, $m5, 15
        cmpult  $m9, $m4, $m7
        mul     $m5, $m5, $m9
        max     $m4, $m4, $mzero
        min     $m4, $m4, $m7
        sub     $m6, $m7, $m4
        cmpult  $m9, $mzero, $m5
        sub     $m6, $m6, $m9
        ld32    $m7, $m11, $mzero, WORD_SHARED
        add     $m0, $m4, -1
        br      $m10

        // $a6 = maximum of the valid keys of $m4 panels and $m5 keys from $m1, in both halves.
        // Uses $m9, $m11.
.Lsoftmax_maximum:
        { mov   $m9, $m1
          setzi $a0, 0x0fc00 }
        { shr   $m11, $m5, 2
          or    $a0, $a0, 0xfc000000 }
        { nop
          mov   $a1, $a0 }
        { rpt   $m4, 3
          mov   $a2:3, $a0:1 }
        { ld64step $a2:3, $mzero, $m9+=, 1
          f16v4max $a0:1, $a0:1, $a2:3 }
        { ld64step $a2:3, $mzero, $m9+=, 1
          f16v4max $a0:1, $a0:1, $a2:3 }
        { ld64step $a2:3, $mzero, $m9+=, 1
          f16v4max $a0:1, $a0:1, $a2:3 }
        { ld64step $a2:3, $mzero, $m9+=, $m3
          f16v4max $a0:1, $a0:1, $a2:3 }
        { rpt   $m11, 0
          fnop }
        { ld64step $a2:3, $mzero, $m9+=, 1
          f16v4max $a0:1, $a0:1, $a2:3 }
        { and   $m11, $m5, 3
          f16v4max $a0:1, $a0:1, $a2:3 }
        { rpt   $m11, 0
          fnop }
        { ldb16step $a2, $mzero, $m9+=, 1
          f16v2max $a0, $a0, $a2 }
        f16v2max $a0, $a0, $a2
        f16v2max $a0, $a0, $a1
        roll16  $a1, $a0, $a0
        { br    $m10
          f16v2max $a6, $a0, $a1 }

        // Exponentials of the panels from $m1 with maximum $a6; $a0 = their F32 sum. Uses $m9, $m11;
        // $m4 is restored. The accumulators are zero before and after.
.Lsoftmax_exponentials:
        mov     $m9, $m1
        add     $m11, $m1, $m2
        brneg   $m0, .Lexp_partial
        ld64step $a4:5, $mzero, $m9+=, 1
        { rpt   $m0, 17
          fnop }
        EXP_PANEL "ld64step $a4:5, $mzero, $m9+=, 1"
        EXP_PANEL nop
.Lexp_partial:
        brz     $m5, .Lexp_padding
        { shr   $m4, $m5, 2
          zero  $a2:3 }
        { rpt   $m4, 5
          fnop }
        { ld64step $a4:5, $mzero, $m9+=, 1
          fnop }
        { nop
          f16v4sub $a0:1, $a6:BL, $a4:5 }
        { nop
          f16v4mul $a0:1, $a7:BL, $a0:1 }
        { nop
          f16v2exp $a0, $a0 }
        { nop
          f16v2exp $a1, $a1 }
        { st64step $a0:1, $mzero, $m11+=, 1
          f16v8acc $a0:3 }
        and     $m4, $m5, 3
        brz     $m4, .Lexp_rest
        // One to three keys in the last quad: $m4 = keys - 2.
        { ldb16 $a4, $m9, $mzero, 0
          mov   $a5, $azero }
        add     $m4, $m4, -2
        brneg   $m4, .Lexp_keys
        ld32    $a4, $m9, $mzero, 0
        brz     $m4, .Lexp_keys
        ldb16   $a5, $m9, $mzero, 2
.Lexp_keys:
        f16v4sub $a0:1, $a6:BL, $a4:5
        f16v4mul $a0:1, $a7:BL, $a0:1
        f16v2exp $a0, $a0
        f16v2exp $a1, $a1
        setzi   $a5, 0xffff
        brneg   $m4, .Lexp_one
        brz     $m4, .Lexp_two
        { bri   .Lexp_masked
          and   $a1, $a1, $a5 }
.Lexp_one:
        and     $a0, $a0, $a5
.Lexp_two:
        mov     $a1, $azero
.Lexp_masked:
        { st64step $a0:1, $mzero, $m11+=, 1
          f16v8acc $a0:3 }
.Lexp_rest:
        sub     $m4, 16, $m5
        shr     $m4, $m4, 2
        { rpt   $m4, 0
          fnop }
        { st64step $azeros, $mzero, $m11+=, 1
          fnop }
        shl     $m4, $m3, 3
        add     $m11, $m11, $m4
        add     $m11, $m11, -8
.Lexp_padding:
        { rpt   $m6, 3
          f32v2gina $a0:1, $azeros, 0 }
        { st64step $azeros, $mzero, $m11+=, 1
          fnop }
        { st64step $azeros, $mzero, $m11+=, 1
          fnop }
        { st64step $azeros, $mzero, $m11+=, 1
          fnop }
        { st64step $azeros, $mzero, $m11+=, $m3
          fnop }
        f32v2gina $a2:3, $azeros, 0
        f32v2gina $a4:5, $azeros, 0
        f32v2add $a0:1, $a0:1, $a2:3
        f32v2gina $a2:3, $azeros, 0
        f32v2add $a0:1, $a0:1, $a4:5
        { add   $m4, $m0, 1
          f32v2add $a0:1, $a0:1, $a2:3 }
        { br    $m10
          f32add $a0, $a0, $a1 }
