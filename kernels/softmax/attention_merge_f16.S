// attention_merge_f16: out[p][r][c] = (sum over partials of partials[i][p][r][c]) / sums[r].
// partials and out are Panels(16) pieces of rows x 16 * panels; partial i stands i * stride halves
// further. The sum is F32 in the order of the partials, times the F32 reciprocal of sums[r], and
// rounded once to F16. out may be the first partial.
//
// Frame: 0 partials, 1 sums, 2 out, 3 rows, 4 panels, 5 count, 6 stride (multiple of 4).
// An item is one row of one panel (32 bytes, both arrays count items alike); worker w takes items
// w, w + 6, ... An item is two runs of 8 halves: 2 bundles for each partial, 11 to divide and
// store. 16 issues an item beside them.

        .section .text.attention_merge_f16, "ax"
        .allow_optimizations
        .align  8
        .globl  attention_merge_f16
        .supervisor
attention_merge_f16:
        setzi   $m1, .Lmerge_worker
        runall  $m1, $m0, 0
        sync    2
        br      $m10

        // Add 8 halves of all partials from $m9 into the accumulators.
        .macro  GATHER
        { rpt   $m5, 1
          zero  $a2:3 }
        { ld64  $a2:3, $m9, $mzero, 1
          f16v8acc $a0:3 }
        { ld64step $a0:1, $mzero, $m9+=, $m6
          fnop }
        f16v8acc $a0:3
        f32v2gina $a0:1, $azeros, 0
        f32v2gina $a2:3, $azeros, 0
        f32v2mul $a0:1, $a7:B, $a0:1
        f32v2mul $a2:3, $a7:B, $a2:3
        f32v4tof16 $a4:5, $a0:3
        .endm

        .worker
.Lmerge_worker:
        { get   $m0, $WSR
          setzi $a0, 8 }
        { and   $m0, $m0, 7
          uput  $FP_CLR, $a0 }
        ld32    $m8, $mvertex_base, $mzero, 3
        ld32    $m4, $mvertex_base, $mzero, 4
        mul     $m4, $m4, $m8
        sub     $m4, $m4, $m0
        add     $m4, $m4, 5
        mul     $m4, $m4, 21846
        shr     $m4, $m4, 17                    // items of this worker
        ld32    $m1, $mvertex_base, $mzero, 0
        ld32    $m2, $mvertex_base, $mzero, 1
        ld32    $m3, $mvertex_base, $mzero, 2
        ld32    $m5, $mvertex_base, $mzero, 5
        ld32    $m6, $mvertex_base, $mzero, 6
        shr     $m6, $m6, 2                     // stride in 8 bytes
        shl     $m7, $m0, 2                     // row, times 4
        shl     $m8, $m8, 2                     // rows, times 4
        shl     $m0, $m0, 5
        add     $m1, $m1, $m0
        add     $m3, $m3, $m0
        bri     .Lmerge_wrap
        .align  8
.Lmerge_item:
        { ld32  $a7, $m2, $m7, 0
          zero  $a0:1 }
        { mov   $m9, $m1
          f32oox $a7, $a7 }
        GATHER
        { add   $m9, $m1, 16
          f32v2gina $a0:1, $azeros, 0 }
        { st64  $a4:5, $m3, $mzero, 0
          f32v2gina $a2:3, $azeros, 0 }
        f32v2mul $a0:1, $a7:B, $a0:1
        f32v2mul $a2:3, $a7:B, $a2:3
        f32v4tof16 $a4:5, $a0:3
        { st64  $a4:5, $m3, $mzero, 1
          zero  $a0:1 }
        GATHER
        { add   $m1, $m1, 192
          f32v2gina $a0:1, $azeros, 0 }
        { st64  $a4:5, $m3, $mzero, 2
          f32v2gina $a2:3, $azeros, 0 }
        { add   $m7, $m7, 24
          f32v2mul $a0:1, $a7:B, $a0:1 }
        f32v2mul $a2:3, $a7:B, $a2:3
        f32v4tof16 $a4:5, $a0:3
        st64    $a4:5, $m3, $mzero, 3
        add     $m3, $m3, 192
.Lmerge_wrap:
        cmpult  $m9, $m7, $m8
        brnz    $m9, .Lmerge_next
        sub     $m7, $m7, $m8
        bri     .Lmerge_wrap
.Lmerge_next:
        brnzdec $m4, .Lmerge_item
        exitz   $mzero
