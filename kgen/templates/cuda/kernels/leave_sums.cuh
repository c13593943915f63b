// Writes a thread's sums to memory, each four beside those of the other threads of two warpgroups.
template <int COUNT>
__device__ __forceinline__ void leave_sums(float4* to, const float (&sums)[COUNT]) {
    #pragma unroll
    for (int i = 0; i < COUNT / 4; ++i) to[i * 256] = make_float4(sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3]);
}
