// The larger of a, which is not negative, and |b|; NaN if either is (sm_80).
__device__ __forceinline__ float larger_magnitude(const float a, const float b) {
    float larger;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(fabsf(b)));
    return larger;
}
