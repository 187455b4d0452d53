// Runtime of a tile: what phases and boots share.

        .section .text.runtime, "ax"
        .align 8

// All six contexts must be idle while words arrive.
        .worker
runtime_idle:
        exitz   $m15

        .supervisor
        .global runtime_barrier
runtime_barrier:
        setzi   $m0, runtime_idle
        runall  $m0, $m15, 0
        sync    2
        br      $m7

// The row of a tile that takes no part in a phase.
        .global runtime_empty_row
runtime_empty_row:
        br      $m10
