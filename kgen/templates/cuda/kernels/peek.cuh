// Reads four neighbouring numbers that other blocks may be writing; see is_published().
__device__ __forceinline__ float4 peek(const float* from) {
    float4 found;
    asm volatile(
        "ld.relaxed.gpu.global.v4.f32 {%0, %1, %2, %3}, [%4];"
        : "=f"(found.x), "=f"(found.y), "=f"(found.z), "=f"(found.w)
        : "l"(from)
        : "memory"
    );
    return found;
}
// Whether all of them have been written.
__device__ __forceinline__ bool is_published(const float4 found) {
    const unsigned none = 0xffffffffu;
    return __float_as_uint(found.x) != none && __float_as_uint(found.y) != none && __float_as_uint(found.z) != none
        && __float_as_uint(found.w) != none;
}
