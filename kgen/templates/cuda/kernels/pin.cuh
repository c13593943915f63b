// Keeps the compiler from moving uses of the registers over this place.
template <int COUNT>
__device__ __forceinline__ void pin(float (&d)[COUNT]) {
    #pragma unroll
    for (int i = 0; i < COUNT; ++i) asm volatile("" : "+f"(d[i]) :: "memory");
}
