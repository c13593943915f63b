// Copies 16 bytes to shared memory past the L1 cache in the background, or fills them with zeros where they are not
// `inside` (cp.async, sm_80).
__device__ __forceinline__ void copy_group(const uint32_t to, const void* from, const bool inside) {
    asm volatile(
        "cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
        ::"r"(to), "l"(from), "r"(inside ? 16 : 0)
        : "memory"
    );
}
