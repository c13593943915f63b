// a / b for b from 1 on. A division has a branch for other b, which keeps elements from being computed side by side.
// Largest error: 1 ulp; infinities and NaN as in a division; quotients by more than 2^126 are 0.
__device__ __forceinline__ float quotient(const float a, const float b) {
    float inverse;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(b));
    const float found = a * inverse, rest = fmaf(-b, found, a);
    return fabsf(rest) < INFINITY ? fmaf(rest, inverse, found) : found;
}
