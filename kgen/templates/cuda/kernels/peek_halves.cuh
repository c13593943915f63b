// Reads eight neighbouring numbers of 16 bits that other blocks may be writing; see halves_are_published().
template <typename T>
__device__ __forceinline__ uint4 peek_halves(const T* from) {
    uint4 found;
    asm volatile(
        "ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(found.x), "=r"(found.y), "=r"(found.z), "=r"(found.w)
        : "l"(from)
        : "memory"
    );
    return found;
}
// Whether both numbers have been written.
__device__ __forceinline__ bool pair_is_published(const uint32_t pair) {
    return (pair & 0xffffu) != 0xffffu && pair >> 16 != 0xffffu;
}
// Whether all of them have been written.
__device__ __forceinline__ bool halves_are_published(const uint4 found) {
    return pair_is_published(found.x) && pair_is_published(found.y) && pair_is_published(found.z)
        && pair_is_published(found.w);
}
