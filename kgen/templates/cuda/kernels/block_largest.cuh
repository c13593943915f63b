// The largest value of all THREADS threads of the block, given to all of them.
template <int THREADS>
__device__ __forceinline__ unsigned block_largest(unsigned value) {
    value = __reduce_max_sync(0xffffffffu, value);
    __shared__ unsigned of_warp[THREADS / 32];
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
    __syncthreads();
    return __reduce_max_sync(0xffffffffu, of_warp[threadIdx.x % (THREADS / 32)]);
}
