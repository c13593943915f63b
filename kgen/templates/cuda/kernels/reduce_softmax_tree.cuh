// Running maxima and sums of a row's LANES threads merged, and given to each of them: a tree in shared memory.
template <int LANES, int SITE>
__device__ __forceinline__ void reduce_softmax_tree(float& max, float& sum) {
    __shared__ float2 partial[LANES];
    partial[threadIdx.x] = make_float2(max, sum);
    __syncthreads();
    #pragma unroll
    for (int width = LANES / 2; width > 0; width /= 2) {
        if (threadIdx.x < width) {
            merge_softmax(max, sum, partial[threadIdx.x + width].x, partial[threadIdx.x + width].y);
            partial[threadIdx.x] = make_float2(max, sum);
        }
        __syncthreads();
    }
    max = partial[0].x;
    sum = partial[0].y;
}
