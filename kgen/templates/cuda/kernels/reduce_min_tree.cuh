// The minimum over a row's LANES threads, given to each of them: a tree in shared memory, halved at every step.
template <int LANES, int SITE>
__device__ __forceinline__ float reduce_min_tree(float value) {
    __shared__ float partial[LANES];
    partial[threadIdx.x] = value;
    __syncthreads();
    #pragma unroll
    for (int width = LANES / 2; width > 0; width /= 2) {
        if (threadIdx.x < width) partial[threadIdx.x] = nan_min(partial[threadIdx.x], partial[threadIdx.x + width]);
        __syncthreads();
    }
    return partial[0];
}
