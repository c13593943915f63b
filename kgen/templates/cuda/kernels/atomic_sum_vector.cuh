// Adds values to those side by side in memory. From sm_90 on, one instruction adds four.
template <int WIDTH>
__device__ __forceinline__ void atomic_sum_vector(float* to, const float (&values)[WIDTH]) {
#if __CUDA_ARCH__ >= 900
    if constexpr (WIDTH == 4) {
        atomicAdd(reinterpret_cast<float4*>(to), make_float4(values[0], values[1], values[2], values[3]));
    } else {
        atomicAdd(reinterpret_cast<float2*>(to), make_float2(values[0], values[1]));
    }
#else
    #pragma unroll
    for (int j = 0; j < WIDTH; ++j) atomicAdd(to + j, values[j]);
#endif
}
