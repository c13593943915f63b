// The channels from `channel` on of as many windows' pixels as the map's columns have, to shared memory of this block:
// the taps at the offsets `tap` from windows that begin at w, h, d of an image (TMA in im2col mode, sm_90). RANK
// dimensions are in use.
template <int RANK>
__device__ __forceinline__ void load_window(
    const CUtensorMap& map, const uint32_t to, const uint32_t barrier, const int channel, const int3 first,
    const int image, const int3 tap
) {
    const uint16_t x = tap.x, y = tap.y, z = tap.z;
    if constexpr (RANK == 1) {
        asm volatile(
            "cp.async.bulk.tensor.3d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes"
            " [%0], [%1, {%2, %3, %4}], [%5], {%6};"
            ::"r"(to), "l"(&map), "r"(channel), "r"(first.x), "r"(image), "r"(barrier), "h"(x) : "memory"
        );
    } else if constexpr (RANK == 2) {
        asm volatile(
            "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes"
            " [%0], [%1, {%2, %3, %4, %5}], [%6], {%7, %8};"
            ::"r"(to), "l"(&map), "r"(channel), "r"(first.x), "r"(first.y), "r"(image), "r"(barrier), "h"(x), "h"(y)
            : "memory"
        );
    } else {
        asm volatile(
            "cp.async.bulk.tensor.5d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes"
            " [%0], [%1, {%2, %3, %4, %5, %6}], [%7], {%8, %9, %10};"
            ::"r"(to), "l"(&map), "r"(channel), "r"(first.x), "r"(first.y), "r"(first.z), "r"(image), "r"(barrier),
            "h"(x), "h"(y), "h"(z)
            : "memory"
        );
    }
}
