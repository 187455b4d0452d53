// Runtime of a tile: what phases, host transfers and boots share.

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

// One call of the host, batch by batch.
//
// $m2 entries, less one; $m3 first entry; link $m9. Uses $m0..$m8 and $m10.
// An entry stands for batches that follow one another and differ in the destination only:
//   0 destination of the first batch
//   1 words to copy from staging to the destination; bit 23: packet words are headers only;
//     bits 24..31 packet words
//   2 packet words, copied to the aperture before the first batch
//   3 program of a batch
//   4 batches, less one
//   5 bytes between the end of a destination and the next
        .set    HOST_REQUEST, 0x50000
        .set    HOST_STAGING, 0x50180

        .section .text.host_run, "ax"
        .align 8
        .supervisor
        .global host_run
host_run:
        ld32    $m0, $m3, $m15, 0
        ld32    $m1, $m3, $m15, 1
        ld32    $m6, $m3, $m15, 2
        ld32    $m5, $m3, $m15, 4
        shr     $m7, $m1, 24
        brz     $m7, host_batch
        // Headers stand 8 bytes behind the request.
        shr     $m10, $m1, 20
        and     $m10, $m10, 8
        setzi   $m8, HOST_REQUEST
        add     $m8, $m8, $m10
        add     $m7, $m7, -1
host_packets:
        ld32    $m10, $m6, $m15, 0
        add     $m6, $m6, 4
        st32    $m10, $m8, $m15, 0
        add     $m8, $m8, 4
        brnzdec $m7, host_packets

host_batch:
        ld32    $m4, $m3, $m15, 3
        setzi   $m10, host_arrived
        br      $m4
host_arrived:
        ld32    $m1, $m3, $m15, 1
        setzi   $m6, HOST_STAGING
        shl     $m7, $m1, 9
        shr     $m7, $m7, 11
        brz     $m7, host_rest
        add     $m7, $m7, -1
host_copy:
        ld32    $m1, $m6, $m15, 0
        ld32    $m4, $m6, $m15, 1
        ld32    $m8, $m6, $m15, 2
        ld32    $m10, $m6, $m15, 3
        add     $m6, $m6, 16
        st32    $m1, $m0, $m15, 0
        st32    $m4, $m0, $m15, 1
        st32    $m8, $m0, $m15, 2
        st32    $m10, $m0, $m15, 3
        add     $m0, $m0, 16
        brnzdec $m7, host_copy
        ld32    $m1, $m3, $m15, 1
host_rest:
        and     $m1, $m1, 3
        brz     $m1, host_next
        add     $m1, $m1, -1
host_word:
        ld32    $m4, $m6, $m15, 0
        add     $m6, $m6, 4
        st32    $m4, $m0, $m15, 0
        add     $m0, $m0, 4
        brnzdec $m1, host_word
host_next:
        ld32    $m8, $m3, $m15, 5
        add     $m0, $m0, $m8
        brnzdec $m5, host_batch
        add     $m3, $m3, 24
        brnzdec $m2, host_run
        br      $m9
