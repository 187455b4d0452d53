// softmax_f143: as softmax_f16, with the exponentials written in F143.
// out[r][k] = F143 of exp(scale * (s[r][k] - max over valid keys of s[r])) * 2^-out_scale.
// scores are Panels(16) of rows x keys in F16; out is Panels(32): key k of row r is byte
// (k/32)*rows*32 + r*32 + k%32. sums[r] is the F32 sum of the F16 exponentials over the valid keys,
// before they are rounded to F143. Padded keys of out are zero; padded keys of scores are never
// used (whole words of them are not even loaded beyond the word of the last valid key).
// The tail finds its place by the low bits of the out address: out is aligned to 32 bytes.
//
// Frame: 0 scores, 1 out, 2 sums, 3 rows, 4 valid_keys, 5 keys (multiple of 32), 6 scale (F32 bits),
// 7 out_scale.
// The difference, the product with -scale (rounded to F16) and the exponential are F16.
//
// Work is shared as in softmax_f16, by pairs of panels. A pair of a row takes 8 issues for the
// maximum and 40 for the exponentials; the last full pair is peeled, so that the load ahead never
// leaves the array.
//
// Worker frames: word j (< 5) of frame w: maximum of worker w's part of shared row j, twice in F16;
// word 8 + j: its sum; words 16, 17, 18 of frame 0: rows done whole, rows shared, -out_scale.

        .set    SCRATCH, 0x580e0
        .set    WORD_SUM, 8
        .set    WORD_WHOLE, 16
        .set    WORD_SHARED, 17
        .set    WORD_SCALE, 18

        // One run of 8 keys. $a0:1 holds max - quad 0. Leaves the codes to be stored in $a0:1 at
        // `last`, which takes the place of a bundle.
        .macro  EXP_RUN load_1, load_2, store, last
        { \load_1
          f16v4mul $a0:1, $a7:BL, $a0:1 }
        { \load_2
          f16v4sub $a2:3, $a6:BL, $a4:5 }
        { nop
          f16v4mul $a2:3, $a7:BL, $a2:3 }
        { nop
          f16v2exp $a0, $a0 }
        { nop
          f16v2exp $a1, $a1 }
        { nop
          f16v2exp $a2, $a2 }
        { nop
          f16v2exp $a3, $a3 }
        { nop
          f16v8acc $a0:3 }
        { nop
          f16v8tof8 $a0:1, $a0:3 }
        { \store
          \last }
        .endm

        // One pair of panels of one row; `ahead` loads quad 0 of the next pair.
        .macro  EXP_PAIR ahead, last
        EXP_RUN "ld64step $a4:5, $mzero, $m9+=, 1", "ld64step $a4:5, $mzero, $m9+=, 1", "st64step $a0:1, $mzero, $m11+=, 1", "f16v4sub $a0:1, $a6:BL, $a4:5"
        EXP_RUN "ld64step $a4:5, $mzero, $m9+=, $m3", "ld64step $a4:5, $mzero, $m9+=, 1", "st64step $a0:1, $mzero, $m11+=, 1", "f16v4sub $a0:1, $a6:BL, $a4:5"
        EXP_RUN "ld64step $a4:5, $mzero, $m9+=, 1", "ld64step $a4:5, $mzero, $m9+=, 1", "st64step $a0:1, $mzero, $m11+=, 1", "f16v4sub $a0:1, $a6:BL, $a4:5"
        EXP_RUN "ld64step $a4:5, $mzero, $m9+=, $m3", "\ahead", "st64step $a0:1, $mzero, $m11+=, $m3", "\last"
        .endm

        // $a7 = -scale in both halves; accumulators cleared; casts to F143 with -out_scale.
        .macro  EXP_CONSTANTS
        ld32    $a7, $mvertex_base, $mzero, 6
        f32tof16 $a7, $a7
        f16v2sub $a7, $azero, $a7
        setzi   $a0, 8
        uput    $FP_CLR, $a0
        .endm

        .macro  CAST_CONSTANTS
        { ld32  $a1, $m11, $mzero, WORD_SCALE
          setzi $a0, 1 }
        uput    $FP_NFMT, $a0
        uput    $FP_SCL, $a1
        .endm

        .section .text.softmax_f143, "ax"
        .allow_optimizations
        .align  8
        .globl  softmax_f143
        .supervisor
