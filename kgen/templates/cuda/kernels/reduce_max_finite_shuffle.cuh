// The maximum, NaN left out, over a row's LANES threads, given to each of them: by shuffles within warps, then over the warps' results.
template <int LANES, int SITE>
__device__ __forceinline__ float reduce_max_finite_shuffle(float value) {
    #pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
        value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, offset));
    }
    if constexpr (LANES > 32) {
        constexpr int WARPS = LANES / 32;
        __shared__ float partial[WARPS];
        if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
        __syncthreads();
        value = partial[threadIdx.x % WARPS];
        #pragma unroll
        for (int offset = WARPS / 2; offset > 0; offset /= 2) {
            value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, offset));
        }
    }
    return value;
}
