// 1 / sqrt(x), without the branches of a root and a division. Largest error: 1 ulp.
__device__ __forceinline__ float inverse_root(const float x) {
    const float found = rsqrtf(x), half = 0.5f * found, rest = fmaf(-x * found, found, 1.0f);
    return fabsf(rest) < INFINITY ? fmaf(rest, half, found) : found;  // of zero and infinity, there is no rest
}
