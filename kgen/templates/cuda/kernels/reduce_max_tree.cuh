// The maximum over the LANES threads of ROWS rows each, given to all of them: a tree in shared memory, halved at every step.
template <int LANES, int SITE, int ROWS>
__device__ __forceinline__ void reduce_max_tree(float (&value)[ROWS]) {
    __shared__ float partial[ROWS][LANES];
    #pragma unroll
    for (int r = 0; r < ROWS; ++r) partial[r][threadIdx.x] = value[r];
    __syncthreads();
    #pragma unroll
    for (int width = LANES / 2; width > 0; width /= 2) {
        if (threadIdx.x < width) {
            #pragma unroll
            for (int r = 0; r < ROWS; ++r) {
                const float other = partial[r][threadIdx.x + width];
                value[r] = nan_max(value[r], other);
                partial[r][threadIdx.x] = value[r];
            }
        }
        __syncthreads();
    }
    #pragma unroll
    for (int r = 0; r < ROWS; ++r) value[r] = partial[r][0];
}

template <int LANES, int SITE>
__device__ __forceinline__ float reduce_max_tree(float value) {
    float single[1] = {value};
    reduce_max_tree<LANES, SITE, 1>(single);
    return single[0];
}