softmax_f143:
        ld32    $m1, $m0, $mzero, 3             // rows
        ld32    $m5, $m0, $mzero, 5
        ld32    $m7, $m0, $mzero, 7
        setzi   $m8, SCRATCH
        mul     $m2, $m1, 21846
        shr     $m5, $m5, 5                     // pairs
        sub     $m7, $mzero, $m7
        shr     $m2, $m2, 17
        add     $m6, $m5, 5
        st32    $m7, $m8, $mzero, WORD_SCALE
        mul     $m2, $m2, 6
        mul     $m6, $m6, 21846
        sub     $m2, $m1, $m2                   // rows mod 6
        shr     $m6, $m6, 17                    // pairs of a worker
        add     $m6, $m6, 1                     // 48 issues are the overhead of a shared row
        mul     $m6, $m6, $m2
        add     $m6, $m6, 1
        cmpult  $m6, $m6, $m5
        mul     $m2, $m2, $m6                   // shared rows
        setzi   $m3, .Lsoftmax8_whole
        sub     $m1, $m1, $m2
        st32    $m2, $m8, $mzero, WORD_SHARED
        st32    $m1, $m8, $mzero, WORD_WHOLE
        runall  $m3, $m0, 0
        setzi   $m4, .Lsoftmax8_shared
        setzi   $m5, .Lsoftmax8_sums
        sync    2
        brz     $m2, .Lsoftmax8_return
        runall  $m4, $m0, 0
        sync    2
        runall  $m5, $m0, 0
        sync    2
.Lsoftmax8_return:
        br      $m10

        .align  8
        .worker
.Lsoftmax8_whole:
        get     $m0, $WSR
        and     $m0, $m0, 7
        EXP_CONSTANTS
        setzi   $m11, SCRATCH
        CAST_CONSTANTS
        ld32    $m7, $m11, $mzero, WORD_WHOLE
        sub     $m7, $m7, $m0
        add     $m7, $m7, 5
        mul     $m7, $m7, 21846
        shr     $m7, $m7, 17                    // rows of this worker
        brz     $m7, .Lsoftmax8_part_maxima
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
        shr     $m4, $m5, 5                     // full pairs
        and     $m5, $m5, 31                    // keys in the last one
        shr     $m6, $m6, 5
        sub     $m6, $m6, $m4
        cmpult  $m9, $mzero, $m5
        sub     $m6, $m6, $m9                   // pairs of padding
        shl     $m9, $m4, 8
        or      $m5, $m5, $m9
        bri     .Lsoftmax8_whole_next
.Lsoftmax8_whole_row:
        call    $m10, .Lsoftmax8_maximum
        call    $m10, .Lsoftmax8_exponentials
        st32step $a0, $mzero, $m8+=, 6
        add     $m1, $m1, 192
.Lsoftmax8_whole_next:
        brnzdec $m7, .Lsoftmax8_whole_row

        // Pairs of this worker in the first shared row: $m1 its scores, $m2 out - scores, $m3 step
        // from quad 3 on, $m4 full pairs, $m5 = 256 * $m4 + valid keys of a partial pair or 0,
        // $m6 pairs of padding, $m7 shared rows.
