// A box of one plane of a tensor, to the same place in each of the BLOCKS blocks of the cluster (TMA, multicast).
template <int BLOCKS>
__device__ __forceinline__ void load_box_for_all(
    const CUtensorMap& map, const uint32_t to, const uint32_t barrier, const int k, const int row, const int plane
) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
        " [%0], [%1, {%2, %3, %4}], [%5], %6;"
        ::"r"(to), "l"(&map), "r"(k), "r"(row), "r"(plane), "r"(barrier), "h"(static_cast<uint16_t>((1 << BLOCKS) - 1))
        : "memory"
    );
}
