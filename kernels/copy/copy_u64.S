// copy_u64: copy count units of 8 bytes, linear order.
//
// Contiguous ranges for the workers; 2 bundles a unit, a load and a store, so source and out
// may share a memory element. Issues for n units: 20 + 2n.
// Frame: source, out, count.

    .section .text.copy_u64, "ax"
    .allow_optimizations
    .globl copy_u64

    .align 8
    .supervisor
copy_u64:
    setzi      $m1, copy_u64_worker
    runall     $m1, $m0, 0
    sync       2
    br         $m10

    .align 8
    .worker
copy_u64_worker:
    get        $m0, $WSR
    and        $m0, $m0, 7                // worker index
    ld32       $m5, $mvertex_base, $mzero, 2
    setzi      $m1, 43691                 // ceil(2^18 / 6)
    mul        $m1, $m5, $m1
    shr        $m1, $m1, 18               // quotient
    mul        $m2, $m1, 6
    sub        $m2, $m5, $m2              // remainder
    mul        $m6, $m1, $m0
    min        $m3, $m0, $m2
    add        $m6, $m6, $m3              // first unit
    cmpult     $m5, $m0, $m2
    add        $m5, $m5, $m1              // units of this worker
    shl        $m6, $m6, 3
    ld32       $m2, $mvertex_base, $mzero, 0
    add        $m2, $m2, $m6
    ld32       $m3, $mvertex_base, $mzero, 1
    add        $m3, $m3, $m6
    rpt        $m5, 1
    { ld64step   $a0:1, $mzero, $m2+=, 1 ; fnop }
    { st64step   $a0:1, $mzero, $m3+=, 1 ; fnop }
    exitz      $mzero
