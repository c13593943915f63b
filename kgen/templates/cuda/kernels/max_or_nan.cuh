// The larger of two values in one instruction; NaN if either is.
__device__ __forceinline__ float max_or_nan(const float a, const float b) {
    float larger;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
    return larger;
}
