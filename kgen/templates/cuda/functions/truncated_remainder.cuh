// fmodf, exactly. The remainder of a quotient below 2^22 is one fused step from the rounded quotient; fmodf loops.
__device__ __forceinline__ float truncated_remainder(const float x, const float y) {
    const float size = fabsf(x), by = fabsf(y);
    if (!(by > 1e-30f && by < 1e30f && size < by * 4194304.0f)) return fmodf(x, y);
    const float found = fmaf(-truncf(fabsf(x / y)), by, size);
    return copysignf(found < 0.0f ? found + by : found, x);
}
