// add_columns_f16: out[o][r][w] = a[o][r][w] + b[o][w], one F16 rounding; out may be a.
// A panel stack in Panels(16) has outer = panels and width = 16; row-major rows have outer = 1.
//
// Frame: 0 a, 1 b, 2 out, 3 outer, 4 rows, 5 width (multiple of 4).
// The workers share the work in the cheapest of three ways by an estimate of issues:
//  items  an item is one column of 4 halves of one outer index; its bias stays in registers while
//         the loop runs over all rows, 2 bundles a quad; worker w takes items w, w + 6, ...
//  rows   the same, and every worker takes rows w, w + 6, ... of every item
//  quads  worker w takes quads w, w + 6, ... of every row, 3 bundles a quad
// An item costs 12 issues beside the loop, a row in the last way 10. With rows = 1 all arrays are
// dense: one long row.

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
        mul     $m6, $m4, $m10                  // items
        cmpeq   $m5, $m8, 1
        brnz    $m5, .Ladd_columns_dense

        add     $m5, $m6, 5
        mul     $m5, $m5, 21846
        shr     $m5, $m5, 17
        shl     $m9, $m8, 1
        add     $m9, $m9, 12
        mul     $m5, $m5, $m9                   // cost by items
        add     $m9, $m8, 5
        mul     $m9, $m9, 21846
        shr     $m9, $m9, 17
        shl     $m9, $m9, 1
        add     $m9, $m9, 12
        mul     $m9, $m9, $m6                   // cost by rows
        add     $m7, $m10, 5
        mul     $m7, $m7, 21846
        shr     $m7, $m7, 17
        mul     $m7, $m7, 3
        add     $m7, $m7, 10
        mul     $m7, $m7, $m4
        mul     $m7, $m7, $m8                   // cost by quads
        min     $m11, $m5, $m9
        cmpult  $m7, $m7, $m11
        brnz    $m7, .Ladd_columns_quads

        add     $m11, $m8, -1
        mul     $m11, $m11, $m10
        shl     $m11, $m11, 3                   // from the end of a first row to the next outer
        mov     $m4, $m6
        sub     $m6, $m6, $m0
        sub     $m7, $m8, $m0
        cmpult  $m9, $m9, $m5
        brnz    $m9, .Ladd_columns_rows

        add     $m4, $m6, 5
        mul     $m4, $m4, 21846
        shr     $m4, $m4, 17                    // items of this worker, all rows of each
        add     $m8, $m8, -1                    // rows - 1
        mov     $m5, $m10                       // row stride in quads
        shl     $m7, $m0, 3                     // position in the first row, bytes
        add     $m1, $m1, $m7
        add     $m3, $m3, $m7
        add     $m2, $m2, $m7
        setzi   $m0, 48                         // step to the next item, bytes
        bri     .Ladd_columns_share
.Ladd_columns_rows:
        add     $m7, $m7, 5
        mul     $m7, $m7, 21846
        shr     $m7, $m7, 17
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
        sub     $m6, $m6, $m0
        add     $m6, $m6, 5
        mul     $m6, $m6, 21846
        shr     $m6, $m6, 17
        add     $m6, $m6, -1                    // quads of this worker - 1
        brneg   $m6, .Ladd_columns_exit
        shl     $m0, $m0, 3
        sub     $m3, $m3, $m1
        add     $m3, $m3, -96                   // behind the loads by two
        add     $m9, $m1, $m0
        add     $m11, $m2, $m0
        setzi   $m4, 0
        setzi   $m7, 0
        bri     .Ladd_columns_run
        .align  8
.Ladd_columns_quads:
        sub     $m6, $m10, $m0
        add     $m6, $m6, 5
        mul     $m6, $m6, 21846
        shr     $m6, $m6, 17
        add     $m6, $m6, -1                    // quads of this worker in a row - 1
        brneg   $m6, .Ladd_columns_exit
        shl     $m0, $m0, 3
        sub     $m3, $m3, $m1
        add     $m3, $m3, -96                   // out relative to a, behind the loads by two
        add     $m2, $m2, $m0
        add     $m0, $m0, $m1
        shl     $m1, $m10, 3                    // bytes in a row
        add     $m5, $m8, -1
        bri     .Ladd_columns_outer_next
.Ladd_columns_outer:
        mov     $m7, $m5
.Ladd_columns_row:
        mov     $m9, $m0
        mov     $m11, $m2
.Ladd_columns_run:
        ld64step $a0:1, $mzero, $m9+=, 6
        ld64step $a2:3, $mzero, $m11+=, 6
        { rpt   $m6, 2
          f16v4add $a4:5, $a0:1, $a2:3 }
        { ld64step $a0:1, $mzero, $m9+=, 6
          fnop }
        { ld64step $a2:3, $mzero, $m11+=, 6
          fnop }
        { st64  $a4:5, $m9, $m3, 0
          f16v4add $a4:5, $a0:1, $a2:3 }
        st64    $a4:5, $m9, $m3, 6
        add     $m0, $m0, $m1
        brnzdec $m7, .Ladd_columns_row
        add     $m2, $m2, $m1
.Ladd_columns_outer_next:
        brnzdec $m4, .Ladd_columns_outer
        exitz   $mzero