.Lsoftmax8_part_maxima:
        setzi   $m11, SCRATCH
        ld32    $m7, $m11, $mzero, WORD_SHARED
        brz     $m7, .Lsoftmax8_exit
        get     $m8, $WSR
        and     $m8, $m8, 7
        ld32    $m4, $mvertex_base, $mzero, 5
        shr     $m4, $m4, 5
        add     $m5, $m4, 5
        mul     $m5, $m5, 21846
        shr     $m5, $m5, 17                    // pairs a worker
        mul     $m6, $m5, $m8
        min     $m6, $m6, $m4                   // first pair
        add     $m7, $m6, $m5
        min     $m7, $m7, $m4
        sub     $m7, $m7, $m6                   // pairs
        ld32    $m1, $mvertex_base, $mzero, 0
        ld32    $m2, $mvertex_base, $mzero, 1
        sub     $m2, $m2, $m1
        ld32    $m3, $mvertex_base, $mzero, 3
        mul     $m9, $m6, $m3
        ld32    $m4, $m11, $mzero, WORD_WHOLE
        shl     $m10, $m9, 5
        sub     $m2, $m2, $m10                  // out has one panel where scores have two
        shl     $m9, $m9, 1
        add     $m9, $m9, $m4
        shl     $m9, $m9, 5
        add     $m1, $m1, $m9
        shl     $m3, $m3, 2
        add     $m3, $m3, -3
        ld32    $m5, $mvertex_base, $mzero, 4
        shr     $m4, $m5, 5
        sub     $m4, $m4, $m6                   // full pairs from here, may be negative
        and     $m5, $m5, 31
        cmpult  $m9, $m4, $m7
        mul     $m5, $m5, $m9
        max     $m4, $m4, $mzero
        min     $m4, $m4, $m7
        sub     $m6, $m7, $m4
        cmpult  $m9, $mzero, $m5
        sub     $m6, $m6, $m9
        shl     $m9, $m4, 8
        or      $m5, $m5, $m9
        ld32    $m7, $m11, $mzero, WORD_SHARED
        shl     $m8, $m8, 8
        add     $m8, $m8, $m11
        bri     .Lsoftmax8_part_next
.Lsoftmax8_part_row:
        call    $m10, .Lsoftmax8_maximum
        st32step $a6, $mzero, $m8+=, 1
        add     $m1, $m1, 32
.Lsoftmax8_part_next:
        brnzdec $m7, .Lsoftmax8_part_row
.Lsoftmax8_exit:
        exitz   $mzero

        .align  8
.Lsoftmax8_shared:
        // Registers are as launch 1 left them; $m1 stands behind the shared rows.
        setzi   $m11, SCRATCH
        CAST_CONSTANTS
        mov     $m8, $m11
        ld32    $m7, $m8, $mzero, WORD_SHARED
        shl     $m9, $m7, 5
        sub     $m1, $m1, $m9
        bri     .Lsoftmax8_shared_next
.Lsoftmax8_shared_row:
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
        { call  $m10, .Lsoftmax8_exponentials
          f16v2max $a6, $a0, $a5 }
        get     $m9, $WSR
        and     $m9, $m9, 7
        shl     $m9, $m9, 8
        st32    $a0, $m8, $m9, WORD_SUM
        add     $m8, $m8, 4
        add     $m1, $m1, 32
.Lsoftmax8_shared_next:
        brnzdec $m7, .Lsoftmax8_shared_row
        exitz   $mzero

        .align  8
.Lsoftmax8_sums:
        get     $m0, $WSR
        and     $m0, $m0, 7
        setzi   $m1, SCRATCH
        ld32    $m2, $m1, $mzero, WORD_SHARED
        cmpult  $m2, $m0, $m2
        brz     $m2, .Lsoftmax8_sums_exit
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
.Lsoftmax8_sums_exit:
        exitz   $mzero

        // $a6 = maximum of the valid keys of $m4 pairs and the keys in $m5 from $m1, in both halves.
        // Uses $m0, $m9, $m11.
        .align  8
.Lsoftmax8_maximum:
        { and   $m11, $m5, 16
          setzi $a0, 0x0fc00 }
        { shr   $m11, $m11, 4
          or    $a0, $a0, 0xfc000000 }
        { shl   $m0, $m4, 1
          mov   $a1, $a0 }
        add     $m0, $m0, $m11                  // full panels
        { mov   $m9, $m1
          mov   $a2:3, $a0:1 }
        { rpt   $m0, 3
          fnop }
        { ld64step $a2:3, $mzero, $m9+=, 1
          f16v4max $a0:1, $a0:1, $a2:3 }
        { ld64step $a2:3, $mzero, $m9+=, 1
          f16v4max $a0:1, $a0:1, $a2:3 }
        { ld64step $a2:3, $mzero, $m9+=, 1
          f16v4max $a0:1, $a0:1, $a2:3 }
        { ld64step $a2:3, $mzero, $m9+=, $m3
          f16v4max $a0:1, $a0:1, $a2:3 }
        and     $m11, $m5, 12
        shr     $m11, $m11, 2
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

        // Exponentials of the pairs from $m1 with maximum $a6; $a0 = their F32 sum. Uses $m0, $m9,
        // $m11; $m4 is restored. The accumulators are zero before and after.
        .align  8
