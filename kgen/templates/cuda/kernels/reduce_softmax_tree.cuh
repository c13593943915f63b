// Running maxima and sums of the LANES threads of ROWS rows each merged, and given to all of them: a tree in shared memory.
template <int LANES, int SITE, int ROWS>
__device__ __forceinline__ void reduce_softmax_tree(float (&max)[ROWS], float (&sum)[ROWS]) {
    __shared__ float2 partial[ROWS][LANES];
    #pragma unroll
    for (int r = 0; r < ROWS; ++r) partial[r][threadIdx.x] = make_float2(max[r], sum[r]);
    __syncthreads();
    #pragma unroll
    for (int width = LANES / 2; width > 0; width /= 2) {
        if (threadIdx.x < width) {
            #pragma unroll
            for (int r = 0; r < ROWS; ++r) {
                const float2 other = partial[r][threadIdx.x + width];
                merge_softmax(max[r], sum[r], other.x, other.y);
                partial[r][threadIdx.x] = make_float2(max[r], sum[r]);
            }
        }
        __syncthreads();
    }
    #pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        max[r] = partial[r][0].x;
        sum[r] = partial[r][0].y;
    }
}

template <int LANES, int SITE>
__device__ __forceinline__ void reduce_softmax_tree(float& max, float& sum) {
    float single_max[1] = {max}, single_sum[1] = {sum};
    reduce_softmax_tree<LANES, SITE, 1>(single_max, single_sum);
    max = single_max[0];
    sum = single_sum[0];
}
