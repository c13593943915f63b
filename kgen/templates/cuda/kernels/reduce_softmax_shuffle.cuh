// Running maxima and sums of a row's LANES threads merged, and given to each of them: by shuffles, then over the warps.
template <int LANES, int SITE>
__device__ __forceinline__ void reduce_softmax_shuffle(float& max, float& sum) {
    #pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
        const float other_max = __shfl_xor_sync(0xffffffffu, max, offset);
        const float other_sum = __shfl_xor_sync(0xffffffffu, sum, offset);
        merge_softmax(max, sum, other_max, other_sum);
    }
    if constexpr (LANES > 32) {
        constexpr int WARPS = LANES / 32;
        __shared__ float2 partial[WARPS];
        if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = make_float2(max, sum);
        __syncthreads();
        max = partial[threadIdx.x % WARPS].x;
        sum = partial[threadIdx.x % WARPS].y;
        #pragma unroll
        for (int offset = WARPS / 2; offset > 0; offset /= 2) {
            const float other_max = __shfl_xor_sync(0xffffffffu, max, offset);
            const float other_sum = __shfl_xor_sync(0xffffffffu, sum, offset);
            merge_softmax(max, sum, other_max, other_sum);
        }
    }
}
