// The smaller of two values in one instruction; NaN if either is.
__device__ __forceinline__ float min_or_nan(const float a, const float b) {
    float smaller;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(smaller) : "f"(a), "f"(b));
    return smaller;
}
