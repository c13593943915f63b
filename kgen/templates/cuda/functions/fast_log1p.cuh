// log(1 + x) for results of half types: a series near 0, where 1 + x would round. Largest relative error: 2^-17.
__device__ __forceinline__ float fast_log1p(const float x) {
    float power;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(1.0f + x));
    const float series = x * (1.0f + x * (-0.5f + x * (0.33333333f + x * -0.25f)));
    return fabsf(x) < 0.0625f ? series : power * 0.69314718f;
}
