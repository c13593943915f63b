// Adds the sums that a thread of another block has left in memory.
template <int COUNT>
__device__ __forceinline__ void take_sums(float (&sums)[COUNT], const float4* from) {
    #pragma unroll
    for (int i = 0; i < COUNT / 4; ++i) {
        const float4 other = __ldcg(from + i * 256);
        sums[4 * i] += other.x, sums[4 * i + 1] += other.y, sums[4 * i + 2] += other.z, sums[4 * i + 3] += other.w;
    }
}
