// 2 to the power of x for results of half types: one instruction. Largest relative error: 2^-22; results below 2^-126
// are 0.
__device__ __forceinline__ float fast_exp2(const float x) {
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
}
