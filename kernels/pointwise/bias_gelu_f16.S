// bias_gelu_f16: out[o][r][w] = gelu_tanh(a[o][r][w] + b[o][w]); out may be a.
// A panel stack in Panels(16) has outer = panels and width = 16; row-major rows have outer = 1.
//
// Frame: 0 a, 1 b, 2 out, 3 outer, 4 rows, 5 width (multiple of 4).
// gelu = (x + x * tanh(u)) / 2, u = z * (c0 + c1 * z * z), z = x clamped to +-8: the clamp keeps
// z * z finite, and beyond it tanh is exactly +-1, so that a large x gives x or zero. All steps
// are F16 but the last, a mix with the coefficients 0.5 and 0.5 that rounds once.
// Constants: $a6 = {-8, 8}, $a7 = {c1, c0}.
//
// Work is shared as in add_columns_f16: by items, by rows or by quads, with 10 issues a quad and
// 18 beside an item, 14 beside a row.

        // Quads of one run: x of the first in $a0:1, `count` quads follow it. A mix gives back the
        // result of the quad before, so `store` stores one quad behind; the very first one stores
        // zeros to the first quad, whose own result comes later. `place` moves the
        // store on. Leaves the last result in $a4:5. Nothing is loaded past the last quad.
        .macro  GELU_RUN count, load_a, load_b, store, place, start_1, start_2, last_1, last_2, last_3
        { \start_1
          f16v4clamp $a2:3, $a0:1, $a6 }
        { \start_2
          f16v4mul $a4:5, $a2:3, $a2:3 }
.Lgelu_run\@:
        f16v4mul $a4:5, $a7:BL, $a4:5
        f16v4add $a4:5, $a7:BU, $a4:5
        f16v4mul $a2:3, $a2:3, $a4:5
        { brz   \count, .Lgelu_last\@
          f16v2tanh $a2, $a2 }
        { \load_a
          f16v2tanh $a3, $a3 }
        f16v4mul $a2:3, $a2:3, $a0:1
        { \load_b
          f16v4mix $a2:3, $a2:3, $a0:1 }
        { \store
          f16v4add $a0:1, $a4:5, $a0:1 }
        { \place
          f16v4clamp $a2:3, $a0:1, $a6 }
        { brnzdec \count, .Lgelu_run\@
          f16v4mul $a4:5, $a2:3, $a2:3 }
.Lgelu_last\@:
        { \last_1
          f16v2tanh $a3, $a3 }
        { \last_2
          f16v4mul $a2:3, $a2:3, $a0:1 }
        { \last_3
          f16v4mix $a2:3, $a2:3, $a0:1 }
        { \store
          f16v4mix $a4:5, $azeros, $azeros }
        .endm

        .section .text.bias_gelu_f16, "ax"
        .allow_optimizations
        .align  8
        .globl  bias_gelu_f16
        .supervisor
bias_gelu_f16:
        setzi   $m1, .Lbias_gelu_worker
        runall  $m1, $m0, 0
        sync    2
        br      $m10

        .align  8
        .worker
.Lbias_gelu_worker:
        get     $m0, $WSR
        and     $m0, $m0, 7
        { ld32  $m1, $mvertex_base, $mzero, 0
          setzi $a6, 0x0c800 }
        { ld32  $m2, $mvertex_base, $mzero, 1
          or    $a6, $a6, 0x48000000 }
        { ld32  $m3, $mvertex_base, $mzero, 2
          setzi $a7, 0x22891 }
        { ld32  $m4, $mvertex_base, $mzero, 3
          or    $a7, $a7, 0x3a600000 }
        { ld32  $m8, $mvertex_base, $mzero, 4   // rows
          setzi $a0, 0x03800 }
        { ld32  $m10, $mvertex_base, $mzero, 5
          or    $a0, $a0, 0x38000000 }
        { shr   $m10, $m10, 2                   // quads in a row
          uput  $TAS, $a0 }
        { mul   $m6, $m4, $m10                  // items
          setzi $a0, 8 }
        { sub   $m3, $m3, $m1                   // out relative to a
          uput  $FP_CLR, $a0 }                  // accumulators start from zero
        cmpeq   $m5, $m8, 1
        brnz    $m5, .Lbias_gelu_dense

        add     $m5, $m6, 5
        mul     $m5, $m5, 21846
        shr     $m5, $m5, 17
        mul     $m9, $m8, 10
        add     $m9, $m9, 18
        mul     $m5, $m5, $m9                   // cost by items
        add     $m9, $m8, 5
        mul     $m9, $m9, 21846
        shr     $m9, $m9, 17
        mul     $m9, $m9, 10
        add     $m9, $m9, 18
        mul     $m9, $m9, $m6                   // cost by rows
        add     $m7, $m10, 5
        mul     $m7, $m7, 21846
        shr     $m7, $m7, 17
        mul     $m7, $m7, 10
        add     $m7, $m7, 14
        mul     $m7, $m7, $m4
        mul     $m7, $m7, $m8                   // cost by quads
        min     $m11, $m5, $m9
        cmpult  $m7, $m7, $m11
        brnz    $m7, .Lbias_gelu_quads

        add     $m11, $m8, -1
        mul     $m11, $m11, $m10
        shl     $m11, $m11, 3                   // from the end of a first row to the next outer
        mov     $m4, $m6
        sub     $m6, $m6, $m0
        sub     $m7, $m8, $m0
        cmpult  $m9, $m9, $m5
        brnz    $m9, .Lbias_gelu_rows

        add     $m4, $m6, 5
        mul     $m4, $m4, 21846
        shr     $m4, $m4, 17                    // items of this worker, all rows of each
        mov     $m5, $m10                       // row stride in quads
        shl     $m7, $m0, 3                     // position in the first row, bytes
        add     $m6, $m1, $m7
        add     $m2, $m2, $m7
        add     $m1, $m8, -1                    // rows - 1
        setzi   $m0, 48                         // step to the next item, bytes
        bri     .Lbias_gelu_share
