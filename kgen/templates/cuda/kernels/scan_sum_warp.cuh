// The running sum over the lanes of a warp, up to this one.
__device__ __forceinline__ float scan_sum_warp(float value, const int lane) {
    #pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
        const float other = __shfl_up_sync(~0u, value, distance);
        if (lane >= distance) value = other + value;
    }
    return value;
}
