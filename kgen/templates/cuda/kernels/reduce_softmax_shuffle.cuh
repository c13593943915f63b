// Running maxima and sums of the LANES threads of ROWS rows each merged, and given to all of them: by shuffles within
// warps, then over the warps.
template <int LANES, int SITE, int ROWS>
__device__ __forceinline__ void reduce_softmax_shuffle(float (&max)[ROWS], float (&sum)[ROWS]) {
    #pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
        #pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const float other_max = __shfl_xor_sync(0xffffffffu, max[r], offset);
            const float other_sum = __shfl_xor_sync(0xffffffffu, sum[r], offset);
            merge_softmax(max[r], sum[r], other_max, other_sum);
        }
    }
    if constexpr (LANES > 32) {
        constexpr int WARPS = LANES / 32;
        __shared__ float2 partial[ROWS][WARPS];
        #pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            if (threadIdx.x % 32 == 0) partial[r][threadIdx.x / 32] = make_float2(max[r], sum[r]);
        }
        __syncthreads();
        #pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            max[r] = partial[r][threadIdx.x % WARPS].x;
            sum[r] = partial[r][threadIdx.x % WARPS].y;
        }
        #pragma unroll
        for (int offset = WARPS / 2; offset > 0; offset /= 2) {
            #pragma unroll
            for (int r = 0; r < ROWS; ++r) {
                const float other_max = __shfl_xor_sync(0xffffffffu, max[r], offset);
                const float other_sum = __shfl_xor_sync(0xffffffffu, sum[r], offset);
                merge_softmax(max[r], sum[r], other_max, other_sum);
            }
        }
    }
}

template <int LANES, int SITE>
__device__ __forceinline__ void reduce_softmax_shuffle(float& max, float& sum) {
    float single_max[1] = {max}, single_sum[1] = {sum};
    reduce_softmax_shuffle<LANES, SITE, 1>(single_max, single_sum);
    max = single_max[0];
    sum = single_sum[0];
}
