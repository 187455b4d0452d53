// fill_u32: set count words of 4 bytes to value; count is even.
//
// Contiguous ranges of pairs for the workers; one bundle stores 8 bytes.
// Issues for n pairs: 21 + n.
// Frame: out, count, value.

    .section .text.fill_u32, "ax"
    .allow_optimizations
    .globl fill_u32

    .align 8
    .supervisor
fill_u32:
    setzi      $m1, fill_u32_worker
    runall     $m1, $m0, 0
    sync       2
    br         $m10

    .align 8
    .worker
fill_u32_worker:
    get        $m0, $WSR
    and        $m0, $m0, 7                // worker index
    ld32       $m5, $mvertex_base, $mzero, 1
    shr        $m5, $m5, 1
    setzi      $m1, 43691                 // ceil(2^18 / 6)
    mul        $m1, $m5, $m1
    shr        $m1, $m1, 18               // quotient
    mul        $m2, $m1, 6
    sub        $m2, $m5, $m2              // remainder
    mul        $m6, $m1, $m0
    min        $m3, $m0, $m2
    add        $m6, $m6, $m3              // first pair
    cmpult     $m5, $m0, $m2
    add        $m5, $m5, $m1              // pairs of this worker
    shl        $m6, $m6, 3
    ld32       $m2, $mvertex_base, $mzero, 0
    add        $m2, $m2, $m6
    ld32       $a0, $mvertex_base, $mzero, 2
    ld32       $a1, $mvertex_base, $mzero, 2
    rpt        $m5, 0
    { st64step   $a0:1, $mzero, $m2+=, 1 ; fnop }
    exitz      $mzero
