// 1 / x for results of half types, of x with an ordinary reciprocal, or infinite. Largest error: 1 ulp; results below
// 2^-126 are 0.
__device__ __forceinline__ float fast_reciprocal(const float x) {
    float inverse;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(x));
    return inverse;
}
