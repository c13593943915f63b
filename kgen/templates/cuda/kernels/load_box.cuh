// A box of one matrix of a tensor, to shared memory of this block; the barrier counts its bytes (TMA, sm_90).
__device__ __forceinline__ void load_box(
    const CUtensorMap& map, const uint32_t to, const uint32_t barrier, const int col, const int row, const int matrix
) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];"
        ::"r"(to), "l"(&map), "r"(col), "r"(row), "r"(matrix), "r"(barrier) : "memory"
    );
}

// The same, to these blocks of the cluster, a bit for each: to the same place of each, whose own barrier counts the
// bytes.
__device__ __forceinline__ void load_box_for(
    const uint16_t blocks, const CUtensorMap& map, const uint32_t to, const uint32_t barrier, const int col,
    const int row, const int matrix
) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
        " [%0], [%1, {%2, %3, %4}], [%5], %6;"
        ::"r"(to), "l"(&map), "r"(col), "r"(row), "r"(matrix), "r"(barrier), "h"(blocks) : "memory"
    );
}
