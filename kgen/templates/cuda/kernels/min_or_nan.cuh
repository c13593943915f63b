// The smaller of two values; NaN if either is. From sm_80 on, one instruction.
__device__ __forceinline__ float min_or_nan(const float a, const float b) {
#if __CUDA_ARCH__ >= 800
    float smaller;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(smaller) : "f"(a), "f"(b));
    return smaller;
#else
    return a < b || a != a ? a : b;
#endif
}
