// The maximum, NaN left out, over the LANES threads of ROWS rows each, given to all of them: by shuffles within warps, then over the warps.
template <int LANES, int SITE, int ROWS>
__device__ __forceinline__ void reduce_max_finite_shuffle(float (&value)[ROWS]) {
    #pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
        #pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const float other = __shfl_xor_sync(0xffffffffu, value[r], offset);
            value[r] = fmaxf(value[r], other);
        }
    }
    if constexpr (LANES > 32) {
        constexpr int WARPS = LANES / 32;
        __shared__ float partial[ROWS][WARPS];
        #pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            if (threadIdx.x % 32 == 0) partial[r][threadIdx.x / 32] = value[r];
        }
        __syncthreads();
        #pragma unroll
        for (int r = 0; r < ROWS; ++r) value[r] = partial[r][threadIdx.x % WARPS];
        #pragma unroll
        for (int offset = WARPS / 2; offset > 0; offset /= 2) {
            #pragma unroll
            for (int r = 0; r < ROWS; ++r) {
                const float other = __shfl_xor_sync(0xffffffffu, value[r], offset);
                value[r] = fmaxf(value[r], other);
            }
        }
    }
}

template <int LANES, int SITE>
__device__ __forceinline__ float reduce_max_finite_shuffle(float value) {
    float single[1] = {value};
    reduce_max_finite_shuffle<LANES, SITE, 1>(single);
    return single[0];
}
