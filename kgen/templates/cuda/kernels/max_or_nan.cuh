// The larger of two values; NaN if either is. From sm_80 on, one instruction.
__device__ __forceinline__ float max_or_nan(const float a, const float b) {
#if __CUDA_ARCH__ >= 800
    float larger;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
    return larger;
#else
    return a > b || a != a ? a : b;
#endif
}