.Lbias_gelu_rows:
        mul     $m6, $m0, $m10
        shl     $m6, $m6, 3                     // first row of this worker, bytes
        add     $m6, $m6, $m1
        add     $m7, $m7, 5
        mul     $m7, $m7, 21846
        shr     $m7, $m7, 17
        add     $m1, $m7, -1                    // rows of this worker - 1
        brneg   $m1, .Lbias_gelu_exit
        mul     $m5, $m10, 6
        setzi   $m7, 0
        setzi   $m0, 8
.Lbias_gelu_share:
        // $m6 is the item's address in a. The store trails the load by two strides.
        shl     $m9, $m5, 4
        sub     $m3, $m3, $m9
        shl     $m8, $m10, 3                    // bytes in a row
        bri     .Lbias_gelu_wrap

        .align  8
.Lbias_gelu_item:
        mov     $m9, $m6
        ld64    $a2:3, $m2, $mzero, 0
        ld64step $a0:1, $mzero, $m9+=, $m5
        { mov   $m8, $m1
          f16v4add $a0:1, $a0:1, $a2:3 }
        GELU_RUN $m8, "ld64step $a4:5, $mzero, $m9+=, $m5", "ld64 $a0:1, $m2, $mzero, 0", "st64 $a2:3, $m10, $m3, $mzero", "mov $m10, $m9", "shl $m10, $m5, 4", "add $m10, $m10, $m6", "add $m2, $m2, $m0", "add $m7, $m7, $m0", "ld32 $m8, $mvertex_base, $mzero, 5"
        st64    $a4:5, $m9, $m3, $m5
        shl     $m8, $m8, 1                     // bytes in a row
        add     $m6, $m6, $m0
.Lbias_gelu_wrap:
        cmpult  $m9, $m7, $m8
        brnz    $m9, .Lbias_gelu_next
        sub     $m7, $m7, $m8
        add     $m6, $m6, $m11
        bri     .Lbias_gelu_wrap
.Lbias_gelu_next:
        brnzdec $m4, .Lbias_gelu_item
.Lbias_gelu_exit:
        exitz   $mzero

        .align  8
.Lbias_gelu_dense:
        sub     $m6, $m6, $m0
        add     $m6, $m6, 5
        mul     $m6, $m6, 21846
        shr     $m6, $m6, 17
        add     $m6, $m6, -1                    // quads of this worker - 1
        brneg   $m6, .Lbias_gelu_exit
        shl     $m0, $m0, 3
        add     $m3, $m3, -96                   // behind the loads by two
        add     $m9, $m1, $m0
        add     $m11, $m2, $m0
        setzi   $m4, 0
        setzi   $m7, 0
        bri     .Lbias_gelu_run
        .align  8
.Lbias_gelu_quads:
        sub     $m6, $m10, $m0
        add     $m6, $m6, 5
        mul     $m6, $m6, 21846
        shr     $m6, $m6, 17
        add     $m6, $m6, -1                    // quads of this worker in a row - 1
        brneg   $m6, .Lbias_gelu_exit
        shl     $m0, $m0, 3
        add     $m3, $m3, -96                   // behind the loads by two
        add     $m2, $m2, $m0
        add     $m0, $m0, $m1
        shl     $m1, $m10, 3                    // bytes in a row
        add     $m5, $m8, -1
        bri     .Lbias_gelu_outer_next
.Lbias_gelu_outer:
        mov     $m7, $m5
.Lbias_gelu_row:
        mov     $m9, $m0
        mov     $m11, $m2
.Lbias_gelu_run:
        add     $m10, $m9, 96
        ld64step $a0:1, $mzero, $m9+=, 6
        ld64step $a2:3, $mzero, $m11+=, 6
        { mov   $m8, $m6
          f16v4add $a0:1, $a0:1, $a2:3 }
        GELU_RUN $m8, "ld64step $a4:5, $mzero, $m9+=, 6", "ld64step $a0:1, $mzero, $m11+=, 6", "st64 $a2:3, $m10, $m3, 0", "mov $m10, $m9", nop, nop, "add $m0, $m0, $m1", nop, nop
        st64    $a4:5, $m9, $m3, 6
        brnzdec $m7, .Lbias_gelu_row
        add     $m2, $m2, $m1
.Lbias_gelu_outer_next:
        brnzdec $m4, .Lbias_gelu_outer
        exitz   $mzero
