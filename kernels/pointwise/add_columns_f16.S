// add_columns_f16: out[o][r][w] = a[o][r][w] + b[o][w], one F16 rounding; out may be a.
// A panel stack in Panels(16) has outer = panels and width = 16; row-major rows have outer = 1.
//
// Frame: 0 a, 1 b, 2 out, 3 outer, 4 rows, 5 width (multiple of 4).
// An item is one column of 4 halves of one outer index; its bias stays in registers while the
// loop runs over rows, 2 bundles a quad. The workers share the items, or the rows of every item:
// the cheaper by an estimate of 12 issues an item. One row: all arrays are dense, 3 bundles a quad.
// Items cost 10 issues beside the loop and 5 for each step to a next outer index.

        .section .text.add_columns_f16, "ax"
        .allow_optimizations
        .align  8
        .globl  add_columns_f16
        .supervisor
add_columns_f16:
        setzi   $m1, .Ladd_columns_worker
        runall  $m1, $m0, 0
        sync    2
        br      $m10

        .align  8
        .worker
.Ladd_columns_worker:
        get     $m0, $WSR
        and     $m0, $m0, 7
        ld32    $m1, $mvertex_base, $mzero, 0
        ld32    $m2, $mvertex_base, $mzero, 1
        ld32    $m3, $mvertex_base, $mzero, 2
        ld32    $m4, $mvertex_base, $mzero, 3
        ld32    $m8, $mvertex_base, $mzero, 4   // rows
        ld32    $m10, $mvertex_base, $mzero, 5
        shr     $m10, $m10, 2                   // quads in a row
        mul     $m4, $m4, $m10                  // items
        sub     $m4, $m4, $m0
        add     $m4, $m4, 5
        mul     $m6, $m4, 21846
        shr     $m6, $m6, 17                    // items of this worker, of ceil(items / 6)
        cmpeq   $m5, $m8, 1
        brnz    $m5, .Ladd_columns_dense
        sub     $m7, $m8, $m0
        add     $m7, $m7, 5
        mul     $m7, $m7, 21846
        shr     $m7, $m7, 17                    // rows of this worker
        // The choice must be the same in all workers: use the shares of worker 0.
        add     $m4, $m4, $m0
        mul     $m5, $m4, 21846
        shr     $m5, $m5, 17
        add     $m4, $m4, -5                    // items
        shl     $m9, $m8, 1
        add     $m9, $m9, 12
        mul     $m5, $m5, $m9                   // cost of sharing items
        add     $m9, $m8, 5
        mul     $m9, $m9, 21846
        shr     $m9, $m9, 17
        shl     $m9, $m9, 1
        add     $m9, $m9, 12
        mul     $m9, $m9, $m4                   // cost of sharing rows
        add     $m11, $m8, -1
        mul     $m11, $m11, $m10
        shl     $m11, $m11, 3                   // from the end of a first row to the next outer
        cmpult  $m9, $m9, $m5
        brnz    $m9, .Ladd_columns_rows

        mov     $m4, $m6                        // items of this worker, all rows of each
        add     $m8, $m8, -1                    // rows - 1
        mov     $m5, $m10                       // row stride in quads
        shl     $m7, $m0, 3                     // position in the first row, bytes
        add     $m1, $m1, $m7
        add     $m3, $m3, $m7
        add     $m2, $m2, $m7
        setzi   $m0, 48                         // step to the next item, bytes
        bri     .Ladd_columns_share
.Ladd_columns_rows:
        add     $m8, $m7, -1                    // rows of this worker - 1
        brneg   $m8, .Ladd_columns_exit
        mul     $m7, $m0, $m10
        shl     $m7, $m7, 3                     // first row of this worker, bytes
        add     $m1, $m1, $m7
        add     $m3, $m3, $m7
        mul     $m5, $m10, 6
        setzi   $m7, 0
        setzi   $m0, 8
.Ladd_columns_share:
        // $m6 is the item's offset from both bases. The store trails the load by two strides.
        setzi   $m6, 0
        shl     $m9, $m5, 4
        sub     $m3, $m3, $m9
        shl     $m10, $m10, 3                   // bytes in a row
        bri     .Ladd_columns_wrap

        .align  8
.Ladd_columns_item:
        ld64    $a0:1, $m2, $mzero, 0
        mov     $m9, $m6
        ld64step $a2:3, $m1, $m9+=, $m5
        { rpt   $m8, 1
          f16v4add $a4:5, $a0:1, $a2:3 }
        { ld64step $a2:3, $m1, $m9+=, $m5
          fnop }
        { st64  $a4:5, $m3, $m9, $mzero
          f16v4add $a4:5, $a0:1, $a2:3 }
        st64    $a4:5, $m3, $m9, $m5
        add     $m2, $m2, $m0
        add     $m6, $m6, $m0
        add     $m7, $m7, $m0
.Ladd_columns_wrap:
        cmpult  $m9, $m7, $m10
        brnz    $m9, .Ladd_columns_next
        sub     $m7, $m7, $m10
        add     $m6, $m6, $m11
        bri     .Ladd_columns_wrap
.Ladd_columns_next:
        brnzdec $m4, .Ladd_columns_item
.Ladd_columns_exit:
        exitz   $mzero

.Ladd_columns_dense:
        brz     $m6, .Ladd_columns_exit
        shl     $m0, $m0, 3
        ld64step $a0:1, $m0, $m1+=, 6
        ld64step $a2:3, $m0, $m2+=, 6
        { add   $m6, $m6, -1
          f16v4add $a4:5, $a0:1, $a2:3 }
        { rpt   $m6, 2
          fnop }
        { ld64step $a0:1, $m0, $m1+=, 6
          fnop }
        { ld64step $a2:3, $m0, $m2+=, 6
          fnop }
        { st64step $a4:5, $m0, $m3+=, 6
          f16v4add $a4:5, $a0:1, $a2:3 }
        st64step $a4:5, $m0, $m3+=, 6
        exitz   $mzero