.Lsoftmax8_exponentials:
        mov     $m9, $m1
        add     $m11, $m1, $m2
        add     $m0, $m4, -1
        brneg   $m0, .Lexp8_partial
        ld64step $a4:5, $mzero, $m9+=, 1
        { rpt   $m0, 39
          f16v4sub $a0:1, $a6:BL, $a4:5 }
        EXP_PAIR "ld64step $a4:5, $mzero, $m9+=, 1", "f16v4sub $a0:1, $a6:BL, $a4:5"
        EXP_PAIR nop, fnop
.Lexp8_partial:
        and     $m0, $m5, 31                    // keys left
        brz     $m0, .Lexp8_padding
.Lexp8_tail:
        add     $m0, $m0, -8
        brneg   $m0, .Lexp8_tail_keys
        ld64step $a4:5, $mzero, $m9+=, 1
        { ld64step $a4:5, $mzero, $m9+=, 1
          f16v4sub $a0:1, $a6:BL, $a4:5 }
        f16v4sub $a2:3, $a6:BL, $a4:5
        f16v4mul $a0:1, $a7:BL, $a0:1
        f16v4mul $a2:3, $a7:BL, $a2:3
        f16v2exp $a0, $a0
        f16v2exp $a1, $a1
        f16v2exp $a2, $a2
        { bri   .Lexp8_tail_store
          f16v2exp $a3, $a3 }
        // Fewer than 8 keys: $m4 bytes before the partial quad, then $m0 = keys in it - 2.
.Lexp8_tail_keys:
        { add   $m0, $m0, 8
          zero  $a2:3 }
        { shr   $m4, $m0, 2
          zero  $a0:1 }
        brz     $m0, .Lexp8_tail_store
        and     $m0, $m0, 3
        shl     $m4, $m4, 3
        brz     $m0, .Lexp8_tail_first
        { ldb16 $a4, $m9, $m4, 0
          mov   $a5, $azero }
        add     $m0, $m0, -2
        brneg   $m0, .Lexp8_keys
        ld32    $a4, $m9, $m4, 0
        brz     $m0, .Lexp8_keys
        ldb16   $a5, $m9, $m4, 2
.Lexp8_keys:
        f16v4sub $a2:3, $a6:BL, $a4:5
        f16v4mul $a2:3, $a7:BL, $a2:3
        f16v2exp $a2, $a2
        f16v2exp $a3, $a3
        setzi   $a5, 0xffff
        brneg   $m0, .Lexp8_one
        brz     $m0, .Lexp8_two
        { bri   .Lexp8_tail_first
          and   $a3, $a3, $a5 }
.Lexp8_one:
        and     $a2, $a2, $a5
.Lexp8_two:
        mov     $a3, $azero
.Lexp8_tail_first:
        brz     $m4, .Lexp8_tail_low
        ld64    $a4:5, $m9, $mzero, 0
        f16v4sub $a0:1, $a6:BL, $a4:5
        f16v4mul $a0:1, $a7:BL, $a0:1
        f16v2exp $a0, $a0
        { bri   .Lexp8_tail_last
          f16v2exp $a1, $a1 }
.Lexp8_tail_low:
        mov     $a0:1, $a2:3
        zero    $a2:3
.Lexp8_tail_last:
        setzi   $m0, 0
.Lexp8_tail_store:
        f16v8acc $a0:3
        f16v8tof8 $a0:1, $a0:3
        st64step $a0:1, $mzero, $m11+=, 1
        and     $m4, $m11, 8
        brnz    $m4, .Lexp8_tail
        // Behind the second run of a panel: to the next panel, by 4 quads less than rows * 4.
        shl     $m4, $m3, 3
        add     $m9, $m9, $m4
        add     $m9, $m9, -8
        and     $m4, $m11, 31
        brnz    $m4, .Lexp8_tail
        shl     $m4, $m3, 3
        add     $m11, $m11, $m4
        add     $m11, $m11, -8
.Lexp8_padding:
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
        { shr   $m4, $m5, 8
          f32v2add $a0:1, $a0:1, $a2:3 }
        { br    $m10
          f32add $a0, $a0, $a1 }
